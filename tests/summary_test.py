"""tests/summary.py on reports in the formats of CTest and pytest."""

import subprocess
import sys
from pathlib import Path

import pytest

SUMMARY = Path(__file__).parent / "summary.py"
GOOGLETEST = """Running main()
[ RUN      ] Page.Grows
[       OK ] Page.Grows (12 ms)
[ RUN      ] Isa/Kernel.Adds/avx512_bf16
[       OK ] Isa/Kernel.Adds/avx512_bf16 (0 ms)
[ RUN      ] Isa/Kernel.Adds/amx
[  SKIPPED ] Isa/Kernel.Adds/amx (0 ms)
"""
BAD_CASE = """[ RUN      ] Page.Shrinks/0
[  FAILED  ] Page.Shrinks/0, where GetParam() = 3 (1 ms)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Page.Shrinks/0, where GetParam() = 3
"""


def entry(name, output="", status="run", inside=""):
    return f'<testcase name="{name}" classname="{name}" status="{status}">{inside}<system-out>{output}</system-out></testcase>'


@pytest.fixture
def summary(tmp_path):
    """Runs it on these entries of CTest and of pytest; returns (exit code, rows by their first word, lines)."""
    (tmp_path / "CMakeCache.txt").write_text("MOESTRO_TEST_ISAS:INTERNAL=ref;avx512;avx512_bf16;amx\n")

    def call(ctest, pytest_cases=""):
        reports = tmp_path / "ctest.xml", tmp_path / "integration.xml"
        if ctest is not None:
            reports[0].write_text(f"<testsuite>{ctest}</testsuite>")
        reports[1].write_text(f"<testsuites><testsuite>{pytest_cases}</testsuite></testsuites>")
        result = subprocess.run([sys.executable, SUMMARY, tmp_path, *reports], capture_output=True, text=True)
        assert not result.stderr
        lines = result.stdout.splitlines()
        return result.returncode, {line.split()[0]: line.split()[1:] for line in lines}, lines

    return call


def test_counts_cases_for_each_table(summary):
    code, rows, lines = summary(entry("plain", GOOGLETEST) + entry("page_test.ref", GOOGLETEST) +
                                entry("page_test.amx", status="notrun", inside='<skipped message="77"/>') +
                                entry("layers") + entry("files", "...s  [100%]\n3 passed, 1 skipped in 0.52s\n"),
                                '<testcase classname="t" name="a"/>')
    assert code == 0
    assert rows["ref"] == ["2", "0", "1"]
    assert rows["avx512_bf16"] == ["1", "0", "0"] and rows["avx512"] == ["0", "0", "0"]
    assert rows["amx"] == ["0", "0", "2", "skipped", "on", "this", "CPU"]
    assert rows["no"] == ["table", "5", "0", "1"]
    assert lines[0].startswith("CPU: ") and lines[-1] == "9 passed, 0 failed, 4 skipped"


def test_names_what_failed(summary):
    failure = '<failure message="Failed"/>'
    code, rows, lines = summary(entry("page_test.avx512", GOOGLETEST + BAD_CASE, "fail", failure) +
                                entry("page_test.ref", GOOGLETEST, "fail", failure),
                                '<testcase classname="t" name="b"><error/></testcase>')
    assert code == 1
    assert lines[-4:] == ["FAILED page_test.avx512: Page.Shrinks/0", "FAILED page_test.ref", "FAILED t.b",
                          "4 passed, 3 failed, 2 skipped"]


def test_a_missing_report_is_a_failure(summary):
    code, _, lines = summary(None)
    assert code == 1 and "no report" in lines[-2] and lines[-1] == "0 passed, 1 failed, 0 skipped"
