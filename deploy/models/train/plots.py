#!/usr/bin/env python3
"""Draws the model card's pictures: the course of the training, and how evenly each layer's experts are used.

    plots.py LOG.jsonl ROUTING_TRACE OUTPUT_DIR        writes training.svg and experts.svg; needs matplotlib
"""

import json
import pathlib
import struct
import sys

import matplotlib
import numpy as np
import tasks

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "moestro"  # the same input gives the same file
import matplotlib.pyplot as plt  # noqa: E402

HEADER = struct.Struct("<8sIIIIIHH32s")  # common/model/ROUTING_TRACE.md


def expert_shares(path):
    """Share of each layer's choices that an expert gets. -> first layer, [layers, experts]"""
    data = pathlib.Path(path).read_bytes()
    magic, version, first, layers, experts, top_k, scores, predicted, _ = HEADER.unpack_from(data)
    if magic != b"MOEROUTE" or version not in (1, 2):
        raise SystemExit(f"{path}: is not a routing trace of version 1 or 2")
    behind = layers * (4 * scores + predicted * (-(-experts // 8)))  # of a token, behind its choices
    uses, at = np.zeros((layers, experts)), HEADER.size
    while at < len(data):
        (tokens,) = struct.unpack_from("<I", data, at)
        at += 4 + 12 * tokens
        choices = np.frombuffer(data, "<u2", tokens * layers * top_k * 2, at).reshape(tokens, layers, top_k, 2)
        at += choices.nbytes + tokens * behind
        for layer in range(layers):
            uses[layer] += np.bincount(choices[:, layer, :, 0].ravel(), minlength=experts)
    return first, uses / uses.sum(1, keepdims=True)


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def draw_training(log, path):
    steps = [r["step"] for r in log]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 4.5), sharex=True)
    for task in log[-1]["right"]:
        easy = task in tasks.EASY
        top.plot(steps, [r["right"][task] for r in log], lw=1 if easy else 0.5, color="tab:blue" if easy else "tab:gray")
    top.set_ylabel("answers right, by task\n(easy tasks blue)")
    top.set_ylim(0, 1)
    bottom.plot(steps, [r["expert_skew"] for r in log], lw=1, color="tab:orange")
    bottom.axhline(1, lw=0.5, color="gray")
    bottom.set_ylabel("busiest expert / mean")
    bottom.set_xlabel("step")
    save(figure, path)


def draw_experts(first, shares, path):
    layers, experts = shares.shape
    figure, axes = plt.subplots(1, layers, figsize=(2 * layers, 2.4), sharey=True, squeeze=False)
    for layer, axis in enumerate(axes[0]):
        axis.bar(range(experts), np.sort(shares[layer])[::-1] * experts, width=1)
        axis.axhline(1, lw=0.5, color="gray")
        axis.set_title(f"layer {first + layer}", fontsize=9)
        axis.set_xlabel("expert, by use", fontsize=8)
    axes[0][0].set_ylabel("use / even use")
    save(figure, path)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[3])
    draw_training([json.loads(line) for line in open(sys.argv[1])], out / "training.svg")
    draw_experts(*expert_shares(sys.argv[2]), out / "experts.svg")
