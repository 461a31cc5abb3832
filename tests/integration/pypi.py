"""Clients that people use, from PyPI, in the versions of pypi.txt. They are installed into build/pypi when a test first
needs one. Where no registry answers, the tests that need one are skipped."""
import importlib
import shutil
import subprocess
import sys

import pytest
from node import REPO

REQUIREMENTS = REPO / "tests" / "integration" / "pypi.txt"
FOLDER = REPO / "build" / "pypi"


def load(name):
    """The module `name`. Call it at the top of a test file: it skips the whole file."""
    wanted = REQUIREMENTS.read_text()
    installed = FOLDER / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        try:
            pip = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
                 "--target", str(FOLDER), "--requirement", str(REQUIREMENTS)], capture_output=True, text=True, timeout=300)
            reason = pip.stderr.strip().splitlines()[-1:] if pip.returncode else None
        except subprocess.TimeoutExpired:
            reason = ["pip took more than 300 s"]
        if reason is not None:
            pytest.skip(f"{name} could not be installed from PyPI: {' '.join(reason)}", allow_module_level=True)
        installed.write_text(wanted)
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))  # first: Debian's typing_extensions is too old for them
    return importlib.import_module(name)
