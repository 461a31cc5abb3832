"""A Qwen3-MoE (grouped queries, softmax router): every path gives the same tokens, and the same bits if the kernels are
the same."""

import json

import pytest

from node import Node
from test_paths_agree import SPLIT, STREAMED, fingerprint, prompts, run_in_decode


@pytest.fixture(scope="module")
def qwen3(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-qwen3"
    cli("make-model", "--preset", "tiny-qwen3", "--out", path)
    return path


@pytest.fixture(scope="module")
def reference(api, bin_dir, qwen3):
    with Node(api, bin_dir, qwen3, None) as node:
        return fingerprint(node)


def test_inspect_knows_the_family(cli, qwen3):
    text = cli("inspect", qwen3).stdout
    assert "qwen3_moe" in text


@pytest.mark.parametrize("flags", [
    {"router": SPLIT, "prefill": ["--chunk-tokens", "7"]},
    {"router": SPLIT, "prefill": [*STREAMED, "--ring-slots", "3"]},
    {"router": SPLIT, "prefill": ["--mla-form", "unabsorbed", *STREAMED]},
    {"decode": ["--device", "host", "--overlap", "on"]},
], ids=["split", "streamed", "form-says-nothing", "hybrid"])
def test_paths_are_bit_identical(make_node, qwen3, reference, flags):
    with make_node(flags, model=qwen3) as other:
        assert fingerprint(other) == reference


@pytest.mark.parametrize("flags", [
    {},
    {"router": SPLIT, "prefill": ["--devices", "host,host", "--device-memory", "256MB", "--device-dense-bytes", "8MB",
                                  "--stream-from-tokens", "1"]},
], ids=["decode", "two ranks"])
def test_golden_continuations(make_node, qwen3, repo, flags):
    """The tokens that transformers computes; the prompts were chosen so that no step is a near tie."""
    golden = sorted((repo / "tests/golden/qwen3_moe_tiny").glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(flags, model=qwen3) as node:
        for path in golden:
            case = json.loads(path.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, path


def test_prompts_inside_decode(make_node, qwen3, reference):
    with make_node({"decode": ["--max-chunk-tokens", "33"]}, model=qwen3) as other:
        token_count = other.stub.GetModel(other.api.inference.GetModelRequest()).vocab_size
        for ids, (tokens, _, _) in zip(prompts(token_count), reference):
            assert run_in_decode(other, ids, 16)[0] == tokens
