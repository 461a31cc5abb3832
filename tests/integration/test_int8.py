"""INT8 and INT4 weights under each --int8-activations: every path of a node gives the same bits, and the setting changes
those of the weights that it names."""

import grpc
import pytest

from node import Node
from test_paths_agree import SPLIT, STREAMED, fingerprint

PATHS = {
    "split": {"router": SPLIT, "prefill": ["--chunk-tokens", "7"]},
    "streamed": {"router": SPLIT, "prefill": [*STREAMED, "--ring-slots", "3"]},
    "hybrid": {"decode": ["--device", "host", "--overlap", "on"]},
}


@pytest.fixture(scope="module", params=["int8", "int4"])
def weights(request, cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / request.param
    cli("make-model", "--preset", "tiny-qwen3", "--weights", request.param, "--out", path)
    return request.param, path


def with_setting(setting, flags):
    return {role: [*flags.get(role, []), *(["--int8-activations", setting] if role != "router" else [])]
            for role in ["prefill", "decode", "router"]}


def test_every_path_under_every_setting(api, bin_dir, weights):
    """Slow: a setting and a path are flags, so each of up to ten pairs has a node of its own."""
    name, model = weights
    bits = {}
    for setting in ["published", "all", "bf16"]:
        with Node(api, bin_dir, model, with_setting(setting, {})) as node:
            bits[setting] = fingerprint(node)
        rounded = {"int8": ["published", "all"], "int4": ["all"]}[name]
        paths = PATHS if setting in rounded else {"split": PATHS["split"]}
        for path, flags in paths.items():
            with Node(api, bin_dir, model, with_setting(setting, flags)) as node:
                assert fingerprint(node) == bits[setting], (setting, path)
    assert (bits["published"] == bits["all"]) == (name == "int8")
    assert (bits["published"] == bits["bf16"]) == (name == "int4")
    assert bits["all"] != bits["bf16"]


def test_roles_with_different_settings_do_not_mix(api, bin_dir, weights):
    """Decode computes what prefill refuses; what only prefill computes fails, and names both settings."""
    _, model = weights
    prompt = list(range(10, 110))
    with Node(api, bin_dir, model, with_setting("all", {"router": SPLIT})) as node:
        tokens = node.generate(prompt, 8, ignore_eos=True)[0]
    flags = with_setting("all", {"router": SPLIT})
    flags["prefill"] = ["--int8-activations", "bf16"]
    with Node(api, bin_dir, model, flags) as node:
        generated, _, finished = node.generate(prompt, 8, ignore_eos=True)[:3]
        assert generated == tokens and finished.resumed == 1
        assert node.metric("prefill", "moestro_prefill_requests_total") == 1
        with pytest.raises(grpc.RpcError) as error:
            node.score(prompt)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        for text in [error.value.details(), node.log("router")]:
            for part in ["decode, runs with --int8-activations all", "prefill with --int8-activations bf16", "start both"]:
                assert part in text
