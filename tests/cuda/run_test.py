"""tests/cuda/run with programs that stand for those of a build with CUDA."""

import os
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "run"
CHECKS = {"cuda_check": "checks", "cuda_stream_check": "stream_checks", "cuda_ranks_check": "ranks_checks",
          "cuda_decode_check": "decode_checks"}
CHECK = """#!/bin/sh
for flag; do case $flag in --gtest_output=json:*) echo '{"failures": 0}' >"${flag#*json:}" ;; esac; done
"""
BENCH = """#!/bin/sh
echo "timings of NAME" >"$2/FILE"
"""


@pytest.fixture
def run(tmp_path):
    """Runs it; keyword arguments replace programs."""
    programs = tmp_path / "gpu"
    programs.mkdir()

    def call(*flags, **replaced):
        texts = {name: CHECK for name in CHECKS}
        for name, file in {"cuda_bench": "report.md", "cuda_stream_bench": "stream.md",
                           "cuda_decode_bench": "decode.md"}.items():
            texts[name] = BENCH.replace("NAME", name).replace("FILE", file)
        for name, text in (texts | replaced).items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        command = [RUN, "--bin", programs, "--out", tmp_path / "out", *flags]
        path = {**os.environ, "PATH": "/usr/bin:/bin"}  # no compute-sanitizer
        return subprocess.run(command, capture_output=True, text=True, env=path, timeout=60)

    return call


def test_the_report_has_every_part(run):
    done = run()
    assert done.returncode == 0, done.stderr
    for name in ("cuda_bench", "cuda_stream_bench", "cuda_decode_bench"):
        assert f"timings of {name}" in done.stdout
    assert "Streamed prefill: 0 failures. Ranks: 0 failures. Hybrid decode: 0 failures." in done.stdout


def test_results_of_an_earlier_run_are_not_reported(run):
    assert run().returncode == 0
    fails = "#!/bin/sh\nexit 1\n"
    done = run(**{name: fails for name in [*CHECKS, "cuda_bench", "cuda_stream_bench", "cuda_decode_bench"]})
    assert done.returncode == 1
    assert "timings of" not in done.stdout and "0 failures" not in done.stdout
    assert "Kernels: no result, and no timings: cuda_bench has failed." in done.stdout
    assert "Streamed prefill: no result. Ranks: no result. Hybrid decode: no result." in done.stdout


def test_a_program_that_hangs_does_not_cost_the_report(run):
    hangs = "#!/bin/sh\nexec sleep 600\n"
    done = run("--limit", "1", cuda_stream_check=hangs, cuda_bench=hangs)
    assert done.returncode == 1
    assert "cuda_bench was stopped after 1 s (--limit)" in done.stderr
    assert "Kernels: 0 failures, and no timings: cuda_bench has failed." in done.stdout
    assert "timings of cuda_decode_bench" in done.stdout
    assert "Streamed prefill: no result. Ranks: 0 failures." in done.stdout
