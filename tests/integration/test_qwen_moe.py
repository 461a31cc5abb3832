"""Forms of Qwen's MoE models beside tiny-qwen3: inspect knows them, and every path gives transformers' tokens."""

import json

import pytest

from test_paths_agree import SPLIT, STREAMED

GOLDENS = {"tiny-qwen3-mixed": "qwen3_moe_mixed_tiny", "tiny-qwen2": "qwen2_moe_tiny"}


@pytest.fixture(scope="module", params=GOLDENS)
def preset(request):
    return request.param


@pytest.fixture(scope="module")
def model(cli, preset, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / preset
    cli("make-model", "--preset", preset, "--out", path)
    return path


def test_inspect_tells_dense_layers_and_what_a_tied_head_costs(cli, model, preset):
    facts = json.loads(cli("inspect", model, "--json").stdout)
    assert facts["warnings"] == []
    mixed = preset == "tiny-qwen3-mixed"
    assert facts["shapes"]["dense_layers"] == (2 if mixed else 0)
    assert facts.get("tied_head_bytes") == (2048 * 256 * 2 if mixed else None)
    index = json.loads((model / "model.safetensors.index.json").read_text())
    assert ("lm_head.weight" in index["weight_map"]) != mixed


@pytest.mark.parametrize("flags", [
    {},
    {"router": SPLIT, "prefill": STREAMED},
    {"router": SPLIT, "prefill": ["--devices", "host,host", "--device-memory", "256MB", "--device-dense-bytes", "8MB",
                                  "--stream-from-tokens", "1"]},
    {"decode": ["--device", "host", "--overlap", "on", "--expert-cache-bytes", "8MB"]},
], ids=["decode", "streamed", "ranks", "hybrid"])
def test_golden_continuations(make_node, model, preset, repo, flags):
    """What transformers computes, whose prompts were chosen so that no step is a near tie."""
    golden = sorted((repo / "tests/golden" / GOLDENS[preset]).glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(flags, model=model) as node:
        for path in golden:
            case = json.loads(path.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, path
