"""Four-bit weights: of routed experts by the compressed-tensors package, with its codes, names and quantization_config; of
all linear layers in the layouts of AWQ and GPTQ, by tests/golden/int4/by_input.py."""

import json
import pathlib
import sys

import torch
from compressed_tensors.compressors.mxfp4 import MXFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden" / "int4"))
import by_input  # noqa: E402

GROUP = 32
# Quantization type, compressor and the package's name of the format.
FORMS = {
    "int4": ("int", PackedQuantizationCompressor, "pack-quantized"),
    "mxfp4": ("float", MXFP4PackedCompressor, "mxfp4-pack-quantized"),
    "int4z": ("int", PackedQuantizationCompressor, "pack-quantized"),  # with zero points and F16 scales
}
# quantization_config as AutoAWQ and AutoGPTQ write it.
BY_INPUT = {
    "awq": {"bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"], "quant_method": "awq", "version": "gemm",
            "zero_point": True},
    "gptq": {"bits": 4, "checkpoint_format": "gptq", "damp_percent": 0.01, "desc_act": False, "group_size": GROUP,
             "lm_head": False, "quant_method": "gptq", "sym": False, "true_sequential": True},
}
IGNORE = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp.gate$",
          r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]


def scheme_of(form):
    kind, compressor, name = FORMS[form]
    more = {"scale_dtype": torch.uint8} if form == "mxfp4" else {}
    weights = QuantizationArgs(num_bits=4, type=kind, symmetric=form != "int4z", strategy="group", group_size=GROUP,
                               **more)
    return QuantizationScheme(targets=["Linear"], weights=weights, format=name), compressor


def scales(form, weight):
    """BF16, so that the largest weight of each group has the largest code, or with MXFP4 one of the two largest."""
    largest = weight.float().unflatten(-1, (-1, GROUP)).abs().amax(-1)
    scale = largest / 7.5 if form == "int4" else 2.0 ** (largest.log2().floor() - 2)
    return scale.to(torch.bfloat16)


def least_to_greatest(weight, group):
    """Scales in F16 and zero points 0..15 of groups, such that all of a group's weights and 0 have a code."""
    groups = weight.float().unflatten(-1, (-1, group))
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scale = ((high - low) / 15).to(torch.float16)
    return scale, (-low / scale.float()).round().clamp(0, 15)


def compress_by_input(directory, form):
    """As compress, for all linear layers but router and head; the other weights become F16."""
    directory = pathlib.Path(directory)
    group = BY_INPUT[form]["group_size"]
    tensors, exact = {}, {}
    for name, weight in load_file(directory / "model.safetensors").items():
        linear = name.endswith(("_proj.weight", "_proj_with_mqa.weight", ".Wqkv.weight", ".w1.weight", ".w2.weight",
                                ".w3.weight"))
        if not linear or weight.shape[0] % 8 or weight.shape[1] % group:
            tensors[name] = weight.to(torch.float16)
            exact[name] = tensors[name].float()
            continue
        scale, zero = least_to_greatest(weight, group)
        steps = scale.float().repeat_interleave(group, 1)
        codes = ((weight.float() / steps).round() + zero.repeat_interleave(group, 1)).clamp(0, 15).int()
        parts = getattr(by_input, form)(codes.numpy(), scale.numpy(), zero.int().numpy())
        exact[name] = torch.from_numpy(by_input.weights(form, parts))
        assert (exact[name] - weight.float()).abs().div(steps).max() < 1.1, name
        module = name.removesuffix("weight")
        tensors |= {module + end: torch.from_numpy(array).contiguous() for end, array in parts.items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    path = directory / "config.json"
    config = json.loads(path.read_text()) | {"dtype": "float16", "quantization_config": BY_INPUT[form]}
    path.write_text(json.dumps(config, indent=2) + "\n")
    return exact


def compress(directory, form):
    """Replaces the experts' weights of a checkpoint by packed ones. Returns all weights, exact in F32."""
    if form in BY_INPUT:
        return compress_by_input(directory, form)
    directory = pathlib.Path(directory)
    scheme, compressor = scheme_of(form)
    tensors, exact = {}, {}
    for name, weight in load_file(directory / "model.safetensors").items():
        exact[name] = weight.float()
        if ".experts." not in name:
            tensors[name] = weight
            continue
        part = {"weight": weight, "weight_scale": scales(form, weight)}
        if form == "int4z":
            part["weight_scale"], zero = least_to_greatest(weight, GROUP)
            part["weight_zero_point"] = (zero - 8).to(torch.int8)
        packed = compressor.compress(part, scheme)
        module = name.removesuffix("weight")
        tensors |= {module + part: tensor.contiguous() for part, tensor in packed.items()}
        if form.startswith("int4"):  # products of scales in F32 are exact
            packed = dict(packed) | {"weight_scale": packed["weight_scale"].float()}
        exact[name] = compressor.decompress(packed, scheme)["weight"].float()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    path = directory / "config.json"
    quantization = QuantizationConfig(config_groups={"group_0": scheme}, format=FORMS[form][2], ignore=IGNORE,
                                      quantization_status="compressed")
    config = json.loads(path.read_text()) | {"quantization_config": json.loads(quantization.model_dump_json())}
    path.write_text(json.dumps(config, indent=2) + "\n")
    return exact


def save_exact(directory, exact, out):
    """The checkpoint with these weights, not quantised."""
    out = pathlib.Path(out)
    config = json.loads((pathlib.Path(directory) / "config.json").read_text())
    del config["quantization_config"]
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
    save_file(exact, out / "model.safetensors", metadata={"format": "pt"})
