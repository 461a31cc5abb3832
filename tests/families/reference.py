"""What transformers computes: logits, choices of experts, greedy continuations."""

import contextlib
import random

import torch
import transformers

import families

PROMPT_LENGTHS = (33, 64, 97, 130, 33, 64, 97, 130)
GOLDEN_LENGTHS = (5, 9, 14)
GREEDY_TOKENS = 8
CANDIDATES = 128  # of each golden prompt
NOISY_RUNS = 4


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
    """Of equally long sequences: logits [sequences, positions, token_count] in F32, and choices [sequences, positions,
    MoE layers, experts per token], or None."""
    with choices_of_experts(model) as chosen:
        logits = model(torch.tensor(sequences)).logits[..., :token_count].float()
    if not chosen:
        return logits, None
    return logits, torch.stack(chosen, dim=1).unflatten(0, logits.shape[:2])


def run_each(model, sequences, token_count):
    """The same, one sequence after the other, as if they were one."""
    results = [run(model, [sequence], token_count) for sequence in sequences]
    logits = torch.cat([logits[0] for logits, _ in results])
    return logits, None if results[0][1] is None else torch.cat([experts[0] for _, experts in results])


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
    return torch.cat(tokens, dim=1).tolist(), torch.stack(leads).amin(0)


def random_prompt(draw, length, token_count):
    return [families.BOS] + [draw.randrange(families.FIRST_ORDINARY, token_count) for _ in range(length - 1)]


@contextlib.contextmanager
def noisy_embedding(model, seed):
    """Embeddings get a relative error of 2^-7, about what rounding of activations to BF16 adds up to."""
    generator = torch.Generator().manual_seed(seed)

    def disturb(_, __, output):
        return output * (1 + torch.randn(output.shape, generator=generator) * 2**-7)

    handle = model.get_input_embeddings().register_forward_hook(disturb)
    try:
        yield
    finally:
        handle.remove()


def golden_prompts(f32, bf16, token_count, draw):
    """(prompt, continuation, lead) by length. Of random prompts those are taken whose experts and greedy tokens change
    in the fewest of NOISY_RUNS runs with noise and of one in BF16; of these, the one whose greedy tokens lead most."""
    chosen = []
    for length in GOLDEN_LENGTHS:
        prompts = [random_prompt(draw, length, token_count) for _ in range(CANDIDATES)]
        tokens, leads = greedy(f32, prompts, token_count)
        sequences = [prompt + continuation for prompt, continuation in zip(prompts, tokens)]
        _, expected = run(f32, sequences, token_count)
        others = [run(bf16, sequences, token_count)]
        for seed in range(NOISY_RUNS):
            with noisy_embedding(f32, seed):
                others.append(run(f32, sequences, token_count))
        clear = torch.zeros(CANDIDATES)
        for logits, experts in others:
            same = (logits[:, length - 1 : -1].argmax(-1) == torch.tensor(tokens)).all(-1)
            if experts is not None:
                same &= (experts == expected).flatten(1).all(-1)
            clear += same
        best = (1e6 * clear + leads).argmax().item()
        chosen.append((prompts[best], tokens[best], leads[best].item()))
    return chosen
