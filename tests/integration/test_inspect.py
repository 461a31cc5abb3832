"""`moestro inspect` on the published configs: parameter counts and segment sizes."""

import json
import os

import pytest

V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc",
    "scoring_func": "sigmoid", "norm_topk_prob": True, "routed_scaling_factor": 2.5, "rope_theta": 10000,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                     "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
    "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "attention_bias": False, "tie_word_embeddings": False,
    "hidden_act": "silu", "vocab_size": 129280, "bos_token_id": 0, "eos_token_id": 1, "num_nextn_predict_layers": 1,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                            "weight_block_size": [128, 128]},
}
K2 = dict(V3, model_type="kimi_k2", num_attention_heads=64, num_key_value_heads=64, n_routed_experts=384,
          first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=2.827, rope_theta=50000,
          max_position_embeddings=131072, vocab_size=163840, bos_token_id=163584, eos_token_id=163585,
          num_nextn_predict_layers=0, rope_scaling=dict(V3["rope_scaling"], factor=32, beta_fast=1, beta_slow=1))


@pytest.mark.parametrize("config, billions", [(V3, "671.026"), (K2, "1026.408")])
def test_parameter_counts(cli, tmp_path, config, billions):
    (tmp_path / "config.json").write_text(json.dumps(config))
    text = cli("inspect", tmp_path / "config.json").stdout
    assert f"{billions} B" in text and "segment" in text.lower()
    facts = json.loads(cli("inspect", tmp_path / "config.json", "--json").stdout)
    assert facts["segment_bytes"] > 0.99 * float(billions) * 1e9


# As their publishers round them: in all, and for one token.
@pytest.mark.parametrize("model, total, active", [
    ("deepseek-ai/DeepSeek-V3", 671, 37), ("deepseek-ai/DeepSeek-R1", 671, 37), ("moonshotai/Kimi-K2-Instruct", 1026, 32),
    ("deepseek-ai/DeepSeek-V2", 235.7, 21), ("Qwen/Qwen2-57B-A14B", 57.4, 14),
    ("Qwen/Qwen3-235B-A22B", 235, 22), ("mistralai/Mixtral-8x7B-v0.1", 46.7, 12.9), ("mixtral-8x7b", 46.7, 12.9)])
def test_published_models_need_no_files(cli, tmp_path, model, total, active):
    result = cli("inspect", model, "--json", "--bandwidth", "100", env={**os.environ, "HF_HUB_CACHE": str(tmp_path)})
    facts = json.loads(result.stdout)
    assert facts["parameters"] / 1e9 == pytest.approx(total, rel=0.005)
    assert facts["active_parameters"] / 1e9 == pytest.approx(active, rel=0.03)
    estimate = facts["estimate"]
    assert estimate["decode_tokens_per_second"] == pytest.approx(100e9 / estimate["bytes_per_token"])
    # A token reads the parameters that it multiplies, once; KV comes on top.
    width = 1 if "FP8" in facts["weights"] else 2
    assert estimate["bytes_per_token"] == pytest.approx(width * facts["active_parameters"], rel=0.08)
    assert estimate["prefill_seconds"] > 0
    streaming = facts["streaming_on_a_gpu"]
    assert 0 < streaming["least_bytes"] < streaming["whole_layers_bytes"] < facts["segment_bytes"]


@pytest.mark.parametrize("model, total, active", [("openai/gpt-oss-20b", 20.9, 3.61), ("openai/gpt-oss-120b", 116.8, 5.13)])
def test_parameters_of_gpt_oss(cli, tmp_path, model, total, active):
    """The publisher counts the head as active, and the embedding as none."""
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path)}
    facts = json.loads(cli("inspect", model, "--json", "--bandwidth", "100", env=environment).stdout)
    assert facts["parameters"] / 1e9 == pytest.approx(total, rel=0.005)
    assert facts["active_parameters"] / 1e9 == pytest.approx(active, rel=0.005)


@pytest.fixture
def cache(tiny_model, tmp_path):
    """A cache of Hugging Face's tools that holds org/tiny: a snapshot of links to blobs."""
    repository = tmp_path / "hub" / "models--org--tiny"
    snapshot = repository / "snapshots" / ("0a" * 20)
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs/main").write_text("0a" * 20)
    for number, file in enumerate(sorted(tiny_model.iterdir())):
        (repository / "blobs" / str(number)).write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    return snapshot


def test_models_by_org_and_name(cli, cache, tiny_model):
    environment = {**os.environ, "HF_HUB_CACHE": str(cache.parents[2])}
    found = json.loads(cli("inspect", "org/tiny", "--json", env=environment).stdout)
    assert found["directory"] == str(cache)
    assert found["parameters"] == json.loads(cli("inspect", tiny_model, "--json").stdout)["parameters"]
    # The repository's directory, which a container can mount.
    assert cli("inspect", "--directory", cache.parents[1]).stdout == f"{cache}\n"
    absent = cli("inspect", "org/other", check=False, env=environment)
    assert absent.returncode == 2 and "get it with: hf download org/other --include" in absent.stderr


def test_a_node_serves_org_and_name(make_node, cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(cache.parents[2]))
    with make_node(model="org/tiny") as node:
        assert "org/tiny: deepseek_v3, " in node.log("weight_store")


def test_checkpoint_and_segment(cli, tiny_model, node):
    assert "deepseek_v3" in cli("inspect", tiny_model).stdout
    weights = [name for name in node.shared_memory() if ".weights." in name]
    listed = cli("segments", "list", "--instance", node.instance).stdout
    assert weights[0] in listed
    verified = cli("inspect", "--segment", weights[0], "--verify").stdout
    assert "READY" in verified.upper()


def test_a_kv_pool_is_not_a_segment(cli, node):
    pool = [name for name in node.shared_memory() if ".kv." in name][0]
    result = cli("inspect", "--segment", pool, check=False)
    assert result.returncode == 1 and "not a weight segment" in result.stderr


def test_fits_says_what_the_store_would(cli, tiny_model):
    """Which needs room in /dev/shm and as much available memory."""
    facts = json.loads(cli("inspect", tiny_model, "--json").stdout)
    meminfo = dict(line.split(":") for line in open("/proc/meminfo"))
    assert facts["available_memory_bytes"] == pytest.approx(int(meminfo["MemAvailable"].split()[0]) * 1024, rel=0.5)
    assert facts["fits"] == (facts["segment_bytes"] <= min(facts["free_shared_memory_bytes"], facts["available_memory_bytes"]))


def test_prune_keeps_what_is_in_use(cli, node):
    before = node.shared_memory()
    cli("segments", "prune", "--instance", node.instance)
    assert node.shared_memory() == before
