"""Rewrites a checkpoint in FP8 with blocks of 128 x 128 by plain rounding: in the two forms of compressed-tensors with
four bits (routed experts in groups of 32, all other weights in BF16), or as W8A8 (every linear layer with FP8 weights in
INT8 by row). With the standard library only.

A group of four bits lies in one block, so its weights are codes times one number: what a code becomes depends on that
number and on the group's largest code alone. A row of INT8 has one such number for each block. Tables do the rounding.
"""

import functools
import json
import math
import struct
from pathlib import Path

GROUP, BLOCK = 32, 128
IGNORE = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp.gate$",
          r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -magnitude if code & 0x80 else magnitude


VALUES = [e4m3(code) for code in range(256)]
MAGNITUDE = bytes(code & 0x7F for code in range(256))  # grows with |value|


def bf16(value):
    """The bits of the nearest, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


@functools.cache
def int4_table(scale, largest):
    """Scale's bytes, and code plus 8 of each FP8 code."""
    bits = bf16(VALUES[largest] * scale / 7.5 if largest else 1)
    step = from_bf16(bits)
    return struct.pack("<H", bits), bytes(
        min(max(round(VALUES[code] * scale / step), -8), 7) + 8 if code & 0x7F <= largest else 0 for code in range(256))


@functools.cache
def mxfp4_table(scale, largest):
    """Scale's byte, and of each FP8 code the nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, which have codes 0 to 7. Ties go
    to the even code."""
    exponent = math.frexp(VALUES[largest] * scale)[1] - 3 if largest else -127

    def nearest(magnitude):
        if magnitude < 2:
            return round(2 * magnitude)
        return 2 + round(magnitude) if magnitude < 4 else min(4 + round(magnitude / 2), 7)

    codes = bytes(nearest(VALUES[code] * scale * 2.0**-exponent) if code <= largest else 0 for code in range(128))
    return bytes([exponent + 127]), codes + bytes(code | 8 for code in codes)


FOUR_BITS = {  # table, type of the packed tensor and of the scales, weights of an element, quantization type, format
    "int4": (int4_table, "I32", "BF16", 8, "int", "pack-quantized"),
    "mxfp4": (mxfp4_table, "U8", "U8", 2, "float", "mxfp4-pack-quantized"),
}
INT8 = "int8"


def pack(codes, scales, rows, cols, table):
    """Codes, the first of two in the low half of a byte, and scales."""
    packed, packed_scales = [], []
    for row in range(rows):
        for begin in range(0, cols, GROUP):
            group = codes[row * cols + begin : row * cols + begin + GROUP]
            scale, places = table(scales[row // BLOCK][begin // BLOCK], max(group.translate(MAGNITUDE)))
            four = group.translate(places)
            low, high = int.from_bytes(four[::2], "little"), int.from_bytes(four[1::2], "little")
            packed.append((low | high << 4).to_bytes(GROUP // 2, "little"))
            packed_scales.append(scale)
    return b"".join(packed), b"".join(packed_scales)


def int8_rows(codes, scales, rows, cols):
    """Codes and F32 scales. A row's largest weight has code 127."""
    out, row_scales = [], []
    for row in range(rows):
        blocks = [(codes[row * cols + begin : row * cols + min(begin + BLOCK, cols)], scales[row // BLOCK][begin // BLOCK])
                  for begin in range(0, cols, BLOCK)]
        largest = max(VALUES[max(block.translate(MAGNITUDE))] * scale for block, scale in blocks)
        row_scales.append(struct.pack("<f", largest / 127 if largest else 1))
        (step,) = struct.unpack("<f", row_scales[-1])
        for block, scale in blocks:
            places = bytearray(256)
            for code in set(block):
                places[code] = min(max(round(VALUES[code] * scale / step), -127), 127) & 0xFF
            out.append(block.translate(places))
    return b"".join(out), b"".join(row_scales)


@functools.cache
def bf16_table(scale):
    return [struct.pack("<H", bf16(value * scale)) for value in VALUES]


def widen(codes, scales, rows, cols):
    return b"".join(bf16_table(scales[row // BLOCK][begin // BLOCK])[code] for row in range(rows)
                    for begin in range(0, cols, BLOCK)
                    for code in codes[row * cols + begin : row * cols + min(begin + BLOCK, cols)])


def requantise(name, rows, cols, codes, scales, form):
    """A linear layer's tensors, name: (type, shape, bytes)."""
    if form == INT8:
        rounded, row_scales = int8_rows(codes, scales, rows, cols)
        return {name: ("I8", [rows, cols], rounded), name + "_scale": ("F32", [rows, 1], row_scales)}
    if ".experts." not in name:
        return {name: ("BF16", [rows, cols], widen(codes, scales, rows, cols))}
    table, packed_type, scale_type, per_element, _, _ = FOUR_BITS[form]
    packed, group_scales = pack(codes, scales, rows, cols, table)
    tensors = {name + "_packed": (packed_type, [rows, cols // per_element], packed),
               name + "_scale": (scale_type, [rows, cols // GROUP], group_scales)}
    if form == "int4":
        tensors[name + "_shape"] = "I64", [2], struct.pack("<2q", rows, cols)
    return tensors


def quantization_config(form):
    if form == INT8:
        return {"quant_method": "w8a8_int8", "activation_scheme": "dynamic"}
    _, _, _, _, kind, name_of_format = FOUR_BITS[form]
    weights = {"num_bits": 4, "type": kind, "symmetric": True, "group_size": GROUP, "strategy": "group",
               "dynamic": False} | ({"scale_dtype": "torch.uint8"} if form == "mxfp4" else {})
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None,
             "format": name_of_format}
    return {"config_groups": {"group_0": group}, "quant_method": "compressed-tensors", "format": name_of_format,
            "quantization_status": "compressed", "ignore": IGNORE}


def rewrite(source, out, form):
    """`source`: a directory with one shard."""
    source, out = Path(source), Path(out)
    raw = (source / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)

    def data(name):
        begin, end = header[name]["data_offsets"]
        return raw[8 + length + begin : 8 + length + end]

    tensors = {}  # name: (type, shape, bytes)
    for name, entry in header.items():
        if name.endswith("_scale_inv"):
            continue
        if entry["dtype"] != "F8_E4M3":
            tensors[name] = entry["dtype"], entry["shape"], data(name)
            continue
        flat = [value for (value,) in struct.iter_unpack("<f", data(name + "_scale_inv"))]
        blocks = header[name + "_scale_inv"]["shape"][1]
        scales = [flat[i : i + blocks] for i in range(0, len(flat), blocks)]
        tensors |= requantise(name, *entry["shape"], data(name), scales, form)
    out.mkdir(parents=True)
    offset, entries = 0, {}
    for name, (dtype, shape, content) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(content)]}
        offset += len(content)
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with open(out / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, content in tensors.values():
            file.write(content)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = quantization_config(form)
    (out / "config.json").write_text(json.dumps(config))
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (out / name).write_bytes((source / name).read_bytes())
