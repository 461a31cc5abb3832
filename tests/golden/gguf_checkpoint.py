"""make-model's files in GGUF as checkpoints: the gguf package reads the weights, which get Hugging Face's names."""

import functools
import subprocess

import gguf
import numpy

from checkpoint import Checkpoint

# In files of the architecture "llama", rows of queries and keys are in another order.
INTERLEAVED = {"self_attn.q_proj.weight": "num_attention_heads", "self_attn.k_proj.weight": "num_key_value_heads"}


class GgufCheckpoint:
    """What tests/golden/weights.py asks of a Checkpoint. `like` is the same model in safetensors: its config.json, its
    tokenizer, its tensors' names and shapes, and none of its numbers. All weights are F32 here."""

    def __init__(self, path, like):
        self.config, self.entries, self.token_count = like.config, like.entries, like.token_count
        self.like = like
        self.reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.architecture = bytes(self.reader.fields["general.architecture"].parts[-1]).decode()
        architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == self.architecture)
        self.names = gguf.get_tensor_name_map(architecture, like.config["num_hidden_layers"])
        self.used = set()

    def dtype(self, _):
        return "F32"

    def shape(self, name):
        return self.like.shape(name)

    @functools.lru_cache(maxsize=8)
    def values(self, name):
        tensor = self.tensors[name]
        self.used.add(name)
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        return values.reshape(tuple(reversed([int(size) for size in tensor.shape])))

    def gpt_oss_experts(self, name):
        """Outputs come last; those of gates and ups by turns."""
        before, matrix = name.split(".experts.")
        kind = "bias" if matrix.endswith("_bias") else "weight"

        def layer(ours):
            values = self.values(f"{self.names.get_name(f'{before}.experts.{ours}')}.{kind}")
            return values if kind == "bias" else values.swapaxes(1, 2)

        if matrix.startswith("down_proj"):
            return layer("down_proj")
        gate, up = layer("gate_proj"), layer("up_proj")
        return numpy.stack((gate, up), axis=-1).reshape(*gate.shape[:-1], -1)

    def data(self, name):
        if self.architecture == "gpt-oss" and ".experts." in name:
            return numpy.ascontiguousarray(self.gpt_oss_experts(name), dtype="<f4").tobytes()
        if name.endswith(".sinks"):
            name += ".weight"
        expert = None
        if ".experts." in name:
            before, after = name.split(".experts.")
            expert, matrix = after.split(".", 1)
            name = f"{before}.experts.{matrix}"
        base, _, part = name.replace("e_score_correction_bias", "e_score_correction.bias").rpartition(".")
        values = self.values(f"{self.names.get_name(base)}.{part}")
        if expert is not None:
            values = values[int(expert)]
        heads = next((field for suffix, field in INTERLEAVED.items() if name.endswith(suffix)), None)
        if self.architecture == "llama" and heads:
            shape = values.shape
            pairs = values.reshape(self.config[heads], -1, 2, *shape[1:])
            values = pairs.swapaxes(1, 2).reshape(shape)
        return numpy.ascontiguousarray(values, dtype="<f4").tobytes()


def make(moestro, directory, preset, weights, layers):
    """The file that make-model writes, and the checkpoint of it."""
    model = ["--preset", preset, "--layers", str(layers)]
    like, path = directory / f"{preset}-{weights}", directory / f"{preset}-{weights}.gguf"
    for out, kind in (like, "bf16"), (path, weights):
        subprocess.run([moestro, "make-model", *model, "--weights", kind, "--out", out], check=True,
                       stdout=subprocess.DEVNULL)
    return path, GgufCheckpoint(path, Checkpoint(like))
