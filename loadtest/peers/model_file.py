"""The two facts about a GGUF file that a comparison needs: its architecture, and the type of most of its weights."""

import struct

from processes import PeerError

MAX_ENTRIES = 100_000  # of metadata; published files have below a hundred
MAX_ELEMENTS = 10_000_000  # of an array; vocabularies have some hundred thousand
STRING, ARRAY = 8, 9
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# general.file_type, of the types that make-model writes.
FILE_TYPES = {1: "f16", 2: "q4_0", 7: "q8_0", 15: "q4_k_m", 18: "q6_k", 32: "bf16"}


def _unpack(file, code):
    size = struct.calcsize("<" + code)
    data = file.read(size)
    if len(data) != size:
        raise ValueError("it ends within its metadata")
    return struct.unpack("<" + code, data)[0]


def _string(file):
    length = _unpack(file, "Q")
    if length > 1 << 24:
        raise ValueError(f"it has a text of {length} bytes")
    data = file.read(length)
    if len(data) != length:
        raise ValueError("it ends within its metadata")
    return data.decode("utf-8", "replace")


def _value(file, kind):
    if kind == STRING:
        return _string(file)
    if kind == ARRAY:
        element, count = _unpack(file, "I"), _unpack(file, "Q")
        if count > MAX_ELEMENTS or (element != STRING and element not in FORMATS):
            raise ValueError(f"it has an array of {count} elements of type {element}")
        if element == STRING:
            for _ in range(count):
                _string(file)
        else:
            file.seek(count * struct.calcsize("<" + FORMATS[element]), 1)
        return None
    if kind not in FORMATS:
        raise ValueError(f"it has a value of type {kind}")
    return _unpack(file, FORMATS[kind])


def describe(path):
    """{"architecture", "weights", "bytes"}; PeerError names a file that is not GGUF."""
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError("it does not begin with GGUF")
            version = _unpack(file, "I")
            if version not in (2, 3):
                raise ValueError(f"it has version {version}")
            _unpack(file, "Q")  # tensors
            entries = _unpack(file, "Q")
            if entries > MAX_ENTRIES:
                raise ValueError(f"it has {entries} entries of metadata")
            values = {}
            for _ in range(entries):
                key = _string(file)
                values[key] = _value(file, _unpack(file, "I"))
            size = file.seek(0, 2)
    except OSError as error:
        raise PeerError(f"--model {path}: {error.strerror}") from error
    except ValueError as error:
        raise PeerError(f"--model {path}: not a file in GGUF: {error}; "
                        "write one with `moestro make-model --out FILE.gguf`") from error
    kind = values.get("general.file_type")
    return {"architecture": values.get("general.architecture", "unknown"),
            "weights": FILE_TYPES.get(kind, f"file type {kind}"), "bytes": size}
