"""A DBRX (stacked and transposed tensors, LayerNorm, a clamp): inspect knows it, and every path gives transformers' tokens."""

import json

import pytest

from test_paths_agree import SPLIT, STREAMED


@pytest.fixture(scope="module")
def dbrx(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-dbrx"
    cli("make-model", "--preset", "tiny-dbrx", "--out", path)
    return path


def test_inspect_knows_the_family(cli, dbrx):
    facts = json.loads(cli("inspect", dbrx, "--json").stdout)
    assert facts["family"] == "dbrx"
    assert facts["weights"] == "BF16"
    assert facts["shapes"]["experts"] == 8
    assert facts["warnings"] == []


def test_another_norm_of_experts_weights_is_refused_by_name(cli, dbrx, tmp_path):
    config = json.loads((dbrx / "config.json").read_text())
    config["ffn_config"]["moe_normalize_expert_weights"] = 2
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused = cli("inspect", tmp_path / "config.json", check=False)
    assert refused.returncode != 0
    assert "config.json: ffn_config: moe_normalize_expert_weights: only 1 and null are supported" in refused.stderr


@pytest.mark.parametrize("flags", [
    {},
    {"router": SPLIT, "prefill": STREAMED},
    {"router": SPLIT, "prefill": ["--devices", "host,host", "--device-memory", "256MB", "--device-dense-bytes", "8MB",
                                  "--stream-from-tokens", "1"]},
    {"decode": ["--device", "host", "--overlap", "on"]},
], ids=["decode", "streamed", "ranks", "hybrid"])
def test_golden_continuations(make_node, dbrx, repo, flags):
    """What transformers computes, whose prompts were chosen so that no step is a near tie."""
    golden = sorted((repo / "tests/golden/dbrx_tiny").glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(flags, model=dbrx) as node:
        for path in golden:
            case = json.loads(path.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, path
