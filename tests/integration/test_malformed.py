"""Malformed checkpoints: the weight store names the file and its fault in one clear line, and ends with exit code 2."""

import base64
import json
import os
import shutil
import struct
import subprocess

import pytest

pytestmark = pytest.mark.smoke


class Shard:
    """A safetensors file that tests can corrupt."""

    def __init__(self, path):
        self.path = path
        raw = path.read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        self.header = json.loads(raw[8:8 + length])
        self.data = bytearray(raw[8 + length:])

    def write(self, header_text=None, prefix=None):
        text = (json.dumps(self.header) if header_text is None else header_text).encode()
        self.path.write_bytes((struct.pack("<Q", len(text)) if prefix is None else prefix) + text + self.data)


def shard_with(model, name):
    index = json.loads((model / "model.safetensors.index.json").read_text())
    return Shard(model / index["weight_map"][name])


def edit_json(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def edit_entry(name, change):
    def apply(model):
        shard = shard_with(model, name)
        change(shard, shard.header[name])
        shard.write()
    return apply


def edit_config(**values):
    return lambda model: edit_json(model / "config.json", lambda config: config.update(values))


def edit_index(change):
    return lambda model: edit_json(model / "model.safetensors.index.json", change)


def put(name, offset, value):
    """Overwrites bytes of a tensor's data."""
    def change(shard, entry):
        begin = entry["data_offsets"][0] + offset
        shard.data[begin:begin + len(value)] = value
    return edit_entry(name, change)


def swap_shape(shard, entry):
    entry["shape"] = entry["shape"][::-1]


NORM = "model.norm.weight"
GATE = "model.layers.1.mlp.experts.3.gate_proj.weight"
SCALE = GATE + "_scale_inv"
KV_A = "model.layers.1.self_attn.kv_a_proj_with_mqa.weight"
BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"
DOWN = "model.layers.2.mlp.experts.0.down_proj.weight"


def first_shard(model):
    return sorted(model.glob("*.safetensors"))[0]


def truncate(length):
    return lambda model: first_shard(model).write_bytes(first_shard(model).read_bytes()[:length])


def drop_bytes(count):
    return lambda model: first_shard(model).write_bytes(first_shard(model).read_bytes()[:-count])


def header_text(text):
    return lambda model: Shard(first_shard(model)).write(header_text=text)


def prefix(length):
    return lambda model: Shard(first_shard(model)).write(prefix=struct.pack("<Q", length))


def remove_tensor(name):
    def change(model):
        edit_index(lambda index: index["weight_map"].pop(name))(model)
    return change


def set_field(name, key, value):
    return edit_entry(name, lambda shard, entry: entry.__setitem__(key, value))


def convert(name, dtype):
    """Another type in place of an FP8 weight, with zeros of the right size in a shard of its own."""
    def change(model):
        shape = shard_with(model, name).header[name]["shape"]
        entry = {name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 2 * shape[0] * shape[1]]}}
        text = json.dumps(entry).encode()
        (model / "other.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(2 * shape[0] * shape[1]))
        edit_index(lambda index: index["weight_map"].__setitem__(name, "other.safetensors"))(model)
        shard = next(s for s in map(Shard, sorted(model.glob("model*.safetensors"))) if name in s.header)
        shard.header[name + ".old"] = shard.header.pop(name)
        shard.write()
    return change


def shift(name, begin, end):
    def change(shard, entry):
        entry["data_offsets"] = [entry["data_offsets"][0] + begin, entry["data_offsets"][1] + end]
    return edit_entry(name, change)


def unlink(pattern):
    def change(model):
        for path in model.glob(pattern):
            path.unlink()
    return change


def rename_shard(new):
    def change(index):
        name = next(iter(index["weight_map"]))
        index["weight_map"][name] = new
    return edit_index(change)


def duplicate_tensor(model):
    """The same tensor in a second shard."""
    shards = [Shard(path) for path in sorted(model.glob("*.safetensors"))]
    name = next(n for n in shards[0].header if n != "__metadata__")
    entry = shards[0].header[name]
    size = entry["data_offsets"][1] - entry["data_offsets"][0]
    end = len(shards[1].data)
    shards[1].header[name] = dict(entry, data_offsets=[end, end + size])
    shards[1].data += bytes(size)
    shards[1].write()


def use_ranks(change, tokenizer_class="TikTokenTokenizer"):
    """The model has tiktoken's ranks instead of a tokenizer.json: one per byte."""
    def apply(model):
        (model / "tokenizer.json").unlink()
        ranks = "".join(f"{base64.b64encode(bytes([b])).decode()} {b}\n" for b in range(256))
        (model / "tiktoken.model").write_text(change(ranks))
        names = ["bos_token", "eos_token"]
        tokens = {str(256 + i): {"content": f"[{name}]", "special": True} for i, name in enumerate(names)}
        (model / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": tokenizer_class, "added_tokens_decoder": tokens} | {n: f"[{n}]" for n in names}))
    return apply


CASES = {
    "empty file": (truncate(0), ".safetensors"),
    "seven bytes": (truncate(7), ".safetensors"),
    "truncated header": (truncate(100), ".safetensors"),
    "truncated data": (drop_bytes(5), ".safetensors"),
    "trailing bytes": (lambda m: first_shard(m).open("ab").write(b"xx"), ".safetensors"),
    "header length beyond the file": (prefix(1 << 40), ".safetensors"),
    "header length overflows": (prefix(2**64 - 4), ".safetensors"),
    "header is not JSON": (header_text("{not json"), ".safetensors"),
    "header is not an object": (header_text("[1, 2]"), ".safetensors"),
    "header is not UTF-8": (lambda m: first_shard(m).write_bytes(struct.pack("<Q", 4) + b'{"\xff"'), ".safetensors"),
    "overlapping ranges": (shift(NORM, -2, -2), ".safetensors"),
    "hole between ranges": (shift(NORM, 0, -2), NORM),
    "range beyond the data": (shift(NORM, 0, 1 << 30), ".safetensors"),
    "negative offset": (set_field(NORM, "data_offsets", [-2, 10]), NORM),
    "fractional offset": (set_field(NORM, "data_offsets", [0.5, 10]), NORM),
    "no offsets": (edit_entry(NORM, lambda s, e: e.pop("data_offsets")), NORM),
    "no dtype": (edit_entry(NORM, lambda s, e: e.pop("dtype")), NORM),
    "no shape": (edit_entry(NORM, lambda s, e: e.pop("shape")), NORM),
    "unknown dtype": (set_field(NORM, "dtype", "F7"), NORM),
    "size does not match the shape": (set_field(NORM, "shape", [3]), NORM),
    "shape overflows": (set_field(NORM, "shape", [1 << 40, 1 << 40]), NORM),
    "metadata is not strings": (lambda m: (lambda s: (s.header.__setitem__("__metadata__", {"a": 1}), s.write()))(Shard(first_shard(m))), ".safetensors"),
    "wrong dtype of a norm": (set_field(NORM, "dtype", "I16"), NORM),
    "half precision in a weight": (convert(KV_A, "F16"), KV_A),
    "wrong dtype of a weight": (set_field(GATE, "dtype", "I8"), GATE),
    "wrong dtype of a bias": (set_field(BIAS, "dtype", "I32"), BIAS),
    "shape transposed": (edit_entry(DOWN, swap_shape), DOWN),
    "scale missing": (remove_tensor(SCALE), "scale"),
    "expert missing": (remove_tensor(GATE), GATE),
    "norm missing": (remove_tensor(NORM), NORM),
    "router missing": (remove_tensor("model.layers.2.mlp.gate.weight"), "model.layers.2.mlp.gate.weight"),
    "shard missing": (lambda m: first_shard(m).unlink(), "model-0"),
    "path in the index": (rename_shard("../model.safetensors"), "model.safetensors.index.json"),
    "absolute path in the index": (rename_shard("/etc/passwd"), "model.safetensors.index.json"),
    "index is not JSON": (lambda m: (m / "model.safetensors.index.json").write_text("{"), "model.safetensors.index.json"),
    "index names a tensor that is not there": (edit_index(lambda i: i["weight_map"].__setitem__("ghost.weight", next(iter(i["weight_map"].values())))), "ghost.weight"),
    "tensor in two shards": (duplicate_tensor, ".safetensors"),
    "NaN byte in FP8 weights": (put(GATE, 300, b"\x7f"), GATE),
    "negative NaN byte in FP8 weights": (put(KV_A, 77, b"\xff"), KV_A),
    "scale is infinite": (put(SCALE, 0, struct.pack("<f", float("inf"))), SCALE),
    "scale is negative": (put(SCALE, 0, struct.pack("<f", -1.0)), SCALE),
    "norm is NaN": (put(NORM, 4, b"\xc0\x7f"), NORM),
    "no config": (unlink("config.json"), "config.json"),
    "config is not JSON": (lambda m: (m / "config.json").write_text("hidden_size: 3"), "config.json"),
    "another family": (edit_config(model_type="deepseek_v32"), "model_type: \"deepseek_v32\" is not supported: it needs sparse"),
    "an unknown family": (edit_config(model_type="gpt2"), "\"gpt2\" is not supported (supported: dbrx, deepseek_v2, deepseek_v3"),
    "more experts chosen than there are": (edit_config(num_experts_per_tok=99), "num_experts_per_tok"),
    "groups do not divide the experts": (edit_config(n_group=3), "n_group"),
    "huge hidden size": (edit_config(hidden_size=1 << 40), "hidden_size"),
    "negative layers": (edit_config(num_hidden_layers=-1), "num_hidden_layers"),
    "unknown quantisation": (edit_config(quantization_config={"quant_method": "hqq"}), "quant"),
    "two numbers of experts": (edit_config(num_experts=7), "num_experts: 7 contradicts n_routed_experts"),
    "two dtypes": (edit_config(torch_dtype="bfloat16", dtype="float32"), "dtype: \"float32\" contradicts torch_dtype"),
    "two rope thetas": (edit_config(rope_theta=1e4, rope_parameters={"rope_theta": 5e5}), "rope_theta: 500000.0 contradicts"),
    "two rope types": (edit_config(rope_scaling={"type": "yarn", "factor": 4}, rope_parameters={"rope_type": "default"}),
                       "rope_scaling"),
    "rope for each type of layer": (edit_config(rope_parameters={"full_attention": {"rope_theta": 1e4}}),
                                    "rope_parameters: 'full_attention'"),
    "a wrapper around nothing": (edit_config(text_config={}), "config.json: text_config: model_type: missing"),
    "a wrapper around a relative": (edit_config(text_config={"model_type": "qwen3_5_moe_text"}), "linear attention"),
    "attention within a window": (edit_config(layer_types=["sliding_attention"]), "layer_types"),
    "part of a head rotates": (edit_config(partial_rotary_factor=0.5), "partial_rotary_factor"),
    "double precision in config": (edit_config(torch_dtype="float64"), "torch_dtype"),
    "other rope": (edit_config(rope_scaling={"type": "longrope", "factor": 4}), "rope"),
    "huge config": (lambda m: os.truncate(m / "config.json", 1 << 30), "config.json"),
    "no tokenizer": (unlink("tokenizer.json"), "tokenizer.json"),
    "another kind of tokenizer": (lambda m: edit_json(m / "tokenizer.json", lambda t: t["model"].update(type="Unigram")), "tokenizer.json"),
    "tokenizer is cut": (lambda m: os.truncate(m / "tokenizer.json", 5000), "tokenizer.json"),
    "unknown normalizer": (lambda m: edit_json(m / "tokenizer.json", lambda t: t.update(normalizer={"type": "Lowercase"})), "Lowercase"),
    "ranks that are cut": (use_ranks(lambda ranks: ranks[:1000]), "tiktoken ranks"),
    "ranks of an unknown family": (use_ranks(lambda ranks: ranks, "SomeTokenizer"), "SomeTokenizer"),
    "tokenizer has more ids than the model": (edit_config(vocab_size=100), "vocab_size"),
    "a GGUF file that is cut": (lambda m: (unlink("*.safetensors*")(m), (m / "model.gguf").write_bytes(b"GGUF")), "model.gguf: the version"),
    "chat template is not UTF-8": (lambda m: (m / "chat_template.jinja").write_bytes(b"caf\xe9"), "chat_template.jinja"),
    "only pickles": (lambda m: (unlink("*.safetensors*")(m), (m / "pytorch_model.bin").write_bytes(b"x")), "safetensors"),
}


@pytest.mark.parametrize("name", CASES)
def test_malformed(name, bin_dir, tiny_model, tmp_path):
    change, word = CASES[name]
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    change(model)
    result = subprocess.run(
        [f"{bin_dir}/moestro-weight-store", "--model", str(model), "--run-dir", str(tmp_path / "run"),
         "--instance", f"bad{os.getpid()}", "--log-level", "error"], capture_output=True, text=True, timeout=60)
    lines = result.stderr.strip().splitlines()
    # The input is wrong, so no supervisor restarts it.
    assert result.returncode == 2, f"exit code {result.returncode}: {result.stderr}"
    assert len(lines) == 1, result.stderr
    assert word in lines[0], lines[0]
    assert not [n for n in os.listdir("/dev/shm") if n.startswith(f"moestro.bad{os.getpid()}.")]


@pytest.mark.parametrize("name", ["two numbers of experts", "another family", "a wrapper around a relative", "no config",
                                  "half precision in a weight", "expert missing", "truncated data", "only pickles",
                                  "no tokenizer", "tokenizer is cut", "unknown normalizer", "ranks that are cut"])
def test_inspect_says_the_same(name, cli, tiny_model, tmp_path):
    change, word = CASES[name]
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    change(model)
    result = cli("inspect", model, check=False)
    assert result.returncode == 2 and not result.stdout, result.stdout + result.stderr
    assert len(result.stderr.strip().splitlines()) == 1 and word in result.stderr, result.stderr


@pytest.mark.parametrize("flag", ["--model", "--model-name"])
def test_names_that_are_not_utf8(flag, bin_dir, tiny_model, tmp_path):
    """No other role could read a message with such a name, or with an error that contains such a path."""
    flags = ["--model", tiny_model, "--model-name", b"caf\xe9"]
    if flag == "--model":
        flags = ["--model", os.fsencode(tmp_path) + b"/caf\xe9"]
        shutil.copytree(os.fsencode(tiny_model), flags[1])
    result = subprocess.run([f"{bin_dir}/moestro-weight-store", *flags, "--run-dir", tmp_path / "run",
                             "--instance", f"bad{os.getpid()}"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and f"{flag} " in result.stderr and "caf\\xe9: not UTF-8" in result.stderr, result.stderr
