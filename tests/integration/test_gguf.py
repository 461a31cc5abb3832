"""A node that serves one file in GGUF: inspect tells of it, it answers, and a restarted store adopts the segment."""

import json

import pytest

from node import Node

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def model(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-mixtral.gguf"
    cli("make-model", "--preset", "tiny-mixtral", "--weights", "q4_k_m", "--out", path)
    return path


def test_inspect_tells_of_a_file(cli, model):
    facts = json.loads(cli("inspect", model, "--json").stdout)
    assert facts["family"] == "mixtral"
    assert facts["shapes"]["experts"] == 8


def test_it_answers_and_is_adopted(api, bin_dir, cli, model):
    prompt = list(range(40, 60))
    with Node(api, bin_dir, model) as node:
        tokens = node.generate(prompt, 8, ignore_eos=True)[0]
        assert len(tokens) == 8
        chat = cli("chat", "--server", f"127.0.0.1:{node.grpc_port}", "--max-tokens", "4", input="Hello\n")
        assert chat.returncode == 0
        node.kill("weight_store")
        node.start("weight_store")
        node.wait_serving("weight_store")
        assert "adopted" in node.log("weight_store")
        node.wait_serving()
        assert node.generate(prompt, 8, ignore_eos=True)[0] == tokens


@pytest.mark.parametrize("size", [3, 40, 4000])
def test_a_short_file_is_refused_in_one_line(cli, model, tmp_path, size):
    short = tmp_path / "short.gguf"
    with open(model, "rb") as whole:
        short.write_bytes(whole.read(size))
    refused = cli("inspect", short, check=False)
    assert refused.returncode != 0
    assert len(refused.stderr.strip().splitlines()) == 1 and "short.gguf" in refused.stderr
