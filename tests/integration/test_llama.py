"""A Llama 3 (no experts, a tied head, a rotation scaled by its rule, BF16): inspect knows it, every path gives
transformers' tokens, and what is about experts refuses it by name."""

import json
import os

import pytest

from test_paths_agree import SPLIT, STREAMED

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def llama(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-llama"
    cli("make-model", "--preset", "tiny-llama", "--out", path)
    return path


def test_inspect_knows_the_family(cli, llama):
    facts = json.loads(cli("inspect", llama, "--json").stdout)
    assert facts["family"] == "llama"
    assert facts["weights"] == "BF16"
    assert facts["shapes"]["experts"] == 0
    assert facts["shapes"]["dense_layers"] == facts["shapes"]["layers"] == 2
    assert facts["active_parameters"] == facts["parameters"]
    assert facts["active_are"] == "all that a token multiplies"
    assert facts["tied_head_bytes"] > 0
    assert facts["warnings"] == []


@pytest.mark.parametrize("model, billions", [
    ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", 70.55), ("meta-llama/Llama-3.3-70B-Instruct", 70.55),
    ("meta-llama/Llama-3.2-3B", 3.21), ("llama-3.2-3b", 3.21)])
def test_published_models_need_no_files(cli, tmp_path, model, billions):
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path)}
    facts = json.loads(cli("inspect", model, "--json", "--bandwidth", "100", env=environment).stdout)
    assert facts["parameters"] / 1e9 == pytest.approx(billions, rel=0.001)
    # In BF16, all but the rows of the embedding that it looks up; a head that is the embedding is read. KV comes on top.
    tied = "tied_head_bytes" in facts
    looked_up = 0 if tied else facts["shapes"]["vocab_rows"] * facts["shapes"]["hidden_size"]
    assert facts["active_parameters"] == facts["parameters"] - looked_up
    expected = 2 * facts["active_parameters"]
    assert expected <= facts["estimate"]["bytes_per_token"] == pytest.approx(expected, rel=0.08)


def test_a_rotation_of_another_rule_is_refused_by_name(cli, llama, tmp_path):
    for file in llama.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((llama / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    config["rope_scaling"]["rope_type"] = "dynamic"
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused = cli("inspect", tmp_path, check=False)
    assert refused.returncode != 0
    assert 'config.json: rope_scaling: rope_type: "dynamic" is not supported (supported: llama3, yarn' in refused.stderr


@pytest.mark.parametrize("command, what", [
    (["plan", "--explain", "dslp"], "--explain dslp"), (["simulate", "MACHINE", "--decode"], "--decode"),
    (["simulate", "MACHINE", "--ranks", "2"], "--ranks")], ids=["plan", "decode", "ranks"])
def test_plans_of_experts_are_refused(cli, repo, command, what):
    command = [str(repo / "deploy/hardware/rtx5090-epyc9355.json") if c == "MACHINE" else c for c in command]
    refused = cli(*command, "--model", "llama-3.2-3b", check=False)
    assert refused.returncode != 0
    assert f"--model llama-3.2-3b: no layer has routed experts, which {what} is about" in refused.stderr


def test_a_streamed_prefill_is_simulated(cli, repo):
    machine = repo / "deploy/hardware/rtx5090-epyc9355.json"
    simulated = json.loads(cli("simulate", machine, "--model", "llama-3.2-3b", "--tokens", "8192", "--json").stdout)
    (row,) = simulated["prefill"]
    # Some 2.8 GB of FP8 weights, and the head of the embedding's 0.8 GB in BF16.
    assert 2.8e9 < row["streamed_bytes"] < 3.8e9
    assert row["ttft_seconds"] > 0


@pytest.mark.parametrize("flags", [
    {},
    {"router": SPLIT, "prefill": STREAMED},
], ids=["decode", "streamed"])
def test_golden_continuations(make_node, llama, repo, flags):
    """What transformers computes, whose prompts were chosen so that no step is a near tie."""
    golden = sorted((repo / "tests/golden/llama_tiny").glob("prompt_*.json"))
    assert len(golden) == 6
    with make_node(flags, model=llama) as node:
        for path in golden:
            case = json.loads(path.read_text())
            expected = case["variants"]["f32"]["greedy"]["tokens"]
            assert node.generate(case["prompt"], len(expected), ignore_eos=True)[0] == expected, path
