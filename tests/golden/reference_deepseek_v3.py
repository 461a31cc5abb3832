"""The transformers implementation of DeepSeek-V3, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import torch
import transformers.models.deepseek_v3.modeling_deepseek_v3 as hf
from transformers import DeepseekV3Config

import weights

# Per continuation.
GREEDY_TOKENS = 32


def load_model(checkpoint, bf16_weights=False):
    """F32 model. `bf16_weights`: dequantised FP8 weights are rounded to BF16 first (arithmetic stays F32)."""
    config = DeepseekV3Config(**weights.config_fields(checkpoint))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    published = checkpoint.config
    state = weights.state_dict(checkpoint, published["n_routed_experts"], published["first_k_dense_replace"], bf16_weights)
    return weights.load(hf.DeepseekV3ForCausalLM(config), state)


def verify_implementation(model):
    """Checks the two errors of older transformers releases. Returns the findings in words."""
    attention = model.model.layers[0].self_attn
    expected = attention.qk_head_dim**-0.5
    rope = model.config.rope_parameters
    if rope.get("mscale_all_dim"):
        expected *= hf.yarn_get_mscale(rope["factor"], rope["mscale_all_dim"]) ** 2
    assert abs(attention.scaling - expected) < 1e-12, "softmax scale lacks the YaRN factor"

    # Masked groups must be -inf: with 0.0, a masked expert beats one with a negative biased score.
    config = model.config
    router = hf.DeepseekV3TopkRouter(config)
    experts = config.n_routed_experts
    with torch.no_grad():
        router.weight.zero_()
        router.e_score_correction_bias.copy_(torch.linspace(-2.0, -1.0, experts))
        chosen = router(torch.zeros(1, config.hidden_size))[2].flatten().tolist()
    kept = config.topk_group * experts // config.n_group
    assert min(chosen) >= experts - kept, "the router masks with a finite number"
    return {"softmax_scale": attention.scaling, "router_mask": "-inf"}


def bf16_activations(model):
    """weights.bf16_activations."""
    return weights.bf16_activations(model, hf, "DeepseekV3", "apply_rotary_pos_emb_interleave", "kv_a_layernorm")


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.latent_attention."""

    def rotate(q, k, position_embeddings):
        return hf.apply_rotary_pos_emb_interleave(q, k, *position_embeddings)

    with weights.latent_attention((m for m in model.modules() if isinstance(m, hf.DeepseekV3Attention)), rotate, shared):
        yield


@contextlib.contextmanager
def router_margins(model):
    """weights.sigmoid_router_margins."""
    routers = (m for m in model.modules() if isinstance(m, hf.DeepseekV3TopkRouter))
    with weights.sigmoid_router_margins(routers) as margins:
        yield margins
