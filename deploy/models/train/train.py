#!/usr/bin/env python3
"""Trains the demo model. Deterministic for given options and machine; stop it at any time and run it again to go on.

    train.py --out DIR [--steps N] [--threads N]       about 1.3 s a step on two CPU cores

DIR receives tokenizer files, state.pt (to resume) and log.jsonl. Then: export.py DIR CHECKPOINT; score.py DIR.
"""

import argparse
import json
import math
import pathlib
import random
import time

import fp8
import model as m
import tasks
import tokenizer as tok
import torch
import torch.nn.functional as F

OTHER_TOKENS = 0.05  # loss weight of tokens that are not answers: questions are random, but their form can be learnt
BALANCE_SPEED = 2e-3  # per step, of the router's bias towards equal load


def encode(tokenizer, pieces, eos):
    """Ids of one example and the loss weight of each. The last answer, and in a chat every answer, ends with EOS."""
    ids, weights = [tokenizer.token_to_id(tok.BOS)], [0.0]
    chat = pieces[0][0].startswith(tasks.USER)
    for i, (text, is_answer) in enumerate(pieces):
        part = tokenizer.encode(text, add_special_tokens=False).ids
        if is_answer and (chat or i == len(pieces) - 1):
            part = part + [eos]
        ids += part
        # Whether a session goes on after an answer cannot be known.
        weights += [1.0 if is_answer else 0.0 if text == "\n" else OTHER_TOKENS] * len(part)
    return ids, weights


def batch(tokenizer, step, rows, width):
    """Examples of this step packed into rows. -> ids, targets, weights, positions, documents, all [rows, width]"""
    rng = random.Random(step)
    eos = tokenizer.token_to_id(tok.EOS)
    out = torch.zeros(5, rows, width)
    for row in range(rows):
        at, document = 0, 0
        while True:
            ids, weights = encode(tokenizer, tasks.sample(rng)[1], eos)
            n = len(ids) - 1
            if at + n > width:
                break
            document += 1
            fields = (ids[:-1], ids[1:], weights[1:], range(n), [document] * n)
            out[:, row, at : at + n] = torch.tensor([list(f) for f in fields])
            at += n
    ids, targets, weights, positions, documents = out
    return ids.long(), targets.long(), weights, positions.long(), documents.long()


class Muon:
    """Momentum whose update is orthogonalised by Newton-Schulz, for the matrices of the layers; same-shaped ones are
    done together."""

    def __init__(self, params):
        self.params = params
        self.momentum = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self, lr):
        shapes = {}
        for p, buffer in zip(self.params, self.momentum):
            grad = p.grad if p.grad is not None else torch.zeros_like(p)
            buffer.mul_(0.95).add_(grad)
            shapes.setdefault(p.shape, []).append((p, grad + 0.95 * buffer))
        for (rows, columns), pairs in shapes.items():
            x = torch.stack([g for _, g in pairs])
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            x = (x.mT if rows > columns else x).bfloat16()
            for _ in range(5):
                a = x @ x.mT
                x = torch.baddbmm(x, torch.baddbmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
            x = (x.mT if rows > columns else x).float()
            for (p, _), update in zip(pairs, x):
                p.mul_(1 - 0.01 * lr / 0.02).add_(update, alpha=-lr * max(1, rows / columns) ** 0.5)


def schedule(step, steps):
    """Factor on the learning rates: warm-up, level, then down to nothing over the last half."""
    return min(1, (step + 1) / 50, 2 * (steps - step) / steps)


def train(args):
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = tok.train()
    tok.write(tokenizer, out)

    net = m.Model()
    matrices = [p for n, p in net.model.layers.named_parameters() if p.dim() == 2 and "gate.weight" not in n]
    chosen = {id(p) for p in matrices}
    adam = torch.optim.AdamW([p for p in net.parameters() if id(p) not in chosen], lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0)
    muon = Muon(matrices)
    first, state_file = 0, out / "state.pt"
    if state_file.exists():
        state = torch.load(state_file)
        net.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])
        muon.momentum, first = state["muon"], state["step"]
        print(f"going on at step {first}", flush=True)
    quantised = fp8.quantised_weights(net)

    started, log = time.monotonic(), open(out / "log.jsonl", "a")
    for step in range(first, args.steps):
        factor = schedule(step, args.steps)
        for group in adam.param_groups:
            group["lr"] = args.lr * factor
        ids, targets, weights, positions, documents = batch(tokenizer, step, args.rows, args.width)
        # The last quarter sees the weights as they will be published; gradients pass straight through the rounding.
        with fp8.rounded(quantised, on=step >= args.steps * 3 // 4):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = net(ids, positions, documents)
            losses = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
            loss = (losses * weights.flatten()).sum() / weights.sum()
            loss.backward()
        torch.nn.utils.clip_grad_norm_([p for g in adam.param_groups for p in g["params"]], 1.0)
        adam.step()
        muon.step(0.02 * factor)
        net.zero_grad()
        with torch.no_grad():
            for gate in net.gates():
                gate.e_score_correction_bias += BALANCE_SPEED * factor * torch.sign(gate.load.mean() - gate.load)
        if step % 10 == 0 or step + 1 == args.steps:
            answers = weights.flatten() == 1
            right = (logits.flatten(0, 1).argmax(-1) == targets.flatten())[answers].float().mean().item()
            skew = max((g.load.max() / g.load.mean()).item() for g in net.gates())
            seconds = time.monotonic() - started
            left = seconds / (step + 1 - first) * (args.steps - step - 1)
            record = {"step": step, "loss": round(loss.item(), 4), "answer_tokens_right": round(right, 4), "expert_skew": round(skew, 2)}
            log.write(json.dumps(record) + "\n")
            log.flush()
            print(f"step {step:5d}/{args.steps}  loss {loss.item():.3f}  answers {right:.3f}  skew {skew:.2f}  {left / 60:.0f} min left", flush=True)
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            state = {"model": net.state_dict(), "adam": adam.state_dict(), "muon": muon.momentum, "step": step + 1}
            torch.save(state, out / "state.new")
            (out / "state.new").rename(state_file)
        if math.isnan(loss.item()):
            raise SystemExit("the loss is NaN")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=24, help="packed rows a step")
    parser.add_argument("--width", type=int, default=160, help="tokens a row")
    parser.add_argument("--lr", type=float, default=3e-3, help="AdamW: embedding, head, norms, router; Muon's is 0.02")
    parser.add_argument("--threads", type=int, default=2)
    train(parser.parse_args())
