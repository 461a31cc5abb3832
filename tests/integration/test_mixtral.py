"""A Mixtral (heads without norms, names of its own, BF16): inspect knows it, and every path gives transformers' tokens."""

import json

import pytest

from test_paths_agree import SPLIT, STREAMED


@pytest.fixture(scope="module")
def mixtral(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-mixtral"
    cli("make-model", "--preset", "tiny-mixtral", "--out", path)
    return path


def test_inspect_knows_the_family(cli, mixtral):
    facts = json.loads(cli("inspect", mixtral, "--json").stdout)
    assert facts["family"] == "mixtral"
    assert facts["weights"] == "BF16"
    assert facts["shapes"]["experts"] == 8
    assert facts["warnings"] == []


def test_a_window_is_refused_by_name(cli, mixtral, tmp_path):
    for file in mixtral.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((mixtral / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config | {"sliding_window": 4096}))
    refused = cli("inspect", tmp_path, check=False)
    assert refused.returncode != 0
    assert "config.json: sliding_window: 4096 is less than max_position_embeddings = 32768" in refused.stderr


@pytest.mark.parametrize("flags", [
    {},
    {"router": SPLIT, "prefill": STREAMED},
    {"decode": ["--device", "host", "--overlap", "on"]},
], ids=["decode", "streamed", "hybrid"])
def test_golden_continuations(make_node, mixtral, repo, flags):
    """What transformers computes, whose prompts were chosen so that no step is a near tie."""
    golden = sorted((repo / "tests/golden/mixtral_tiny").glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(flags, model=mixtral) as node:
        for path in golden:
            case = json.loads(path.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, path
