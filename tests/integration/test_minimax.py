"""A MiniMax-M2 (norms over all heads, names of its own, FP8): inspect knows it, and every path gives transformers'
tokens."""

import json

import pytest

from test_paths_agree import SPLIT, STREAMED


@pytest.fixture(scope="module")
def minimax(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-minimax"
    cli("make-model", "--preset", "tiny-minimax", "--out", path)
    return path


def test_inspect_knows_the_family(cli, minimax):
    facts = json.loads(cli("inspect", minimax, "--json").stdout)
    assert facts["family"] == "minimax_m2"
    assert facts["shapes"]["experts"] == 8
    assert facts["warnings"] == []


@pytest.mark.parametrize("flags", [
    {},
    {"router": SPLIT, "prefill": STREAMED},
    {"decode": ["--device", "host", "--overlap", "on"]},
], ids=["decode", "streamed", "hybrid"])
def test_golden_continuations(make_node, minimax, repo, flags):
    """What transformers computes, whose prompts were chosen so that no step is a near tie."""
    golden = sorted((repo / "tests/golden/minimax_m2_tiny").glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(flags, model=minimax) as node:
        for path in golden:
            case = json.loads(path.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, path
