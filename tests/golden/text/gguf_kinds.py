#!/usr/bin/env python3
"""Regenerates gguf/: the tokenizers of kinds.py and of tokenizer.json as converters write them to GGUF files.

Needs: gguf, and what kinds.py needs. Run it anywhere; it writes beside itself. The metadata is written to a GGUF file and
read from it. fuzz.py compares the documents made from it with the references, and with llama_cpp.
"""

import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

import gguf
from tokenizers import Tokenizer

import kinds

HERE = pathlib.Path(__file__).resolve().parent
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
PADDED_TO = 16  # rows of the embedding


def padded(tokens, types, scores=None):
    while len(tokens) % PADDED_TO:
        tokens.append(f"[PAD{len(tokens)}]")
        types.append(UNUSED)
        if scores is not None:
            scores.append(-10000.0)


def added_types(spec):
    return {t["id"]: (t["content"], CONTROL if t["special"] else USER_DEFINED) for t in spec["added_tokens"]}


def byte_level(kind, pre, bos=None, add_bos=None):
    spec = json.loads(kind.files["tokenizer.json"])
    rows = {i: (text, NORMAL) for text, i in spec["model"]["vocab"].items()} | added_types(spec)
    tokens = [rows[i][0] for i in range(len(rows))]
    types = [rows[i][1] for i in range(len(rows))]
    padded(tokens, types)
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    fields = {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": types, "merges": merges}
    if bos:
        fields["bos_token_id"] = tokens.index(bos)
    if add_bos is not None:
        fields["add_bos_token"] = add_bos
    return fields


def last_merge(ranks, token):
    """The two tokens that are merged last in a token's own bytes."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        pairs = [(ranks.get(a + b, len(ranks)), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))]
        _, best = min(p for p in pairs if p[0] < ranks[token])
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return [tuple(parts)]


def all_merges(ranks, token):
    cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
    return sorted(cuts, key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))


def from_ranks(kind, pre, merges_of):
    ranks = kind.encoding._mergeable_ranks
    spelling = kinds.byte_spelling()

    def spell(token):
        return "".join(spelling[b] for b in token)

    rows = {rank: (spell(token), NORMAL) for token, rank in ranks.items()}
    rows |= {i: (name, CONTROL) for name, i in kind.encoding._special_tokens.items()}
    tokens, types = [], []
    for i in range(max(rows) + 1):
        text, token_type = rows.get(i, (f"[PAD{i}]", UNUSED))
        tokens.append(text)
        types.append(token_type)
    padded(tokens, types)
    merges = [" ".join(map(spell, cut)) for token in sorted(ranks, key=ranks.get) if len(token) > 1
              for cut in merges_of(ranks, token)]
    return {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": types, "merges": merges,
            "add_bos_token": False}


def sentencepiece(kind, **more):
    processor = kind.processor
    tokens, types, scores = [], [], []
    for i in range(processor.get_piece_size()):
        tokens.append(processor.id_to_piece(i))
        scores.append(processor.get_score(i))
        types.append(UNKNOWN if processor.is_unknown(i) else CONTROL if processor.is_control(i)
                     else BYTE if processor.is_byte(i) else NORMAL)
    for i, (text, token_type) in sorted(added_types(json.loads(kind.files["tokenizer.json"])).items()):
        if i >= len(tokens):
            tokens.append(text)
            types.append(token_type)
            scores.append(-1000.0)
    padded(tokens, types, scores)
    return {"model": "llama", "pre": "default", "tokens": tokens, "token_type": types, "scores": scores,
            "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0} | more


def write(path, fields):
    """A GGUF file of metadata alone."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in fields.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def read(path):
    fields = gguf.GGUFReader(path).fields
    return {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.")}


class LlamaCpp:
    """llama_cpp's tokenizer of a kind's GGUF file."""

    def __init__(self, kind):
        import llama_cpp
        self.api = llama_cpp
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "vocabulary.gguf")
            write(path, kind.fields)
            self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise ValueError(f"llama_cpp cannot load the file of {kind.name}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def ids(self, text, special):
        raw = text.encode()
        out = (ctypes.c_int32 * (len(raw) + 8))()
        count = self.api.llama_tokenize(self.vocab, raw, len(raw), out, len(out), special, special)
        return list(out[:count])


def comparable(kind, text, way):
    """Whether llama_cpp means to give the same ids: it neither normalizes, nor takes user-defined tokens for plain."""
    if kind.metadata["tokenizer.ggml.pre"] == "qwen2" and unicodedata.normalize("NFC", text) != text:
        return False
    types = kind.metadata["tokenizer.ggml.token_type"]
    user_defined = [t for t, number in zip(kind.metadata["tokenizer.ggml.tokens"], types) if number == USER_DEFINED]
    return way == "parsed" or not any(t in text for t in user_defined)


def as_gguf(kind, fields):
    """The kind, to be made from the metadata of a GGUF file. The references stay the same."""
    kind.name = f"gguf-{kind.name}"
    kind.fields = fields
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "vocabulary.gguf")
        write(path, fields)
        kind.metadata = read(path)
    return kind


def convert(kind, program):
    """Makes the kind's files from its metadata, with gguf_documents."""
    done = subprocess.run([program], input=json.dumps(kind.metadata).encode(), stdout=subprocess.PIPE, check=True)
    kind.files = json.loads(done.stdout)


def gguf_kinds():
    by_name = {kind.name: kind for kind in kinds.kinds()}
    published = json.loads((HERE / "tokenizer.json").read_text(encoding="utf-8"))
    for token in published["added_tokens"]:
        token |= {"lstrip": False, "rstrip": False, "single_word": False}  # a GGUF file cannot say these
    by_name["deepseek_v3"] = kinds.HuggingFace("deepseek_v3", Tokenizer.from_str(json.dumps(published)))
    deepseek = "<｜begin▁of▁sentence｜>"
    fields = {
        "qwen": byte_level(by_name["qwen"], "qwen2", add_bos=False),
        "llama3": byte_level(by_name["llama3"], "llama-bpe", bos="<|begin_of_text|>"),
        "gpt_oss": byte_level(by_name["gpt_oss"], "gpt-4o"),
        "deepseek_v2": byte_level(by_name["deepseek_v2"], "deepseek-llm", bos=deepseek, add_bos=True),
        "deepseek_v3": byte_level(by_name["deepseek_v3"], "deepseek-v3", bos=deepseek, add_bos=True),
        "kimi_k2": from_ranks(by_name["kimi_k2"], "kimi-k2", last_merge),
        "dbrx": from_ranks(by_name["dbrx"], "dbrx", all_merges),
        "llama": sentencepiece(by_name["llama"]),
        "llama_bare": sentencepiece(by_name["llama_bare"], add_space_prefix=False, add_bos_token=True),
    }
    return [as_gguf(by_name[name], values) for name, values in fields.items()]


def main():
    (HERE / "gguf").mkdir(exist_ok=True)
    for kind in gguf_kinds():
        text = json.dumps(kind.metadata, ensure_ascii=True, separators=(",", ":"))
        (HERE / "gguf" / f"{kind.name.removeprefix('gguf-')}.json").write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
