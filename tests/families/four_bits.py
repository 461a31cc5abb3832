"""Four-bit weights of routed experts, by the compressed-tensors package: its codes, names and quantization_config."""

import json
import pathlib

import torch
from compressed_tensors.compressors.mxfp4 import MXFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from safetensors.torch import load_file, save_file

GROUP = 32
# Quantization type, compressor and the package's name of the format.
FORMS = {
    "int4": ("int", PackedQuantizationCompressor, "pack-quantized"),
    "mxfp4": ("float", MXFP4PackedCompressor, "mxfp4-pack-quantized"),
}
IGNORE = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp.gate$",
          r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]


def scheme_of(form):
    kind, compressor, name = FORMS[form]
    more = {"scale_dtype": torch.uint8} if form == "mxfp4" else {}
    weights = QuantizationArgs(num_bits=4, type=kind, symmetric=True, strategy="group", group_size=GROUP, **more)
    return QuantizationScheme(targets=["Linear"], weights=weights, format=name), compressor


def scales(form, weight):
    """BF16, so that the largest weight of each group has the largest code, or with MXFP4 one of the two largest."""
    largest = weight.float().unflatten(-1, (-1, GROUP)).abs().amax(-1)
    scale = largest / 7.5 if form == "int4" else 2.0 ** (largest.log2().floor() - 2)
    return scale.to(torch.bfloat16)


def compress(directory, form):
    """Replaces the experts' weights of a checkpoint by packed ones. Returns all weights, exact in F32."""
    directory = pathlib.Path(directory)
    scheme, compressor = scheme_of(form)
    tensors, exact = {}, {}
    for name, weight in load_file(directory / "model.safetensors").items():
        exact[name] = weight.float()
        if ".experts." not in name:
            tensors[name] = weight
            continue
        packed = compressor.compress({"weight": weight, "weight_scale": scales(form, weight)}, scheme)
        module = name.removesuffix("weight")
        tensors |= {module + part: tensor.contiguous() for part, tensor in packed.items()}
        if form == "int4":  # products of scales in F32 are exact
            packed = packed | {"weight_scale": packed["weight_scale"].float()}
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
