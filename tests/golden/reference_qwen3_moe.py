"""The transformers implementation of Qwen3-MoE, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import transformers.models.qwen3_moe.modeling_qwen3_moe as hf
from transformers import Qwen3MoeConfig

import weights

# Per continuation. With 32, no prompt of one token has a continuation that avoids close decisions.
GREEDY_TOKENS = 16


def load_model(checkpoint, bf16_weights=False):
    """F32 model. `bf16_weights`: dequantised FP8 weights are rounded to BF16 first (arithmetic stays F32)."""
    config = Qwen3MoeConfig(**weights.config_fields(checkpoint))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    state = weights.state_dict(checkpoint, checkpoint.config["num_experts"], 0, bf16_weights)
    return weights.load(hf.Qwen3MoeForCausalLM(config), state)


def verify_implementation(model):
    """Checks what the model type leaves to the configuration. Returns the findings in words."""
    attention = model.model.layers[0].self_attn
    assert abs(attention.scaling - attention.head_dim**-0.5) < 1e-12, "the softmax scale is not that of a head"
    assert attention.sliding_window is None, "attention has a window"
    routers = [m for m in model.modules() if isinstance(m, hf.Qwen3MoeTopKRouter)]
    assert all(router.norm_topk_prob for router in routers), "weights of experts do not add up to one"
    return {"softmax_scale": attention.scaling, "expert_weights": "normalised"}


def bf16_activations(model):
    """weights.bf16_activations."""
    return weights.bf16_activations(model, hf, "Qwen3Moe")


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.grouped_attention, of heads with norms."""
    attentions = (m for m in model.modules() if isinstance(m, hf.Qwen3MoeAttention))
    with weights.grouped_attention(attentions, weights.projection(hf, norms=True), shared):
        yield


@contextlib.contextmanager
def router_margins(model):
    """weights.softmax_router_margins."""
    with weights.softmax_router_margins(m for m in model.modules() if isinstance(m, hf.Qwen3MoeTopKRouter)) as margins:
        yield margins
