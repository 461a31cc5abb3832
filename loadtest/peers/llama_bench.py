"""llama-bench of llama.cpp or ik_llama.cpp, as a peer."""

import contextlib
import json
import statistics

from processes import PeerError, find_program, run

# Weights in memory of their own on huge pages, as ours are: not mapped from the file, whose pages are small.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
NO_MMAP = ("-mmp", "0")


def _find_array(text):
    """The first array that begins a line; None if there is none. Some peers print lines before and after it."""
    decoder = json.JSONDecoder()
    at = 0
    for line in text.splitlines(keepends=True):
        if line.startswith("["):
            with contextlib.suppress(ValueError):
                return decoder.raw_decode(text, at)[0]
        at += len(line)
    return None


def parse(text, prompt, decode, flag="--llama-bench"):
    """({"prompt", "decode"} in tokens a second, the build). Medians over a test's repetitions."""
    tests = _find_array(text)
    if tests is None:
        raise PeerError(f"{flag}: its output has no JSON: {text[:80]!r}; it must know `-o json`")
    speeds = {}
    try:
        for test in tests:
            seconds = statistics.median(test["samples_ns"]) / 1e9
            if (test["n_prompt"], test["n_gen"]) == (prompt, 0):
                speeds["prompt"] = prompt / seconds
            elif (test["n_prompt"], test["n_gen"]) == (0, decode):
                speeds["decode"] = decode / seconds
        build = f"build {tests[0]['build_number']}, commit {tests[0]['build_commit']}" if tests else ""
    except (KeyError, TypeError, IndexError, ZeroDivisionError, statistics.StatisticsError) as error:
        raise PeerError(f"{flag}: a test in its JSON lacks a field: {error!r}") from error
    missing = [name for name in ("prompt", "decode") if name not in speeds]
    if missing:
        raise PeerError(f"{flag}: its JSON has no test of {' and of '.join(missing)}")
    return speeds, build


class LlamaBench:
    rows = ("prompt", "decode")

    def __init__(self, path, arguments, model, settings, name):
        self.program = find_program("--llama-bench", path)
        self.arguments = [*NO_MMAP, *arguments]
        self.model = model
        self.settings = settings
        self.name = name
        self.build = ""

    def describe(self):
        return {"name": self.name, "build": self.build, "arguments": self.arguments}

    def turn(self):
        s = self.settings
        text = run("--llama-bench", [self.program, "-m", self.model, "-p", s.prompt, "-n", s.decode, "-t", s.threads,
                                     "-r", s.repetitions, "-o", "json", *self.arguments],
                   s.cores, HUGE_PAGES, s.timeout)
        speeds, self.build = parse(text, s.prompt, s.decode)
        return speeds
