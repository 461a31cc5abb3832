#!/usr/bin/python3
"""Measures what a flood costs another key: the time to the first token of one key's requests, alone and beside a key
whose clients keep many requests in the line. Prints Markdown. Not a test: it needs an otherwise idle machine.

    tests/integration/fairness.py [--bin build/release/bin] [--model deploy/models/demo] [--requests 40] [--flood 32]
                                  [--prompt 400] [--flood-running N] [--no-keys]

--flood-running: the flooding key's limit `running`. --no-keys: both send without a key, so the router serves first come,
first served. That is what keys change."""

import argparse
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import grpc

from node import REPO, Node, compile_api

FLOOD_PROMPT, FLOOD_TOKENS = 32, 64
MEASURED_TOKENS = 8


def prompt(seed, length):
    """Token ids that no other seed begins with, so that the prefix cache finds nothing."""
    return [20 + (seed * 7919 + i * 37 + seed * i) % 80 for i in range(length)]


def ask(node, metadata, seed, length, tokens):
    """Seconds to the first token."""
    begin, first = time.perf_counter(), None
    request = node.request(prompt(seed, length), tokens, temperature=0.0, ignore_eos=True)
    for reply in node.stub.Generate(request, timeout=120, metadata=metadata):
        if first is None and reply.HasField("tokens"):
            first = time.perf_counter() - begin
    return first


class Flood:
    """As many clients as `count`, each of which always has a request under way."""

    def __init__(self, node, metadata, count):
        self.over, self.finished, self.refused = threading.Event(), 0, 0
        self.threads = [threading.Thread(target=self.run, args=(node, metadata, 1000 * (i + 1))) for i in range(count)]

    def run(self, node, metadata, seed):
        while not self.over.is_set():
            seed += 1
            try:
                ask(node, metadata, seed, FLOOD_PROMPT, FLOOD_TOKENS)
                self.finished += 1
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
                self.refused += 1
                time.sleep(0.1)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


def measure(node, metadata, seed, args):
    times = sorted(ask(node, metadata, seed + i, args.prompt, MEASURED_TOKENS) for i in range(args.requests))
    return times[len(times) // 2], times[int(0.9 * len(times))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=REPO / "build/release/bin", type=Path)
    parser.add_argument("--model", default=REPO / "deploy/models/demo", type=Path)
    parser.add_argument("--requests", default=40, type=int, help="measured, one after the other, in each case")
    parser.add_argument("--flood", default=32, type=int, help="clients of the other key")
    parser.add_argument("--prompt", default=400, type=int, help="tokens of a measured prompt")
    parser.add_argument("--flood-running", type=int, help="requests of the other key at once; default: no limit")
    parser.add_argument("--no-keys", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flags, metadata = {}, {name: [] for name in ("quiet", "flood")}
        if not args.no_keys:
            keys = os.path.join(folder, "keys.toml")
            for name in metadata:
                limits = ["--running", str(args.flood_running)] if name == "flood" and args.flood_running else []
                key = subprocess.run([args.bin / "moestro", "keys", "add", "--file", keys, "--name", name, *limits],
                                     check=True, capture_output=True, text=True).stdout.strip()
                metadata[name] = [("authorization", f"Bearer {key}")]
            flags["router"] = ["--keys-file", keys]
        with Node(compile_api(Path(folder)), str(args.bin), args.model, flags) as node:
            measure(node, metadata["quiet"], 1, argparse.Namespace(prompt=args.prompt, requests=5))  # warms up
            alone = measure(node, metadata["quiet"], 100, args)
            with Flood(node, metadata["flood"], args.flood) as flood:
                time.sleep(2)
                beside = measure(node, metadata["quiet"], 500, args)
            again = measure(node, metadata["quiet"], 900, args)
    print("| first token, ms | p50 | p90 |\n|---|--:|--:|")
    for name, times in {"alone": alone, "beside the flood": beside, "alone again": again}.items():
        print(f"| {name} | " + " | ".join(f"{1000 * seconds:.1f}" for seconds in times) + " |")
    print(f"| ratio | {beside[0] / alone[0]:.2f} | {beside[1] / alone[1]:.2f} |")
    print(f"\n{args.flood} clients of the other key: {flood.finished} requests finished, {flood.refused} refused.")


if __name__ == "__main__":
    main()
