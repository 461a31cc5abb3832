"""The transformers implementation of DeepSeek-V2, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import torch
import transformers.models.deepseek_v2.modeling_deepseek_v2 as hf
from transformers import DeepseekV2Config

import weights

GREEDY_TOKENS = 16  # of a continuation, as of Qwen3-MoE


def load_model(checkpoint, bf16_weights=False):
    """F32 model. `bf16_weights`: dequantised FP8 weights are rounded to BF16 first (arithmetic stays F32)."""
    config = DeepseekV2Config(**weights.config_fields(checkpoint))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    published = checkpoint.config
    state = weights.state_dict(checkpoint, published["n_routed_experts"], published["first_k_dense_replace"], bf16_weights)
    return weights.load(hf.DeepseekV2ForCausalLM(config), state)


def groups(router):
    """How many groups of experts the router ranks, and how many it keeps."""
    return (1, 1) if router.topk_method == "greedy" else (router.num_group, router.topk_group)


def verify_implementation(model):
    """Checks the softmax scale, which older transformers releases lack the YaRN factor in, and the router's rules.
    Returns the findings in words."""
    attention = model.model.layers[0].self_attn
    rope = model.config.rope_parameters
    expected = attention.qk_head_dim**-0.5 * hf.yarn_get_mscale(rope["factor"], rope["mscale_all_dim"]) ** 2
    assert abs(attention.scaling - expected) < 1e-12, "softmax scale lacks the YaRN factor"

    # The last of several groups has the largest score, but the smallest sum of two.
    config = model.config
    router = hf.DeepseekV2TopkRouter(config)
    experts = config.n_routed_experts
    count, kept = groups(router)
    logits = torch.linspace(1.0, 0.9, experts)
    if count > 1:
        logits[-experts // count :] = -5.0
    logits[-1] = 1.5
    with torch.no_grad():
        router.weight.zero_()
        router.weight[:, 0] = logits
        _, shares, chosen = router(torch.nn.functional.one_hot(torch.tensor([0]), config.hidden_size).float())
    assert (kept - 1) * experts // count >= router.top_k or count == 1
    wanted = [*range(router.top_k - 1), experts - 1]
    assert sorted(chosen[0].tolist()) == wanted, "groups are not ranked by their largest score"
    expected_shares = logits.softmax(0)[chosen[0]] * config.routed_scaling_factor
    assert torch.allclose(shares[0], expected_shares, rtol=1e-6), "weights are not scaled scores"
    return {"softmax_scale": attention.scaling, "groups": "by their largest score", "expert_weights": "scaled"}


def bf16_activations(model):
    """weights.bf16_activations."""
    return weights.bf16_activations(model, hf, "DeepseekV2", "apply_rotary_emb", "kv_a_layernorm")


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.latent_attention."""

    def rotate(q, k, position_embeddings):
        return hf.apply_rotary_emb(q, k, position_embeddings)

    with weights.latent_attention((m for m in model.modules() if isinstance(m, hf.DeepseekV2Attention)), rotate, shared):
        yield


@contextlib.contextmanager
def router_margins(model):
    """As weights.softmax_router_margins, of the kept groups' experts; and the distance to other groups, likewise a
    quarter of the gap between the last kept and the first dropped group's largest logit."""
    margins = []

    def record(router, _, output):
        count, kept = groups(router)
        grouped = output[0].view(output[0].shape[0], count, -1)
        largest, order = grouped.amax(-1).sort(dim=-1, descending=True)
        margin = largest[:, kept - 1] - largest[:, kept] if kept < count else torch.full(largest.shape[:1], float("inf"))
        is_kept = torch.zeros(largest.shape, dtype=torch.bool).scatter_(1, order[:, :kept], True)
        logits = grouped.masked_fill(~is_kept[:, :, None], float("-inf")).flatten(1).sort(dim=-1, descending=True)[0]
        margins.append(torch.minimum(margin, logits[:, router.top_k - 1] - logits[:, router.top_k]) / 4)

    routers = (m for m in model.modules() if isinstance(m, hf.DeepseekV2TopkRouter))
    with weights.hooks([router.register_forward_hook(record) for router in routers]):
        yield margins
