"""The transformers implementation of Qwen3-MoE, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import torch
import transformers.models.qwen3_moe.modeling_qwen3_moe as hf
from transformers import Qwen3MoeConfig

import weights
from weights import round_bf16, round_input, round_output

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
    assert all(layer.mlp.gate.norm_topk_prob for layer in model.model.layers), "weights of experts do not add up to one"
    return {"softmax_scale": attention.scaling, "expert_weights": "normalised"}


@contextlib.contextmanager
def bf16_activations(model):
    """Rounds to BF16 the values that an engine with BF16 activations rounds: the input of every linear layer (router,
    experts and head included) and the cached keys and values. The residual stream and all sums stay F32."""

    def rounded_key(rope):
        def rotate(q, k, *args, **kwargs):
            q, k = rope(q, k, *args, **kwargs)
            return q, round_bf16(k)

        return rotate

    modules = list(model.modules())
    handles = [m.register_forward_pre_hook(round_input) for m in modules
               if isinstance(m, (torch.nn.Linear, hf.Qwen3MoeTopKRouter))]
    handles += [m.v_proj.register_forward_hook(round_output) for m in modules if isinstance(m, hf.Qwen3MoeAttention)]
    experts = [m for m in modules if isinstance(m, hf.Qwen3MoeExperts)]
    with (weights.hooks(handles), weights.rounded_experts(experts),
          weights.replaced(hf, "apply_rotary_pos_emb", rounded_key)):
        yield


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """Attention without copies of keys and values for every head. It is the same function as transformers' up to
    rounding, and far cheaper with many sequences and short steps. `shared` is the cache of a prefix common to all
    sequences, left by such a pass over it alone. The caller's cache then holds only what follows, and the caller passes
    position_ids."""

    def forward(self, hidden_states, position_embeddings, attention_mask, past_key_values=None, **_):
        batch, steps = hidden_states.shape[:2]

        def heads(projected):
            return projected.view(batch, steps, -1, self.head_dim)

        q = self.q_norm(heads(self.q_proj(hidden_states))).transpose(1, 2)
        k = self.k_norm(heads(self.k_proj(hidden_states))).transpose(1, 2)
        q, k = hf.apply_rotary_pos_emb(q, k, *position_embeddings)
        k, v = past_key_values.update(k, heads(self.v_proj(hidden_states)).transpose(1, 2), self.layer_idx)
        q = q.reshape(batch, k.shape[1], -1, self.head_dim)  # the group's heads and steps folded
        own = k.shape[2]
        scores = (q @ k.mT).view(batch, k.shape[1], -1, steps, own) * self.scaling + attention_mask[:, :, None]
        if shared is not None:
            prefix = shared.layers[self.layer_idx]  # [1, kv heads, tokens, features]: one product for all sequences
            shared_scores = (q @ prefix.keys.mT).view(batch, k.shape[1], -1, steps, prefix.keys.shape[2])
            scores = torch.cat([shared_scores * self.scaling, scores], dim=-1)
        shares = scores.softmax(-1)
        summary = shares[..., -own:].flatten(2, 3) @ v
        if shared is not None:
            summary = summary + shares[..., :-own].flatten(2, 3) @ prefix.values
        summary = summary.view(batch, -1, steps, self.head_dim).transpose(1, 2)
        return self.o_proj(summary.reshape(batch, steps, -1)), shares

    with weights.replaced_forward((m for m in model.modules() if isinstance(m, hf.Qwen3MoeAttention)), forward):
        yield


@contextlib.contextmanager
def router_margins(model):
    """Yields a list that receives, per layer and forward pass, each token's distance to another choice of experts: a
    quarter of the gap between the last chosen and the first rejected logit. That equals the gap between the sigmoid
    scores at their steepest."""
    margins = []

    def record(router, _, output):
        logits = output[0].sort(dim=-1, descending=True)[0]
        margins.append((logits[:, router.top_k - 1] - logits[:, router.top_k]) / 4)

    routers = (m for m in model.modules() if isinstance(m, hf.Qwen3MoeTopKRouter))
    with weights.hooks([router.register_forward_hook(record) for router in routers]):
        yield margins
