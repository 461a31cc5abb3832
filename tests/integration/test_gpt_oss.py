"""A gpt-oss (sinks, windows, experts with biases in one tensor): inspect knows it, and every path gives transformers'
tokens."""

import json
import os

import pytest

from test_paths_agree import SPLIT, STREAMED


@pytest.fixture(scope="module")
def gpt_oss(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-gpt-oss"
    cli("make-model", "--preset", "tiny-gpt-oss", "--out", path)
    return path


def test_inspect_knows_the_family(cli, gpt_oss):
    facts = json.loads(cli("inspect", gpt_oss, "--json").stdout)
    assert facts["family"] == "gpt_oss"
    assert facts["shapes"]["experts"] == 8
    assert facts["warnings"] == []


@pytest.mark.parametrize("flags", [
    {},
    {"router": SPLIT, "prefill": STREAMED},
    {"decode": ["--device", "host", "--overlap", "on"]},
], ids=["decode", "streamed", "hybrid"])
def test_golden_continuations(make_node, gpt_oss, repo, flags):
    """What transformers computes, whose prompts were chosen so that no step is a near tie."""
    golden = sorted((repo / "tests/golden/gpt_oss_tiny").glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(flags, model=gpt_oss) as node:
        for path in golden:
            case = json.loads(path.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, path


@pytest.mark.parametrize("model, total, active", [("openai/gpt-oss-20b", 20.9, 3.61), ("openai/gpt-oss-120b", 116.8, 5.13)])
def test_parameters_as_published(cli, tmp_path, model, total, active):
    """The publisher counts the head as active, and the embedding as none."""
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path)}
    facts = json.loads(cli("inspect", model, "--json", "--bandwidth", "100", env=environment).stdout)
    assert facts["parameters"] / 1e9 == pytest.approx(total, rel=0.005)
    assert facts["active_parameters"] / 1e9 == pytest.approx(active, rel=0.005)
