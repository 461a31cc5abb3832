"""DeepSeek-V2 (groups by their largest score), V2-Lite (queries without a rank) and Kimi-K2 (one group of many experts):
inspect knows them, and every path gives transformers' tokens."""

import json

import pytest

from test_paths_agree import SPLIT, STREAMED

# The directory of the goldens, and what inspect says.
FAMILIES = {
    "tiny-deepseek-v2": ("deepseek_v2_tiny", {"family": "deepseek_v2", "weights": "BF16", "experts": 32}),
    "tiny-deepseek-v2-lite": ("deepseek_v2_lite_tiny", {"family": "deepseek_v2", "weights": "BF16", "experts": 16}),
    "tiny-kimi-k2": ("kimi_k2_tiny", {"family": "kimi_k2", "weights": "FP8 with 128x128 block scales", "experts": 48}),
}


@pytest.fixture(scope="module", params=FAMILIES)
def made(request, cli, tmp_path_factory):
    """The preset and its checkpoint."""
    path = tmp_path_factory.mktemp("models") / request.param
    cli("make-model", "--preset", request.param, "--out", path)
    return request.param, path


def test_inspect_knows_the_family(cli, made):
    preset, model = made
    facts = json.loads(cli("inspect", model, "--json").stdout)
    assert {"family": facts["family"], "weights": facts["weights"],
            "experts": facts["shapes"]["experts"]} == FAMILIES[preset][1]
    assert facts["warnings"] == []


@pytest.mark.parametrize("flags", [
    {},
    {"router": SPLIT, "prefill": STREAMED},
    {"router": SPLIT, "prefill": ["--devices", "host,host", "--device-memory", "256MB", "--device-dense-bytes", "8MB",
                                  "--stream-from-tokens", "1"]},
    {"decode": ["--device", "host", "--overlap", "on"]},
], ids=["decode", "streamed", "ranks", "hybrid"])
def test_golden_continuations(make_node, made, repo, flags):
    """What transformers computes, whose prompts were chosen so that no step is a near tie."""
    preset, model = made
    golden = sorted((repo / "tests/golden" / FAMILIES[preset][0]).glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(flags, model=model) as node:
        for path in golden:
            case = json.loads(path.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, path
