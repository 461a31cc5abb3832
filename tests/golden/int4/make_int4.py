#!/usr/bin/env python3
"""Writes a file NAME.safetensors for each form of INT4 weights with zero points or F16 scales: the tensors of one weight as
a checkpoint has them, by the ends of their names, and `values`, the F32 weights that they stand for.

    python tests/golden/int4/make_int4.py        # numpy, torch, safetensors, compressed-tensors

Compressed-tensors packs and reads its own format; the layouts of AWQ and GPTQ are those of by_input.py.
"""
import pathlib

import numpy
import torch
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

import by_input

HERE = pathlib.Path(__file__).parent
# Name, form, rows, cols, group (0: a row), type of scales.
BY_INPUT = [
    ("awq_128", "awq", 24, 256, 128, torch.float16),
    ("awq_64", "awq", 72, 192, 64, torch.float16),
    ("gptq_32", "gptq", 24, 192, 32, torch.float16),
    ("gptq_v2_row", "gptq_v2", 24, 256, 0, torch.bfloat16),
]
# The same, and whether there are zero points.
PACKED = [
    ("packed_128", 20, 256, 128, torch.float16, True),
    ("packed_96", 20, 192, 96, torch.float16, True),
    ("packed_row", 20, 192, 0, torch.bfloat16, True),
    ("packed_symmetric_128", 20, 256, 128, torch.float16, False),
    ("packed_symmetric_64", 20, 192, 64, torch.bfloat16, False),
]


def factors(random, rows, groups, dtype):
    """Scales of the exponents that models have, with the least of the type among them; zero points of all values."""
    scales = torch.from_numpy(numpy.exp2(random.uniform(-11, -5, (rows, groups)))).to(dtype)
    scales[0, 0] = 2.0**-24 if dtype == torch.float16 else 2.0**-133
    return scales, random.integers(0, 16, (rows, groups))


def save(name, tensors, values):
    save_file({**{end: tensor.contiguous() for end, tensor in tensors.items()}, "values": values.float().contiguous()},
              HERE / f"{name}.safetensors")


def write_by_input(name, form, rows, cols, group, dtype):
    random = numpy.random.default_rng(len(name) + sum(name.encode()))
    scales, zeros = factors(random, rows, cols // (group or cols), dtype)
    codes = random.integers(0, 16, (rows, cols))
    f32 = scales.float().numpy()
    tensors = by_input.awq(codes, f32, zeros) if form == "awq" else by_input.gptq(codes, f32, zeros, form == "gptq_v2")
    values = by_input.weights(form, tensors)
    tensors = {end: torch.from_numpy(array) for end, array in tensors.items()}
    save(name, tensors | {"scales": tensors["scales"].to(dtype)}, torch.from_numpy(values))


def write_packed(name, rows, cols, group, dtype, zero_points):
    random = numpy.random.default_rng(len(name) + sum(name.encode()))
    scales, zeros = factors(random, rows, cols // (group or cols), dtype)
    strategy = {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(
        num_bits=4, type="int", symmetric=not zero_points, **strategy))
    zeros = torch.from_numpy(zeros - 8).to(torch.int8)
    exact = scales.float()  # with scales in F32 the package's products are exact
    width = cols // exact.shape[1]
    codes = torch.from_numpy(random.integers(-8, 8, (rows, cols)))
    moved = codes - (zeros.repeat_interleave(width, 1).long() if zero_points else 0)
    part = {"weight": moved * exact.repeat_interleave(width, 1), "weight_scale": exact}
    part |= {"weight_zero_point": zeros} if zero_points else {}
    packed = PackedQuantizationCompressor.compress(part, scheme)
    values = PackedQuantizationCompressor.decompress(dict(packed), scheme)["weight"]
    assert torch.equal(values, part["weight"]), name
    packed["weight_scale"] = scales
    save(name, packed, values)


def main():
    for case in BY_INPUT:
        write_by_input(*case)
    for case in PACKED:
        write_packed(*case)


main()
