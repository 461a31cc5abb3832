"""Weights in the types that publishers use, from make-model to the answer: the same bits when a prompt streams through
a device and decode computes on one."""

import pytest

from node import Node
from test_paths_agree import SPLIT, STREAMED, fingerprint

# Preset, weights and the file's suffix.
TYPES = {
    "int8": ("tiny", "int8", ""),
    "int4": ("tiny-kimi-k2", "int4", ""),
    "mxfp4": ("tiny-qwen3-mixed", "mxfp4", ""),
    "q8_0": ("tiny", "q8_0", ".gguf"),
    "q4_k_m": ("tiny-glm", "q4_k_m", ".gguf"),
}


@pytest.mark.parametrize("weights", TYPES)
def test_streamed_prompts_and_hybrid_steps_are_bit_identical(api, bin_dir, cli, tmp_path, weights):
    """Slow: a model is made for each type, and two nodes serve it."""
    preset, name, suffix = TYPES[weights]
    model = tmp_path / f"model{suffix}"
    cli("make-model", "--preset", preset, "--weights", name, "--layers", "2", "--out", model)
    with Node(api, bin_dir, model, {"prefill": ["--mla-form", "absorbed"]}) as node:
        expected = fingerprint(node)
    flags = {"router": SPLIT, "prefill": ["--mla-form", "absorbed", *STREAMED, "--ring-slots", "3"],
             "decode": ["--device", "host", "--overlap", "on"]}
    with Node(api, bin_dir, model, flags) as node:
        assert fingerprint(node) == expected
        assert node.metric("prefill", "moestro_prefill_streamed_bytes_total") > 0
