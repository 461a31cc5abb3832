"""Linear layers in INT8 with activations in INT8 (W8A8), by the compressed-tensors package: its codes, names and
quantization_config. The router and the head stay BF16."""

import json
import pathlib

import torch
from compressed_tensors.compressors.naive_quantized import IntQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from safetensors.torch import load_file, save_file

import weights

FORMS = {"int8": "int-quantized"}
LARGEST = 127
IGNORE = ["lm_head", "re:.*mlp.gate$"]


def scheme_of(form):
    rows = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="channel")
    inputs = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True)
    return QuantizationScheme(targets=["Linear"], weights=rows, input_activations=inputs, format=FORMS[form])


def is_linear(name):
    return "_proj." in name


def compress(directory, form):
    """Replaces the linear layers of a checkpoint by codes and scales of rows. Returns all weights, exact in F32."""
    directory = pathlib.Path(directory)
    scheme = scheme_of(form)
    tensors, exact = {}, {}
    for name, weight in load_file(directory / "model.safetensors").items():
        exact[name] = weight.float()
        if not is_linear(name):
            tensors[name] = weight
            continue
        scale = (weight.float().abs().amax(-1, keepdim=True) / LARGEST).to(torch.bfloat16)
        packed = IntQuantizationCompressor.compress({"weight": weight, "weight_scale": scale}, scheme)
        module = name.removesuffix("weight")
        tensors |= {module + part: tensor.contiguous() for part, tensor in packed.items()}
        exact[name] = IntQuantizationCompressor.decompress(packed | {"weight_scale": scale.float()}, scheme)["weight"]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    path = directory / "config.json"
    quantization = QuantizationConfig(config_groups={"group_0": scheme}, format=FORMS[form], ignore=IGNORE,
                                      quantization_status="compressed")
    config = json.loads(path.read_text()) | {"quantization_config": json.loads(quantization.model_dump_json())}
    path.write_text(json.dumps(config, indent=2) + "\n")
    return exact


def round_inputs(x):
    """The values that a token's inputs become: multiples of 1/127 of the largest, the nearest, ties to even."""
    scale = x.abs().amax(-1, keepdim=True) / LARGEST
    return torch.where(scale > 0, (x / scale).round() * scale, x)


class Int8Linear(torch.nn.Linear):
    def forward(self, x):
        return super().forward(round_inputs(x))


def with_int8_inputs(model):
    """The model, whose linear layers round their inputs to codes, experts' too; head and routers do not."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.__class__ = Int8Linear
        if name.endswith(".experts"):
            module.linear = lambda x, weight: torch.nn.functional.linear(round_inputs(x), weight)
            module.__class__ = type("Int8Experts", (type(module),), {"forward": weights.experts_forward(lambda x: x)})
    return model
