"""deploy/compose.gpu.yaml where there is no GPU: its image is built with the CUDA toolkit of this machine, and its node serves."""

import json
import shutil
from pathlib import Path

import pytest

from conftest import BUILD_SECONDS, HERE, REPO, Deployment, run

IMAGE = "moestro-test:cuda"
TOOLKIT = Path("/usr/local/cuda")
pytestmark = pytest.mark.skipif(not (TOOLKIT / "bin/nvcc").exists(), reason="no CUDA toolkit")


@pytest.fixture(scope="module")
def node(model, tmp_path_factory):
    deployment = Deployment(model, "moestro-test-cuda", [REPO / "deploy/compose.gpu.yaml", HERE / "no-gpu.yaml"])
    toolkit = tmp_path_factory.mktemp("toolkit")
    shutil.copytree(TOOLKIT, toolkit / "usr/local/cuda", symlinks=True)
    deployment.environment |= {"MOESTRO_CUDA_IMAGE": IMAGE, "CUDA_TOOLKIT": str(toolkit)}
    deployment.compose("build", seconds=BUILD_SECONDS)
    with deployment:
        yield deployment


def test_the_image_has_nothing_of_the_toolkit(node):
    size = int(run("docker", "image", "inspect", "--format={{.Size}}", IMAGE))
    print(f"\nimage: {size / 1e6:.0f} MB")
    assert size < 200e6


def test_prefill_says_that_there_is_no_device_and_serves(node):
    assert "--device=cuda:0" in node.containers()["prefill"]["Config"]["Cmd"]
    lines = [line for line in node.compose("logs", "prefill").splitlines() if "CUDA" in line or "cuda" in line]
    print("\n" + "\n".join(lines))
    assert len(lines) == 1
    answer = json.loads(node.moestro("moestro", "generate", "--prompt=" + "Hello " * 200, "--max-tokens=8", "--ignore-eos", "--json"))
    assert len(answer["token_ids"]) == 8
