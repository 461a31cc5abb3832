#!/usr/bin/env python3
"""Runs Clang's thread-safety analysis on the sources with lock annotations (common/base/mutex.h): each file with an
annotation, a header through a source that includes it. Usage: check_thread_safety.py BUILD_DIR; it reads BUILD_DIR's
compile_commands.json. Exits with 77 (skipped) without a clang++."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
ANNOTATION = re.compile(r"\bABSL_(GUARDED_BY|EXCLUSIVE_LOCKS_REQUIRED)\(")
COMPILERS = ("clang++-14", "clang++")
# Headers of libraries that many sources include: read once, into a precompiled header. Their templates are instantiated
# there, too: otherwise every source would do so.
SHARED = ("absl/strings/str_cat.h", "absl/strings/str_format.h", "absl/status/statusor.h", "grpcpp/grpcpp.h",
          "nlohmann/json.hpp", "spdlog/spdlog.h", "algorithm", "chrono", "condition_variable", "filesystem",
          "functional", "map", "mutex", "optional", "random", "set", "sstream", "thread", "vector",
          *(f"moestro/v1/{name}.grpc.pb.h" for name in ("decode", "inference", "prefill", "weight_store")))


UNITY = re.compile(r'^#include "(.*\.cc)"$', re.M)


def commands_of(entries):
    """{source: the compiler's command line}; of sources that are compiled together, that of all."""
    commands = {}
    for entry in entries:
        file = Path(entry["file"])
        together = UNITY.findall(file.read_text()) if "/Unity/" in entry["file"] else [file]
        commands |= {os.path.relpath(source, REPO): entry["command"] for source in together}
    return {path: command for path, command in commands.items() if not path.startswith(("..", "build/"))}


def sources_to_check(sources):
    """Sources with annotations, and for each annotated header the source of its name or the first that includes it."""
    headers = [path for folder in ("common", "loadtest", "services") for path in REPO.glob(f"{folder}/**/*.h")]
    texts = {str(path.relative_to(REPO)): path.read_text() for path in [*headers, *(REPO / name for name in sources)]}

    def including(name):
        users = sorted(path for path, text in texts.items() if f'#include "{name}"' in text)
        stem = name.removesuffix(".h")
        named = [path for path in users if path in (stem + ".cc", stem + "_rpc.cc")]
        return named or [path for path in users if path in sources] or including(users[0])

    annotated = [path for path, text in texts.items() if ANNOTATION.search(text)]
    return sorted({path if path in sources else including(path)[0] for path in annotated})


def arguments(commands):
    """What Clang needs of compilers' command lines, include paths and definitions: of all, because sources that share a
    precompiled header have the same."""
    kept = {}
    for command in commands:
        words = shlex.split(command)
        for i, word in enumerate(words):
            if word == "-isystem":
                kept["-isystem" + words[i + 1]] = True
            elif word.startswith(("-I", "-D", "-std=")):
                kept[word] = True
    return list(kept)


def main():
    clang = next(filter(None, map(shutil.which, COMPILERS)), None)
    if clang is None:
        print("skipped: no clang++ (deploy/install-deps installs it)")
        return 77
    entries = json.loads((Path(sys.argv[1]) / "compile_commands.json").read_text())
    commands = commands_of(entries)
    sources = sources_to_check(commands)
    line = [clang, *arguments(commands[path] for path in sources), "-Wthread-safety", "-Werror=thread-safety"]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        header, shared = Path(folder) / "shared.h", Path(folder) / "shared.pch"
        header.write_text("".join(f"#include <{name}>\n" for name in SHARED))
        subprocess.run([*line, "-fpch-instantiate-templates", "-x", "c++-header", header, "-o", shared], cwd=REPO,
                       check=True)

        def check(path):
            return path, subprocess.run([*line, "-include-pch", shared, "-fsyntax-only", path], cwd=REPO,
                                        capture_output=True, text=True)

        for path, result in pool.map(check, sources):
            if result.returncode != 0:
                failed += 1
                print(f"{path}:\n{result.stderr}")
    print(f"{len(sources)} sources, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
