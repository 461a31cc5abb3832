"""What a checkpoint says of sampling and length, and what a request gets that says nothing of them."""

import json
import shutil
import urllib.request

import pytest

from node import Node

MOST = 30


@pytest.fixture(scope="module")
def silent_model(tiny_model, tmp_path_factory):
    """It publishes no sampling, and how long its answers may be."""
    folder = tmp_path_factory.mktemp("models") / "silent"
    shutil.copytree(tiny_model, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "max_new_tokens": MOST}))
    return folder


@pytest.fixture(scope="module")
def silent(api, bin_dir, silent_model):
    with Node(api, bin_dir, silent_model) as node:
        yield node


def test_a_model_that_says_nothing_is_sampled_as_it_is(silent, silent_model, cli):
    published = {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1}
    told = json.loads(cli("model", "--json", "--server", silent.grpc_address).stdout)
    assert {key: told[f"default_{key}"] for key in published} == published
    assert told["sampling_source"] == "nothing is published" and told["default_max_tokens"] == MOST
    inspected = json.loads(cli("inspect", "--json", silent_model, "--bandwidth", 1, "--gflops", 1).stdout)
    assert inspected["sampling"] == published | {"source": "nothing is published"}
    assert "sampling by default (nothing is published): temperature 1, top-p 1, top-k 0" in silent.log("router")
    def ids(**fields):
        return silent.generate("The quick brown fox", 12, temperature=None, ignore_eos=True, **fields)[0]
    assert ids(seed=1) == ids(seed=1) != ids(seed=2)


def test_answers_are_as_long_as_the_checkpoint_says(silent):
    request = urllib.request.Request(f"http://127.0.0.1:{silent.http_port}/v1/completions",
                                     json.dumps({"prompt": [7] * 5, "ignore_eos": True}).encode())
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert json.load(reply)["usage"]["completion_tokens"] == MOST


def test_what_is_published_is_told(node, cli):
    told = cli("model", "--server", node.grpc_address).stdout
    assert "temperature 0.6, top-p 0.95" in told and "(generation_config.json)" in told
    assert "to the end of the context" in told
