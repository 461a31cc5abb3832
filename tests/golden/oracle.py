"""Writes golden logits and greedy continuations of a checkpoint, computed by the transformers implementation.

    python tests/golden/oracle.py CHECKPOINT_DIR OUT_DIR

Needs torch, transformers (5.23 was used; releases with known faults are refused) and numpy. README.md beside this file
describes the output.
"""

import argparse
import itertools
import json
import pathlib
import sys
import zlib

import numpy
import torch
import transformers

import reference_dbrx
import reference_deepseek_v2
import reference_deepseek_v3
import reference_glm4_moe
import reference_gpt_oss
import reference_kimi_k2
import reference_llama
import reference_minimax_m2
import reference_mixtral
import reference_qwen2_moe
import reference_qwen3_moe
from checkpoint import Checkpoint

FAMILIES = {
    "dbrx": reference_dbrx,
    "deepseek_v3": reference_deepseek_v3,
    "glm4_moe": reference_glm4_moe,
    "gpt_oss": reference_gpt_oss,
    "llama": reference_llama,
    "minimax_m2": reference_minimax_m2,
    "mixtral": reference_mixtral,
    "qwen2_moe": reference_qwen2_moe,
    "qwen3_moe": reference_qwen3_moe,
    "deepseek_v2": reference_deepseek_v2,
    "kimi_k2": reference_kimi_k2,
}

PROMPT_LENGTHS = (1, 2, 63, 64, 65, 300)
TOP = 16
PROBES = 64
# Candidates of one length differ only in their last TAIL tokens, so that the search reads the rest of a long prompt
# once for BATCH of them. Two tokens make two million candidates.
TAIL = 2
BATCH = 1024
MAX_CANDIDATES = 1000000
# By how much rounding activations to BF16 changes a router margin (root mean square, measured) in the first MoE layer;
# it grows with the square root of the number of MoE layers so far.
ROUTER_NOISE = 0.0012
# Smallest accepted router margin of any position of prompt and continuation, in multiples of that noise.
MIN_CERTAINTY = 4
# The same for the tokens of a long prompt before its tail: they are chosen one by one, so a larger margin costs little.
WIDE_CERTAINTY = 10
# A greedy step is accepted if the best token leads by this many times the deviation measured on that continuation (the
# largest of 64 logits, so about 2.5 standard deviations), and by at least MIN_MARGIN.
MARGIN_FACTOR = 3
MIN_MARGIN = 0.12
# No logit may change by more when activations are rounded to BF16. Half the smallest tolerance of the golden test.
MAX_DEVIATION = 0.12
# Minimum number of different tokens in a continuation: a repetitive one would test little.
MIN_DISTINCT = 0.75
MASK64 = (1 << 64) - 1
BOS, EOS, FIRST_ORDINARY, TRAILING_SPECIAL = 0, 1, 3, 2


def mix(x):
    """The SplitMix64 finaliser."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def pseudo_random_token(length, position, attempt, token_count):
    """An ordinary token for a position of the prompt of `length` tokens."""
    ordinary = token_count - FIRST_ORDINARY - TRAILING_SPECIAL
    return FIRST_ORDINARY + mix((length << 40) + (attempt << 20) + position + 1) % ordinary


def probe_ids(token_count):
    """Token ids whose logits are stored at every position, in increasing order."""
    ids, i = set(), 0
    while len(ids) < min(PROBES, token_count):
        i += 1
        ids.add(mix(i) % token_count)
    return sorted(ids)


def certainty(margins):
    """Router margins of the MoE layers, [layer][token], in multiples of the rounding noise: the minimum over all
    layers."""
    return torch.stack([m / (ROUTER_NOISE * (layer + 1) ** 0.5) for layer, m in enumerate(margins)]).amin(0)


class Runner:
    """One set of weights. Logits cover the valid vocabulary only: padding rows are cut off."""

    def __init__(self, family, model, token_count):
        self.family = family
        self.model = model
        self.token_count = token_count

    @torch.no_grad()
    def logits(self, sequences):
        return self.model(torch.tensor(sequences)).logits[..., : self.token_count].float()

    @torch.no_grad()
    def greedy(self, prompts):
        """Continuations of equally long prompts, with a KV cache."""
        step, cache, tokens = torch.tensor(prompts), None, []
        for _ in range(self.family.GREEDY_TOKENS):
            out = self.model(step, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = out.past_key_values
            step = out.logits[:, -1:, : self.token_count].argmax(-1)
            tokens.append(step)
        return torch.cat(tokens, dim=1).tolist()

    @torch.no_grad()
    def safe_greedy(self, prompts):
        """(row, continuation) of the prompts whose greedy steps are all clear and varied, in row order. Drops the
        others, most at their first unclear step. The prompts have the same tokens before the last TAIL ones. Fast
        rather than exact: the caller verifies the results it uses."""
        prefix = max(len(prompts[0]) - TAIL, 0)
        shared = transformers.DynamicCache() if prefix else None
        cache = transformers.DynamicCache()
        rows, step = torch.arange(len(prompts)), torch.tensor(prompts)
        tokens = torch.empty(len(prompts), 0, dtype=torch.long)
        if prefix:
            with self.family.fast_attention(self.model):
                self.model(step[:1, :prefix], past_key_values=shared, use_cache=True, logits_to_keep=1)
            step = step[:, prefix:]
        position = prefix
        with self.family.fast_attention(self.model, shared):
            while len(rows) and tokens.shape[1] < self.family.GREEDY_TOKENS:
                positions = torch.arange(position, position + step.shape[1])[None].expand(len(rows), -1)
                position += step.shape[1]
                with self.family.router_margins(self.model) as margins:
                    out = self.model(
                        step, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
                    )
                values, ids = out.logits[:, -1, : self.token_count].topk(2)
                certain = certainty(margins).view(len(rows), -1).amin(-1) >= MIN_CERTAINTY
                clear = (values[:, 0] - values[:, 1] >= MIN_MARGIN) & (ids[:, 0] != EOS)
                keep = (certain & clear).nonzero().flatten()
                rows, step = rows[keep], ids[keep, :1]
                tokens = torch.cat([tokens[keep], step], dim=1)
                cache.batch_select_indices(keep)
        return [pair for pair in zip(rows.tolist(), tokens.tolist()) if len(set(pair[1])) >= MIN_DISTINCT * len(pair[1])]


class GrowingPrompt:
    """A sequence that grows by tokens whose routing is far from any other decision."""

    def __init__(self, runner):
        self.family = runner.family
        self.model = runner.model
        self.cache = transformers.DynamicCache()  # of layers with windows, too, it keeps all tokens

    @torch.no_grad()
    def append(self, token):
        """The certainty of the new position's routing."""
        with self.family.router_margins(self.model) as margins:
            self.model(torch.tensor([[token]]), past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        return certainty(margins).item()

    def remove_last(self):
        self.cache.crop(-1)


class Trace:
    """Exact and BF16-activation logits over a prompt and its greedy continuation."""

    def __init__(self, runner, prompt, continuation):
        self.prompt_length = len(prompt)
        self.continuation = continuation
        sequence = [prompt + continuation[:-1]]
        with runner.family.router_margins(runner.model) as margins:
            self.logits = runner.logits(sequence)[0]
        self.router_margin = torch.stack(margins).amin(0)
        self.certainty = certainty(margins)
        with runner.family.bf16_activations(runner.model):
            delta = (runner.logits(sequence)[0] - self.logits).abs()
        self.deviation = delta.amax(-1)  # per position, over all valid tokens
        self.deviation_rms = delta.pow(2).mean().sqrt().item()
        values, ids = self.logits.topk(2)
        self.margin = values[:, 0] - values[:, 1]
        self.top_deviation = delta.gather(-1, ids).amax(-1)  # per position, over the two leading tokens

    def greedy_slice(self, values):
        return values[self.prompt_length - 1 :]

    def acceptable(self):
        greedy = self.greedy_slice
        return (
            greedy(self.logits).argmax(-1).tolist() == self.continuation
            and greedy(self.margin).min() >= MARGIN_FACTOR * greedy(self.top_deviation).max()
            and self.certainty.min() >= MIN_CERTAINTY
            and self.deviation.max() <= MAX_DEVIATION
        )

    def activation_bf16_deviation(self):
        prompt = self.deviation[: self.prompt_length]
        return {
            "greedy_max": number(self.greedy_slice(self.top_deviation).max()),
            "rms": number(self.deviation_rms),
            "prompt_median": number(prompt.median()),
            "prompt_max": number(prompt.max()),
        }


def find_prefix(length, runners):
    """The prompt's tokens before its tail: BOS, then at each position the first pseudo-random token that every runner
    routes with a wide margin."""
    if length <= TAIL:
        return []
    tokens = [BOS]
    prompts = [GrowingPrompt(runner) for runner in runners]
    for prompt in prompts:
        prompt.append(BOS)
    while len(tokens) < length - TAIL:
        for attempt in itertools.count():
            token = pseudo_random_token(length, len(tokens), attempt, runners[0].token_count)
            if min([prompt.append(token) for prompt in prompts]) >= WIDE_CERTAINTY:
                break
            for prompt in prompts:
                prompt.remove_last()
        tokens.append(token)
    return tokens


def find_prompt(length, runners):
    """The first candidate that every runner continues with the same, safely separated tokens."""
    token_count = runners[0].token_count
    prefix = find_prefix(length, runners)
    for first in range(0, MAX_CANDIDATES, BATCH):
        prompts = [
            prefix + [pseudo_random_token(length, i, candidate, token_count) for i in range(len(prefix), length)]
            for candidate in range(first, first + BATCH)
        ]
        for i, continuation in runners[0].safe_greedy(prompts):
            traces = []
            for runner in runners:
                traces.append(Trace(runner, prompts[i], continuation))
                if not traces[-1].acceptable():
                    break
            else:
                return first + i, prompts[i], traces
    sys.exit(f"no acceptable prompt of length {length} among {MAX_CANDIDATES} candidates")


def number(value):
    """A float that JSON prints with the digits needed to restore the F32 value."""
    return float(str(numpy.float32(float(value))))


def numbers(tensor):
    return [number(v) for v in tensor.tolist()]


def position_record(logits, probes):
    top = logits.topk(TOP)
    return {
        "top_ids": top[1].tolist(),
        "top_logits": numbers(top[0]),
        "probe_logits": numbers(logits[probes]),
        "logsumexp": number(torch.logsumexp(logits.double(), 0)),
        "norm": number(logits.double().norm()),
    }


def variant_record(runner, prompt, probes, trace=None):
    continuation = trace.continuation if trace else runner.greedy([prompt])[0]
    logits = trace.logits if trace else runner.logits([prompt + continuation[:-1]])[0]
    best = logits[len(prompt) - 1 :].topk(2)[0]
    margins = best[:, 0] - best[:, 1]
    record = {
        "positions": [position_record(row, probes) for row in logits[: len(prompt)]],
        "greedy": {"tokens": continuation, "margins": numbers(margins), "min_margin": number(margins.min())},
    }
    if trace:
        record["activation_bf16_deviation"] = trace.activation_bf16_deviation()
        record["router_margin"] = numbers(trace.router_margin[: len(prompt)])
        record["deviation"] = numbers(trace.deviation[: len(prompt)])
        record["greedy"]["min_router_margin"] = number(trace.greedy_slice(trace.router_margin).min())
    return record


def bf16_execution(model):
    """Parameters and activations in BF16, as transformers loads them: buffers (frequencies, router bias) stay F32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return model


def crc32(checkpoint):
    value = 0
    for file_name in checkpoint.shards():
        value = zlib.crc32((checkpoint.directory / file_name).read_bytes(), value)
    return value


def write_json(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # one order of summation, and faster for a model this small

    checkpoint = Checkpoint(args.checkpoint)
    token_count = checkpoint.token_count()
    family = FAMILIES[checkpoint.config["model_type"]]
    f32 = Runner(family, family.load_model(checkpoint), token_count)
    bf16_weights = Runner(family, family.load_model(checkpoint, bf16_weights=True), token_count)
    bf16 = Runner(family, bf16_execution(family.load_model(checkpoint, bf16_weights=True)), token_count)
    findings = family.verify_implementation(f32.model)
    identity = {"sha256": checkpoint.checksum(), "crc32": crc32(checkpoint)}
    probes = probe_ids(token_count)

    cases = []
    for length in PROMPT_LENGTHS:
        candidate, prompt, traces = find_prompt(length, [f32, bf16_weights])
        case = {
            "checkpoint": identity,
            "token_count": token_count,
            "candidate": candidate,
            "prompt": prompt,
            "probe_ids": probes,
            "variants": {
                "f32": variant_record(f32, prompt, probes, traces[0]),
                "bf16_weights": variant_record(bf16_weights, prompt, probes, traces[1]),
                "bf16": variant_record(bf16, prompt, probes),
            },
        }
        file_name = f"prompt_{length}.json"
        write_json(out / file_name, case)
        cases.append(file_name)
        for name, variant in case["variants"].items():
            print(
                f"length {length} candidate {candidate} {name}: min margin {variant['greedy']['min_margin']:.4f}",
                variant.get("activation_bf16_deviation", ""),
                flush=True,
            )
    manifest = {
        "checkpoint": identity,
        "cases": cases,
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
        "implementation": findings,
    }
    write_json(out / "manifest.json", manifest)


if __name__ == "__main__":
    main()
