#!/usr/bin/env python3
"""Runs `moestro bench --quick` and checks what it writes: check_quick.py BINARY SOURCE_ROOT."""

import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECTIONS = ["ceilings", "gemv", "table1", "gemm", "elementwise", "moe-layer", "attention", "lightning", "end-to-end",
            "int8", "mla", "kv-store", "fp8-convert"]


def check_summary(summary):
    assert set(summary) == {"median", "min", "max"}, summary
    assert 0 < summary["min"] <= summary["median"] <= summary["max"], summary


def check_row(row):
    assert row["name"] and row["counted"] and row["threads"] >= 1, row
    assert row["unit"] in ("GB/s", "GFLOP/s"), row
    check_summary(row["rate"])
    check_summary(row["microseconds"])
    assert ("reference" in row) == ("ratio" in row), row
    if "reference" in row:
        assert row["reference"]["name"], row
        check_summary(row["reference"]["rate"])
        check_summary(row["ratio"])
    if "target" in row:
        assert row["verdict"] == ("pass" if row["ratio"]["median"] >= row["target"] else "miss"), row


def check_json(report):
    assert report["schema"] == "moestro-bench-1", report["schema"]
    ids = [section["id"] for section in report["sections"]]
    assert ids == SECTIONS, ids
    rows = [row for section in report["sections"] for row in section["rows"]]
    for row in rows:
        check_row(row)
    for section in report["sections"]:
        reasons = [item["reason"] for item in section["skipped"]]
        lacks = reasons and all(reason.startswith("this CPU lacks") for reason in reasons)
        assert section["rows"] or lacks, section
    verdicts = [row["verdict"] for row in rows if "target" in row]
    assert report["passed"] == verdicts.count("pass") and report["missed"] == verdicts.count("miss")
    assert report["machine"]["cores"] >= 1 and report["machine"]["kernels_isa"]
    assert report["settings"]["preset"] == "quick"
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", report["date"]), report["date"]
    assert report["machine"]["dirty"] == report["machine"]["revision"].endswith("-dirty")
    return rows


def check_comparison(binary, older, rows):
    """A run that is compared with an older one. Whether a row fell is a matter of luck here."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "older.json"
        file.write_text(older)
        done = subprocess.run([binary, "bench", "--quick", "--threads", "2", "--compare", file], capture_output=True,
                              text=True)
    comparison = json.loads(done.stdout)["comparison"]
    assert len(comparison["rows"]) == len(rows) and not comparison["missing"] and not comparison["added"], comparison
    assert done.returncode == (1 if comparison["fell"] else 0), done
    assert f"{comparison['fell']} fell, " in done.stderr, done.stderr


def main():
    binary, root = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        done = subprocess.run([binary, "bench", "--quick", "--threads", "2", "--out", folder], capture_output=True,
                              text=True, check=True)
        seconds = time.monotonic() - begin
        markdown = (Path(folder) / "bench.md").read_text()
        html = (Path(folder) / "bench.html").read_text()
    rows = check_json(json.loads(done.stdout))
    for row in rows:
        assert f"| {row['name']} |" in markdown, row["name"]
    assert "http" not in html and "<script" not in html and "<svg" in html
    for text in (done.stdout, markdown, html):
        assert platform.node() not in text and root not in text and str(Path.home()) + "/" not in text
    assert done.stderr.count("\n") > len(rows), "no progress on stderr"
    check_comparison(binary, done.stdout, rows)
    print(f"{len(rows)} rows in {seconds:.1f} s")


if __name__ == "__main__":
    main()
