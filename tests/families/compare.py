"""Compares moestro with transformers on checkpoints that transformers wrote.

    python tests/families/compare.py [--family NAME ...] [--isa NAME ...] [--out NAME]

Needs torch, transformers, tokenizers and numpy, and the built test program checkpoint_logits. Exits with 1 if a
comparison fails. README.md beside this file says what is compared.
"""

import argparse
import json
import os
import pathlib
import platform
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


def log_probabilities(logits, tokens):
    """Of the next token at each position."""
    return torch.log_softmax(logits.double(), dim=-1).gather(1, tokens[:, None])[:, 0]


def figures(logits, expected, tokens, experts, expected_experts):
    """How far from `expected`: |delta| of the next token's log-probability, and positions with other experts."""
    delta = (log_probabilities(logits, tokens) - log_probabilities(expected, tokens)).abs().numpy()
    other = numpy.zeros(len(delta), dtype=bool)
    if experts is not None:
        other = (experts != expected_experts).any(-1).any(-1).numpy()
    return {"median": float(numpy.median(delta)), "p99": float(numpy.percentile(delta, 99)), "max": float(delta.max()),
            "p99_same_experts": float(numpy.percentile(delta[~other], 99)), "other_experts": int(other.sum())}


def faults_of(found, limit):
    """What a path has that transformers in BF16 has less of."""
    return [f"{key} {found[key]:.4g} is not below {limit[key]:.4g}" for key in ("median", "p99_same_experts")
            if not found[key] < limit[key]] + [
        f"{found['other_experts']} positions with other experts, {limit['other_experts']} in transformers BF16"
    ] * (found["other_experts"] > limit["other_experts"])


def greedy_mismatches(logits, prompts):
    """Greedy steps whose token is another than the reference's. Each step sees the reference's tokens before it."""
    wrong, begin = 0, 0
    for prompt, continuation, _ in prompts:
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
            assert (raw[:, TOKEN_COUNT:] == -numpy.inf).all(), f"{path}: rows of padding have logits"
            logits = torch.from_numpy(raw[:, :TOKEN_COUNT].copy())
            if (file := work / f"{path}.experts").exists() and file.stat().st_size:
                experts = numpy.fromfile(file, dtype=numpy.int32)
        paths[path] = (status, logits, experts)
    return paths


def compare(family, variant, seed, tool, isas, work):
    fields = families.configuration(family, variant, seed)
    checkpoint = work / "checkpoint"
    families.write(family, fields, checkpoint, seed, TOKEN_COUNT)
    f32 = families.load(family, checkpoint, torch.float32)
    prompts = reference.golden_prompts(f32, TOKEN_COUNT, f"{family} {variant} {seed}")
    sequences = [prompt + continuation for prompt, continuation, _ in prompts]
    expected, expected_experts = reference.run(f32, sequences, TOKEN_COUNT)
    bf16, bf16_experts = reference.run(families.load(family, checkpoint, torch.bfloat16), sequences, TOKEN_COUNT)
    # The token after a position; after the last one, the most likely.
    tokens = torch.tensor([token for sequence in sequences for token in sequence[1:] + [-1]])
    tokens = torch.where(tokens < 0, expected.argmax(-1), tokens)
    result = {
        "family": family,
        "variant": variant,
        "fields": fields,
        "positions": len(tokens),
        "logits_rms": expected.pow(2).mean().sqrt().item(),
        "smallest_lead": min(lead for _, _, lead in prompts),
        "transformers_bf16": figures(bf16, expected, tokens, bf16_experts, expected_experts)
        | {"greedy_mismatches": greedy_mismatches(bf16, prompts)},
        "moestro": {},
    }
    limit = result["transformers_bf16"]
    faults = []
    for isa in isas:
        try:
            paths = run_moestro(tool, isa, checkpoint, sequences, work)
        except Refused as refused:
            result["refused"] = str(refused).replace(str(checkpoint), "CHECKPOINT")
            faults.append("refused")
            break
        chosen = None  # of the path, or of the last one that tells: they differ in few positions
        same_bits = {"streamed": "unabsorbed" if "unabsorbed" in paths else "engine", "hybrid": "engine"}
        for path, (status, logits, experts) in paths.items():
            name = f"{isa}/{path}"
            if status != "OK":
                faults.append(f"{name}: {status}")
                continue
            if experts is not None:
                chosen = torch.from_numpy(experts).reshape(expected_experts.shape)
            found = figures(logits, expected, tokens, chosen, expected_experts)
            found["greedy_mismatches"] = greedy_mismatches(logits, prompts)
            result["moestro"][name] = found
            faults += [f"{name}: {fault}" for fault in faults_of(found, limit)]
            if found["greedy_mismatches"]:
                faults.append(f"{name}: {found['greedy_mismatches']} other greedy tokens")
            other = paths.get(same_bits.get(path), ("", None))[1]
            if other is not None and not torch.equal(logits, other):
                faults.append(f"{name}: other bits than {same_bits[path]}, by {(logits - other).abs().max():.3g}")
    result["faults"] = faults
    return result


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    git = ["git", "-C", str(REPO)]
    revision = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    if subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout:
        revision += "-dirty"
    return {"cpu": cpu, "revision": revision, "python": platform.python_version(), "torch": torch.__version__,
            "transformers": transformers.__version__}


HEADINGS = ["family", "median", "99 %", "99 %, same experts", "other experts", "moestro: median", "99 %",
            "99 %, same experts", "other experts", "worst median", "worst 99 %, same experts", "greedy tokens", "result"]


def row(result, isa):
    """Of the table: transformers BF16, `isa`'s engine, and the worst of all tables and paths."""
    def cells_of(found):
        return [f"{found[key]:.4f}" for key in ("median", "p99", "p99_same_experts")] + [str(found["other_experts"])]

    cells = [f"{result['family']} {result['variant'] + 1}", *cells_of(result["transformers_bf16"])]
    engine = result["moestro"].get(f"{isa}/engine")
    if engine is None:
        return cells + [""] * 7 + ["refused" if "refused" in result else "failed"]
    worst = [max(found[key] for found in result["moestro"].values()) for key in ("median", "p99_same_experts")]
    mismatches = sum(found["greedy_mismatches"] for found in result["moestro"].values())
    cells += [*cells_of(engine), *(f"{value:.4f}" for value in worst)]
    return cells + ["equal" if mismatches == 0 else f"{mismatches} differ", "fails" if result["faults"] else "passes"]


def markdown(report):
    about = report["machine"]
    lines = [
        "# moestro and transformers on checkpoints that transformers wrote",
        "",
        f"{about['cpu']}, revision {about['revision']}, transformers {about['transformers']}, torch {about['torch']}; "
        f"kernel tables {', '.join(report['isas'])}.",
        "",
        f"Distance of the next token's log-probability from transformers in F32 at {report['results'][0]['positions']} "
        "positions: of transformers in BF16, then of moestro's engine with the last table, then the worst of all tables "
        "and paths. \"Other experts\" counts positions where rounding changed the choice.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
    ]
    lines += ["| " + " | ".join(row(result, report["isas"][-1])) + " |" for result in report["results"]]
    faults = [f"- {r['family']} {r['variant'] + 1}: {r.get('refused', fault)}" for r in report["results"] for fault in r["faults"]]
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
        for variant in range(families.VARIANTS):
            with tempfile.TemporaryDirectory() as work:
                results.append(compare(family, variant, args.seed, args.tool, isas, pathlib.Path(work)))
            print(" | ".join(row(results[-1], isas[-1])), flush=True)
            for fault in results[-1]["faults"]:
                print("   ", results[-1].get("refused", fault), flush=True)
    report = {"machine": machine(), "isas": isas, "results": results}
    if args.out:
        pathlib.Path(args.out + ".json").write_text(json.dumps(report, indent=1) + "\n")
        pathlib.Path(args.out + ".md").write_text(markdown(report))
    return 1 if any(result["faults"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
