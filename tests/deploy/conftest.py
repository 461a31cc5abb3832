import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests/integration"))


@pytest.fixture(scope="session")
def checkers():
    """Folder with the packages of requirements.txt, unpacked once; skips where the package index cannot be reached."""
    folder = REPO / "build/tools/python"
    wanted = (Path(__file__).parent / "requirements.txt").read_text()
    stamp = folder / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        install = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--upgrade",
                                  "--target", folder, "-r", Path(__file__).parent / "requirements.txt"],
                                 capture_output=True, text=True)
        if "No matching distribution" in install.stderr or "No module named pip" in install.stderr:
            pytest.skip(f"cannot get the packages of tests/deploy/requirements.txt: {install.stderr}")
        assert install.returncode == 0, install.stderr
        stamp.write_text(wanted)
    return folder
