"""The transformers implementation of MiniMax-M2, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import torch
import transformers.models.minimax_m2.modeling_minimax_m2 as hf
from transformers import MiniMaxM2Config

import weights

GREEDY_TOKENS = 16  # of a continuation, as of Qwen3-MoE


def load_model(checkpoint, bf16_weights=False):
    """F32 model. `bf16_weights`: dequantised FP8 weights are rounded to BF16 first (arithmetic stays F32)."""
    config = MiniMaxM2Config(**weights.config_fields(checkpoint))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    names = weights.Names(block="block_sparse_moe", gate="w1", up="w3", down="w2")
    state = weights.state_dict(checkpoint, checkpoint.config["num_local_experts"], 0, bf16_weights, names)
    return weights.load(hf.MiniMaxM2ForCausalLM(config), state)


def verify_implementation(model):
    """Checks what the model type leaves to the configuration. Returns what was found, in words."""
    attention = model.model.layers[0].self_attn
    assert abs(attention.scaling - attention.head_dim**-0.5) < 1e-12, "the softmax scale is not that of a head"
    heads = model.config.num_attention_heads
    assert attention.q_norm.weight.numel() == heads * attention.head_dim, "the norm is not over all heads"
    rotated = 2 * model.model.rotary_emb.inv_freq.numel()
    assert rotated == model.config.rotary_dim < attention.head_dim, "whole heads rotate"
    return {"softmax_scale": attention.scaling, "rotated_dims": rotated, "norms": "over all heads"}


def bf16_activations(model):
    """weights.bf16_activations."""
    return weights.bf16_activations(model, hf, "MiniMaxM2")


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.grouped_attention, with norms over all heads."""

    def project(attention, hidden_states, position_embeddings, heads):
        q = heads(attention.q_norm(attention.q_proj(hidden_states))).transpose(1, 2)
        k = heads(attention.k_norm(attention.k_proj(hidden_states))).transpose(1, 2)
        return hf.apply_rotary_pos_emb(q, k, *position_embeddings)

    attentions = (m for m in model.modules() if isinstance(m, hf.MiniMaxM2Attention))
    with weights.grouped_attention(attentions, project, shared):
        yield


@contextlib.contextmanager
def router_margins(model):
    """Yields a list that receives, per layer and forward pass, each token's distance to another choice of experts."""
    margins = []

    def record(block, args, _):
        hidden = args[0].flatten(0, 1)
        logits = torch.nn.functional.linear(hidden, block.gate.weight)
        biased = (logits.sigmoid() + block.e_score_correction_bias).sort(dim=-1, descending=True)[0]
        margins.append(biased[:, block.top_k - 1] - biased[:, block.top_k])

    blocks = (m for m in model.modules() if isinstance(m, hf.MiniMaxM2SparseMoeBlock))
    with weights.hooks([block.register_forward_hook(record) for block in blocks]):
        yield margins
