"""Every kernel compiles for every kind of GPU, within the budget. Needs nvcc, but no GPU."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SOURCES = sorted((ROOT / "common/kernels/cuda").glob("*.cu"))
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
CCACHE = [path for path in [shutil.which("ccache")] if path]  # it also keeps what ptxas prints


def targets():
    """Of the preset cuda."""
    names = re.search(r"set\(architectures (\d[^)]*)\)", (ROOT / "CMakeLists.txt").read_text())[1].split()
    return [name.removesuffix("-real") for name in names if name.endswith("-real")]


def without_comments(path):
    return re.sub(r"//.*", "", path.read_text())


def conditions(text, older, newer):
    """Preprocessor conditions by which two kinds of GPU, in digits, may differ."""
    levels = re.findall(r"__CUDA_ARCH__ >= (\d+)", text)
    assert len(levels) == len(re.findall("__CUDA_ARCH__", text)), "conditions of another form"
    return [level for level in levels if 10 * int(older) < int(level) <= 10 * int(newer)]


def differing_functions(older, newer):
    """Of ptx.cuh: those whose bodies differ between two kinds of GPU."""
    parts = re.split(r"__forceinline__ [\w*]+ (\w+)\(", without_comments(ROOT / "common/kernels/cuda/ptx.cuh"))
    return [name for name, body in zip(parts[1::2], parts[2::2]) if conditions(body, older, newer)]


def closure(source):
    """The source and what it includes of the repository, without ptx.cuh."""
    found, open_ = {}, [source]
    while open_:
        path = open_.pop()
        if path in found or path.name == "ptx.cuh" or not path.exists():
            continue
        found[path] = without_comments(path)
        open_ += [ROOT / name for name in re.findall(r'#include "([^"]+)"', found[path])]
    return "\n".join(found.values())


def are_alike(source, older, newer):
    """Whether two kinds of GPU get the same PTX: no condition and no wrapper tells them apart."""
    if not (older + newer).isdigit():
        return False  # the instructions of one kind only, such as 90a's
    text = closure(source)
    names = differing_functions(older, newer)
    return not conditions(text, older, newer) and not re.search(rf"\b({'|'.join(names or ['$.'])})\b", text)


def kinds_of(source):
    """Flags. Kinds of GPU with the same PTX share it: it is half of the time, and ptxas compiles it for each."""
    groups = []
    for name in targets():
        alike = next((group for group in groups if are_alike(source, group[0], name)), None)
        alike.append(name) if alike else groups.append([name])
    return [flag for group in groups
            for flag in ("-gencode", f"arch=compute_{group[0]},code=[{','.join('sm_' + name for name in group)}]")]


def test_what_differs():
    assert targets() == ["80", "89", "90a", "120f"]
    assert differing_functions("80", "89") == ["MmaE4M3", "PackE4M3", "MaxAbsBf16x2"]
    assert {"BeginKernel", "Prefetch"} <= set(differing_functions("89", "90"))
    alone = {source.stem for source in SOURCES if not are_alike(source, "80", "89")}
    assert alone == {"fp8_inputs", "fp8_linear", "linear"}


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_compiles_within_the_budget(source, tmp_path):
    kinds = kinds_of(source)
    assert kinds and SOURCES
    command = [HERE / "check_resources", *CCACHE, NVCC, "-c", "-std=c++20", "-O3", "-fmad=false", "-Werror", "all-warnings",
               "-Xptxas", "-v", "--threads", "1", f"-I{ROOT}", *kinds, source, "-o", tmp_path / "kernels.o"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT,
                          env=os.environ | {"CCACHE_BASEDIR": str(ROOT)})
    assert done.returncode == 0 and (tmp_path / "kernels.o").exists(), done.stdout + done.stderr
