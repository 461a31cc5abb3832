"""The transformers implementation of Mixtral, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import transformers.models.mixtral.modeling_mixtral as hf
from transformers import MixtralConfig

import weights

GREEDY_TOKENS = 16  # of a continuation, as of Qwen3-MoE


def load_model(checkpoint, bf16_weights=False):
    """F32 model. `bf16_weights`: dequantised FP8 weights are rounded to BF16 first (arithmetic stays F32)."""
    config = MixtralConfig(**weights.config_fields(checkpoint))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    names = weights.Names(block="block_sparse_moe", gate="w1", up="w3", down="w2")
    state = weights.state_dict(checkpoint, checkpoint.config["num_local_experts"], 0, bf16_weights, names)
    return weights.load(hf.MixtralForCausalLM(config), state)


def verify_implementation(model):
    """Checks what the model type leaves to the configuration. Returns what was found, in words."""
    attention = model.model.layers[0].self_attn
    assert abs(attention.scaling - attention.head_dim**-0.5) < 1e-12, "the softmax scale is not that of a head"
    assert model.config.sliding_window is None, "attention has a window"
    assert not model.training, "the router has noise"
    return {"softmax_scale": attention.scaling, "expert_weights": "normalised"}


def bf16_activations(model):
    """weights.bf16_activations."""
    return weights.bf16_activations(model, hf, "Mixtral")


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.grouped_attention, of heads without norms."""
    attentions = (m for m in model.modules() if isinstance(m, hf.MixtralAttention))
    with weights.grouped_attention(attentions, weights.projection(hf), shared):
        yield


@contextlib.contextmanager
def router_margins(model):
    """weights.softmax_router_margins."""
    with weights.softmax_router_margins(m for m in model.modules() if isinstance(m, hf.MixtralTopKRouter)) as margins:
        yield margins
