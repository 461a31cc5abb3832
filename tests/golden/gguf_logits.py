"""Writes golden logits of make-model's files in GGUF: transformers computes with what the gguf package reads from them.

    python tests/golden/gguf_logits.py build/release/bin/moestro [NAME ...]

README.md describes the files; tests/common/model/gguf_golden_test.cc compares them.
"""

import argparse
import hashlib
import pathlib
import tempfile
import types
import zlib

import torch
import transformers

import gguf_checkpoint
import oracle

OUT = pathlib.Path(__file__).resolve().parent / "gguf"
# Preset and weights. q4_k_m is a mixture of five types.
FILES = {
    "glm_q8_0": ("tiny-glm", "q8_0"),
    "qwen3_q8_0": ("tiny-qwen3", "q8_0"),
    "qwen3_q4_k_m": ("tiny-qwen3", "q4_k_m"),
    "qwen3_q4_0": ("tiny-qwen3", "q4_0"),
    "mixtral_q6_k": ("tiny-mixtral", "q6_k"),
    "gpt_oss_mxfp4": ("tiny-gpt-oss-32", "mxfp4"),
    "minimax_q8_0": ("tiny-minimax", "q8_0"),
}
LAYERS = 2
LENGTH = 8
GREEDY_TOKENS = 8


def write(name, moestro, directory):
    preset, weights = FILES[name]
    path, checkpoint = gguf_checkpoint.make(moestro, directory, preset, weights, LAYERS)
    family = oracle.FAMILIES[checkpoint.config["model_type"]]
    module = types.SimpleNamespace(**{**vars(family), "GREEDY_TOKENS": GREEDY_TOKENS})
    runner = oracle.Runner(module, module.load_model(checkpoint), checkpoint.token_count())
    unused = set(checkpoint.tensors) - checkpoint.used
    assert not unused, f"{path}: not read: {unused}"
    module.verify_implementation(runner.model)
    candidate, prompt, traces = oracle.find_prompt(LENGTH, [runner])
    probes = oracle.probe_ids(runner.token_count)
    data = path.read_bytes()
    case = {
        "checkpoint": {"sha256": hashlib.sha256(data).hexdigest(), "crc32": zlib.crc32(data)},
        "token_count": runner.token_count,
        "candidate": candidate,
        "prompt": prompt,
        "probe_ids": probes,
        "variants": {"f32": oracle.variant_record(runner, prompt, probes, traces[0])},
    }
    out = OUT / name
    out.mkdir(exist_ok=True)
    oracle.write_json(out / f"prompt_{LENGTH}.json", case)
    oracle.write_json(out / "manifest.json", {"checkpoint": case["checkpoint"], "cases": [f"prompt_{LENGTH}.json"],
                                              "transformers": transformers.__version__,
                                              "torch": torch.__version__.split("+")[0]})
    variant = case["variants"]["f32"]
    print(name, f"candidate {candidate}, lead", variant["greedy"]["min_margin"],
          variant["activation_bf16_deviation"], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("moestro")
    parser.add_argument("names", nargs="*", help="of FILES; all without any")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        for name in args.names or FILES:
            write(name, args.moestro, pathlib.Path(directory))


if __name__ == "__main__":
    main()
