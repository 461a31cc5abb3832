#!/usr/bin/env python3
"""Writes a trained model as a checkpoint in DeepSeek-V3's file format: FP8 linear layers with block scales, BF16 rest.

    export.py TRAINING_DIR CHECKPOINT_DIR
"""

import json
import pathlib
import sys

import fp8
import model as m
import tokenizer as tok
import torch
from safetensors.torch import save_file


def export(source, target):
    source, target = pathlib.Path(source), pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    state = torch.load(source / "state.pt")["model"]
    net = m.Model()
    net.load_state_dict(state)
    in_fp8 = {id(p) for p in fp8.quantised_weights(net)}
    tensors = {}
    for name, p in net.named_parameters():
        if id(p) in in_fp8:
            tensors[name], tensors[name + "_scale_inv"] = fp8.quantise(p.data)
        else:
            tensors[name] = p.data.bfloat16()
    tensors |= {name: b.float() for name, b in net.named_buffers()}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    (target / "model.safetensors").chmod(0o644)  # a server in a container runs as another user

    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": {name: "model.safetensors" for name in sorted(tensors)}}
    quantisation = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [fp8.BLOCK] * 2}
    greedy = {"_from_model_config": True, "bos_token_id": 0, "eos_token_id": 1, "do_sample": False, "temperature": 0.0}
    for name, value in (
        ("model.safetensors.index.json", index),
        ("config.json", {**net.config, "quantization_config": quantisation}),
        ("generation_config.json", greedy),
        ("tokenizer_config.json", tok.config()),
    ):
        (target / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    (target / tok.FILE).write_bytes((source / tok.FILE).read_bytes())
    print(f"{target}: {len(tensors)} tensors, {total / 1e6:.1f} MB")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    export(*sys.argv[1:])
