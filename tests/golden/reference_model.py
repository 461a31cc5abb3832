"""The transformers implementation of DeepSeek-V3, loaded from a checkpoint that may hold FP8 weights."""

import contextlib
import json

import torch
import transformers.models.deepseek_v3.modeling_deepseek_v3 as hf
from transformers import DeepseekV3Config

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}
SCALE_BLOCK = 128


def round_bf16(x):
    return x.to(torch.bfloat16).to(x.dtype)


def read_tensor(checkpoint, name):
    raw = torch.frombuffer(bytearray(checkpoint.data(name)), dtype=DTYPES[checkpoint.dtype(name)])
    return raw.reshape(checkpoint.shape(name)).to(torch.float32)


def dequantise(checkpoint, name):
    """F32 value of a weight: the FP8 code times its block's scale, one rounding to F32."""
    weight = read_tensor(checkpoint, name)
    if checkpoint.dtype(name) != "F8_E4M3":
        return weight
    scale = read_tensor(checkpoint, name + "_scale_inv")
    scale = scale.repeat_interleave(SCALE_BLOCK, 0).repeat_interleave(SCALE_BLOCK, 1)
    return weight * scale[: weight.shape[0], : weight.shape[1]]


def state_dict(checkpoint, bf16_weights):
    """Parameters of the main model under transformers' names; the multi-token-prediction layer is left out."""
    config = checkpoint.config
    layers = config["num_hidden_layers"]

    def tensor(name):
        value = dequantise(checkpoint, name)
        return round_bf16(value) if bf16_weights and checkpoint.dtype(name) == "F8_E4M3" else value

    state = {}
    for name in checkpoint.entries:
        parts = name.split(".")
        if name.endswith("_scale_inv") or ".experts." in name:
            continue
        if parts[1] == "layers" and int(parts[2]) >= layers:
            continue
        state[name] = tensor(name)
    for layer in range(config["first_k_dense_replace"], layers):
        prefix = f"model.layers.{layer}.mlp.experts."
        experts = range(config["n_routed_experts"])
        gate_up = [torch.cat([tensor(f"{prefix}{e}.{p}_proj.weight") for p in ("gate", "up")]) for e in experts]
        state[prefix + "gate_up_proj"] = torch.stack(gate_up)
        state[prefix + "down_proj"] = torch.stack([tensor(f"{prefix}{e}.down_proj.weight") for e in experts])
    return state


def load_model(checkpoint, bf16_weights=False):
    """F32 model. `bf16_weights`: dequantised FP8 weights are rounded to BF16 first (arithmetic stays F32)."""
    fields = {k: v for k, v in checkpoint.config.items() if k not in ("quantization_config", "auto_map", "torch_dtype")}
    config = DeepseekV3Config(**json.loads(json.dumps(fields)))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = hf.DeepseekV3ForCausalLM(config).to(torch.float32)
    model.load_state_dict(state_dict(checkpoint, bf16_weights), strict=True)
    return model.eval()


def verify_implementation(model):
    """Checks the two things that older transformers releases got wrong. Returns what was found, in words."""
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
    """Rounds to BF16 what an engine with BF16 activations rounds: the input of every linear layer (router, experts and
    head included) and the cached latent and rotated key. The residual stream and all sums stay F32."""
    handles = []

    def round_input(_, args):
        return (round_bf16(args[0]),) + args[1:]

    def round_output(_, __, output):
        return round_bf16(output)

    def experts_forward(self, hidden, top_k_index, top_k_weights):
        hidden = round_bf16(hidden)
        out = torch.zeros_like(hidden)
        for expert in top_k_index.unique().tolist():
            token, slot = torch.where(top_k_index == expert)
            gate, up = torch.nn.functional.linear(hidden[token], self.gate_up_proj[expert]).chunk(2, dim=-1)
            inner = round_bf16(self.act_fn(gate) * up)
            down = torch.nn.functional.linear(inner, self.down_proj[expert])
            out.index_add_(0, token, down * top_k_weights[token, slot, None])
        return out

    rope = hf.apply_rotary_pos_emb_interleave

    def rounded_rope(q, k, *args, **kwargs):
        q, k = rope(q, k, *args, **kwargs)
        return q, round_bf16(k)

    patched = []
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, hf.DeepseekV3TopkRouter)):
            handles.append(module.register_forward_pre_hook(round_input))
        elif isinstance(module, hf.DeepseekV3Attention):
            handles.append(module.kv_a_layernorm.register_forward_hook(round_output))
        elif isinstance(module, hf.DeepseekV3Experts):
            module.forward = experts_forward.__get__(module)
            patched.append(module)
    hf.apply_rotary_pos_emb_interleave = rounded_rope
    try:
        yield
    finally:
        hf.apply_rotary_pos_emb_interleave = rope
        for handle in handles:
            handle.remove()
        for module in patched:
            del module.forward


@contextlib.contextmanager
def absorbed_attention(model, shared=None):
    """Attention on the cached latents themselves, with the key and value projections folded into query and output: the
    same function as transformers' up to rounding, and far cheaper with many sequences and short steps. `shared` is the
    cache of a prefix that all sequences have, left by such a pass over it alone: the caller's cache then holds what
    follows, and the caller passes position_ids."""

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
        weights = scores.softmax(-1)
        own = weights[..., -latent.shape[1] :]
        summary = (own.flatten(1, 2) @ latent).view(batch, self.num_heads, steps, -1)
        if shared is not None:
            summary = summary + weights[..., : -latent.shape[1]] @ prefix.keys[0, 0]
        values = torch.einsum("bhsc,hdc->bhsd", summary, to_value)
        return self.o_proj(values.transpose(1, 2).reshape(batch, steps, -1)), weights

    layers = [m for m in model.modules() if isinstance(m, hf.DeepseekV3Attention)]
    for layer in layers:
        layer.forward = forward.__get__(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


@contextlib.contextmanager
def router_margins(model):
    """Yields a list that receives, per MoE layer and forward pass, each token's distance to another routing decision:
    the smaller of (last chosen - first refused biased score) and (last kept - first dropped group score)."""
    margins, handles = [], []

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

    for module in model.modules():
        if isinstance(module, hf.DeepseekV3TopkRouter):
            handles.append(module.register_forward_hook(record))
    try:
        yield margins
    finally:
        for handle in handles:
            handle.remove()
