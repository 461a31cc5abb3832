"""The transformers implementation of Llama, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import torch
import transformers.models.llama.modeling_llama as hf
from transformers import LlamaConfig

import weights

GREEDY_TOKENS = 16  # of a continuation, as of Qwen3-MoE


def load_model(checkpoint, bf16_weights=False):
    """F32 model. `bf16_weights`: dequantised FP8 weights are rounded to BF16 first (arithmetic stays F32)."""
    config = LlamaConfig(**weights.config_fields(checkpoint))
    config._attn_implementation = "eager"
    layers = checkpoint.config["num_hidden_layers"]  # none of which has experts
    return weights.load(hf.LlamaForCausalLM(config), weights.state_dict(checkpoint, 0, layers, bf16_weights))


def verify_implementation(model):
    """Checks what the model type leaves to the configuration. Returns what was found, in words."""
    attention = model.model.layers[0].self_attn
    assert abs(attention.scaling - attention.head_dim**-0.5) < 1e-12, "the softmax scale is not that of a head"
    rotary = model.model.rotary_emb
    assert rotary.rope_type == "llama3" and rotary.attention_scaling == 1, "the rotation is not Llama 3's"
    return {"softmax_scale": attention.scaling, "rope_type": rotary.rope_type}


def bf16_activations(model):
    """weights.bf16_activations."""
    return weights.bf16_activations(model, hf, "Llama")


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.grouped_attention, of heads without norms."""
    attentions = (m for m in model.modules() if isinstance(m, hf.LlamaAttention))
    with weights.grouped_attention(attentions, weights.projection(hf), shared):
        yield


@contextlib.contextmanager
def router_margins(model):
    """Yields a list that receives, per forward pass, 1 for each token: nothing chooses, so no scores are nearer."""
    margins = []

    def record(_, args):
        margins.append(torch.ones(args[0].shape[:-1].numel()))

    with weights.hooks([model.model.norm.register_forward_pre_hook(record)]):
        yield margins
