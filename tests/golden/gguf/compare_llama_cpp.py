"""Models in GGUF, by llama.cpp and here: greedy tokens, and files that its quantiser makes.

    VENV/bin/pip install llama-cpp-python numpy
    ninja -C build/release moestro checkpoint_logits
    VENV/bin/python tests/golden/gguf/compare_llama_cpp.py [--preset NAME ...] [--weights TYPE ...]

make-model writes each file. llama.cpp chooses the tokens after a few prompts; moestro gets prompt and tokens, and its
largest logit must be the same token at every step. Where it is not, llama.cpp's own lead of that token may be so small
that rounding of activations decides: such a near tie is counted, not a fault. Beside weights in blocks llama.cpp rounds
activations to eight bits, which now and then chooses another expert: one token in twenty may differ there
(loadtest/results/NOTES-gguf.md). Exits with 1 if more do.

    VENV/bin/pip install gguf numpy
    VENV/bin/python tests/golden/gguf/compare_llama_cpp.py --llama-quantize PATH [--preset NAME ...] [--weights TYPE ...]

With this flag make-model's file is F16, and llama-quantize makes one of each type from it. moestro's logits of that file
are compared with those of an F16 file that has its values, as the gguf package dequantises them. The two differ by the
rounding of these values to F16. Prints the root mean square distance and the positions whose largest logit differs.
A file with a type that is not loaded must be refused by this type's name. Exits with 1 if a distance exceeds LIMIT.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

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
LIMIT = 0.05  # of the deviation of logits: four times what rounding of activations to BF16 moves them
TOKENS = 1459  # rows of the head behind them are no tokens: their logits are minus infinity
MADE = {"--vocab-rows": "1536"}  # a multiple of 256
SIZES = {"qwen3-layer": {"--layers": "1", "--experts": "8"}}  # of rows that are multiples of 256
QUANTISED = ("tiny-mixtral", "tiny-deepseek-v2-lite", "tiny-gpt-oss-32", "tiny-minimax", "qwen3-layer")


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


def logits_of(path, prompts):
    """moestro's, [positions of all prompts, rows of the head]; None and its message if it refuses the file."""
    with tempfile.TemporaryDirectory() as out:
        lines = [" ".join(map(str, prompt)) for prompt in prompts]
        (pathlib.Path(out) / "prompts").write_text("\n".join(lines) + "\n")
        run = subprocess.run([LOGITS, path, f"{out}/prompts", out], capture_output=True, text=True)
        # Other paths than the engine's may lack memory for a large layer.
        if not (pathlib.Path(out) / "engine.logits").exists():
            return None, (run.stderr or run.stdout).strip()
        positions = sum(map(len, prompts))
        return numpy.fromfile(f"{out}/engine.logits", dtype=numpy.float32).reshape(positions, -1), ""


def compare(path, tokens):
    """Steps, near ties and faults."""
    import llama_cpp

    model = llama_cpp.Llama(model_path=str(path), n_ctx=128, logits_all=True, verbose=False)
    expected = [(prompt, greedy(model, prompt)) for prompt in prompts(tokens)]
    logits, message = logits_of(path, [prompt + [token for token, _ in chosen] for prompt, chosen in expected])
    if logits is None:
        sys.exit(message)
    steps = ties = faults = at = 0
    for prompt, chosen in expected:
        for i, (token, lead) in enumerate(chosen):
            steps += 1
            if logits[at + len(prompt) - 1 + i].argmax() != token:
                ties, faults = (ties + 1, faults) if lead < NEAR_TIE else (ties, faults + 1)
        at += len(prompt) + len(chosen)
    return steps, ties, faults


def dequantise(quantised, out):
    """Overwrites the tensors of `out`, a copy of the file that `quantised` was made from. Returns the types."""
    import gguf

    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(quantised).tensors}
    for tensor in gguf.GGUFReader(out, "r+").tensors:
        source = tensors.pop(tensor.name)
        values = gguf.dequantize(source.data, source.tensor_type)
        tensor.data[:] = values.reshape(tensor.data.shape).astype(tensor.data.dtype)
    assert not tensors, f"{quantised}: tensors of its own: {sorted(tensors)}"


def types_of(path):
    """"Q4_K 12, ...": how many tensors have each type but F32; and whether all can be loaded."""
    import gguf

    loaded = {"F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q4_1", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4"}
    names = [tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors if tensor.tensor_type.name != "F32"]
    return ", ".join(f"{name} {names.count(name)}" for name in sorted(set(names))), set(names) <= loaded


def compare_quantised(llama_quantize, directory, preset, weights):
    """A line of the result, and whether it is as it must be."""
    f16, quantised, same = (directory / name for name in ("f16.gguf", "quantised.gguf", "same.gguf"))
    subprocess.run([llama_quantize, f16, quantised, weights], check=True, capture_output=True)
    try:
        types, loads = types_of(quantised)
    except ValueError as error:  # a type of a fork, which the gguf package does not know either
        types, loads = str(error), False
    logits, message = logits_of(quantised, prompts(TOKENS))
    if logits is None:
        return f"{preset} {weights}: {types}: refused: {message}", not loads and "type" in message
    shutil.copy(f16, same)
    dequantise(quantised, same)
    expected, message = logits_of(same, prompts(TOKENS))
    if expected is None:
        return f"{preset} {weights}: the file with its values: {message}", False
    logits, expected = logits[:, :TOKENS], expected[:, :TOKENS]
    distance = float(numpy.sqrt(((logits - expected) ** 2).mean()) / expected.std())
    other = int((logits.argmax(1) != expected.argmax(1)).sum())
    return (f"{preset} {weights}: {types}: distance {distance:.5f}, {other} of {len(logits)} positions with another token",
            loads and distance <= LIMIT)


def quantise_all(options):
    passed = True
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        for preset in options.preset or QUANTISED:
            sizes = MADE | SIZES.get(preset, {})
            subprocess.run([BIN / "moestro", "make-model", "--preset", preset, "--weights", "f16", "--force",
                            *(word for pair in sizes.items() for word in pair), "--out", directory / "f16.gguf"],
                           check=True, stdout=subprocess.DEVNULL)
            for weights in options.weights or ("q8_0", "q4_k_m", "q5_k_m", "q6_k"):
                line, good = compare_quantised(options.llama_quantize, directory, preset, weights)
                print(line if good else f"FAULT {line}", flush=True)
                passed &= good
    return not passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", nargs="+")
    parser.add_argument("--weights", nargs="+")
    parser.add_argument("--llama-quantize", type=pathlib.Path, help="path of llama.cpp's quantiser")
    options = parser.parse_args()
    if options.llama_quantize:
        return quantise_all(options)
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for preset in options.preset or PRESETS:
            for weights in options.weights or ("f16", "q8_0"):
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
