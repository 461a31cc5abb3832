"""Reads the files of a DeepSeek-V3-type checkpoint with the Python standard library only."""

import hashlib
import json
import pathlib
import struct


class Checkpoint:
    """Tensors of a directory of safetensors files. Bytes are read on demand."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.config = json.loads((self.directory / "config.json").read_text())
        self.index = json.loads((self.directory / "model.safetensors.index.json").read_text())
        self.entries = {}  # name -> (file, dtype, shape, begin, end), absolute byte offsets
        for file_name in self.shards():
            with open(self.directory / file_name, "rb") as f:
                (length,) = struct.unpack("<Q", f.read(8))
                header = json.loads(f.read(length))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                self.entries[name] = (file_name, entry["dtype"], entry["shape"], begin, end)

    def shards(self):
        return sorted(set(self.index["weight_map"].values()))

    def dtype(self, name):
        return self.entries[name][1]

    def shape(self, name):
        return self.entries[name][2]

    def data(self, name):
        file_name, _, _, begin, end = self.entries[name]
        with open(self.directory / file_name, "rb") as f:
            f.seek(begin)
            return f.read(end - begin)

    def token_count(self):
        """Highest token id + 1: rows of embedding and head from there on are padding."""
        tokenizer = json.loads((self.directory / "tokenizer.json").read_text())
        ids = list(tokenizer["model"]["vocab"].values()) + [t["id"] for t in tokenizer["added_tokens"]]
        return max(ids) + 1

    def checksum(self):
        """SHA-256 over the whole shard files in the order of their names."""
        digest = hashlib.sha256()
        for file_name in self.shards():
            digest.update((self.directory / file_name).read_bytes())
        return digest.hexdigest()
