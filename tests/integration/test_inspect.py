"""`moestro inspect` on the published configs: parameter counts and segment sizes."""

import json

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


# The total, and what one token uses: 21 and 2.4 (without the embedding) as the publishers say, and 32.
@pytest.mark.parametrize("name, billions, active", [
    ("deepseek-v2", "235.741", 21.376), ("deepseek-v2-lite", "15.706", 2.661), ("kimi-k2", "1026.408", 32.862)])
def test_parameters_of_a_token(cli, repo, name, billions, active):
    config = repo / f"common/checkpoint/published/{name}.json"
    assert f"{billions} B" in cli("inspect", config).stdout
    facts = json.loads(cli("inspect", config, "--json").stdout)
    routed, shapes = facts["parameters_by_kind"]["routed experts"], facts["shapes"]
    used = facts["parameters"] - routed + routed * shapes["experts_per_token"] / shapes["experts"]
    assert used / 1e9 == pytest.approx(active, abs=0.001)


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
