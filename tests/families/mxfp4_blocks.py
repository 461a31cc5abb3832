"""Experts of gpt-oss in MXFP4 as its publisher has them: blocks and scales of all experts of a layer, by the
compressed-tensors package's codes. transformers reads them."""

import json
import pathlib

import torch
import transformers
from compressed_tensors.compressors.mxfp4 import MXFP4PackedCompressor
from safetensors.torch import load_file, save_file

import four_bits

NOT_CONVERTED = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


def compress(directory):
    """Replaces the experts' weights of a checkpoint by blocks [experts, outputs, groups, 16] and their scales."""
    directory = pathlib.Path(directory)
    scheme, _ = four_bits.scheme_of("mxfp4")
    tensors = {}
    for name, weight in load_file(directory / "model.safetensors").items():
        if ".experts." not in name or name.endswith("_bias"):
            tensors[name] = weight
            continue
        rows = weight.mT.contiguous()  # transformers has inputs by outputs
        packed = [MXFP4PackedCompressor.compress({"weight": w, "weight_scale": four_bits.scales("mxfp4", w)}, scheme)
                  for w in rows]
        codes = torch.stack([part["weight_packed"] for part in packed])
        tensors[name + "_blocks"] = codes.unflatten(-1, (-1, four_bits.GROUP // 2)).contiguous()
        tensors[name + "_scales"] = torch.stack([part["weight_scale"] for part in packed]).contiguous()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    path = directory / "config.json"
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": NOT_CONVERTED}
    config = json.loads(path.read_text()) | {"quantization_config": quantization}
    path.write_text(json.dumps(config, indent=2) + "\n")


def load(directory):
    """The checkpoint in transformers, dequantised, in F32."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.bfloat16, attn_implementation="eager", experts_implementation="eager",
        quantization_config=transformers.Mxfp4Config(dequantize=True), output_loading_info=True)
    faults = {key: value for key, value in info.items() if value}
    assert not faults, faults
    return model.float().eval()
