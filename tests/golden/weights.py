"""Weights of a checkpoint, which may be FP8, as parameters of a transformers model."""

import contextlib
import typing

import torch

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


class Names(typing.NamedTuple):
    """What a checkpoint calls the block of experts, and an expert's matrices."""

    block: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


def state_dict(checkpoint, experts, first_expert_layer, bf16_weights, names=Names()):
    """Parameters of the main model under transformers' names, without the multi-token-prediction layer."""
    layers = checkpoint.config["num_hidden_layers"]

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
        state[name.replace(f".{names.block}.", ".mlp.")] = tensor(name)
    for layer in range(first_expert_layer, layers):
        prefix = f"model.layers.{layer}.{names.block}.experts."
        if f"{prefix}0.{names.gate}.weight" not in checkpoint.entries:
            continue  # a dense layer between others
        gate_up = [torch.cat([tensor(f"{prefix}{e}.{p}.weight") for p in (names.gate, names.up)])
                   for e in range(experts)]
        down = [tensor(f"{prefix}{e}.{names.down}.weight") for e in range(experts)]
        state[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = torch.stack(gate_up)
        state[f"model.layers.{layer}.mlp.experts.down_proj"] = torch.stack(down)
    return state


def load(model, state):
    """The model in F32 with these parameters."""
    model = model.to(torch.float32)
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model.eval()


def config_fields(checkpoint):
    """Arguments of a configuration class; transformers need not know how the weights were stored."""
    left_out = ("quantization_config", "auto_map", "torch_dtype")
    return {key: value for key, value in checkpoint.config.items() if key not in left_out}


def experts_forward(rounded):
    """Experts whose inputs are `rounded`. A module may have a `linear` of its own."""

    def forward(self, hidden, top_k_index, top_k_weights):
        linear = getattr(self, "linear", torch.nn.functional.linear)
        hidden = rounded(hidden)
        out = torch.zeros_like(hidden)
        for expert in top_k_index.unique().tolist():
            token, slot = torch.where(top_k_index == expert)
            gate, up = linear(hidden[token], self.gate_up_proj[expert]).chunk(2, dim=-1)
            inner = rounded(self.act_fn(gate) * up)
            down = linear(inner, self.down_proj[expert])
            out.index_add_(0, token, down * top_k_weights[token, slot, None])
        return out

    return forward


@contextlib.contextmanager
def rounded_experts(modules):
    """Experts of these modules round their inputs to BF16."""
    with replaced_forward(modules, experts_forward(round_bf16)):
        yield


@contextlib.contextmanager
def replaced_forward(modules, forward):
    modules = list(modules)
    for module in modules:
        module.forward = forward.__get__(module)
    try:
        yield
    finally:
        for module in modules:
            del module.forward


@contextlib.contextmanager
def hooks(handles):
    """Removes the hooks behind the handles at the end."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def replaced(module, name, function):
    original = getattr(module, name)
    setattr(module, name, function(original))
    try:
        yield
    finally:
        setattr(module, name, original)


def rounded_key(rope):
    """The rotation of queries and keys, whose keys are BF16."""

    def rotate(q, k, *args, **kwargs):
        q, k = rope(q, k, *args, **kwargs)
        return q, round_bf16(k)

    return rotate


@contextlib.contextmanager
def bf16_activations(model, hf, family, rotation="apply_rotary_pos_emb", cached="v_proj"):
    """Rounds to BF16 the values that an engine with BF16 activations rounds: the input of every linear layer (router,
    experts and head included), the rotated keys, and what else is cached, the output of attention's module `cached`.
    The residual stream and all sums stay F32. `hf` is the module of transformers that has the model's classes and
    their `rotation`, `family` the word with which their names begin."""
    suffixes = ("TopKRouter", "TopkRouter", "Attention", "Experts")
    *routers, attention, experts = (getattr(hf, family + suffix, ()) for suffix in suffixes)
    modules = list(model.modules())
    handles = [m.register_forward_pre_hook(round_input) for m in modules if isinstance(m, (torch.nn.Linear, *routers))]
    handles += [getattr(m, cached).register_forward_hook(round_output) for m in modules if isinstance(m, attention)]
    with (hooks(handles), rounded_experts(m for m in modules if isinstance(m, experts)),
          replaced(hf, rotation, rounded_key)):
        yield


def projection(hf, norms=False):
    """The `project` of grouped_attention for families that rotate by the module's apply_rotary_pos_emb. `norms`: each
    head of queries and keys has a norm."""

    def project(attention, hidden_states, position_embeddings, heads):
        q, k = heads(attention.q_proj(hidden_states)), heads(attention.k_proj(hidden_states))
        if norms:
            q, k = attention.q_norm(q), attention.k_norm(k)
        return hf.apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), *position_embeddings)

    return project


@contextlib.contextmanager
def grouped_attention(modules, project, shared, sinks=False):
    """Attention of these modules without copies of keys and values for every head. It is the same function as
    transformers' up to rounding, and far cheaper with many sequences and short steps. `project` returns rotated queries
    and keys. `shared` is the cache of a prefix common to all sequences, left by such a pass over it alone. The caller's
    cache then holds only what follows, and the caller passes position_ids. `sinks`: the modules have sinks and, some
    of them, windows, which are longer than what follows the prefix."""

    def forward(self, hidden_states, position_embeddings, attention_mask, past_key_values=None, **_):
        batch, steps = hidden_states.shape[:2]

        def heads(projected):
            return projected.view(batch, steps, -1, self.head_dim)

        q, k = project(self, hidden_states, position_embeddings, heads)
        k, v = past_key_values.update(k, heads(self.v_proj(hidden_states)).transpose(1, 2), self.layer_idx)
        q = q.reshape(batch, k.shape[1], -1, self.head_dim)  # the group's heads and steps folded
        own = k.shape[2]
        scores = (q @ k.mT).view(batch, k.shape[1], -1, steps, own) * self.scaling + attention_mask[:, :, None]
        if shared is not None:
            prefix = shared.layers[self.layer_idx]  # [1, kv heads, tokens, features]: one product for all sequences
            shared_scores = (q @ prefix.keys.mT).view(batch, k.shape[1], -1, steps, prefix.keys.shape[2])
            shared_scores = shared_scores * self.scaling
            if sinks and self.sliding_window is not None:
                distance = own - steps + torch.arange(steps)[:, None] + torch.arange(shared_scores.shape[-1], 0, -1)
                shared_scores = shared_scores.masked_fill(distance >= self.sliding_window, float("-inf"))
            scores = torch.cat([shared_scores, scores], dim=-1)
        if sinks:
            sink = self.sinks.view(1, k.shape[1], -1, 1, 1).expand(batch, -1, -1, steps, 1)
            shares = torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]
        else:
            shares = scores.softmax(-1)
        summary = shares[..., -own:].flatten(2, 3) @ v
        if shared is not None:
            summary = summary + shares[..., :-own].flatten(2, 3) @ prefix.values
        summary = summary.view(batch, -1, steps, self.head_dim).transpose(1, 2)
        return self.o_proj(summary.reshape(batch, steps, -1)), shares

    with replaced_forward(modules, forward):
        yield


@contextlib.contextmanager
def latent_attention(modules, rotate, shared):
    """Attention of these modules on the cached latents themselves, with the key and value projections folded into query
    and output. It is the same function as transformers' up to rounding, and far cheaper with many sequences and short
    steps. `rotate` is the family's rotation of queries and keys. `shared` is the cache of a prefix common to all
    sequences, left by such a pass over it alone. The caller's cache then holds only what follows, and the caller passes
    position_ids."""

    def forward(self, hidden_states, position_embeddings, attention_mask, past_key_values=None, **_):
        batch, steps = hidden_states.shape[:2]
        if self.q_lora_rank is None:
            q = self.q_proj(hidden_states)
        else:
            q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        q = q.view(batch, steps, -1, self.qk_head_dim).transpose(1, 2)
        q_pass, q_rot = q.split([self.qk_nope_head_dim, self.qk_rope_head_dim], dim=-1)
        latent, k_rot = self.kv_a_proj_with_mqa(hidden_states)[:, None].split(
            [self.kv_lora_rank, self.qk_rope_head_dim], dim=-1
        )
        q_rot, k_rot = rotate(q_rot, k_rot, position_embeddings)
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

    with replaced_forward(modules, forward):
        yield


@contextlib.contextmanager
def softmax_router_margins(routers):
    """Yields a list that receives, per layer and forward pass, each token's distance to another choice of experts: a
    quarter of the gap between the last chosen and the first rejected logit. That equals the gap between the sigmoid
    scores at their steepest."""
    margins = []

    def record(router, _, output):
        logits = output[0].sort(dim=-1, descending=True)[0]
        margins.append((logits[:, router.top_k - 1] - logits[:, router.top_k]) / 4)

    with hooks([router.register_forward_hook(record) for router in routers]):
        yield margins


@contextlib.contextmanager
def sigmoid_router_margins(routers):
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

    with hooks([router.register_forward_hook(record) for router in routers]):
        yield margins


def round_input(_, args):
    """A hook before a module."""
    return (round_bf16(args[0]),) + args[1:]


def round_output(_, __, output):
    """A hook after a module."""
    return round_bf16(output)
