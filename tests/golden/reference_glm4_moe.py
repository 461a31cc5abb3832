"""The transformers implementation of GLM-4.5, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import transformers.models.glm4_moe.modeling_glm4_moe as hf
from transformers import Glm4MoeConfig

import weights

GREEDY_TOKENS = 16  # of a continuation, as of Qwen3-MoE


def load_model(checkpoint, bf16_weights=False):
    """F32 model. `bf16_weights`: dequantised FP8 weights are rounded to BF16 first (arithmetic stays F32)."""
    config = Glm4MoeConfig(**weights.config_fields(checkpoint))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    published = checkpoint.config
    state = weights.state_dict(checkpoint, published["n_routed_experts"], published["first_k_dense_replace"], bf16_weights)
    return weights.load(hf.Glm4MoeForCausalLM(config), state)


def verify_implementation(model):
    """Checks what the model type leaves to the configuration. Returns what was found, in words."""
    attention = model.model.layers[0].self_attn
    assert abs(attention.scaling - attention.head_dim**-0.5) < 1e-12, "the softmax scale is not that of a head"
    assert attention.use_qk_norm and attention.q_proj.bias is not None, "heads lack norms or biases"
    rotated = 2 * model.model.rotary_emb.inv_freq.numel()
    assert rotated == attention.head_dim // 2, "not half of a head rotates"
    return {"softmax_scale": attention.scaling, "rotated_dims": rotated}


def bf16_activations(model):
    """weights.bf16_activations."""
    return weights.bf16_activations(model, hf, "Glm4Moe")


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.grouped_attention, of heads with norms."""
    attentions = (m for m in model.modules() if isinstance(m, hf.Glm4MoeAttention))
    with weights.grouped_attention(attentions, weights.projection(hf, norms=True), shared):
        yield


@contextlib.contextmanager
def router_margins(model):
    """weights.sigmoid_router_margins."""
    with weights.sigmoid_router_margins(m for m in model.modules() if isinstance(m, hf.Glm4MoeTopkRouter)) as margins:
        yield margins
