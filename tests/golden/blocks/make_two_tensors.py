"""Writes two_tensors.json: four-bit weights as compressed-tensors and transformers pack them, and their values.

    python tests/golden/blocks/make_two_tensors.py      # torch, transformers, compressed-tensors
"""

import json
import pathlib

import compressed_tensors
import torch
import transformers
from compressed_tensors.compressors.mxfp4 import MXFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

ROWS, COLS = 3, 256


def raw(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes().hex()


def case(dtype, origin, codes, scales, values):
    return {"dtype": dtype, "origin": origin, "rows": ROWS, "cols": COLS, "codes": raw(codes), "scales": raw(scales),
            "values": raw(values.to(torch.float32))}


def int4(group, random):
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
        num_bits=4, type="int", symmetric=True, strategy="group", group_size=group))
    weight = torch.randn(ROWS, COLS, generator=random)
    scale = (weight.view(ROWS, -1, group).abs().amax(-1) / 7.5).to(torch.bfloat16)
    packed = PackedQuantizationCompressor.compress({"weight": weight.to(torch.bfloat16), "weight_scale": scale}, scheme)
    # With scales in F32 the package's products are exact.
    exact = {**packed, "weight_scale": scale.to(torch.float32)}
    values = PackedQuantizationCompressor.decompress(exact, scheme)["weight"]
    return case(f"I4_{group}", "compressed-tensors pack-quantized", packed["weight_packed"], scale, values)


def mxfp4(random):
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
        num_bits=4, type="float", symmetric=True, strategy="group", group_size=32, scale_dtype=torch.uint8))
    weight = torch.randn(ROWS, COLS, generator=random).to(torch.bfloat16)
    scale = 2.0 ** torch.randint(-9, 4, (ROWS, COLS // 32), generator=random)
    packed = MXFP4PackedCompressor.compress({"weight": weight, "weight_scale": scale.to(torch.bfloat16)}, scheme)
    values = MXFP4PackedCompressor.decompress(packed, scheme)["weight"]
    return case("MXFP4", "compressed-tensors mxfp4-pack-quantized", packed["weight_packed"], packed["weight_scale"],
                values)


def gpt_oss(random):
    blocks = torch.randint(0, 256, (1, ROWS, COLS // 32, 16), generator=random, dtype=torch.uint8)
    scales = torch.randint(1, 251, (1, ROWS, COLS // 32), generator=random, dtype=torch.uint8)
    values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)  # [1, cols, rows]
    return case("MXFP4", "transformers mxfp4", blocks, scales, values[0].T)


def main():
    random = torch.Generator().manual_seed(1)
    golden = {
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, compressed_tensors)},
        "cases": [int4(32, random), int4(128, random), mxfp4(random), gpt_oss(random)],
    }
    path = pathlib.Path(__file__).with_name("two_tensors.json")
    path.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
