"""DeepSeek-V3's architecture in plain PyTorch, at any size, under the tensor names of published checkpoints.

Multi-head latent attention (un-absorbed), a dense first layer, then mixtures of experts with the sigmoid router of
DeepSeek-V3: group-limited top-k of score plus bias, weights from the unbiased scores. Rows are packed: several
examples lie in one row and do not see each other.
"""

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "torch_dtype": "bfloat16",
    "vocab_size": 512, "hidden_size": 256, "num_hidden_layers": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "intermediate_size": 512, "moe_intermediate_size": 128, "n_routed_experts": 24, "n_shared_experts": 1,
    "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    "norm_topk_prob": True, "routed_scaling_factor": 2.0, "num_attention_heads": 4, "num_key_value_heads": 4,
    "q_lora_rank": 128, "kv_lora_rank": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "max_position_embeddings": 2048, "rope_theta": 10000, "rope_scaling": None, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": False,
    "num_nextn_predict_layers": 0, "ep_size": 1, "bos_token_id": 0, "eos_token_id": 1, "initializer_range": 0.02,
    "use_cache": True,
}  # fmt: skip


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps).to(x.dtype)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x, angles):
    """Rotates neighbouring pairs of the last dimension. x: [B, heads, T, R]; angles: [B, 1, T, R/2]."""
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.nope, self.rope, self.v = (c[k] for k in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        self.latent = c["kv_lora_rank"]
        h, eps = c["hidden_size"], c["rms_norm_eps"]
        self.q_a_proj, self.q_a_layernorm = linear(h, c["q_lora_rank"]), RMSNorm(c["q_lora_rank"], eps)
        self.q_b_proj = linear(c["q_lora_rank"], self.heads * (self.nope + self.rope))
        self.kv_a_proj_with_mqa, self.kv_a_layernorm = linear(h, self.latent + self.rope), RMSNorm(self.latent, eps)
        self.kv_b_proj = linear(self.latent, self.heads * (self.nope + self.v))
        self.o_proj = linear(self.heads * self.v, h)

    def forward(self, x, angles, mask):
        b, t, _ = x.shape
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).view(b, t, self.heads, -1).transpose(1, 2)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([self.latent, self.rope], -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = kv.split([self.nope, self.v], -1)
        q = torch.cat([q[..., : self.nope], rotate(q[..., self.nope :], angles)], -1)
        k = torch.cat([k, rotate(k_rope[:, None], angles).expand(-1, self.heads, -1, -1)], -1)
        # Rows are short: plain products are faster here than fused attention and its backward pass.
        scores = (q @ k.mT).float() * (self.nope + self.rope) ** -0.5
        out = scores.masked_fill(~mask, float("-inf")).softmax(-1).to(v.dtype) @ v
        return self.o_proj(out.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(hidden, inner), linear(hidden, inner), linear(inner, hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    """Chooses experts; F32 throughout. The bias affects only the choice. Each step moves it towards equal
    load instead of training it (auxiliary-loss-free balancing)."""

    def __init__(self, c):
        super().__init__()
        self.groups, self.kept, self.top_k, self.scale = c["n_group"], c["topk_group"], c["num_experts_per_tok"], c["routed_scaling_factor"]
        self.weight = nn.Parameter(torch.empty(c["n_routed_experts"], c["hidden_size"]))
        self.register_buffer("e_score_correction_bias", torch.zeros(c["n_routed_experts"]))
        self.loads = []  # tokens by expert, for each call since they were last taken

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            scores = F.linear(x.float(), self.weight).sigmoid()
        with torch.no_grad():
            biased = (scores + self.e_score_correction_bias).view(len(x), self.groups, -1)
            best = biased.topk(2, -1)[0].sum(-1).topk(self.kept, -1)[1]
            outside = torch.ones(len(x), self.groups, dtype=torch.bool).scatter_(1, best, False)
            chosen = biased.masked_fill(outside[..., None], float("-inf")).flatten(1).topk(self.top_k, -1)[1]
            counts = torch.bincount(chosen.flatten(), minlength=scores.shape[1])
            self.loads.append(counts)
        weights = scores.gather(1, chosen)
        return chosen, counts.tolist(), weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.scale

    def take_load(self):
        load = torch.stack(self.loads).sum(0).float()
        self.loads.clear()
        return load


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = Gate(c)
        self.experts = nn.ModuleList(MLP(c["hidden_size"], c["moe_intermediate_size"]) for _ in range(c["n_routed_experts"]))
        self.shared_experts = MLP(c["hidden_size"], c["moe_intermediate_size"] * c["n_shared_experts"])

    def forward(self, x):
        flat = x.flatten(0, 1)
        chosen, counts, weights = self.gate(flat)
        order = chosen.flatten().argsort()
        tokens = order // chosen.shape[1]
        # Rows in multiples of 128: matrix libraries prepare a kernel for every new shape, which costs more than the
        # rows.
        parts = [
            expert(F.pad(part, (0, 0, 0, -len(part) % 128)))[: len(part)]
            for expert, part in zip(self.experts, flat.index_select(0, tokens).split(counts))
            if len(part)
        ]
        routed = torch.cat(parts)
        routed = routed * weights.flatten().index_select(0, order)[:, None].to(routed.dtype)
        return (self.shared_experts(flat) + torch.zeros_like(flat).index_add(0, tokens, routed.to(flat.dtype))).view_as(x)


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        h, eps = c["hidden_size"], c["rms_norm_eps"]
        self.input_layernorm, self.self_attn = RMSNorm(h, eps), Attention(c)
        self.post_attention_layernorm = RMSNorm(h, eps)
        self.mlp = MLP(h, c["intermediate_size"]) if index < c["first_k_dense_replace"] else MoE(c)

    def forward(self, x, angles, mask):
        x = x + self.self_attn(self.input_layernorm(x), angles, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c=CONFIG):
        super().__init__()
        self.config = c
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.model.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = linear(c["hidden_size"], c["vocab_size"])
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 if "embed" in name or "gate.weight" in name else p.shape[1] ** -0.5)
        for layer in self.model.layers:
            for m in layer.modules():
                if isinstance(m, MLP):
                    nn.init.zeros_(m.down_proj.weight)
            nn.init.zeros_(layer.self_attn.o_proj.weight)

    def forward(self, ids, positions, documents):
        """ids, positions, documents: [B, T]. Tokens see earlier tokens of the same document. -> logits [B, T, vocab]"""
        c = self.config
        inverse = c["rope_theta"] ** (-torch.arange(0, c["qk_rope_head_dim"], 2) / c["qk_rope_head_dim"])
        angles = (positions[..., None].float() * inverse)[:, None]
        same = documents[:, :, None] == documents[:, None, :]
        mask = (same & torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril())[:, None]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, angles, mask)
        return self.lm_head(self.model.norm(x))

    def gates(self):
        return [layer.mlp.gate for layer in self.model.layers if isinstance(layer.mlp, MoE)]
