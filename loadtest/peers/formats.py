#!/usr/bin/env python3
"""Decode and prompt of one model in each format of weights, as shares of read bandwidth and of the format's GEMM.

    loadtest/peers/formats.py --json formats.json
    loadtest/peers/formats.py --weights q8_0,q4_k_m --models /tmp/models

The model has the shapes of Qwen3-30B-A3B in 3 layers with 32 experts, so that a prompt of 512 gives each expert 128 rows
on average: as many as the GEMM has. See loadtest/peers/README.md.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from compare import REPO, check_revision, positive  # noqa: E402
from ours import Moestro  # noqa: E402
from processes import PeerError, find_program, parse_cores, run  # noqa: E402
from rounds import summary  # noqa: E402

SCHEMA = "moestro-peers-formats-1"
DECODE_TARGET = 0.90  # of read bandwidth
PROMPT_TARGET = 0.90  # of the GEMM's rate
# Of make-model: the type in the names of `moestro bench`, which is that of most weights, and whether it takes codes.
FORMATS = {"fp8": ("fp8", False), "bf16": ("bf16", False), "int8": ("int8", False), "int4": ("i4_32", True),
           "int4_asym": ("i4z_128", True), "awq": ("i4z_128", True), "gptq": ("i4z_128", True),
           "mxfp4": ("mxfp4", True), "f16": ("f16", False), "q8_0": ("q8_0", True), "q6_k": ("q6_k", True),
           "q4_k_m": ("q4_k", True), "q4_0": ("q4_0", True)}
IN_GGUF = ("f16", "q8_0", "q6_k", "q4_k_m", "q4_0")


def weights_list(text):
    names = text.split(",")
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"{name}: use some of {','.join(FORMATS)}")
    return names


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=weights_list, default=list(FORMATS), metavar="LIST",
                        help=f"some of {','.join(FORMATS)}; all")
    parser.add_argument("--bin", default=REPO / "build/release/bin", help="folder of moestro's programs")
    parser.add_argument("--models", metavar="FOLDER", help="keeps the models there; a temporary one")
    parser.add_argument("--repetitions", type=positive, default=5, help="of prompt and decode, after one that warms up")
    parser.add_argument("--prompt", type=positive, default=512, help="tokens of the prompt")
    parser.add_argument("--decode", type=positive, default=64, help="tokens decoded one by one")
    parser.add_argument("--threads", type=int, default=0, help="0: one for each core")
    parser.add_argument("--cores", default="", help='"0-3,8"; all that this process may use')
    parser.add_argument("--timeout", type=positive, default=600, help="seconds of a run, and of the load")
    parser.add_argument("--quick", action="store_true", help="a tiny model and a tiny GEMM: shares mean nothing")
    parser.add_argument("--json", metavar="FILE", help="the report as JSON; refused for sources with changes")
    return parser.parse_args(arguments)


class Formats:
    def __init__(self, settings, folder):
        self.settings = settings
        self.folder = pathlib.Path(folder)
        self.cli = find_program("--bin", pathlib.Path(settings.bin) / "moestro")

    def model(self, weights):
        name = f"tiny-{weights}" if self.settings.quick else weights
        path = self.folder / (f"{name}.gguf" if weights in IN_GGUF else name)
        if not path.exists():
            preset = ["tiny-qwen3"] if self.settings.quick else ["qwen3-layer", "--experts", 32, "--vocab-rows", 9728]
            run("--bin", [self.cli, "make-model", "--preset", *preset, "--weights", weights, "--out", path],
                self.settings.cores, timeout=self.settings.timeout)
        return path

    def gemm(self, kind, coded):
        """GFLOP/s of many tokens, and the share of the rate of dot products."""
        tokens = 16 if self.settings.quick else 128
        name = f"int8/gemm-{tokens}" if kind == "int8" else f"gemm/{kind}{'-coded' if coded else ''}-{tokens}"
        report = self.folder / "gemm.json"
        command = [self.cli, "bench", "--filter", name, "--threads", self.settings.threads, "--json", report]
        run("--bin", command + (["--quick"] if self.settings.quick else []), self.settings.cores,
            timeout=self.settings.timeout)
        row = json.loads(report.read_text())["sections"][0]["rows"][0]
        return row["rate"]["median"], row["ratio"]["median"]

    def measure(self, weights, activations):
        kind, _ = FORMATS[weights]
        s = argparse.Namespace(**vars(self.settings), int8_activations=activations)
        with Moestro(s.bin, self.model(weights), s) as ours:
            report = ours.report()
        gemm_rate, gemm_share = self.gemm(kind, activations == "all")
        turns = report["repetitions"]
        operations, token_bytes = report["prompt_operations"], report["decode_token_bytes"]
        prompt = summary(operations / turn["prompt_seconds"] / 1e9 for turn in turns)
        decode = summary(s.decode * token_bytes / turn["decode_seconds"] / turn["read_bytes_per_second"]
                         for turn in turns)
        return report, {
            "weights": weights, "int8_activations": activations,
            "decode_tokens_per_second": summary(s.decode / turn["decode_seconds"] for turn in turns),
            "read_bytes_per_second": summary(turn["read_bytes_per_second"] for turn in turns),
            "decode_share_of_read_bandwidth": decode, "decode_verdict": verdict(decode["median"], DECODE_TARGET),
            "prompt_gflops": prompt, "gemm_gflops": gemm_rate, "gemm_share_of_dot_rate": gemm_share,
            "prompt_share_of_gemm": prompt["median"] / gemm_rate,
            "prompt_verdict": verdict(prompt["median"] / gemm_rate, PROMPT_TARGET)}


def verdict(value, target):
    return "pass" if value >= target else "miss"


def text(report):
    machine = report["machine"]
    lines = [f"{machine['cpu_model']} (family {machine['cpu_family']}, model {machine['cpu_number']}), kernels "
             f"{machine['kernels_isa']}, revision {machine['revision'] or 'unknown'}; medians of "
             f"{report['settings']['repetitions']} repetitions", "",
             "| weights | inputs | decode, tok/s | read, GB/s | of read bandwidth | prompt, GFLOP/s | of the GEMM | "
             "GEMM, of dot products |", "|---|---|---|---|---|---|---|---|"]
    for row in report["rows"]:
        share = row["decode_share_of_read_bandwidth"]
        lines.append(f"| {row['weights']} | {'coded' if row['int8_activations'] == 'all' else 'as published'} | "
                     f"{row['decode_tokens_per_second']['median']:.1f} | "
                     f"{row['read_bytes_per_second']['median'] / 1e9:.1f} | {share['median']:.2f} "
                     f"({share['min']:.2f} - {share['max']:.2f}): {row['decode_verdict']} | "
                     f"{row['prompt_gflops']['median']:.0f} | {row['prompt_share_of_gemm']:.2f}: "
                     f"{row['prompt_verdict']} | {row['gemm_share_of_dot_rate']:.2f} |")
    return "\n".join(lines)


def measure(settings):
    settings.cores = parse_cores(settings.cores) if settings.cores else os.sched_getaffinity(0)
    settings.threads = settings.threads if settings.threads > 0 else len(settings.cores)
    rows, last = [], None
    if settings.models:
        pathlib.Path(settings.models).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="moestro-formats-") as temporary:
        formats = Formats(settings, settings.models or temporary)
        for weights in settings.weights:
            for activations in ("published", "all") if FORMATS[weights][1] else ("published",):
                last, row = formats.measure(weights, activations)
                if settings.json:
                    check_revision(last["machine"])
                rows.append(row)
                print(f"{weights}, {activations}: decode {row['decode_share_of_read_bandwidth']['median']:.2f}, prompt "
                      f"{row['prompt_share_of_gemm']:.2f}", file=sys.stderr, flush=True)
    return {"schema": SCHEMA, "date": last["date"], "machine": last["machine"],
            "settings": {key: getattr(settings, key) for key in ("threads", "repetitions", "prompt", "decode")},
            "targets": {"decode_share_of_read_bandwidth": DECODE_TARGET, "prompt_share_of_gemm": PROMPT_TARGET},
            "rows": rows}


def main(arguments=None):
    settings = parse_arguments(arguments)
    try:
        if settings.json:
            pathlib.Path(settings.json).touch()
        measured = measure(settings)
        print(text(measured))
        if settings.json:
            pathlib.Path(settings.json).write_text(json.dumps(measured, indent=1) + "\n")
    except (PeerError, OSError) as error:
        print(f"formats.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
