"""Every kernel compiles for every kind of GPU, within the budget. Needs nvcc, but no GPU."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SOURCES = sorted((ROOT / "common/kernels/cuda").glob("*.cu"))
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def targets():
    """Of the preset cuda."""
    names = re.search(r"set\(CMAKE_CUDA_ARCHITECTURES ([^)]*)\)", (ROOT / "CMakeLists.txt").read_text())[1].split()
    return [name.removesuffix("-real") for name in names if name.endswith("-real")]


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_compiles_within_the_budget(source, tmp_path):
    kinds = [flag for name in targets() for flag in ("-gencode", f"arch=compute_{name},code=sm_{name}")]
    assert kinds and SOURCES
    command = [HERE / "check_resources", NVCC, "-c", "-std=c++20", "-O3", "-fmad=false", "-Werror", "all-warnings",
               "-Xptxas", "-v", "--threads", "1", f"-I{ROOT}", *kinds, source, "-o", tmp_path / "kernels.o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "kernels.o").exists(), done.stdout + done.stderr
