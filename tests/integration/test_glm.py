"""A GLM-4.5 (biases, heads that rotate in part, a dense layer, BF16): inspect knows it, and every path gives
transformers' tokens."""

import json

import pytest

from test_paths_agree import SPLIT, STREAMED


@pytest.fixture(scope="module")
def glm(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-glm"
    cli("make-model", "--preset", "tiny-glm", "--out", path)
    return path


def test_inspect_knows_the_family(cli, glm):
    facts = json.loads(cli("inspect", glm, "--json").stdout)
    assert facts["family"] == "glm4_moe"
    assert facts["weights"] == "BF16"
    assert facts["shapes"]["experts"] == 8
    assert facts["shapes"]["dense_layers"] == 1
    assert facts["warnings"] == []  # the prediction layer is skipped


def test_an_odd_part_of_a_head_is_refused_by_name(cli, glm, tmp_path):
    for file in glm.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((glm / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config | {"partial_rotary_factor": 0.3}))
    refused = cli("inspect", tmp_path, check=False)
    assert refused.returncode != 0
    assert "config.json: partial_rotary_factor: 38.4 of the 128 numbers of a head rotate" in refused.stderr


@pytest.mark.parametrize("flags", [
    {},
    {"router": SPLIT, "prefill": STREAMED},
    {"decode": ["--device", "host", "--overlap", "on"]},
], ids=["decode", "streamed", "hybrid"])
def test_golden_continuations(make_node, glm, repo, flags):
    """What transformers computes, whose prompts were chosen so that no step is a near tie."""
    golden = sorted((repo / "tests/golden/glm4_moe_tiny").glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(flags, model=glm) as node:
        for path in golden:
            case = json.loads(path.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, path
