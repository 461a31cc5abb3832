"""The transformers implementation of DBRX, loaded from a checkpoint of BF16 weights."""

import contextlib

import torch
import transformers.models.dbrx.modeling_dbrx as hf
from transformers import DbrxConfig

import weights
from weights import round_bf16, round_input

GREEDY_TOKENS = 16  # of a continuation, as of Qwen3-MoE


def load_model(checkpoint, bf16_weights=False):
    """F32 model. The weights are BF16 already."""
    del bf16_weights
    # Transformers reads rope_theta of the whole model only, where published configs have it in attn_config.
    theta = checkpoint.config["attn_config"]["rope_theta"]
    fields = weights.config_fields(checkpoint) | {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}
    config = DbrxConfig(**fields)
    config._attn_implementation = "eager"
    state = {name: weights.dequantise(checkpoint, name) for name in checkpoint.entries}
    return weights.load(hf.DbrxForCausalLM(config), state)


def verify_implementation(model):
    """Checks what the model type leaves to the configuration. Returns what was found, in words."""
    attention = model.transformer.blocks[0].norm_attn_norm.attn
    assert abs(attention.scaling - attention.head_dim**-0.5) < 1e-12, "the softmax scale is not that of a head"
    half = attention.head_dim // 2
    frequency = model.transformer.rotary_emb.inv_freq[1].item()
    assert abs(frequency - attention.rope_theta ** (-1 / half)) < 1e-6, "the rotation has another base"
    norms = [m for m in model.modules() if isinstance(m, torch.nn.LayerNorm)]
    assert norms and all(norm.eps == 1e-5 and norm.bias is None for norm in norms), "norms are others"
    assert all(m.moe_normalize_expert_weights == 1 for m in model.modules() if isinstance(m, hf.DbrxFFN))
    assert not model.training, "the router has noise"
    return {"softmax_scale": attention.scaling, "expert_weights": "normalised", "clip_qkv": attention.clip_qkv}


def qkv(attention, hidden_states):
    """Clamped queries, keys and values."""
    keys = attention.num_key_value_heads * attention.head_dim
    states = attention.Wqkv(hidden_states).clamp(min=-attention.clip_qkv, max=attention.clip_qkv)
    return states.split([attention.hidden_size, keys, keys], dim=-1)


@contextlib.contextmanager
def rounded_experts(modules):
    """weights.rounded_experts, of stacked matrices."""

    def forward(self, hidden, top_k_index, top_k_weights):
        rows = round_bf16(hidden.reshape(-1, self.hidden_size))
        w1, v1, w2 = (w.view(self.num_experts, self.ffn_hidden_size, self.hidden_size)
                      for w in (self.mlp.w1, self.mlp.v1, self.mlp.w2))
        out = torch.zeros_like(rows)
        for expert in top_k_index.unique().tolist():
            token, slot = torch.where(top_k_index == expert)
            inner = torch.nn.functional.silu(rows[token] @ w1[expert].T) * (rows[token] @ v1[expert].T)
            out.index_add_(0, token, (round_bf16(inner) @ w2[expert]) * top_k_weights[token, slot, None])
        return out.view(hidden.shape)

    with weights.replaced_forward(modules, forward):
        yield


@contextlib.contextmanager
def bf16_activations(model):
    """As weights.bf16_activations. Clamping keeps BF16 numbers BF16, so values are rounded before it."""

    def round_values(keys):
        def rounded(_, __, states):
            return torch.cat([states[..., :-keys], round_bf16(states[..., -keys:])], dim=-1)

        return rounded

    modules = list(model.modules())
    handles = [m.register_forward_pre_hook(round_input) for m in modules if isinstance(m, torch.nn.Linear)]
    handles += [m.Wqkv.register_forward_hook(round_values(m.num_key_value_heads * m.head_dim)) for m in modules
                if isinstance(m, hf.DbrxAttention)]
    with (weights.hooks(handles), rounded_experts(m for m in modules if isinstance(m, hf.DbrxExperts)),
          weights.replaced(hf, "apply_rotary_pos_emb", weights.rounded_key)):
        yield


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.grouped_attention, which asks for projections by other names."""

    def project(attention, hidden_states, position_embeddings, heads):
        q, k, v = (heads(part) for part in qkv(attention, hidden_states))
        attention.v_proj = lambda _: v
        return hf.apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), *position_embeddings)

    attentions = [m for m in model.modules() if isinstance(m, hf.DbrxAttention)]
    for attention in attentions:
        attention.o_proj = attention.out_proj.forward
    try:
        with weights.grouped_attention(attentions, project, shared):
            yield
    finally:
        for attention in attentions:
            del attention.o_proj
            vars(attention).pop("v_proj", None)


@contextlib.contextmanager
def router_margins(model):
    """As weights.softmax_router_margins."""
    margins = []

    def recorder(top_k):
        def record(_, __, output):
            logits = output.sort(dim=-1, descending=True)[0]
            margins.append((logits[:, top_k - 1] - logits[:, top_k]) / 4)

        return record

    routers = [(m.router, m.top_k) for m in model.modules() if isinstance(m, hf.DbrxFFN)]
    with weights.hooks([router.register_forward_hook(recorder(top_k)) for router, top_k in routers]):
        yield margins
