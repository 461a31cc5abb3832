"""Families of models beside DeepSeek-V3: inspect knows them, what they cannot be is refused by name, and every path
gives transformers' tokens."""

import json

import pytest

from test_paths_agree import SPLIT, STREAMED

FP8 = "FP8 with 128x128 block scales"
# Preset: the directory of the goldens, and what inspect says.
FAMILIES = {
    "tiny-dbrx": ("dbrx_tiny", {"family": "dbrx", "weights": "BF16", "experts": 8}),
    "tiny-deepseek-v2": ("deepseek_v2_tiny", {"family": "deepseek_v2", "weights": "BF16", "experts": 32}),
    "tiny-deepseek-v2-lite": ("deepseek_v2_lite_tiny", {"family": "deepseek_v2", "weights": "BF16", "experts": 16}),
    "tiny-glm": ("glm4_moe_tiny", {"family": "glm4_moe", "weights": "BF16", "experts": 8, "dense_layers": 1}),
    "tiny-gpt-oss": ("gpt_oss_tiny", {"family": "gpt_oss", "weights": "BF16", "experts": 8}),
    "tiny-kimi-k2": ("kimi_k2_tiny", {"family": "kimi_k2", "weights": FP8, "experts": 48}),
    "tiny-minimax": ("minimax_m2_tiny", {"family": "minimax_m2", "weights": FP8, "experts": 8}),
    "tiny-mixtral": ("mixtral_tiny", {"family": "mixtral", "weights": "BF16", "experts": 8}),
    "tiny-qwen2": ("qwen2_moe_tiny", {"family": "qwen2_moe", "weights": "BF16", "dense_layers": 0}),
    "tiny-qwen3-mixed": ("qwen3_moe_mixed_tiny", {"family": "qwen3_moe", "weights": FP8, "dense_layers": 2,
                                                  "tied_head_bytes": 2048 * 256 * 2}),
}
PATHS = {
    "decode": {},
    "streamed": {"router": SPLIT, "prefill": STREAMED},
    "ranks": {"router": SPLIT, "prefill": ["--devices", "host,host", "--device-memory", "256MB", "--device-dense-bytes",
                                           "8MB", "--stream-from-tokens", "1"]},
    "hybrid": {"decode": ["--device", "host", "--overlap", "on", "--expert-cache-bytes", "8MB"]},
}
# Preset, a field of config.json and its value, and the error.
REFUSED = {
    "norm of experts' weights": ("tiny-dbrx", "ffn_config.moe_normalize_expert_weights", 2,
                                 "ffn_config: moe_normalize_expert_weights: only 1 and null are supported"),
    "odd part of a head": ("tiny-glm", "partial_rotary_factor", 0.3,
                           "partial_rotary_factor: 38.4 of the 128 numbers of a head rotate"),
    "window": ("tiny-mixtral", "sliding_window", 4096,
               "sliding_window: 4096 is less than max_position_embeddings = 32768"),
}


@pytest.fixture(scope="module")
def made(cli, tmp_path_factory):
    """The checkpoint of a preset; each is made once."""

    def make(preset):
        if preset not in done:
            done[preset] = tmp_path_factory.mktemp("models") / preset
            cli("make-model", "--preset", preset, "--out", done[preset])
        return done[preset]

    done = {}
    return make


@pytest.mark.smoke
@pytest.mark.parametrize("preset", FAMILIES)
def test_inspect_knows_the_family(cli, made, preset):
    model, expected = made(preset), FAMILIES[preset][1]
    facts = json.loads(cli("inspect", model, "--json").stdout)
    assert {key: facts.get(key, facts["shapes"].get(key)) for key in expected} == expected
    assert facts["warnings"] == []  # a prediction layer is skipped
    tied = "tied_head_bytes" in expected
    assert ("tied_head_bytes" in facts) == tied
    index = json.loads((model / "model.safetensors.index.json").read_text())
    if preset.startswith("tiny-qwen"):
        assert ("lm_head.weight" in index["weight_map"]) != tied


@pytest.mark.smoke
@pytest.mark.parametrize("case", REFUSED)
def test_what_changes_the_arithmetic_is_refused_by_name(cli, made, tmp_path, case):
    preset, field, value, message = REFUSED[case]
    config = json.loads((made(preset) / "config.json").read_text())
    *outer, last = field.split(".")
    inner = config
    for key in outer:
        inner = inner[key]
    inner[last] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused = cli("inspect", tmp_path / "config.json", check=False)
    assert refused.returncode != 0
    assert f"config.json: {message}" in refused.stderr


@pytest.mark.parametrize("path", [pytest.param("decode", marks=pytest.mark.smoke), *list(PATHS)[1:]])
@pytest.mark.parametrize("preset", FAMILIES)
def test_golden_continuations(make_node, made, repo, preset, path):
    """What transformers computes, whose prompts were chosen so that no step is a near tie."""
    golden = sorted((repo / "tests/golden" / FAMILIES[preset][0]).glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(PATHS[path], model=made(preset)) as node:
        for file in golden:
            case = json.loads(file.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, file
