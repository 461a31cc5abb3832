#!/usr/bin/env python3
"""Rows in formats of blocks, and the weights that other software makes of them.

    python tests/golden/blocks/make_blocks.py        # numpy, torch, gguf, compressed-tensors

Writes FORMAT.bin beside this file: the blocks of one row, then its weights in F32. Codes are random numbers of a fixed
seed; scales take turns: of usual size, zero, the smallest and the largest subnormal, the largest number, a negative one.
"""
import pathlib

import gguf
import numpy
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

HERE = pathlib.Path(__file__).parent
BLOCKS = 6
F16_SCALES = [0x2c12, 0x0000, 0x0001, 0x03ff, 0x7bff, 0xac12]
BF16_SCALES = [0x3c81, 0x0000, 0x0001, 0x007f, 0x7b7f, 0xbc81]  # 7b7f times 8 is still finite
E8M0_SCALES = [0x79, 0x00, 0x01, 0x7f, 0xfc, 0x80]  # fc times 6 is still finite

# Bytes of a block, and where it has F16 numbers.
GGML = {
    "Q8_0": (34, [0]),
    "Q4_0": (18, [0]),
    "Q5_0": (22, [0]),
    "Q4_1": (20, [0, 2]),
    "Q5_1": (24, [0, 2]),
    "Q4_K": (144, [0, 2]),
    "Q5_K": (176, [0, 2]),
    "Q6_K": (210, [208]),
    "MXFP4": (17, []),
}


def write(name, row, weights):
    row, weights = numpy.asarray(row, numpy.uint8), numpy.asarray(weights, "<f4")
    assert numpy.isfinite(weights).all(), name
    (HERE / f"{name}.bin").write_bytes(row.tobytes() + weights.tobytes())


def ggml(name, random):
    size, halves = GGML[name]
    blocks = random.integers(0, 256, (BLOCKS, size), numpy.uint8)
    for b in range(BLOCKS):
        for i, at in enumerate(halves):
            blocks[b, at : at + 2] = numpy.frombuffer(numpy.uint16(F16_SCALES[(b + 4 * i) % BLOCKS]).tobytes(), numpy.uint8)
        if not halves:
            blocks[b, 0] = E8M0_SCALES[b]
    write(name, blocks, gguf.quants.dequantize(blocks.reshape(1, -1), gguf.GGMLQuantizationType[name]))


def int4(name, group, random):
    codes = torch.from_numpy(random.integers(-8, 8, (BLOCKS, group), numpy.int8))
    packed = pack_to_int32(codes, 4)
    scales = numpy.array(BF16_SCALES, "<u2")
    weights = unpack_from_int32(packed, 4, codes.shape).float() * torch.from_numpy(
        (scales.astype("<u4") << 16).view("<f4")
    ).unsqueeze(1)
    blocks = numpy.concatenate([scales.view(numpy.uint8).reshape(BLOCKS, 2), packed.numpy().view(numpy.uint8)], 1)
    write(name, blocks, weights.numpy())


def int4_with_zeros(name, group, random):
    """Scales are F16 and BF16 by turns; F32 has all their values."""
    codes = torch.from_numpy(random.integers(-8, 8, (BLOCKS, group), numpy.int8))
    zeros = torch.from_numpy(random.integers(-8, 8, (BLOCKS, 1), numpy.int8))
    packed, packed_zeros = pack_to_int32(codes, 4), pack_to_int32(zeros, 4, packed_dim=0)
    f16 = numpy.array(F16_SCALES, "<u2").view("<f2").astype("<f4")
    bf16 = (numpy.array(BF16_SCALES, "<u4") << 16).view("<f4")
    scales = numpy.where(numpy.arange(BLOCKS) % 2 == 0, f16, bf16)
    moved = unpack_from_int32(packed_zeros, 4, zeros.shape, packed_dim=0)
    weights = (unpack_from_int32(packed, 4, codes.shape).float() - moved.float()) * torch.from_numpy(scales)[:, None]
    factors = scales.view("<u4") | (moved[:, 0].numpy().astype("<i4") + 8).astype("<u4")
    blocks = numpy.concatenate([factors.view(numpy.uint8).reshape(BLOCKS, 4), packed.numpy().view(numpy.uint8)], 1)
    write(name, blocks, weights.numpy())


def main():
    for name in GGML:
        ggml(name, numpy.random.default_rng(len(name) + sum(name.encode())))
    for group in (32, 128):
        int4(f"I4_{group}", group, numpy.random.default_rng(group))
        int4_with_zeros(f"I4Z_{group}", group, numpy.random.default_rng(group + 1))


main()
