"""tests/cuda/run from an archive of tests/cuda/pack, in a folder with nothing else and without an environment, with the
kernels' tests on the model of a GPU.
  tests/cuda/walk_test.py CUDA_KERNELS_TEST"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CARRIED = ("run", "gpu/library_ceilings.py")
PROBE = "#!/bin/sh\necho 'cuda:0 (a model)'\n"
BENCH = "#!/bin/sh\necho '{\"seconds\": 1}' >\"$2/stream.json\"\n"
FAULT = "#!/bin/sh\necho '{' >\"$2/bench.json\"\nkill -SEGV $$\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "gpu"
    folder.mkdir()
    shutil.copy(os.environ["MOESTRO_CHECK"], folder / "cuda_check")
    for name, text in {"cuda_pin_probe": PROBE, "cuda_bench": FAULT, "cuda_stream_bench": BENCH}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    packed = subprocess.run([HERE / "pack", "--bin", folder], capture_output=True, text=True)
    assert packed.returncode == 0, packed.stderr
    root = tmp_path_factory.mktemp("root")
    shutil.move(folder.with_name("gpu.tar.xz"), root)
    for name in CARRIED:
        (root / "tests/cuda" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / name, root / "tests/cuda" / name)
    return root


def walk(root, *flags, **environment):
    """{part: result}, and {part: its seconds}."""
    done = subprocess.run([root / "tests/cuda/run", "--bin", "gpu.tar.xz", "--out", "out", *flags], cwd=root,
                          env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, timeout=120)
    rows = re.findall(r"^\| (\w+) \| (.*) \| (\d+) \|$", done.stdout, re.M)
    assert rows, done.stdout + done.stderr
    return {part: result for part, result, _ in rows}, {part: int(seconds) for part, _, seconds in rows}


def limit_of(part):
    return int(re.search(rf"^\d {part} +(\d+) ", (HERE / "run").read_text(), re.M)[1])


def test_a_hang_and_a_fault_cost_one_test_each(root):
    parts, seconds = walk(root, "--only", "ptx,stream_bench", GTEST_ALSO_RUN_DISABLED_TESTS="1")
    tests = len(re.findall(r"^TEST\(PtxTest", (HERE / "kernels/ptx_test.cc").read_text(), re.M))
    lost = (r"lost PtxTest.DISABLED_Hangs: failed \(1\): the test hangs: no end after 10 s; "
            r"lost PtxTest.DISABLED_Faults: failed \(134\): .*; with MOESTRO_PDL=off 0 of 2 pass")
    assert re.match(rf"{tests + 2} tests, 0 failures; {lost}", parts["ptx"]), parts
    assert seconds["ptx"] <= limit_of("ptx") + 2
    assert parts["stream_bench"] == "done"


def test_a_fault_of_a_bench_costs_its_part(root):
    parts, _ = walk(root, "--only", "bench,ptx,stream_bench")
    assert parts["bench"].startswith("failed (139)")
    assert parts["ptx"].endswith("0 failures") and parts["stream_bench"] == "done"
    assert json.loads((root / "out/results.json").read_text())["stream"] == {"seconds": 1}


if __name__ == "__main__":
    os.environ["MOESTRO_CHECK"] = sys.argv[1]
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", __file__]))
