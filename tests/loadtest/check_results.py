#!/usr/bin/env python3
"""Refuses committed reports under loadtest/results that nobody can repeat, and their HTML pages.

A report of `moestro bench`, `moestro-loadtest` or loadtest/peers must name the revision it was measured with, and that
must have had no uncommitted changes. WITHOUT_REVISION.txt in loadtest/results lists those of before this rule, a path
and a reason a line; nothing else may stand there. A page of HTML repeats its report with plots: the programs write it,
git does not keep it.
"""

import json
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "loadtest" / "results"
LIST = "WITHOUT_REVISION.txt"


def revision_of(report):
    """Of a report; None for another kind of JSON file."""
    schema = report.get("schema", "") if isinstance(report, dict) else ""
    if schema.startswith(("moestro-bench-", "moestro-peers-")):
        return report["machine"].get("revision", "")
    if schema.startswith("moestro-loadtest-"):
        return report.get("revision", "")
    return None


def problem_of(report):
    """What is wrong with a report, or None."""
    revision = revision_of(report)
    if revision is None:
        return None
    if not revision:
        return "names no revision"
    if revision.endswith("-dirty"):
        return f"was measured with uncommitted changes ({revision})"
    return None


def problems(folder):
    listed = {}
    known = folder / LIST
    for line in known.read_text().splitlines() if known.exists() else []:
        if line and not line.startswith("#"):
            path, _, reason = line.partition(": ")
            listed[path] = reason
            if not reason:
                yield f"{LIST}: {path} has no reason"
    for path in sorted(folder.rglob("*.json")):
        name = str(path.relative_to(folder))
        try:
            problem = problem_of(json.loads(path.read_text()))
        except (ValueError, KeyError, AttributeError) as error:
            problem = f"cannot be read as a report: {error!r}"
        reason = listed.pop(name, None)
        if problem and reason is None:
            yield f"{name} {problem}: commit, build, and measure again"
        if not problem and reason is not None:
            yield f"{LIST}: {name} needs no place there any more"
    for path in sorted(folder.rglob("*.html")):
        yield f"{path.relative_to(folder)}: pages of HTML are not committed, only Markdown and JSON"
    for path in listed:
        yield f"{LIST}: {path} does not exist"


def main():
    found = list(problems(RESULTS))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
