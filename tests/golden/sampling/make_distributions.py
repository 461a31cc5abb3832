#!/usr/bin/env python3
"""From which tokens an answer's next one is drawn, and how likely each is, by the processors of transformers.

    python tests/golden/sampling/make_distributions.py        # torch, transformers

Writes distributions.json beside this file: logits of a small vocabulary, a prompt with generated tokens, the options of a
request, and the probability of each token. The processors run in the order that common/model/sampler.h gives, in F64
apart from the logits themselves. transformers has no frequency and presence penalty; OpenAI's formula stands in for them.
"""
import json
import pathlib

import torch
from transformers.generation import logits_process as hf

VOCABULARY = 48
PROMPT, GENERATED = 12, 20

CASES = {
    "temperature": {"temperature": 0.6},
    "hot": {"temperature": 1.7},
    "top_k": {"temperature": 1, "top_k": 5},
    "top_k_of_one": {"temperature": 1, "top_k": 1},
    "top_p": {"temperature": 1, "top_p": 0.7},
    "top_p_small": {"temperature": 1.3, "top_p": 0.05},
    "min_p": {"temperature": 1, "min_p": 0.15},
    "min_p_hot": {"temperature": 2, "min_p": 0.3},
    "top_k_then_top_p": {"temperature": 0.9, "top_k": 8, "top_p": 0.8},
    "min_p_then_top_p": {"temperature": 1.2, "min_p": 0.05, "top_p": 0.9},
    "all_cuts": {"temperature": 1.1, "top_k": 12, "top_p": 0.85, "min_p": 0.08},
    "repetition": {"temperature": 1, "repetition_penalty": 1.4},
    "repetition_below_one": {"temperature": 1, "repetition_penalty": 0.8},
    "frequency": {"temperature": 1, "frequency_penalty": 0.7},
    "presence": {"temperature": 1, "presence_penalty": 1.5},
    "negative_penalties": {"temperature": 1, "frequency_penalty": -0.4, "presence_penalty": -0.5},
    "bias": {"temperature": 1, "logit_bias": {"3": 4.0, "17": -100.0, "40": 1.5}},
    "everything": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2,
                   "frequency_penalty": 0.3, "presence_penalty": 0.4, "logit_bias": {"5": 3.0, "11": -2.5}},
}


def penalize(scores, generated, options):
    counts = torch.bincount(generated, minlength=VOCABULARY).to(scores.dtype)
    return scores - options.get("frequency_penalty", 0) * counts - options.get("presence_penalty", 0) * (counts > 0)


def probabilities(logits, tokens, options):
    scores, ids = logits.double()[None], tokens[None]
    if bias := options.get("logit_bias"):
        scores = hf.SequenceBiasLogitsProcessor({(int(token),): value for token, value in bias.items()})(ids, scores)
    if penalty := options.get("repetition_penalty"):
        scores = hf.RepetitionPenaltyLogitsProcessor(penalty)(ids, scores)
    scores = penalize(scores[0], tokens[PROMPT:], options)[None]
    scores = hf.TemperatureLogitsWarper(float(options["temperature"]))(ids, scores)
    if min_p := options.get("min_p"):
        scores = hf.MinPLogitsWarper(min_p)(ids, scores)
    if top_k := options.get("top_k"):
        scores = hf.TopKLogitsWarper(top_k)(ids, scores)
    if top_p := options.get("top_p"):
        scores = hf.TopPLogitsWarper(top_p)(ids, scores)
    return torch.softmax(scores[0], -1)


def main():
    random = torch.Generator().manual_seed(7)
    cases = []
    for name, options in CASES.items():
        logits = (2.5 * torch.randn(VOCABULARY, generator=random)).float()
        tokens = torch.randint(0, VOCABULARY // 2, (PROMPT + GENERATED,), generator=random)
        likely = probabilities(logits, tokens, options)
        cases.append({"name": name, "logits": logits.tolist(), "tokens": tokens.tolist(), "generated": GENERATED,
                      "options": options, "probabilities": [float(f"{value:.9g}") for value in likely]})
    out = pathlib.Path(__file__).with_name("distributions.json")
    out.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
