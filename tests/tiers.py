"""What tests/run does once everything is installed: chooses tests, builds them and the programs, runs them, and ends
with how many passed, failed and were skipped (summary.py), the slowest twenty, and the CPU seconds of each step. A test
that fails keeps none from running."""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from summary import slowest, summarise

REPO = Path(__file__).resolve().parents[1]
TESTS = REPO / "tests"
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's gRPC
NODES = 4  # integration tests at once: they wait more than they compute
PROGRAMS = ["services/all", "loadtest/all"]
HELP = """\
  tests/run                    every folder, with this CPU's best kernel table and the portable one; without tests
                               labelled slow; of the integration tests those marked smoke
  tests/run common/kv ...      what mirrors these folders or files, with the best table; without tests labelled slow
  tests/run tests/integration/test_http.py
                               this file of integration tests
  tests/run --all              every test, with every kernel table that this CPU can compute
  tests/run --all --preset asan
                               under the address and undefined-behaviour sanitizers, but for tests of memory and time,
                               and the deploy scripts
  tests/run --all --preset tsan
                               the unit tests under the thread sanitizer
Containers, and all sanitizers one after the other: tests/by_hand."""


@dataclass
class Test:
    """A test of CTest's, as CMake wrote it into CTestTestfile.cmake: known before it is built."""
    name: str
    folder: str  # below tests/
    command: list
    labels: set = field(default_factory=set)


def read_tests(build):
    """The tests of a configured build, by name."""
    found = {}
    for file in sorted((build / "tests").rglob("CTestTestfile.cmake")):
        text = file.read_text()
        folder = str(file.parent.relative_to(build / "tests"))
        for name, command in re.findall(r"^add_test\(\[=\[(.*?)\]=\] (.*)\)$", text, re.M):
            found[name] = Test(name, folder, shlex.split(command))
        for name, labels in re.findall(r'^set_tests_properties\(\[=\[(.*?)\]=\] .*?\bLABELS "([^"]*)"', text, re.M):
            found[name].labels = set(labels.split(";"))
    return found


def mirrored(path):
    """Of a path of the repository the folder or file below tests/ that mirrors it, or None."""
    parts = Path(os.path.relpath(Path(path).resolve(), REPO)).parts
    parts = parts[1:] if parts[:1] == ("tests",) else parts
    for length in range(len(parts), 0, -1):
        if (TESTS.joinpath(*parts[:length])).exists():
            return "/".join(parts[:length])
    return None


def inside(test, folder):
    return test.folder == folder or test.folder.startswith(folder + "/")


def with_tests(tests, folder):
    """The folder, or the next one above it that CTest has tests of: tests/common/text has those of its folder grammar."""
    while "/" in folder and not any(inside(test, folder) for test in tests.values()):
        folder = folder.rpartition("/")[0]
    return folder


def select(tests, everything, folders):
    """The tests of a tier. `folders`: below tests/; none: all."""
    def wanted(test):
        mirrors = not folders or any(inside(test, folder) for folder in folders)
        if everything:
            return mirrors and "best_table" not in test.labels
        left_out = {"slow", "every_table"} | ({"ref_table"} if folders else set())
        return mirrors and not left_out & test.labels
    return [test for test in tests.values() if wanted(test)]


def targets(tests, build):
    """What of the build the tests start or read."""
    inside = {argument for test in tests for argument in test.command if argument.startswith(f"{build}/")}
    return sorted(os.path.relpath(path, build) for path in inside if not os.path.isdir(path))


class Steps:
    """Runs commands and keeps the seconds of each, and of what it started."""

    def __init__(self):
        self.rows = []
        self.failed = False

    def run(self, what, command, log=None):
        """True if it succeeded. Its output goes to `log`, an open file."""
        start = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], cwd=REPO, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.rows.append((what, time.monotonic() - start, usage.ru_utime + usage.ru_stime))
        self.failed |= process.returncode != 0
        return process.returncode == 0

    def text(self):
        rows = [("seconds", "wall", "CPU")] + [(what, f"{wall:.0f}", f"{cpu:.0f}") for what, wall, cpu in self.rows]
        return "\n".join(f"{what:32}{wall:>8}{cpu:>8}" for what, wall, cpu in rows)


def pytest_command(build, report, where, *options):
    """`where` comes first: pytest takes the first word that is no option for a path, and reads its conftest.py."""
    sanitizer = ["--sanitizer"] if build.name == "asan" else []
    return [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *where, "--bin", build / "bin", *sanitizer,
            "--junitxml", report, *options]


def unit_tests(steps, build, reports, chosen):
    """Whole outputs go into the report: the summary counts the tests in them."""
    names = "|".join(re.escape(test.name) for test in chosen)
    steps.run("unit tests", ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "-j",
                             os.cpu_count(), "--output-junit", reports / "ctest.xml", "-R", f"^({names})$",
                             "--test-output-size-passed", 100000000, "--test-output-size-failed", 100000000])


def integration_tests(steps, build, reports, where, mark):
    """Those that need the machine for themselves come last, alone. pytest ends with 5 where a part has no test."""
    at_once = ["-n", NODES, "--dist", "loadfile"] if build.name != "asan" else []
    written = []
    for what, report, part, options in (("integration tests", "integration.xml", "not serial", at_once),
                                        ("integration tests, alone", "integration_serial.xml", "serial", [])):
        marks = f"({mark}) and {part}" if mark else part
        written.append(reports / report)
        steps.run(what, ["bash", "-c", '"$@" || [ $? = 5 ]', "bash",
                         *pytest_command(build, written[-1], where, "-m", marks, *options)])
    return written


def main():
    parser = argparse.ArgumentParser(prog="tests/run", usage="tests/run [--all] [--preset NAME] [PATH...]", epilog=HELP,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every test and every kernel table")
    parser.add_argument("--preset", default="release", help="of CMake: release (the default), debug, asan, tsan, cuda")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="folder or file whose tests to run")
    options = parser.parse_args()
    folders = []
    for path in options.paths:
        if not Path(path).exists() or not (folder := mirrored(path)):
            parser.error(f"{path}: no such folder or file of the repository with tests")
        folders.append(folder)
    of_nodes = [TESTS / folder for folder in folders if folder.split("/")[0] == "integration"]

    build = REPO / "build" / options.preset
    reports = build / "Testing" / "reports"
    subprocess.run(["rm", "-rf", reports], check=True)
    reports.mkdir(parents=True)
    # Whatever a sanitizer finds ends the process, or its exit code, with an error.
    os.environ |= {"ASAN_OPTIONS": "detect_stack_use_after_return=1", "UBSAN_OPTIONS": "print_stacktrace=1",
                   "TSAN_OPTIONS": f"ignore_noninstrumented_modules=1 suppressions={TESTS}/support/tsan.supp"}
    if not options.all:
        os.environ["MOESTRO_TEST_TABLES"] = "best"  # tests/support/tables_to_test.h
    steps = Steps()
    with open(reports / "configure.log", "w") as log:
        configured = steps.run("configure", ["cmake", "--preset", options.preset, "-DMOESTRO_BUILD_TESTS=ON"], log)
    if not configured:
        sys.exit((reports / "configure.log").read_text() + "tests/run: cmake failed")
    tests = read_tests(build)
    chosen = select(tests, options.all, [folder if folder.startswith("integration/") else with_tests(tests, folder)
                                         for folder in folders])
    # The gRPC of the system is not instrumented for threads.
    where = of_nodes or ([] if folders or options.preset == "tsan" else [TESTS / "integration"])
    mark = "" if options.all or of_nodes else "smoke"
    if not chosen and not where:
        sys.exit(f"tests/run: no tests mirror {' '.join(options.paths)}")
    if (where or options.all) and not steps.run("compile the programs",
                                                ["cmake", "--build", build, "--target", *PROGRAMS]):
        sys.exit("tests/run: the programs do not compile")

    # What tests leave behind goes with it. A short name: sockets lie in it, whose paths are bounded.
    files = tempfile.mkdtemp(prefix="mt-")
    os.chmod(files, 0o755)  # some tests run programs as another user
    os.environ |= {"TMPDIR": files, "TEST_TMPDIR": files}
    written = []
    if chosen:
        written.append(reports / "ctest.xml")
        goals = ["all"] if options.all else targets(chosen, build)
        if not goals or steps.run("compile the tests", ["cmake", "--build", build, "--target", *goals]):
            unit_tests(steps, build, reports, chosen)
    if where:
        written += integration_tests(steps, build, reports, where, mark)
    print(slowest(written, 20), steps.text(), sep="\n\n")
    succeeded = summarise(build, written) and not steps.failed
    if succeeded:
        shutil.rmtree(files, ignore_errors=True)
    else:
        print(f"files of the tests: {files}")
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
