"""Compares moestro with transformers on checkpoints that transformers wrote.

    python tests/families/compare.py [--family NAME ...] [--isa NAME ...] [--out NAME]

Needs torch, transformers, tokenizers and numpy, and the built test program checkpoint_logits. Exits with 1 if a
comparison fails; a family that moestro does not have is none. README.md beside this file says what is compared.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

import families
import reference

REPO = pathlib.Path(__file__).resolve().parents[2]
TOKEN_COUNT = 300  # of every tokenizer
# With latents, the path of the engine that has the same form of attention and so the same choices of experts.
FORM_OF = {"streamed": "unabsorbed", "ranks_small": "engine", "ranks_standard": "unabsorbed", "hybrid": "engine"}
SAME_BITS = ("streamed", "hybrid")


def log_probabilities(logits, tokens):
    """Of the next token at each position."""
    return torch.log_softmax(logits.double(), dim=-1).gather(1, tokens[:, None])[:, 0]


def figures(delta, other, changed):
    """delta: |difference| of log-probabilities. other: whether experts differ from the reference's. changed: whether
    they do there or at an earlier position of the prompt. The 99th percentile of no positions is 0."""
    unchanged = delta[~changed] if not changed.all() else numpy.zeros(1)
    return {"median": float(numpy.median(delta)), "p99": float(numpy.percentile(delta, 99)), "max": float(delta.max()),
            "p99_unchanged": float(numpy.percentile(unchanged, 99)), "positions": len(delta),
            "unchanged": int((~changed).sum()), "other_experts": int(other.sum())}


def faults_of(found, limit):
    """What a path has that transformers in BF16 has less of."""
    faults = [f"{key} {found[key]:.4g} is not below {limit[key]:.4g}" for key in ("median", "p99_unchanged")
              if not found[key] < limit[key]]
    if found["other_experts"] > limit["other_experts"]:
        faults.append(f"{found['other_experts']} positions with other experts, "
                      f"{limit['other_experts']} of transformers BF16")
    return faults


class Distances:
    """From the reference, of several configurations: of transformers in BF16 and of moestro's paths, by name."""

    BF16 = "transformers BF16"

    def __init__(self):
        self.parts = {}  # name -> [(delta, other experts, changed)] at the positions that the path gives

    def add(self, name, logits, expected, tokens, other, sequences):
        there = ~torch.isnan(logits[:, 0]).numpy()
        delta = (log_probabilities(logits, tokens) - log_probabilities(expected, tokens)).abs().numpy()
        changed = [numpy.maximum.accumulate(part) for part in
                   numpy.split(other.numpy(), numpy.cumsum([len(sequence) for sequence in sequences])[:-1])]
        part = (delta[there], other.numpy()[there], numpy.concatenate(changed)[there])
        self.parts.setdefault(name, []).append(part)

    def extend(self, more):
        for name, parts in more.parts.items():
            self.parts.setdefault(name, []).extend(parts)

    def summary(self):
        return {name: figures(*map(numpy.concatenate, zip(*parts))) for name, parts in self.parts.items()}


def greedy_mismatches(logits, golden):
    """Greedy steps whose token is another than the reference's. Each step sees the reference's tokens before it. The
    golden prompts are the first rows."""
    wrong, begin = 0, 0
    for prompt, continuation, _ in golden:
        first = begin + len(prompt) - 1
        best = logits[first : first + len(continuation)].argmax(-1).tolist()
        wrong += sum(a != b for a, b in zip(best, continuation))
        begin += len(prompt) + len(continuation)
    return wrong


class Refused(Exception):
    pass


def run_moestro(tool, isa, checkpoint, sequences, work):
    """Status, logits and experts of each path: {path: (status, logits, experts)}."""
    prompts = work / "prompts.txt"
    prompts.write_text("".join(" ".join(map(str, sequence)) + "\n" for sequence in sequences))
    done = subprocess.run([tool, checkpoint, prompts, work], env=os.environ | {"MOESTRO_ISA": isa},
                          capture_output=True, text=True)
    if not done.stdout:
        raise Refused(done.stderr.strip())
    header, *lines = done.stdout.splitlines()
    header = json.loads(header)
    assert header["isa"] == isa and header["token_count"] == TOKEN_COUNT, header
    rows = sum(map(len, sequences))
    paths = {}
    for line in lines:
        path, status = line.split(" ", 1)
        logits = experts = None
        if status == "OK":
            raw = numpy.fromfile(work / f"{path}.logits", dtype=numpy.float32).reshape(rows, header["vocab_size"])
            padding = raw[~numpy.isnan(raw[:, 0]), TOKEN_COUNT:]
            assert (padding == -numpy.inf).all(), f"{path}: rows of padding have logits"
            logits = torch.from_numpy(raw[:, :TOKEN_COUNT].copy())
            if (file := work / f"{path}.experts").exists() and file.stat().st_size:
                experts = numpy.fromfile(file, dtype=numpy.int32)
        paths[path] = (status, logits, experts)
    return paths


def compare(family, variant, seed, tool, isas, work):
    """What the report says of a configuration, and its distances."""
    fields = families.configuration(family, variant, seed)
    checkpoint = work / "checkpoint"
    families.write(family, fields, checkpoint, seed, TOKEN_COUNT, families.is_fused(variant))
    f32, bf16 = (families.load(family, checkpoint, dtype) for dtype in (torch.float32, torch.bfloat16))
    draw = random.Random(f"{family} {variant} {seed}")
    golden = reference.golden_prompts(f32, bf16, TOKEN_COUNT, draw)
    sequences = [prompt + continuation for prompt, continuation, _ in golden]
    sequences += [reference.random_prompt(draw, length, TOKEN_COUNT) for length in reference.PROMPT_LENGTHS]
    expected, expected_experts = reference.run_each(f32, sequences, TOKEN_COUNT)
    # The token after a position; after the last one, the most likely.
    tokens = torch.tensor([token for sequence in sequences for token in sequence[1:] + [-1]])
    tokens = torch.where(tokens < 0, expected.argmax(-1), tokens)

    def other(experts):
        if experts is None:
            return torch.zeros(len(tokens), dtype=torch.bool)
        return (experts != expected_experts).flatten(1).any(-1)

    distances = Distances()
    logits, experts = reference.run_each(bf16, sequences, TOKEN_COUNT)
    distances.add(Distances.BF16, logits, expected, tokens, other(experts), sequences)
    result = {"variant": variant + 1, "fused": families.is_fused(variant), "fields": fields,
              "logits_rms": expected.pow(2).mean().sqrt().item(),
              "smallest_greedy_lead": min(lead for _, _, lead in golden), "greedy_mismatches": {}, "faults": []}
    for isa in isas:
        try:
            paths = run_moestro(tool, isa, checkpoint, sequences, work)
        except Refused as refused:
            result["refused"] = str(refused).replace(str(checkpoint), "CHECKPOINT")
            break
        chosen = {}  # by path
        for path, (status, logits, experts) in paths.items():
            name = f"{isa}/{path}"
            form = FORM_OF.get(path, path) if "unabsorbed" in paths else "engine"
            if status != "OK":
                result["faults"].append(f"{name}: {status}")
                continue
            if experts is not None:
                chosen[path] = torch.from_numpy(experts).reshape(expected_experts.shape)
            distances.add(name, logits, expected, tokens, other(chosen.get(form)), sequences)
            if wrong := greedy_mismatches(logits, golden):
                result["greedy_mismatches"][name] = wrong
                result["faults"].append(f"{name}: {wrong} other greedy tokens")
            there = ~torch.isnan(logits[:, 0])
            same = paths.get(form, ("", None))[1]
            if path in SAME_BITS and same is not None and not torch.equal(logits[there], same[there]):
                result["faults"].append(f"{name}: other bits than {form}")
    result["distances"] = distances.summary()
    return result, distances


def compare_family(family, seed, tool, isas):
    """All configurations; what they say together decides."""
    together = Distances()
    report = {"family": family, "configurations": []}
    for variant in range(families.VARIANTS):
        with tempfile.TemporaryDirectory() as work:
            result, distances = compare(family, variant, seed, tool, isas, pathlib.Path(work))
        together.extend(distances)
        report["configurations"].append(result)
    report["distances"] = together.summary()
    limit = report["distances"][Distances.BF16]
    report["faults"] = [f"{name}: {fault}" for name, found in report["distances"].items() if name != Distances.BF16
                        for fault in faults_of(found, limit)]
    for result in report["configurations"]:
        report["faults"] += [f"configuration {result['variant']}: {fault}" for fault in result["faults"]]
        if result.get("refused", "").startswith("UNIMPLEMENTED: config.json: model_type:"):
            report["unsupported"] = result["refused"]
        elif "refused" in result:
            report["faults"].append(f"configuration {result['variant']} is refused: {result['refused']}")
    return report


def machine(tool):
    """The CPU, and the revision of the tree that `tool` was built in."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    git = ["git", "-C", str(pathlib.Path(tool).resolve().parent)]
    revision = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    if subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout:
        revision += "-dirty"
    return {"cpu": cpu, "revision": revision, "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__}


HEADINGS = ["family", "positions", "median", "99 %", "99 %, unchanged", "other experts", "moestro: median", "99 %",
            "99 %, unchanged", "other experts", "worst median", "worst 99 %, unchanged", "result"]


def row(report, isa):
    """Of the table: transformers BF16, `isa`'s engine, and the worst of what gives every position."""

    def cells_of(found):
        return [f"{found[key]:.4f}" for key in ("median", "p99", "p99_unchanged")] + [str(found["other_experts"])]

    bf16 = report["distances"][Distances.BF16]
    cells = [report["family"], str(bf16["positions"]), *cells_of(bf16)]
    engine = report["distances"].get(f"{isa}/engine")
    if engine is None:
        return cells + [""] * 6 + ["no such family" if "unsupported" in report else "fails"]
    paths = [found for name, found in report["distances"].items()
             if name != Distances.BF16 and found["positions"] == engine["positions"]]
    worst = [f"{max(found[key] for found in paths):.4f}" for key in ("median", "p99_unchanged")]
    return cells + cells_of(engine) + worst + ["fails" if report["faults"] else "passes"]


def markdown(report):
    about = report["machine"]
    lines = [
        "# moestro and transformers on checkpoints that transformers wrote",
        "",
        f"{about['cpu']}, revision {about['revision']}, transformers {about['transformers']}, torch {about['torch']}; "
        f"kernel tables {', '.join(report['isas'])}.",
        "",
        "Distance of the next token's log-probability from transformers in F32: of transformers in BF16, then of "
        "moestro's engine with the last table, then the worst of all tables and paths that give every position. "
        "\"Other experts\" counts positions where rounding changed the choice; \"unchanged\" are the positions of a "
        "prompt before the first of them. Three configurations together.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
    ]
    lines += ["| " + " | ".join(row(result, report["isas"][-1])) + " |" for result in report["results"]]
    unsupported = [result["family"] for result in report["results"] if "unsupported" in result]
    if unsupported:
        lines += ["", f"moestro does not have, and refuses by name: {', '.join(unsupported)}."]
    faults = [f"- {result['family']}: {fault}" for result in report["results"] for fault in result["faults"]]
    if faults:
        lines += ["", "## Faults", "", *faults]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--family", action="append", choices=families.FAMILIES, help="only these")
    parser.add_argument("--isa", action="append", help="kernel tables (ref, avx2, avx512, avx512_bf16)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tool", default=REPO / "build/release/tests/checkpoint_logits")
    parser.add_argument("--out", help="writes OUT.json and OUT.md")
    args = parser.parse_args()
    isas = args.isa or ["ref", "avx2", "avx512", "avx512_bf16"]
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    results = []
    for family in args.family or families.FAMILIES:
        results.append(compare_family(family, args.seed, args.tool, isas))
        print(" | ".join(row(results[-1], isas[-1])), flush=True)
        for fault in results[-1]["faults"]:
            print("   ", fault, flush=True)
    report = {"machine": machine(args.tool), "isas": isas, "results": results}
    if args.out:
        pathlib.Path(args.out + ".json").write_text(json.dumps(report, indent=1) + "\n")
        pathlib.Path(args.out + ".md").write_text(markdown(report))
    return 1 if any(result["faults"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
