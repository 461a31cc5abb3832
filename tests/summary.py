#!/usr/bin/env python3
"""Summarises tests/run: the CPU, how many tests of each kernel table and of the running node passed, failed or were
skipped, and which failed. Exit code 1 if one failed or a report is missing.

usage: summary.py BUILD_DIR REPORT.xml...   JUnit files: ctest.xml of CTest, all others of pytest

A test is a case of GoogleTest or pytest if CTest's output of a program lists or counts them, else the program."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

OUTCOMES = ("passed", "failed", "skipped")
GOOGLETEST = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \(\d+ ms\)$", re.M)
GOOGLETEST_OUTCOMES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
PYTEST = re.compile(r"^(?:\d+ \w+, )*\d+ \w+ in [\d.]+s\b.*$", re.M)  # its last line


def cases_of_ctest(entry):
    """(name, outcome) of each test of a program that CTest ran."""
    name, output = entry.get("name"), entry.findtext("system-out") or ""
    if entry.find("skipped") is not None:
        return [(name, "skipped")]
    cases = [(case, GOOGLETEST_OUTCOMES[word]) for word, case in GOOGLETEST.findall(output)]
    if line := PYTEST.search(output):
        counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", line[0])}
        cases += [(name, outcome) for outcome in OUTCOMES for _ in range(counts.get(outcome, 0))]
    failed = entry.find("failure") is not None or entry.get("status") == "fail"
    if failed and not any(outcome == "failed" for _, outcome in cases):
        return cases + [(name, "failed")]  # it crashed, or took too long
    return cases or [(name, "passed")]


def outcome_of_pytest(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"


class Summary:
    def __init__(self, tables):
        self.tables = tables
        self.counts = {table: Counter() for table in tables}  # and other rows, in order of appearance
        self.failures = []
        # In the name of a program, or as the parameter of a case.
        longest_first = "|".join(sorted(tables, key=len, reverse=True))
        self.table = re.compile(rf"[./]({longest_first})(?=$|_|/)") if tables else re.compile("(?!)")

    def add(self, row, name, outcome):
        self.counts.setdefault(row, Counter())[outcome] += 1
        if outcome == "failed":
            self.failures.append(name)

    def add_report(self, path):
        try:
            root = ElementTree.parse(path).getroot()
        except (OSError, ElementTree.ParseError) as error:
            self.add(path.stem, f"{path}: no report: {error}", "failed")
            return
        for entry in root.iter("testcase"):
            if path.name != "ctest.xml":
                self.add(path.stem, f"{entry.get('classname')}.{entry.get('name')}", outcome_of_pytest(entry))
                continue
            program = entry.get("name")
            for case, outcome in cases_of_ctest(entry):
                table = self.table.search(program) or self.table.search(case)
                self.add(table[1] if table else "no table", program if case == program else f"{program}: {case}", outcome)

    def text(self, cpu):
        lines = [f"CPU: {cpu}", f"{'tests':24}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES)]
        for row, counts in self.counts.items():
            absent = row in self.tables and counts["skipped"] and not counts["passed"] + counts["failed"]
            lines.append(f"{row:24}" + "".join(f"{counts[outcome]:9}" for outcome in OUTCOMES) +
                         ("  skipped on this CPU" if absent else ""))
        lines += [f"FAILED {name}" for name in self.failures]
        total = sum(self.counts.values(), Counter())
        return "\n".join([*lines, ", ".join(f"{total[outcome]} {outcome}" for outcome in OUTCOMES)])


def cpu_model():
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else "unknown"


def slowest(reports, count):
    """A table of the tests that took longest."""
    times = []
    for report in reports:
        try:
            entries = ElementTree.parse(report).getroot().iter("testcase")
        except (OSError, ElementTree.ParseError):
            continue  # summarise says so
        times += [(float(entry.get("time") or 0), entry.get("classname"), entry.get("name")) for entry in entries]
    times.sort(key=lambda row: -row[0])
    rows = [f"{seconds:8.1f}  {name if name == group else f'{group}.{name}'}" for seconds, group, name in times[:count]]
    return "\n".join([f"slowest {len(rows)} tests, seconds", *rows])


def summarise(build_dir, reports):
    """Prints the summary. False if a test failed or a report is missing."""
    listed = re.search(r"^MOESTRO_TEST_ISAS:INTERNAL=(.*)$", (Path(build_dir) / "CMakeCache.txt").read_text(), re.M)
    summary = Summary(["best", *listed[1].split(";")])
    for report in reports:
        summary.add_report(Path(report))
    print(summary.text(cpu_model()))
    return not summary.failures


if __name__ == "__main__":
    sys.exit(0 if summarise(sys.argv[1], sys.argv[2:]) else 1)
