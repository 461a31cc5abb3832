"""Writes tests/golden/published: a small checkpoint of a family by transformers itself, of some with weights in
four or eight bits by compressed-tensors, and what transformers computes with it. tests/common/model/published_test.cc
loads them.

    python tests/families/published.py [CHECKPOINT ...]
"""

import argparse
import hashlib
import pathlib
import shutil
import sys
import tempfile
import types
import zlib

import torch
import transformers

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
import eight_bits  # noqa: E402
import families  # noqa: E402
import four_bits  # noqa: E402
import mxfp4_blocks  # noqa: E402
import oracle  # noqa: E402

TOKEN_COUNT = 280
LENGTH = 24
GREEDY_TOKENS = 8
SEED = 1
SEEDS = {"gpt_oss_mxfp4": 2}  # with 1, the first token's choice of experts is not sure


def fields(**more):
    """Sizes that make less than 240 KB. The vocabulary has rows of padding."""
    return {"vocab_size": 288, "hidden_size": 40, "max_position_embeddings": 256, "bos_token_id": families.BOS,
            "eos_token_id": families.EOS, "num_attention_heads": 2} | more


def grouped(**more):
    return fields(num_key_value_heads=1, head_dim=64, **more)


def latent(mscale, **more):
    """MLA with YaRN, in two layers, the first dense."""
    return fields(num_hidden_layers=2, num_key_value_heads=2, q_lora_rank=24, kv_lora_rank=64, qk_nope_head_dim=64,
                  qk_rope_head_dim=12, v_head_dim=64, first_k_dense_replace=1, n_group=3, topk_group=2,
                  num_experts_per_tok=2, rope_parameters={
                      "rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "original_max_position_embeddings": 16,
                      "mscale": mscale, "mscale_all_dim": mscale, "beta_fast": 32, "beta_slow": 1}, **more)


# DBRX's and Qwen2's heads are parts of the hidden state: one head of the smallest size that moestro takes.
CHECKPOINTS = {
    "dbrx": {
        "vocab_size": 288, "bos_token_id": families.BOS, "eos_token_id": families.EOS, "d_model": 64, "n_heads": 1,
        "n_layers": 1, "max_seq_len": 256, "rope_parameters": families.plain(5e5),
        "attn_config": {"kv_n_heads": 1, "clip_qkv": 1.5, "rope_theta": 5e5},
        "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 5, "moe_top_k": 2},
    },
    "deepseek_v2": latent(
        0.707, hidden_size=24, intermediate_size=40, moe_intermediate_size=8, n_routed_experts=6, n_shared_experts=2,
        topk_method="group_limited_greedy", norm_topk_prob=False, routed_scaling_factor=2.0),
    "deepseek_v3": latent(1.0, intermediate_size=72, moe_intermediate_size=24, n_routed_experts=6, n_shared_experts=1,
                          routed_scaling_factor=1.5),
    "glm4_moe": grouped(
        hidden_size=24, num_hidden_layers=2, num_experts_per_tok=2, intermediate_size=40, moe_intermediate_size=16,
        n_routed_experts=6, n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, attention_bias=True, use_qk_norm=True,
        rope_parameters=families.plain(1e6, partial_rotary_factor=0.5)),
    "gpt_oss": grouped(num_hidden_layers=3, num_experts_per_tok=2, intermediate_size=24, num_local_experts=5,
                       sliding_window=9, swiglu_limit=1.5, rope_parameters={
                           "rope_type": "yarn", "rope_theta": 1.5e5, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                           "truncate": False, "original_max_position_embeddings": 16}),
    "llama": grouped(
        hidden_size=24, num_hidden_layers=2, intermediate_size=40, tie_word_embeddings=True, rope_parameters={
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}),
    "minimax_m2": grouped(
        hidden_size=24, num_hidden_layers=2, num_experts_per_tok=2, intermediate_size=24, num_local_experts=6,
        rope_parameters=families.plain(5e6, partial_rotary_factor=0.5)),
    "mixtral": grouped(num_hidden_layers=3, num_experts_per_tok=2, intermediate_size=24, num_local_experts=5,
                       rope_parameters=families.plain(1e6)),
    "qwen2_moe": fields(
        hidden_size=64, num_attention_heads=1, num_key_value_heads=1, num_hidden_layers=1, num_experts_per_tok=2,
        intermediate_size=24, moe_intermediate_size=12, shared_expert_intermediate_size=24, num_experts=5,
        norm_topk_prob=False, qkv_bias=True, rope_parameters=families.plain(1e6)),
    "qwen3_moe": grouped(num_hidden_layers=3, num_experts_per_tok=2, intermediate_size=56, moe_intermediate_size=24,
                         num_experts=5, norm_topk_prob=True, rope_parameters=families.plain(1e4)),
}
CHECKPOINTS["qwen3_moe_int8"] = CHECKPOINTS["qwen3_moe"]
CHECKPOINTS["deepseek_v3_int8"] = CHECKPOINTS["deepseek_v3"]
# Columns of experts are whole groups.
CHECKPOINTS["deepseek_v3_int4"] = CHECKPOINTS["deepseek_v3"] | {"hidden_size": 64, "moe_intermediate_size": 32}
CHECKPOINTS["qwen3_moe_mxfp4"] = CHECKPOINTS["qwen3_moe"] | {"hidden_size": 64, "moe_intermediate_size": 32}
CHECKPOINTS["dbrx_gptq"] = CHECKPOINTS["dbrx"]
CHECKPOINTS["deepseek_v3_int4z"] = CHECKPOINTS["deepseek_v3_int4"]
CHECKPOINTS["deepseek_v3_gptq"] = CHECKPOINTS["deepseek_v3_int4"]
CHECKPOINTS["mixtral_gptq"] = CHECKPOINTS["mixtral"] | {"hidden_size": 64, "intermediate_size": 32}
CHECKPOINTS["qwen3_moe_awq"] = CHECKPOINTS["qwen3_moe"] | {
    "num_hidden_layers": 1, "hidden_size": 128, "intermediate_size": 128, "moe_intermediate_size": 128, "num_experts": 4}
CHECKPOINTS["gpt_oss_mxfp4"] = CHECKPOINTS["gpt_oss"] | {"hidden_size": 64, "intermediate_size": 32,
                                                         "num_hidden_layers": 2}
# Rounding moves inputs of INT8 layers to other codes, 16 times as far apart as two BF16 numbers.
INT8_SEARCH = {"ROUTER_NOISE": 4 * oracle.ROUTER_NOISE, "MAX_DEVIATION": 0.5}


def family_and_form(name):
    """Of a checkpoint: transformers writes the family, another module packs weights, if there is a form."""
    family, _, form = name.rpartition("_")
    return (family, form) if form in {*four_bits.FORMS, *four_bits.BY_INPUT, *eight_bits.FORMS} else (name, None)


def reference(family, form, directory):
    """The checkpoint in transformers, in F32."""
    if form is None:
        return families.load(family, directory, torch.float32)
    if family == "gpt_oss":
        mxfp4_blocks.compress(directory)
        return mxfp4_blocks.load(directory)
    eight = form in eight_bits.FORMS
    exact = (eight_bits if eight else four_bits).compress(directory, form)
    with tempfile.TemporaryDirectory() as temporary:
        four_bits.save_exact(directory, exact, f"{temporary}/exact")
        model = families.load(family, f"{temporary}/exact", torch.float32)
    return eight_bits.with_int8_inputs(model) if eight else model


def write(checkpoint):
    family, form = family_and_form(checkpoint)
    out = GOLDEN / "published" / checkpoint
    shutil.rmtree(out, ignore_errors=True)
    directory = out / "checkpoint"
    families.write(family, CHECKPOINTS[checkpoint], directory, SEEDS.get(checkpoint, SEED), TOKEN_COUNT)
    model = reference(family, form, directory)
    shard = (directory / "model.safetensors").read_bytes()
    module = types.SimpleNamespace(**{**vars(oracle.FAMILIES[family]), "GREEDY_TOKENS": GREEDY_TOKENS})
    if form in eight_bits.FORMS:
        vars(oracle).update(INT8_SEARCH)
    runner = oracle.Runner(module, model, TOKEN_COUNT)
    candidate, prompt, traces = oracle.find_prompt(LENGTH, [runner])
    probes = oracle.probe_ids(TOKEN_COUNT)
    identity = {"sha256": hashlib.sha256(shard).hexdigest(), "crc32": zlib.crc32(shard)}
    case = {
        "checkpoint": identity,
        "token_count": TOKEN_COUNT,
        "candidate": candidate,
        "prompt": prompt,
        "probe_ids": probes,
        "variants": {"f32": oracle.variant_record(runner, prompt, probes, traces[0])},
    }
    name = f"prompt_{LENGTH}.json"
    oracle.write_json(out / name, case)
    oracle.write_json(out / "manifest.json", {"checkpoint": identity, "cases": [name],
                                              "transformers": transformers.__version__,
                                              "torch": torch.__version__.split("+")[0]})
    variant = case["variants"]["f32"]
    print(checkpoint, f"{len(shard)} bytes, candidate {candidate}, lead",
          variant["greedy"]["min_margin"], variant["activation_bf16_deviation"], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", nargs="*", choices=[*CHECKPOINTS, []])
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for checkpoint in args.checkpoint or CHECKPOINTS:
        write(checkpoint)


if __name__ == "__main__":
    main()
