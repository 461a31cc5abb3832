#!/usr/bin/env python3
"""Compares prompt and decode of a model with llama-bench of llama.cpp or ik_llama.cpp, on the same file and cores.

    build/release/bin/moestro make-model --preset qwen3-layer --vocab-rows 9728 --weights q8_0 --out /tmp/m.gguf
    loadtest/peers/compare.py --model /tmp/m.gguf --llama-bench ~/ik_llama.cpp/build/bin/llama-bench --name ik_llama.cpp

Nothing is downloaded: a peer's program is a flag. See loadtest/peers/README.md.
"""

import argparse
import json
import os
import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import model_file  # noqa: E402
import report  # noqa: E402
from llama_bench import LlamaBench  # noqa: E402
from ours import Moestro  # noqa: E402
from processes import PeerError, parse_cores  # noqa: E402
from python_peers import KtKernel, LlamaCppPython  # noqa: E402
from rounds import take_turns  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parents[2]


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("use 1 or more")
    return value


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a file in GGUF")
    parser.add_argument("--bin", default=REPO / "build/release/bin", help="folder of moestro's programs")
    parser.add_argument("--llama-bench", metavar="PATH", help="llama-bench of llama.cpp or ik_llama.cpp")
    parser.add_argument("--llama-bench-args", default="", metavar="TEXT", help='more of its flags: "-fa 1 -rtr 1"')
    parser.add_argument("--name", default="llama-bench", help="of the peer, in the report")
    parser.add_argument("--llama-cpp-python", metavar="PYTHON", help="a Python that has the module llama_cpp")
    parser.add_argument("--kt-kernel", metavar="PYTHON", help="a Python that has the module kt_kernel; experts only")
    parser.add_argument("--rounds", type=positive, default=7, help="each has a turn of every side")
    parser.add_argument("--repetitions", type=positive, default=3, help="of a turn, after one that warms up")
    parser.add_argument("--prompt", type=positive, default=512, help="tokens of the prompt")
    parser.add_argument("--decode", type=positive, default=64, help="tokens decoded one by one")
    parser.add_argument("--threads", type=int, default=0, help="of both sides; 0: one for each core")
    parser.add_argument("--int8-activations", choices=("published", "all", "bf16"), default="published",
                        help="of moestro: which weights take inputs of 8 bits, as for its roles")
    parser.add_argument("--cores", default="", help='"0-3,8"; all that this process may use')
    parser.add_argument("--timeout", type=positive, default=600, help="seconds of a turn, and of the load")
    parser.add_argument("--json", metavar="FILE", help="the report as JSON; refused for sources with changes")
    return parser.parse_args(arguments)


def check_revision(machine):
    if not report.is_clean(machine["revision"]):
        raise PeerError(f"--json: built from {machine['revision'] or 'sources of unknown revision'}, and nobody can "
                        "repeat such a report; commit, build again, and measure then, or omit --json")


def measure(settings):
    settings.cores = parse_cores(settings.cores) if settings.cores else os.sched_getaffinity(0)
    settings.threads = settings.threads if settings.threads > 0 else len(settings.cores)
    model = model_file.describe(settings.model)
    peers = []
    if settings.llama_bench:
        peers.append(LlamaBench(settings.llama_bench, shlex.split(settings.llama_bench_args), settings.model, settings,
                                settings.name))
    if settings.llama_cpp_python:
        peers.append(LlamaCppPython("--llama-cpp-python", settings.llama_cpp_python, settings.model, settings))
    if settings.kt_kernel:
        peers.append(KtKernel("--kt-kernel", settings.kt_kernel, settings.model, settings))
    if not peers:
        raise PeerError("no peer: give --llama-bench PATH, --llama-cpp-python PYTHON or --kt-kernel PYTHON")
    if settings.json:
        pathlib.Path(settings.json).touch()
    with Moestro(settings.bin, settings.model, settings) as ours:
        if settings.json:
            ours.turn()
            check_revision(ours.machine)
        results = take_turns([ours, *peers], settings.rounds, lambda line: print(line, file=sys.stderr, flush=True))
    return report.build(ours, peers, results, model, settings)


def main(arguments=None):
    settings = parse_arguments(arguments)
    try:
        measured = measure(settings)
        print(report.text(measured))
        if settings.json:
            pathlib.Path(settings.json).write_text(json.dumps(measured, indent=1) + "\n")
    except (PeerError, OSError) as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
