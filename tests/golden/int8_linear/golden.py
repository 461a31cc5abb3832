"""Writes hashes.txt: W8A8 linear layers of 1,000 shapes, computed by an integer NumPy model.

tests/common/kernels/linear_i8_test.cc makes the same matrices and inputs from the same generator, and every kernel table must
have the same hash for each of them: INT8 has no tolerance.

  python3 tests/golden/int8_linear/golden.py          (needs NumPy only)
"""

import pathlib

import numpy as np

CASES = 1000


def random_bits(seed, count):
    """SplitMix64: the numbers of state seed + (i + 1) * gamma."""
    gamma = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * gamma
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def case(index):
    """Codes [rows, cols], scales of rows, inputs [tokens, cols] as bits of BF16."""
    shape = random_bits(3 * index, 4)
    rows = 1 + int(shape[0] % np.uint64(150))
    cols = 1 + int(shape[1] % np.uint64(600))
    tokens = 1 + int(shape[2] % np.uint64(9))
    wide = index % 50 == 0  # the widest layer of a published model, with each kind of codes
    if wide:
        rows, cols, tokens = 3, 28672, 2
    if index % 50 == 1:
        rows, cols, tokens = 70, 640, 131
    weights = random_bits(3 * index + 1, rows * cols)
    inputs = random_bits(3 * index + 2, tokens * cols)
    codes = (weights & np.uint64(255)).astype(np.uint8).view(np.int8).reshape(rows, cols)
    # Exponents 112 to 127.
    x = ((inputs & np.uint64(0x8FFF)) | ((np.uint64(112) << np.uint64(7)))).astype(np.uint16).reshape(tokens, cols)
    kind = index // 50 % 5 if wide else index % 5
    if kind == 1:
        # Sums near their limit, 28672 * 127 * 128. Of wide layers they are odd numbers, which no F32 holds.
        codes = (codes & 31) + np.int8(-128) if wide else np.full_like(codes, -128)
        x = np.full_like(x, 0x4049)  # every code is 127
    if kind == 2:
        codes = np.where(codes < 0, np.int8(-128), np.int8(127))
        x = np.where(x & 0x8000, np.uint16(0xC049), np.uint16(0x4049))
    if kind == 3:
        x = np.where(x & 3, np.uint16(0), x)
    scales = ((weights[:rows] >> np.uint64(32)) & np.uint64(0x7FFFFF)).astype(np.uint32) | np.uint32(0x3C000000)
    return codes, scales.view(np.float32), x


def linear(codes, scales, x):
    values = (x.astype(np.uint32) << 16).view(np.float32)
    token_scales = np.abs(values).max(axis=1) / np.float32(127)
    divisors = np.where(token_scales == 0, np.float32(1), token_scales)[:, None]
    x_codes = np.rint(values / divisors).astype(np.int64)
    sums = x_codes @ codes.astype(np.int64).T
    return sums.astype(np.float32) * token_scales[:, None] * scales[None, :]


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def main():
    lines = [f"{fnv1a(linear(*case(index)).astype('<f4').tobytes()):016x}\n" for index in range(CASES)]
    (pathlib.Path(__file__).parent / "hashes.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
