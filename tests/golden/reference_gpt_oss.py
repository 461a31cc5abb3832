"""The transformers implementation of gpt-oss, loaded from a checkpoint of BF16 weights."""

import contextlib
import math

import torch
import transformers.models.gpt_oss.modeling_gpt_oss as hf
from transformers import GptOssConfig

import weights
from weights import round_bf16, round_input, round_output

GREEDY_TOKENS = 16  # of a continuation, as of Qwen3-MoE


def load_model(checkpoint, bf16_weights=False):
    """F32 model. The weights are BF16 already."""
    del bf16_weights
    config = GptOssConfig(**weights.config_fields(checkpoint))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    state = {name: weights.dequantise(checkpoint, name) for name in checkpoint.entries}
    return weights.load(hf.GptOssForCausalLM(config), state)


def verify_implementation(model):
    """Checks what the model type leaves to the configuration. Returns what was found, in words."""
    config = model.config
    attention = model.model.layers[0].self_attn
    assert abs(attention.scaling - attention.head_dim**-0.5) < 1e-12, "the softmax scale is not that of a head"
    rotary = model.model.rotary_emb
    amplitude = 0.1 * math.log(config.rope_parameters["factor"]) + 1
    assert rotary.rope_type == "yarn" and not config.rope_parameters["truncate"], "the rotation is not gpt-oss's"
    assert abs(rotary.attention_scaling - amplitude) < 1e-12, "the rotation has another amplitude"
    assert rotary.inv_freq.numel() == attention.head_dim // 2, "heads rotate in part"
    windows = [layer.self_attn.sliding_window for layer in model.model.layers]
    assert config.sliding_window in windows and None in windows, "all layers are alike"
    assert attention.sinks.abs().max() > 1, "sinks are small"
    return {"softmax_scale": attention.scaling, "amplitude": amplitude, "windows": windows,
            "limit": config.swiglu_limit, "alpha": config.swiglu_alpha}


@contextlib.contextmanager
def rounded_experts(modules):
    """weights.rounded_experts, whose gates and ups alternate, with biases."""

    def forward(self, hidden_states, router_indices=None, routing_weights=None):
        hidden = round_bf16(hidden_states)
        out = torch.zeros_like(hidden)
        for expert in router_indices.unique().tolist():
            token, slot = torch.where(router_indices == expert)
            gate_up = hidden[token] @ self.gate_up_proj[expert] + self.gate_up_proj_bias[expert]
            inner = round_bf16(self._apply_gate(gate_up))
            down = inner @ self.down_proj[expert] + self.down_proj_bias[expert]
            out.index_add_(0, token, down * routing_weights[token, slot, None])
        return out

    with weights.replaced_forward(modules, forward):
        yield


@contextlib.contextmanager
def bf16_activations(model):
    """As weights.bf16_activations."""
    modules = list(model.modules())
    handles = [m.register_forward_pre_hook(round_input) for m in modules
               if isinstance(m, (torch.nn.Linear, hf.GptOssTopKRouter))]
    handles += [m.v_proj.register_forward_hook(round_output) for m in modules if isinstance(m, hf.GptOssAttention)]
    with (weights.hooks(handles), rounded_experts(m for m in modules if isinstance(m, hf.GptOssExperts)),
          weights.replaced(hf, "apply_rotary_pos_emb", weights.rounded_key)):
        yield


@contextlib.contextmanager
def fast_attention(model, shared=None):
    """weights.grouped_attention, with sinks and windows."""
    attentions = (m for m in model.modules() if isinstance(m, hf.GptOssAttention))
    with weights.grouped_attention(attentions, weights.projection(hf), shared, sinks=True):
        yield


def router_margins(model):
    """weights.softmax_router_margins."""
    return weights.softmax_router_margins(m for m in model.modules() if isinstance(m, hf.GptOssTopKRouter))
