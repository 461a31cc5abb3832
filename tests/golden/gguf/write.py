"""Writes the small files beside it with the gguf package: what a GGUF file is, by its reference implementation.

Usage: write.py   (needs gguf and numpy; the files are the same bytes each time)
"""

import pathlib

import gguf
import numpy

HERE = pathlib.Path(__file__).resolve().parent
TYPES = gguf.GGMLQuantizationType


def values(count: int, seed: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).standard_normal(count).astype(numpy.float32)


def every_value() -> None:
    """A key of each type of value, and a tensor of each type that is loaded."""
    writer = gguf.GGUFWriter(HERE / "values.gguf", "test")
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -32768)
    writer.add_uint32("u32", 4294967295)
    writer.add_int32("i32", -2147483648)
    writer.add_uint64("u64", 2**63 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 1e-6)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "Grüße")
    writer.add_array("integers", [1, -2, 3])
    writer.add_array("floats", [0.5, -1.5])
    writer.add_array("flags", [True, False])
    writer.add_array("texts", ["a", "", "ünïcode"])
    writer.add_tensor("vector", values(5, 1))
    writer.add_tensor("half", values(12, 2).reshape(3, 4).astype(numpy.float16))
    for seed, name in enumerate(("BF16", "Q8_0", "Q4_0", "Q5_0"), start=3):
        data = values(2 * 64, seed).reshape(2, 64)
        writer.add_tensor(name, gguf.quants.quantize(data, TYPES[name]), raw_dtype=TYPES[name])
    # The package reads these and does not write them: any bytes do.
    for name in ("Q4_K", "Q5_K", "Q6_K", "MXFP4", "Q4_1"):
        elements, size = gguf.GGML_QUANT_SIZES[TYPES[name]]
        rows = numpy.random.default_rng(len(name)).integers(0, 100, (2, 3, 256 // elements * size), dtype=numpy.uint8)
        writer.add_tensor(name, rows, raw_dtype=TYPES[name])
    finish(writer)


def split() -> None:
    """Two tensors, a file for each."""
    writer = gguf.GGUFWriter(HERE / "split.gguf", "test", split_max_tensors=1)
    writer.add_string("text", "first")
    writer.add_tensor("a", values(4, 7))
    writer.add_tensor("b", values(8, 8))
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    every_value()
    split()
