"""The transformers implementation of Qwen2-MoE, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import transformers.models.qwen2_moe.modeling_qwen2_moe as hf
from transformers import Qwen2MoeConfig

import weights

GREEDY_TOKENS = 16  # of a continuation, as of Qwen3-MoE


def load_model(checkpoint, bf16_weights=False):
    """F32 model. `bf16_weights`: dequantised FP8 weights are rounded to BF16 first (arithmetic stays F32)."""
    config = Qwen2MoeConfig(**weights.config_fields(checkpoint))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    state = weights.state_dict(checkpoint, checkpoint.config["num_experts"], 0, bf16_weights)
    return weights.load(hf.Qwen2MoeForCausalLM(config), state)


def verify_implementation(model):
    """Checks what the model type leaves to the configuration. Returns what was found, in words."""
    attention = model.model.layers[0].self_attn
    assert abs(attention.scaling - attention.head_dim**-0.5) < 1e-12, "the softmax scale is not that of a head"
    assert all(kind == "full_attention" for kind in model.config.layer_types), "attention has a window"
    assert attention.q_proj.bias is not None and attention.o_proj.bias is None, "other projections have biases"
    routers = [m for m in model.modules() if isinstance(m, hf.Qwen2MoeTopKRouter)]
    assert not any(router.norm_topk_prob for router in routers), "weights of experts add up to one"
    return {"softmax_scale": attention.scaling, "expert_weights": "as they are"}


def bf16_activations(model):
    """weights.bf16_activations."""
    return weights.bf16_activations(model, hf, "Qwen2Moe")


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.grouped_attention, of heads without norms."""
    attentions = (m for m in model.modules() if isinstance(m, hf.Qwen2MoeAttention))
    with weights.grouped_attention(attentions, weights.projection(hf), shared):
        yield


@contextlib.contextmanager
def router_margins(model):
    """weights.softmax_router_margins."""
    with weights.softmax_router_margins(m for m in model.modules() if isinstance(m, hf.Qwen2MoeTopKRouter)) as margins:
        yield margins
