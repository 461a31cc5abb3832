"""tests/cuda/node, which a machine with a GPU runs, on the host device: what it checks and writes."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.serial

NODE = Path(__file__).resolve().parents[1] / "cuda/node"
NODE_SECONDS = 900  # more than its own --seconds, after which it says what was missing; a busy machine needs a minute


@pytest.fixture
def carried(bin_dir, tmp_path):
    """A folder with what tests/cuda/pack carries, and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in re.search(r"^node_programs=\((.*)\)$", NODE.with_name("pack").read_text(), re.M)[1].split():
        shutil.copy(Path(bin_dir) / name, folder)
    return folder


def node(bin_dir, out, *flags):
    return subprocess.run([NODE, "--bin", bin_dir, "--out", out, "--device", "host", "--preset", "tiny", "--layers", "0",
                           "--experts", "0", "--prompts", "400", "--kv-tokens", "2048", *flags],
                          capture_output=True, text=True, timeout=NODE_SECONDS)


def test_a_node_on_a_device_is_checked_against_the_cpu_and_timed(carried, tmp_path):
    # Some GPUs round inputs to FP8 by default, which moves logits by more than the check allows: it does not see that.
    done = node(carried, tmp_path, "--decode-tokens", "8", "--prefill-activations", "fp8")
    written = tmp_path / "node.json"
    assert done.returncode == 0, done.stderr + (written.read_text() if written.exists() else "nothing is written")
    report = json.loads(written.read_text())
    assert report["checked_tokens"] == 48 and 0 <= report["greatest_lead"] < 0.5, report
    assert report["steps"]["paths"] == "chunked, split" and report["steps"]["answers"].endswith(": right"), report["steps"]
    assert [(row["streams"], row["prompt_tokens"], row["path"], row["inputs"]) for row in report["requests"]] == [
        (1, 64, "chunked", "bf16"), (2, 64, "chunked", "bf16"), (1, 400, "split", "fp8")], report
    assert "| 1 | 400 | split | fp8 |" in (tmp_path / "node.md").read_text()
    assert (tmp_path / "node/device/decode.log").exists() and (tmp_path / "node/cpu/decode.log").exists()


def test_a_role_that_cannot_start_is_named(bin_dir, tmp_path):
    done = node(bin_dir, tmp_path, "--device", "cuda:7")
    assert done.returncode == 1
    assert "decode ended with" in done.stderr or "prefill ended with" in done.stderr
    assert "failed" in json.loads((tmp_path / "node.json").read_text())["steps"]
