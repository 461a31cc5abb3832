#!/usr/bin/env python3
"""Compares the tokenizer with the reference libraries on random texts, for every kind of kinds.py and gguf_kinds.py. Run
by hand:

    fuzz.py build/release/tests/text_tokenize_lines [--count 10000] [--seed 1] [--kind NAME] [--llama-cpp]

Prints, for each kind, how many texts and id sequences differ, and the first differences. Exit code 1 if any does. A kind
gguf-NAME needs gguf_documents beside the program. With --llama-cpp its ids are compared with those of llama_cpp too; the
exit code does not count these, because llama_cpp has patterns and Unicode tables of its own."""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import gguf_kinds
import kinds
from make_golden import assigned


class Tool:
    def __init__(self, binary, files):
        self.dir = tempfile.TemporaryDirectory()
        for name, content in files.items():
            pathlib.Path(self.dir.name, name).write_text(content, encoding="utf-8")
        self.process = subprocess.Popen([binary, self.dir.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, value):
        self.process.stdin.write(json.dumps(value).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def compare(binary, kind, count, seed):
    rng = random.Random(f"{seed} {kind.name}")
    everything = assigned()
    tool = Tool(binary, kind.files)
    differing = {"parsed": 0, "plain": 0, "decoded": 0}
    shown = 0
    for _ in range(count):
        text = kinds.random_text(rng, everything, kind.markers)
        if rng.random() < 0.01:
            text *= 40
        got = tool.ask(text)
        for way, expected in (("parsed", kind.parsed(text)), ("plain", kind.plain(text))):
            if got[way] != expected:
                differing[way] += 1
                if shown < 5:
                    print(f"  {kind.name} {way} {text!r}\n    expected {expected}\n    got      {got[way]}")
                shown += 1
        ids = kinds.random_ids(rng, kind)
        decoded = tool.ask(ids)
        expected = kinds.decoded(kind, ids)
        if any(decoded[key] != value for key, value in expected.items()) or decoded["streamed"] != decoded["skipped"]:
            differing["decoded"] += 1
            if shown < 5:
                print(f"  {kind.name} decode {ids}\n    expected {expected}\n    got      {decoded}")
            shown += 1
    print(f"{kind.name}: {count} texts, differing: parsed {differing['parsed']}, plain {differing['plain']}; "
          f"{count} id sequences, differing: {differing['decoded']}", flush=True)
    return sum(differing.values())


def compare_llama_cpp(binary, kind, count, seed):
    rng = random.Random(f"{seed} {kind.name}")
    everything = assigned()
    tool = Tool(binary, kind.files)
    reference = gguf_kinds.LlamaCpp(kind)
    differing = {"parsed": 0, "plain": 0}
    compared = {"parsed": 0, "plain": 0}
    for _ in range(count):
        text = kinds.random_text(rng, everything, kind.markers)
        got = tool.ask(text)
        for way in differing:
            if not gguf_kinds.comparable(kind, text, way):
                continue
            compared[way] += 1
            expected = reference.ids(text, special=way == "parsed")
            if got[way] != expected:
                differing[way] += 1
                if differing[way] <= 3:
                    print(f"  {kind.name} {way} {text!r}\n    llama_cpp {expected}\n    got       {got[way]}")
    print(f"{kind.name} and llama_cpp: parsed {differing['parsed']} of {compared['parsed']} texts differ, "
          f"plain {differing['plain']} of {compared['plain']}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind")
    parser.add_argument("--llama-cpp", action="store_true")
    args = parser.parse_args()
    selected = [kind for kind in kinds.kinds() + gguf_kinds.gguf_kinds() if args.kind in (None, kind.name)]
    differing = 0
    for kind in selected:
        if kind.name.startswith("gguf-"):
            gguf_kinds.convert(kind, pathlib.Path(args.binary).with_name("gguf_documents"))
            if args.llama_cpp:
                compare_llama_cpp(args.binary, kind, args.count, args.seed)
        differing += compare(args.binary, kind, args.count, args.seed)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
