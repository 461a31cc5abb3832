#!/usr/bin/env python3
"""Exact match of a checkpoint on the held-out set, computed by the PyTorch model in F32: the score that a server must reach.

    score.py CHECKPOINT_DIR EVAL_FILE [--json FILE] [--answers FILE]
"""

import argparse
import json
import pathlib

import fp8
import model as m
import tasks
import tokenizer as tok
import torch
from safetensors.torch import load_file

ROWS, LONGEST_ANSWER = 64, 40


def load(directory):
    directory = pathlib.Path(directory)
    stored = load_file(directory / "model.safetensors")
    state = {}
    for name, value in stored.items():
        if name.endswith("_scale_inv"):
            continue
        scale = stored.get(name + "_scale_inv")
        state[name] = value.float() if scale is None else fp8.dequantise(value, scale)
    config = json.loads((directory / "config.json").read_text())
    config.pop("quantization_config", None)
    net = m.Model(config)
    net.load_state_dict(state)
    return net.eval(), tok.load(directory)


def prompt_text(example):
    if "prompt" in example:
        return example["prompt"]
    text = ""
    for message in example["messages"]:
        user = message["role"] == "user"
        text += tasks.USER + message["content"] + tasks.ASSISTANT if user else message["content"] + tok.EOS
    return text


@torch.no_grad()
def answers(net, tokenizer, prompts):
    """Greedy answers, up to the EOS token."""
    eos = tokenizer.token_to_id(tok.EOS)
    rows = [tokenizer.encode(p).ids for p in prompts]
    start = [len(r) for r in rows]
    unfinished = list(range(len(rows)))
    for _ in range(LONGEST_ANSWER):
        width = max(len(rows[i]) for i in unfinished)
        ids = torch.tensor([rows[i] + [0] * (width - len(rows[i])) for i in unfinished])
        logits = net(ids, torch.arange(width).expand_as(ids), torch.zeros_like(ids))
        best = {i: row[len(rows[i]) - 1].argmax().item() for i, row in zip(unfinished, logits)}
        unfinished = [i for i in unfinished if best[i] != eos]
        for i in unfinished:
            rows[i].append(best[i])
        if not unfinished:
            break
    return [tokenizer.decode(r[s:], skip_special_tokens=False) for r, s in zip(rows, start)]


def answer_all(checkpoint, examples):
    """The answer to every example, in their order."""
    net, tokenizer = load(checkpoint)
    order = sorted(range(len(examples)), key=lambda i: len(prompt_text(examples[i])))
    given = {}
    for begin in range(0, len(order), ROWS):
        part = order[begin : begin + ROWS]
        given |= zip(part, answers(net, tokenizer, [prompt_text(examples[i]) for i in part]))
    return [given[i] for i in range(len(examples))]


def score(examples, given):
    right = {}
    for example, answer in zip(examples, given):
        right.setdefault(example["task"], []).append(answer == example["answer"])
    by_task = {task: sum(r) / len(r) for task, r in sorted(right.items())}
    everything = [r for marks in right.values() for r in marks]
    easy = [r for task in tasks.EASY for r in right.get(task, [])]
    return {"tasks": by_task, "easy": sum(easy) / len(easy), "overall": sum(everything) / len(everything), "examples": len(everything)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("eval_file")
    parser.add_argument("--json", help="also write the result to this file")
    parser.add_argument("--answers", help="file for the answers: one JSON line per question, as moestro eval does")
    args = parser.parse_args()
    examples = [json.loads(line) for line in open(args.eval_file)]
    given = answer_all(args.checkpoint, examples)
    result = score(examples, given)
    for task, share in result["tasks"].items():
        print(f"{task:10s} {share:6.1%}")
    print(f"easy tasks {result['easy']:.1%}, overall {result['overall']:.1%} of {result['examples']}")
    if args.answers:
        lines = (json.dumps({"task": e["task"], "expected": e["answer"], "answer": a}) for e, a in zip(examples, given))
        pathlib.Path(args.answers).write_text("".join(line + "\n" for line in lines))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=2) + "\n")
