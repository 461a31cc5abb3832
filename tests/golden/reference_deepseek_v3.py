"""The transformers implementation of DeepSeek-V3, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import torch
import transformers.models.deepseek_v3.modeling_deepseek_v3 as hf
from transformers import DeepseekV3Config

import weights
from weights import round_bf16, round_input, round_output

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


@contextlib.contextmanager
def bf16_activations(model):
    """Rounds to BF16 the values that an engine with BF16 activations rounds: the input of every linear layer (router,
    experts and head included) and the cached latent and rotated key. The residual stream and all sums stay F32."""

    def rounded_key(rope):
        def rotate(q, k, *args, **kwargs):
            q, k = rope(q, k, *args, **kwargs)
            return q, round_bf16(k)

        return rotate

    modules = list(model.modules())
    handles = [m.register_forward_pre_hook(round_input) for m in modules
               if isinstance(m, (torch.nn.Linear, hf.DeepseekV3TopkRouter))]
    handles += [m.kv_a_layernorm.register_forward_hook(round_output) for m in modules
                if isinstance(m, hf.DeepseekV3Attention)]
    experts = [m for m in modules if isinstance(m, hf.DeepseekV3Experts)]
    with (weights.hooks(handles), weights.rounded_experts(experts),
          weights.replaced(hf, "apply_rotary_pos_emb_interleave", rounded_key)):
        yield


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """Attention on the cached latents themselves, with the key and value projections folded into query and output. It
    is the same function as transformers' up to rounding, and far cheaper with many sequences and short steps. `shared`
    is the cache of a prefix common to all sequences, left by such a pass over it alone. The caller's cache then holds
    only what follows, and the caller passes position_ids."""

    def forward(self, hidden_states, position_embeddings, attention_mask, past_key_values=None, **_):
        batch, steps = hidden_states.shape[:2]
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        q = q.view(batch, steps, -1, self.qk_head_dim).transpose(1, 2)
        q_pass, q_rot = q.split([self.qk_nope_head_dim, self.qk_rope_head_dim], dim=-1)
        latent, k_rot = self.kv_a_proj_with_mqa(hidden_states)[:, None].split(
            [self.kv_lora_rank, self.qk_rope_head_dim], dim=-1
        )
        q_rot, k_rot = hf.apply_rotary_pos_emb_interleave(q_rot, k_rot, *position_embeddings)
        latent, k_rot = past_key_values.update(self.kv_a_layernorm(latent), k_rot, self.layer_idx)
        projection = self.kv_b_proj.weight.view(self.num_heads, -1, self.kv_lora_rank)
        to_key, to_value = projection.split([self.qk_nope_head_dim, self.v_head_dim], dim=1)
        # All heads share keys and values: folding heads into steps lets one product serve them without copies.
        latent, k_rot = latent[:, 0], k_rot[:, 0]
        query = torch.einsum("bhsd,hdc->bhsc", q_pass, to_key)
        scores = query.flatten(1, 2) @ latent.mT + q_rot.flatten(1, 2) @ k_rot.mT
        scores = scores.view(batch, self.num_heads, steps, -1) * self.scaling + attention_mask
        if shared is not None:
            prefix = shared.layers[self.layer_idx]  # [1, 1, tokens, features]: one product for all sequences
            shared_scores = query @ prefix.keys[0, 0].mT + q_rot @ prefix.values[0, 0].mT
            scores = torch.cat([shared_scores * self.scaling, scores], dim=-1)
        shares = scores.softmax(-1)
        own = shares[..., -latent.shape[1] :]
        summary = (own.flatten(1, 2) @ latent).view(batch, self.num_heads, steps, -1)
        if shared is not None:
            summary = summary + shares[..., : -latent.shape[1]] @ prefix.keys[0, 0]
        values = torch.einsum("bhsc,hdc->bhsd", summary, to_value)
        return self.o_proj(values.transpose(1, 2).reshape(batch, steps, -1)), shares

    with weights.replaced_forward((m for m in model.modules() if isinstance(m, hf.DeepseekV3Attention)), forward):
        yield


@contextlib.contextmanager
def router_margins(model):
    """Yields a list that receives, per MoE layer and forward pass, each token's distance to another routing decision:
    the smaller of (last chosen - first rejected biased score) and (last kept - first dropped group score)."""
    margins = []

    def record(router, _, output):
        biased = output[0].sigmoid() + router.e_score_correction_bias
        grouped = biased.view(biased.shape[0], router.num_group, -1)
        group_scores = grouped.topk(2, dim=-1)[0].sum(-1)
        best = group_scores.sort(dim=-1, descending=True)
        margin = torch.full((biased.shape[0],), float("inf"))
        if router.topk_group < router.num_group:
            margin = best[0][:, router.topk_group - 1] - best[0][:, router.topk_group]
        kept = torch.zeros_like(group_scores, dtype=torch.bool).scatter_(1, best[1][:, : router.topk_group], True)
        scores = grouped.masked_fill(~kept[:, :, None], float("-inf")).flatten(1).sort(dim=-1, descending=True)[0]
        margins.append(torch.minimum(margin, scores[:, router.top_k - 1] - scores[:, router.top_k]))

    routers = (m for m in model.modules() if isinstance(m, hf.DeepseekV3TopkRouter))
    with weights.hooks([router.register_forward_hook(record) for router in routers]):
        yield margins
