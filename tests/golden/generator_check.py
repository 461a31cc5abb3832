"""Recomputes tensors of a made checkpoint from services/cli/model/make_model/GENERATOR.md and compares every byte.

    python3 tests/golden/generator_check.py CHECKPOINT_DIR [--seed 1]

Needs the standard library only. Under pytest, set MOESTRO_CHECKPOINT to the directory; the test is skipped without it.
"""

import argparse
import math
import os
import struct
import sys

from checkpoint import Checkpoint

MASK64 = (1 << 64) - 1
SCALE_BLOCK = 128
CODE_STD_DEV = 112.0
# Table entries that hold the E4M3 magnitude codes 0x00..0x7e.
# fmt: off
MAGNITUDE_COUNTS = (
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2,
    3, 4, 4, 4, 4, 4, 4, 4, 5, 7, 7, 7, 7, 7, 7, 7,
    11, 15, 15, 15, 15, 15, 15, 15, 22, 29, 29, 29, 29, 29, 29, 29,
    44, 58, 58, 58, 58, 58, 58, 58, 87, 117, 117, 117, 117, 117, 116, 116,
    175, 233, 233, 232, 232, 232, 232, 231, 346, 461, 459, 458, 456, 454, 453, 450,
    671, 887, 876, 864, 852, 838, 824, 809, 1183, 1519, 1447, 1371, 1293, 1213, 1133, 1052,
    1428, 1626, 1347, 1088, 861, 667, 507, 377, 382, 279, 129, 55, 22, 8, 4,
)
# fmt: on

# Suffix of the name -> gain: the deviation is gain / sqrt(inputs). Linear layers not listed have gain 1.
GAINS = (
    ("q_b_proj.weight", 0.6),
    ("o_proj.weight", 0.6),
    (".experts.*down_proj.weight", 0.4),
    ("down_proj.weight", 0.65),
    (".experts.*w2.weight", 0.4),
    ("mlp.gate.weight", 1.6),
    ("block_sparse_moe.gate.weight", 1.6),
    ("shared_expert_gate.weight", 1.6),
    ("router.layer.weight", 1.6),
    ("attn.out_proj.weight", 0.6),
    (".experts.*w2", 0.4),
    (".experts.*down_proj", 0.4),
    ("mlp.router.weight", 1.6),
    ("lm_head.weight", 3.5),
)


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def hash_name(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK64
    return value


class Words:
    def __init__(self, seed, name):
        self.key = mix(mix(seed) ^ hash_name(name))

    def __getitem__(self, i):
        return mix((self.key + (i + 1) * 0x9E3779B97F4A7C15) & MASK64)


def magnitude_table():
    table = bytearray()
    for code, count in enumerate(MAGNITUDE_COUNTS):
        table += bytes([code]) * count
    assert len(table) == 32768
    return bytes(table)


TABLE = magnitude_table()


def to_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def to_bf16(value):
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def e4m3_value(code):
    exponent, mantissa = (code >> 3) & 15, code & 7
    magnitude = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -magnitude if code & 0x80 else magnitude


def gain(checkpoint, name):
    if name.endswith("self_attn.q_proj.weight") and "kv_lora_rank" in checkpoint.config:
        return 0.6  # as q_b_proj
    for pattern, value in GAINS:
        infix, _, suffix = pattern.rpartition("*")
        if infix in name and name.endswith(suffix):
            return value
    return 1.0


def deviation(checkpoint, name):
    return gain(checkpoint, name) / math.sqrt(checkpoint.shape(name)[1])


def fp8_codes(words, count):
    codes = bytearray()
    for i in range(-(-count // 4)):
        word = words[i]
        for lane in range(4):
            bits = (word >> (16 * lane)) & 0xFFFF
            codes.append(TABLE[bits & 0x7FFF] | ((bits >> 8) & 0x80))
    return bytes(codes[:count])


def block_scales(words, std_dev, count):
    return [to_f32(std_dev / CODE_STD_DEV * float((1 << 23) + (words[i] >> 40)) * 2.0**-24) for i in range(count)]


def normal_values(words, mean, std_dev, count):
    unit = std_dev * math.sqrt(3.0) * 2.0**-16
    for i in range(count):
        word = words[i]
        total = sum((word >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) - 131070
        yield to_f32(mean + float(total) * unit)


def block_count(extent):
    return -(-extent // SCALE_BLOCK)


def dequantised(checkpoint, seed, name):
    """BF16 bytes of a weight of a checkpoint made with --weights bf16."""
    *above, cols = checkpoint.shape(name)
    rows = math.prod(above)
    codes = fp8_codes(Words(seed, name), rows * cols)
    blocks = block_count(cols)
    scales = block_scales(Words(seed, name + "_scale_inv"), deviation(checkpoint, name), block_count(rows) * blocks)
    values = (
        to_bf16(to_f32(e4m3_value(codes[r * cols + c]) * scales[r // SCALE_BLOCK * blocks + c // SCALE_BLOCK]))
        for r in range(rows)
        for c in range(cols)
    )
    return struct.pack(f"<{rows * cols}H", *values)


def source_name(name, layers):
    """The prediction layer repeats embedding and head."""
    prefix = f"model.layers.{layers}."
    copies = {
        prefix + "embed_tokens.weight": "model.embed_tokens.weight",
        prefix + "shared_head.head.weight": "lm_head.weight",
    }
    return copies.get(name, name)


def is_quantised(name):
    unquantised = ("embed_tokens.weight", "lm_head.weight", "norm.weight", "gate.weight", "eh_proj.weight",
                   "router.layer.weight", "mlp.router.weight")
    return not name.endswith(unquantised)


def layer_count(checkpoint):
    return checkpoint.config.get("num_hidden_layers") or checkpoint.config["n_layers"]


def expected_bytes(checkpoint, name, seed):
    dtype, shape = checkpoint.dtype(name), checkpoint.shape(name)
    key = source_name(name, layer_count(checkpoint))
    count = math.prod(shape)
    words = Words(seed, key)
    if dtype == "F8_E4M3":
        return fp8_codes(words, count)
    if name.endswith("_scale_inv"):
        weight = name.removesuffix("_scale_inv")
        scales = block_scales(words, deviation(checkpoint, weight), count)
        return struct.pack(f"<{count}f", *scales)
    if name.endswith("e_score_correction_bias"):
        return struct.pack(f"<{count}f", *normal_values(words, 0.0, 0.15, count))
    if name == "model.norm.weight" and checkpoint.config["tie_word_embeddings"]:
        values = normal_values(words, 0.0, 1.0, count)
    elif name.endswith(("norm.weight", "norm_1.weight", "norm_2.weight", "norm_f.weight")):
        values = normal_values(words, 1.0, 0.1, count)
    elif name.endswith("self_attn.sinks"):
        values = normal_values(words, 3.0, 1.0, count)
    elif name.endswith(("_proj.bias", "_proj_bias", "router.bias")):
        values = normal_values(words, 0.0, 0.5, count)
    elif name.endswith(("embed_tokens.weight", "wte.weight")):
        tied = checkpoint.config["tie_word_embeddings"]
        values = normal_values(words, 0.0, 3.5 / math.sqrt(shape[1]) if tied else 1.0, count)
    elif is_quantised(key):
        return dequantised(checkpoint, seed, name)
    else:
        values = normal_values(words, 0.0, deviation(checkpoint, key), count)
    return struct.pack(f"<{count}H", *(to_bf16(v) for v in values))


def sample_names(checkpoint):
    """One tensor of every kind; the last MoE layer and the prediction layer included."""
    layers = layer_count(checkpoint)
    block = f"transformer.blocks.{layers - 1}."
    wanted = [
        "transformer.wte.weight",
        "transformer.norm_f.weight",
        block + "norm_attn_norm.norm_1.weight",
        block + "norm_attn_norm.attn.Wqkv.weight",
        block + "norm_attn_norm.attn.out_proj.weight",
        block + "ffn.router.layer.weight",
        block + "ffn.experts.mlp.v1",
        block + "ffn.experts.mlp.w2",
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.layers.0.mlp.down_proj.weight",
        f"model.layers.{layers - 1}.self_attn.q_b_proj.weight",
        f"model.layers.{layers - 1}.self_attn.kv_a_proj_with_mqa.weight",
        f"model.layers.{layers - 1}.self_attn.o_proj.weight",
        f"model.layers.{layers - 1}.self_attn.kv_a_layernorm.weight",
        f"model.layers.{layers - 1}.mlp.gate.weight",
        f"model.layers.{layers - 1}.self_attn.q_proj.weight",
        f"model.layers.{layers - 1}.self_attn.q_proj.bias",
        f"model.layers.{layers - 1}.block_sparse_moe.gate.weight",
        f"model.layers.{layers - 1}.block_sparse_moe.e_score_correction_bias",
        f"model.layers.{layers - 1}.self_attn.k_norm.weight",
        f"model.layers.{layers - 1}.block_sparse_moe.experts.1.w1.weight",
        f"model.layers.{layers - 1}.block_sparse_moe.experts.1.w2.weight",
        f"model.layers.{layers - 1}.mlp.gate.e_score_correction_bias",
        f"model.layers.{layers - 1}.mlp.experts.1.gate_proj.weight",
        f"model.layers.{layers - 1}.mlp.experts.1.down_proj.weight",
        f"model.layers.{layers - 1}.mlp.shared_experts.down_proj.weight",
        f"model.layers.{layers - 1}.self_attn.k_proj.bias",
        f"model.layers.{layers - 1}.mlp.shared_expert_gate.weight",
        f"model.layers.{layers - 1}.mlp.shared_expert.up_proj.weight",
        f"model.layers.{layers - 1}.self_attn.sinks",
        f"model.layers.{layers - 1}.self_attn.o_proj.bias",
        f"model.layers.{layers - 1}.mlp.router.weight",
        f"model.layers.{layers - 1}.mlp.router.bias",
        f"model.layers.{layers - 1}.mlp.experts.gate_up_proj",
        f"model.layers.{layers - 1}.mlp.experts.gate_up_proj_bias",
        f"model.layers.{layers - 1}.mlp.experts.down_proj",
        f"model.layers.{layers - 1}.mlp.experts.down_proj_bias",
        f"model.layers.{layers}.eh_proj.weight",
        f"model.layers.{layers}.shared_head.head.weight",
        f"model.layers.{layers}.shared_head.norm.weight",
    ]
    wanted += [name + "_scale_inv" for name in wanted]
    return [name for name in wanted if name in checkpoint.entries]


def check(directory, seed):
    """The names of the compared tensors and of those that differ."""
    checkpoint = Checkpoint(directory)
    names = sample_names(checkpoint)
    return names, [name for name in names if checkpoint.data(name) != expected_bytes(checkpoint, name, seed)]


def test_generator():
    directory = os.environ.get("MOESTRO_CHECKPOINT")
    if not directory:
        import pytest

        pytest.skip("MOESTRO_CHECKPOINT is not set")
    names, different = check(directory, seed=1)
    assert names and not different


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    names, different = check(args.checkpoint, args.seed)
    for name in names:
        print("DIFFERS" if name in different else "equal  ", name)
    sys.exit(1 if different or not names else 0)


if __name__ == "__main__":
    main()
