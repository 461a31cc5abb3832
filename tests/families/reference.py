"""What transformers computes: logits, choices of experts, greedy continuations."""

import contextlib
import random

import torch
import transformers

import families

GREEDY_TOKENS = 12
PROMPT_LENGTHS = (33, 64, 97, 130, 33, 64, 97, 130)
CANDIDATES = 12  # prompts of each length, of which the clearest is taken


@contextlib.contextmanager
def choices_of_experts(model):
    """Yields a list that receives, per MoE layer and forward pass, the chosen experts [tokens, experts per token], in
    ascending order."""
    chosen, handles, restore = [], [], []

    def record(_, __, output):
        chosen.append(output[2].sort(dim=-1)[0])

    for module in model.modules():
        kind = type(module).__name__
        if kind.lower().endswith("topkrouter"):
            handles.append(module.register_forward_hook(record))
        if kind == "DbrxFFN":  # its router gives only logits
            original = module.route_tokens_to_experts

            def route(logits, original=original):
                weights, ids = original(logits)
                chosen.append(ids.sort(dim=-1)[0])
                return weights, ids

            module.route_tokens_to_experts = route
            restore.append(module)
    try:
        yield chosen
    finally:
        for handle in handles:
            handle.remove()
        for module in restore:
            del module.route_tokens_to_experts


@torch.no_grad()
def run(model, sequences, token_count):
    """Logits [positions of all sequences, token_count] in F32, and choices [positions, MoE layers, experts per token]."""
    logits, experts = [], []
    for sequence in sequences:
        with choices_of_experts(model) as chosen:
            logits.append(model(torch.tensor([sequence])).logits[0, :, :token_count].float())
        if chosen:
            experts.append(torch.stack(chosen, dim=1))
    return torch.cat(logits), torch.cat(experts) if experts else None


@torch.no_grad()
def greedy(model, prompts, token_count):
    """Of equally long prompts: continuations, and the smallest lead of a token over the second in each."""
    cache = transformers.DynamicCache(config=model.config)
    step, tokens, leads = torch.tensor(prompts), [], []
    for _ in range(GREEDY_TOKENS):
        logits = model(step, past_key_values=cache, use_cache=True).logits[:, -1, :token_count]
        best = logits.topk(2)
        leads.append(best.values[:, 0] - best.values[:, 1])
        step = best.indices[:, :1]
        tokens.append(step)
    return torch.cat(tokens, dim=1).tolist(), torch.stack(leads).amin(0).tolist()


def golden_prompts(model, token_count, seed):
    """Of each length the random prompt whose greedy tokens lead by most: (prompt, continuation, lead)."""
    draw = random.Random(seed)
    chosen = []
    for length in PROMPT_LENGTHS:
        prompts = [[families.BOS] + [draw.randrange(families.FIRST_ORDINARY, token_count) for _ in range(length - 1)]
                   for _ in range(CANDIDATES)]
        tokens, leads = greedy(model, prompts, token_count)
        chosen.append(max(zip(prompts, tokens, leads), key=lambda candidate: candidate[2]))
    return chosen
