"""Programs and libraries that people use, from PyPI, in pinned versions. They are installed under build/ when a test first
needs them, and again when their versions change. Where no registry answers, the tests that need them are skipped."""
import importlib
import shutil
import subprocess
import sys

import pytest
from node import REPO

HERE = REPO / "tests" / "integration"
# Where programs find a proxy that does not listen: they would ask for updates, or report.
OFFLINE = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
OFFLINE |= {name.lower(): value for name, value in OFFLINE.items()}



def environment(name, requirements, options=()):
    """The folder of a virtual environment. Wheels only: they run nothing while they are installed."""
    folder = REPO / "build" / name
    wanted = requirements.read_text()
    installed = folder / "installed.txt"
    if installed.exists() and installed.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    try:
        pip = subprocess.run(
            [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet", "--no-compile",
             "--disable-pip-version-check", "--only-binary", ":all:", *options, "--requirement", requirements],
            capture_output=True, text=True, timeout=600)
        reason = pip.stderr.strip().splitlines()[-1:] if pip.returncode else None
    except subprocess.TimeoutExpired:
        reason = ["pip took more than 600 s"]
    if reason is not None:
        pytest.skip(f"{requirements.name} could not be installed from PyPI: {' '.join(reason)}", allow_module_level=True)
    installed.write_text(wanted)
    return folder


def load(name):
    """The module `name` of pypi.txt. Call it at the top of a test file: it skips the whole file."""
    folder = environment("pypi", HERE / "pypi.txt")
    packages = str(next(folder.glob("lib/python*/site-packages")))
    if packages not in sys.path:
        sys.path.insert(0, packages)  # first: Debian's typing_extensions is too old for them
    return importlib.import_module(name)


def python(group):
    """The Python that has what clients/GROUP.txt lists, and nothing else: without what these packages would bring along."""
    return environment(f"clients/{group}", HERE / "clients" / f"{group}.txt", ["--no-deps"]) / "bin/python"
