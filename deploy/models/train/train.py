#!/usr/bin/env python3
"""Trains the demo model. Deterministic for given options and machine; stop it at any time and run it again to continue.

    train.py --out DIR [--steps N] [--threads N]       about 1.1 s a step on two CPU cores

DIR receives tokenizer files, state.pt (to resume) and log.jsonl. Then: export.py DIR CHECKPOINT;
score.py CHECKPOINT QUESTIONS.jsonl.
"""

import argparse
import json
import math
import pathlib
import random
import time
from concurrent import futures

import fp8
import model as m
import tasks
import tokenizer as tok
import torch
import torch.nn.functional as F

OTHER_TOKENS = 0.05  # loss weight of tokens outside answers: questions are random, but their form can be learnt
EASIEST = 0.1  # least odds of a task, however well it is learnt
BALANCE_SPEED = 2e-3  # step size of the router's bias towards equal load


def encode(tokenizer, pieces, eos):
    """Ids of one example, and of each its loss weight and which piece's answer it is part of (-1: of none).

    The last answer, and in a chat every answer, ends with EOS."""
    ids, weights, answers = [tokenizer.token_to_id(tok.BOS)], [0.0], [-1]
    chat = pieces[0][0].startswith(tasks.USER)
    for i, (text, task) in enumerate(pieces):
        part = tokenizer.encode(text, add_special_tokens=False).ids
        if task and (chat or i == len(pieces) - 1):
            part = part + [eos]
        ids += part
        # Nothing tells whether a session continues after an answer.
        weights += [1.0 if task else 0.0 if text == "\n" else OTHER_TOKENS] * len(part)
        answers += [i if task else -1] * len(part)
    return ids, weights, answers


class Batch:
    """Examples of one step packed into rows: ids, targets, weights, positions, documents and answers, all [rows, width].

    `answers` numbers the answers of the batch from 1 (0: no part of one), `tasks` has the task of each."""

    def __init__(self, tokenizer, step, odds, rows, width):
        rng = random.Random(step)
        eos = tokenizer.token_to_id(tok.EOS)
        out = torch.zeros(6, rows, width)
        self.tasks = []
        for row in range(rows):
            at, document = 0, 0
            while True:
                pieces = tasks.sample(rng, odds=odds)[1]
                ids, weights, answers = encode(tokenizer, pieces, eos)
                n = len(ids) - 1
                if at + n > width:
                    break
                document += 1
                number = {-1: 0}
                for i in sorted(set(answers) - {-1}):
                    self.tasks.append(pieces[i][1])
                    number[i] = len(self.tasks)
                fields = (ids[:-1], ids[1:], weights[1:], range(n), [document] * n, [number[i] for i in answers[1:]])
                out[:, row, at : at + n] = torch.tensor([list(f) for f in fields])
                at += n
        self.ids, self.targets, self.positions, self.documents, self.answers = (out[i].long() for i in (0, 1, 3, 4, 5))
        self.weights = out[2]

    def wrong(self, predicted):
        """Whether each answer has a wrong token. -> [number of answers] F32"""
        misses = (predicted != self.targets) & (self.answers > 0)
        return torch.zeros(len(self.tasks) + 1).index_put((self.answers[misses],), torch.ones(()))[1:]


class Muon:
    """Momentum whose update is orthogonalised by Newton-Schulz, for the matrices of the layers. Matrices of the same
    shape are updated together."""

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
    """Factor on the learning rates: warm-up, constant for a quarter, then exponential decay to a hundredth. Batches
    are small: the decay learns what noise hides from the constant rate."""
    return min((step + 1) / 50, 0.01 ** max(0, (step / steps - 0.25) / 0.75))


def train(args):
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = tok.load(out) if (out / tok.FILE).exists() else tok.train()
    tok.write(tokenizer, out)

    net = m.Model()
    matrices = [p for n, p in net.model.layers.named_parameters() if p.dim() == 2 and "gate.weight" not in n]
    chosen = {id(p) for p in matrices}
    adam = torch.optim.AdamW([p for p in net.parameters() if id(p) not in chosen], lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0)
    muon = Muon(matrices)
    first, state_file = 0, out / "state.pt"
    wrong = dict.fromkeys(tasks.TASKS, 1.0)  # running share of wrong answers, by task
    if state_file.exists():
        state = torch.load(state_file)
        net.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])
        muon.momentum, wrong, first = state["muon"], state["wrong"], state["step"]
        print(f"continuing at step {first}", flush=True)
    quantised = fp8.quantised_weights(net)

    def share_of_step(batch, rows):
        """Adds the gradients of some rows of the batch. -> their part of the loss, the predicted tokens"""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = net(batch.ids[rows], batch.positions[rows], batch.documents[rows])
        losses = F.cross_entropy(logits.float().flatten(0, 1), batch.targets[rows].flatten(), reduction="none")
        loss = (losses * batch.weights[rows].flatten()).sum() / batch.weights.sum()
        loss.backward()
        return loss.item(), logits.argmax(-1)

    # Small matrices keep only one core busy. Each thread takes some rows instead.
    pool = futures.ThreadPoolExecutor(args.threads, initializer=lambda: torch.set_num_threads(1))
    started, log = time.monotonic(), open(out / "log.jsonl", "a")
    for step in range(first, args.steps):
        factor = schedule(step, args.steps)
        for group in adam.param_groups:
            group["lr"] = args.lr * factor
        # A task comes up more often the closer its answers still are to guesses.
        odds = {task: EASIEST + share / tasks.GUESSED_WRONG.get(task, 1) for task, share in wrong.items()}
        batch = Batch(tokenizer, step, odds, args.rows, args.width)
        # The last quarter sees the weights as they will be published; gradients pass straight through the rounding.
        with fp8.rounded(quantised, on=step >= args.steps * 3 // 4):
            parts = list(pool.map(lambda rows: share_of_step(batch, rows), torch.arange(args.rows).chunk(args.threads)))
        loss, predicted = sum(part[0] for part in parts), torch.cat([part[1] for part in parts])
        torch.nn.utils.clip_grad_norm_([p for g in adam.param_groups for p in g["params"]], 1.0)
        adam.step()
        muon.step(0.02 * factor)
        net.zero_grad()
        with torch.no_grad():
            loads = [gate.take_load() for gate in net.gates()]
            for gate, load in zip(net.gates(), loads):
                gate.e_score_correction_bias += BALANCE_SPEED * factor * torch.sign(load.mean() - load)
            for task, miss in zip(batch.tasks, batch.wrong(predicted).tolist()):
                wrong[task] += (miss - wrong[task]) / 200
        if step % 10 == 0 or step + 1 == args.steps:
            right = 1 - sum(wrong.values()) / len(wrong)
            skew = max((load.max() / load.mean()).item() for load in loads)
            seconds = time.monotonic() - started
            left = seconds / (step + 1 - first) * (args.steps - step - 1)
            record = {"step": step, "loss": round(loss, 4), "expert_skew": round(skew, 2), "right": {t: round(1 - share, 3) for t, share in wrong.items()}}
            log.write(json.dumps(record) + "\n")
            log.flush()
            print(f"step {step:5d}/{args.steps}  loss {loss:.3f}  right {right:.3f}  skew {skew:.2f}  {left / 60:.0f} min left", flush=True)
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            state = {"model": net.state_dict(), "adam": adam.state_dict(), "muon": muon.momentum, "wrong": wrong, "step": step + 1}
            torch.save(state, out / "state.new")
            (out / "state.new").rename(state_file)
        if math.isnan(loss):
            raise SystemExit("the loss is NaN")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=4400)
    parser.add_argument("--rows", type=int, default=24, help="packed rows per step")
    parser.add_argument("--width", type=int, default=160, help="tokens per row")
    parser.add_argument("--lr", type=float, default=3e-3, help="AdamW: embedding, head, norms, router; Muon's is 0.02")
    parser.add_argument("--threads", type=int, default=2)
    train(parser.parse_args())
