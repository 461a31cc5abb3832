"""Greedy tokens of models in GGUF: llama.cpp's are moestro's.

    VENV/bin/pip install llama-cpp-python numpy
    ninja -C build/release moestro checkpoint_logits
    VENV/bin/python tests/golden/gguf/compare_llama_cpp.py [--preset NAME ...] [--weights TYPE ...]

make-model writes each file. llama.cpp chooses the tokens after a few prompts; moestro gets prompt and tokens, and its
largest logit must be the same token at every step. Where it is not, llama.cpp's own lead of that token may be so small
that rounding of activations decides: such a near tie is counted, not a fault. Beside weights in blocks llama.cpp rounds
activations to eight bits, which now and then chooses another expert: one token in twenty may differ there
(loadtest/results/NOTES-gguf.md). Exits with 1 if more do.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy

REPO = pathlib.Path(__file__).resolve().parents[3]
BIN = REPO / "build/release/bin"
LOGITS = REPO / "build/release/tests/checkpoint_logits"
PRESETS = ("tiny-qwen3", "tiny-qwen2", "tiny-mixtral", "tiny-llama", "tiny-glm", "tiny", "tiny-dbrx",
           "tiny-deepseek-v2", "tiny-deepseek-v2-lite")
LAYERS = {"tiny-deepseek-v2-lite": 27}  # by which llama.cpp knows queries without ranks
STEPS = 12
NEAR_TIE = 0.25  # of logits with a deviation of 3.5
BLOCKS = ("q8_0", "q6_k", "q4_k_m", "q4_0")


def prompts(tokens):
    draw = numpy.random.default_rng(5)
    return [[0, *map(int, draw.integers(10, tokens, length))] for length in (1, 7, 24, 40)]


def greedy(model, prompt):
    """[(token, its lead over the second best)] that llama.cpp chooses."""
    model.reset()
    model.eval(prompt)
    chosen = []
    for _ in range(STEPS):
        logits = numpy.array(model.scores[model.n_tokens - 1])
        second, first = numpy.sort(logits)[-2:]
        chosen.append((int(logits.argmax()), float(first - second)))
        model.eval([chosen[-1][0]])
    return chosen


def compare(path, tokens):
    """Steps, near ties and faults."""
    model = llama_cpp.Llama(model_path=str(path), n_ctx=128, logits_all=True, verbose=False)
    expected = [(prompt, greedy(model, prompt)) for prompt in prompts(tokens)]
    with tempfile.TemporaryDirectory() as out:
        lines = [" ".join(map(str, prompt + [token for token, _ in chosen])) for prompt, chosen in expected]
        (pathlib.Path(out) / "prompts").write_text("\n".join(lines) + "\n")
        subprocess.run([LOGITS, path, f"{out}/prompts", out], check=True, stdout=subprocess.DEVNULL)
        logits = numpy.fromfile(f"{out}/engine.logits", dtype=numpy.float32).reshape(-1, model.n_vocab())
    steps = ties = faults = at = 0
    for prompt, chosen in expected:
        for i, (token, lead) in enumerate(chosen):
            steps += 1
            if logits[at + len(prompt) - 1 + i].argmax() != token:
                ties, faults = (ties + 1, faults) if lead < NEAR_TIE else (ties, faults + 1)
        at += len(prompt) + len(chosen)
    return steps, ties, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", nargs="+", default=PRESETS)
    parser.add_argument("--weights", nargs="+", default=("f16", "q8_0"))
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for preset in options.preset:
            for weights in options.weights:
                path = pathlib.Path(directory) / f"{preset}-{weights}.gguf"
                subprocess.run([BIN / "moestro", "make-model", "--preset", preset, "--weights", weights, "--vocab-rows",
                                "1461", "--layers", str(LAYERS.get(preset, 0)), "--out", path], check=True,
                               stdout=subprocess.DEVNULL)
                steps, ties, faults = compare(path, 1459)
                print(f"{preset} {weights}: {steps} tokens, {ties} near ties, {faults} faults", flush=True)
                failed |= faults > (steps // 20 if weights in BLOCKS else 0)
                path.unlink()
    return failed


if __name__ == "__main__":
    sys.exit(main())
