#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy at the root) on the sources of common, loadtest and services, by hand: it takes seven
minutes of two cores. Headers of gRPC and the standard library cost most of the time, so the sources of a CMake target
are read as one: a file in BUILD_DIR/tidy that includes them. Sources whose names collide are then read one by one.
Usage: check_tidy.py BUILD_DIR [TARGET...]; it reads BUILD_DIR's compile_commands.json, which must name each source: that
of the preset debug does, of one with MOESTRO_UNITY it does not. It needs clang-tidy-19."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
PROGRAMS = ("clang-tidy-19", "clang-tidy")
FOLDERS = ("common/", "loadtest/", "services/")
GCC_ONLY = ("loadtest/bench/baselines/", "loadtest/bench/probes/")  # omp.h, and GCC's names of prefetch hints
COLLISION = re.compile(r"error: (redefinition of|call to '\w+' is ambiguous|reference to '\w+' is ambiguous)")


def arguments(command):
    """The part of a compiler's command line that Clang needs: include paths, definitions, instructions."""
    kept, words = [], shlex.split(command)
    for i, word in enumerate(words):
        if word == "-isystem":
            kept.append(word + words[i + 1])
        elif word.startswith(("-I", "-D", "-std=", "-m")):
            kept.append(word)
    return kept


def targets(build):
    """Of each CMake target the arguments of its C++ sources, and the sources. One of several targets counts once."""
    found, seen = {}, set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if "/Unity/" in entry["file"]:
            sys.exit(f"{build} has MOESTRO_UNITY; use one without, such as build/debug (cmake --preset debug)")
        source = os.path.relpath(entry["file"], REPO)
        ours = source.startswith(FOLDERS) and not source.startswith(GCC_ONLY) and source.endswith(".cc")
        if ours and source not in seen:
            seen.add(source)
            name = re.search(r"CMakeFiles/([^/]+)\.dir/", entry["command"]).group(1)
            options, sources = found.setdefault(name, ([], []))
            sources.append(source)
            # A source may have definitions of its own.
            options += [one for one in arguments(entry["command"]) if one not in options]
    return found


def tidy(program, unit, options, sources):
    """Findings in the sources, which `unit` includes, and in their headers."""
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text("".join(f'#include "{source}"\n' for source in sources))
    headers = f"--header-filter=^{re.escape(str(REPO))}/({'|'.join(FOLDERS)})"
    line = [program, "--quiet", headers, "--checks=-bugprone-suspicious-include", f"--config-file={REPO}/.clang-tidy"]
    options = [*options, f"-I{REPO}", "-Wthread-safety", "-Wno-deprecated-declarations"]
    result = subprocess.run([*line, str(unit), "--", *options], cwd=REPO, capture_output=True, text=True)
    if len(sources) > 1 and COLLISION.search(result.stdout):
        units = [unit.with_name(f"{unit.stem}-{i}.cc") for i in range(len(sources))]
        return "".join(tidy(program, one, options, [source]) for one, source in zip(units, sources))
    return result.stdout if result.returncode == 0 else result.stdout + result.stderr


def main():
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        print("no clang-tidy: apt-get install clang-tidy-19", file=sys.stderr)
        return 2
    build = Path(sys.argv[1])
    chosen = {name: of for name, of in targets(build).items() if not sys.argv[2:] or name in sys.argv[2:]}

    def check(target):
        name, (options, sources) = target
        return tidy(program, build / "tidy" / f"{name}.cc", options, sources)

    failed = set()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, output in zip(chosen, pool.map(check, chosen.items())):
            if output.strip():
                failed.add(name)
                print(output.strip().replace(f"{REPO}/", ""))
    count = sum(len(sources) for _, sources in chosen.values())
    print(f"{count} sources of {len(chosen)} targets, {len(failed)} targets with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
