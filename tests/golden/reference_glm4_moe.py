"""The transformers implementation of GLM-4.5, loaded from a checkpoint that may hold FP8 weights."""

import contextlib

import torch
import transformers.models.glm4_moe.modeling_glm4_moe as hf
from transformers import Glm4MoeConfig

import weights
from weights import round_bf16, round_input, round_output

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


@contextlib.contextmanager
def bf16_activations(model):
    """Rounds to BF16 what an engine with BF16 activations rounds: the input of every linear layer (router, experts and
    head included) and the cached keys and values. The residual stream and all sums stay F32."""

    def rounded_key(rope):
        def rotate(q, k, *args, **kwargs):
            q, k = rope(q, k, *args, **kwargs)
            return q, round_bf16(k)

        return rotate

    modules = list(model.modules())
    handles = [m.register_forward_pre_hook(round_input) for m in modules
               if isinstance(m, (torch.nn.Linear, hf.Glm4MoeTopkRouter))]
    handles += [m.v_proj.register_forward_hook(round_output) for m in modules if isinstance(m, hf.Glm4MoeAttention)]
    experts = [m for m in modules if isinstance(m, hf.Glm4MoeExperts)]
    with (weights.hooks(handles), weights.rounded_experts(experts),
          weights.replaced(hf, "apply_rotary_pos_emb", rounded_key)):
        yield


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.grouped_attention, of heads with norms."""

    def project(attention, hidden_states, position_embeddings, heads):
        q = attention.q_norm(heads(attention.q_proj(hidden_states))).transpose(1, 2)
        k = attention.k_norm(heads(attention.k_proj(hidden_states))).transpose(1, 2)
        return hf.apply_rotary_pos_emb(q, k, *position_embeddings)

    attentions = (m for m in model.modules() if isinstance(m, hf.Glm4MoeAttention))
    with weights.grouped_attention(attentions, project, shared):
        yield


@contextlib.contextmanager
def router_margins(model):
    """weights.sigmoid_router_margins."""
    with weights.sigmoid_router_margins(m for m in model.modules() if isinstance(m, hf.Glm4MoeTopkRouter)) as margins:
        yield margins
