"""Small random models of each family, written by transformers itself: configurations, weights, tokenizer.

    python tests/families/families.py FAMILY OUT_DIR [--seed N]       # one checkpoint, to look at

compare.py writes and compares them all.
"""

import argparse
import json
import pathlib
import random

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BOS, EOS = 0, 1
FIRST_ORDINARY = 2  # ids below are special


def yarn(draw, theta, **more):
    return {"rope_type": "yarn", "rope_theta": theta, "factor": draw.choice([4.0, 40.0]),
            "original_max_position_embeddings": draw.choice([32, 64]), **more}


def plain(theta, **more):
    return {"rope_type": "default", "rope_theta": theta, **more}


def common(draw, variant):
    """Sizes that are no multiples of 64 or 128. The third variant has rows of padding in the vocabulary."""
    return {
        "vocab_size": 300 + (draw.randint(3, 40) if variant == 2 else 0),
        "hidden_size": 24 * draw.choice([4, 5, 7, 8]),
        "num_hidden_layers": 3,
        "max_position_embeddings": 512,
        "rms_norm_eps": draw.choice([1e-6, 1e-5]),
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }


def latent(draw, variant, **more):
    """MLA."""
    heads = draw.choice([2, 3, 4])
    return common(draw, variant) | {
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "q_lora_rank": draw.choice([40, 72, 96]),
        "kv_lora_rank": draw.choice([64, 128]),
        "qk_nope_head_dim": draw.choice([64, 128]),
        "qk_rope_head_dim": draw.choice([12, 32, 64]),
        "v_head_dim": draw.choice([64, 128]),
        "intermediate_size": draw.choice([104, 200]),
        "moe_intermediate_size": draw.choice([40, 56, 72]),
        "n_shared_experts": draw.choice([1, 2]),
        "first_k_dense_replace": 1,
    } | more


def grouped(draw, variant, **more):
    """GQA."""
    kv_heads = draw.choice([1, 2])
    return common(draw, variant) | {
        "num_attention_heads": kv_heads * draw.choice([2, 3, 4]),
        "num_key_value_heads": kv_heads,
        "head_dim": draw.choice([64, 128]),
        "rope_parameters": plain(draw.choice([1e4, 1e6])),
    } | more


def deepseek_v3(draw, variant):
    groups = [(12, 4, 2), (8, 2, 1), (15, 3, 2)][variant]
    experts, n_group, topk_group = groups
    ropes = [yarn(draw, 1e4, mscale=1.0, mscale_all_dim=1.0, beta_fast=32, beta_slow=1), plain(1e4),
             yarn(draw, 5e4, mscale=1.0, mscale_all_dim=0.707)]
    return latent(draw, variant, n_routed_experts=experts, n_group=n_group, topk_group=topk_group,
                  num_experts_per_tok=3 if topk_group == 2 else 2, norm_topk_prob=variant != 1,
                  routed_scaling_factor=draw.choice([1.0, 2.5]), rope_parameters=ropes[variant])


def deepseek_v3_direct(draw, variant):
    return deepseek_v3(draw, variant) | {"q_lora_rank": None}


def kimi_k2(draw, variant):
    return deepseek_v3(draw, variant) | {"n_group": 1, "topk_group": 1, "n_routed_experts": 14, "norm_topk_prob": True,
                                         "routed_scaling_factor": 2.827}


def deepseek_v2(draw, variant):
    experts, n_group, topk_group = [(12, 4, 2), (8, 2, 1), (10, 5, 3)][variant]
    return latent(draw, variant, n_routed_experts=experts, n_group=n_group, topk_group=topk_group,
                  topk_method="group_limited_greedy", num_experts_per_tok=3, norm_topk_prob=False,
                  routed_scaling_factor=draw.choice([1.0, 4.0]),
                  rope_parameters=[yarn(draw, 1e4, mscale=1.0, mscale_all_dim=1.0), plain(1e4),
                                   yarn(draw, 1e4, mscale=0.707, mscale_all_dim=0.707)][variant])


def deepseek_v2_lite(draw, variant):
    lite = {"q_lora_rank": None, "topk_method": "greedy", "n_group": 1, "topk_group": 1}
    if variant == 1:
        lite |= {"n_group": None, "topk_group": None}  # what the class has for greedy choices
    return deepseek_v2(draw, variant) | lite


def mixtral(draw, variant):
    return grouped(draw, variant, intermediate_size=draw.choice([56, 104]), num_local_experts=draw.choice([4, 6, 8]),
                   num_experts_per_tok=2)


def qwen3_moe(draw, variant):
    return grouped(draw, variant, moe_intermediate_size=draw.choice([40, 72]),
                   intermediate_size=draw.choice([104, 200]), num_experts=draw.choice([6, 9, 16]),
                   num_experts_per_tok=3, norm_topk_prob=variant != 1)


def qwen3_moe_dense_layers(draw, variant):
    return qwen3_moe(draw, variant) | [
        {"decoder_sparse_step": 2, "num_hidden_layers": 4},
        {"mlp_only_layers": [1]},
        {"decoder_sparse_step": 2, "mlp_only_layers": [3], "num_hidden_layers": 6},
    ][variant]


def qwen3_moe_tied(draw, variant):
    ropes = [plain(1e6), yarn(draw, 1e6), plain(1e4)]
    return qwen3_moe(draw, variant) | {"tie_word_embeddings": True, "rope_parameters": ropes[variant]}


def qwen2_moe(draw, variant):
    heads = draw.choice([2, 4])
    return grouped(draw, variant, hidden_size=64 * heads, num_attention_heads=heads, num_key_value_heads=heads // 2,
                   moe_intermediate_size=draw.choice([40, 72]), intermediate_size=draw.choice([104, 200]),
                   shared_expert_intermediate_size=draw.choice([88, 136]), num_experts=draw.choice([6, 9]),
                   num_experts_per_tok=3, norm_topk_prob=variant == 1, qkv_bias=variant != 1,
                   decoder_sparse_step=2 if variant == 2 else 1) | {"head_dim": None}


def glm4_moe(draw, variant):
    return grouped(draw, variant, moe_intermediate_size=draw.choice([40, 72]),
                   intermediate_size=draw.choice([104, 200]), n_routed_experts=[9, 12, 6][variant],
                   n_group=[1, 3, 1][variant], topk_group=[1, 2, 1][variant],
                   num_experts_per_tok=3, n_shared_experts=[1, 2, 1][variant], first_k_dense_replace=1,
                   norm_topk_prob=True, routed_scaling_factor=draw.choice([1.0, 2.5]), attention_bias=variant != 2,
                   use_qk_norm=False, rope_parameters=plain(1e6, partial_rotary_factor=[0.5, 0.5, 0.25][variant]))


def glm4_moe_norms(draw, variant):
    return glm4_moe(draw, variant) | {"use_qk_norm": True}


def minimax_m2(draw, variant):
    return grouped(draw, variant, intermediate_size=draw.choice([56, 104]), num_local_experts=draw.choice([6, 9]),
                   num_experts_per_tok=3, rope_parameters=plain(5e6, partial_rotary_factor=[0.5, 0.5, 1.0][variant]))


def dbrx(draw, variant):
    heads = draw.choice([2, 4])
    theta = draw.choice([1e4, 5e5])
    base = common(draw, variant)
    return {
        "vocab_size": base["vocab_size"], "bos_token_id": BOS, "eos_token_id": EOS,
        "d_model": 64 * heads, "n_heads": heads, "n_layers": 3, "max_seq_len": 512,
        "rope_parameters": plain(theta),  # transformers computes with this one
        "attn_config": {"kv_n_heads": heads // 2, "clip_qkv": [8.0, 1.5, 1.0][variant], "rope_theta": theta},
        "ffn_config": {"ffn_hidden_size": draw.choice([56, 104]), "moe_num_experts": draw.choice([5, 8]),
                       "moe_top_k": 2},
    }


def gpt_oss(draw, variant):
    layers = ["sliding_attention", "full_attention"]  # what a config without layer_types has, in turns
    return grouped(draw, variant, intermediate_size=draw.choice([56, 96]), num_local_experts=draw.choice([6, 8]),
                   num_experts_per_tok=2, sliding_window=[16, 64, 33][variant], swiglu_limit=[7.0, 1.5, 2.0][variant],
                   swiglu_alpha=[1.702, 1.702, 1.25][variant], attention_bias=variant != 1,
                   layer_types=[None, [layers[0], *layers], [layers[1], layers[0], layers[0]]][variant],
                   rope_parameters=yarn(draw, 1.5e5, beta_fast=32.0, beta_slow=1.0, truncate=variant == 1))


def llama(draw, variant):
    llama3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    heads = draw.choice([2, 4])
    return grouped(draw, variant, hidden_size=24 * heads * draw.choice([2, 3]), num_attention_heads=heads,
                   num_key_value_heads=heads // 2, intermediate_size=draw.choice([104, 200]),
                   tie_word_embeddings=variant == 1, rope_parameters=plain(1e4) if variant == 2 else llama3)


# Name of the test's family, transformers' model type, configurations.
FAMILIES = {
    "deepseek_v3": ("deepseek_v3", deepseek_v3),
    "deepseek_v3_direct": ("deepseek_v3", deepseek_v3_direct),
    "kimi_k2": ("deepseek_v3", kimi_k2),
    "deepseek_v2": ("deepseek_v2", deepseek_v2),
    "deepseek_v2_lite": ("deepseek_v2", deepseek_v2_lite),
    "mixtral": ("mixtral", mixtral),
    "qwen3_moe": ("qwen3_moe", qwen3_moe),
    "qwen3_moe_dense_layers": ("qwen3_moe", qwen3_moe_dense_layers),
    "qwen3_moe_tied": ("qwen3_moe", qwen3_moe_tied),
    "qwen2_moe": ("qwen2_moe", qwen2_moe),
    "glm4_moe": ("glm4_moe", glm4_moe),
    "glm4_moe_norms": ("glm4_moe", glm4_moe_norms),
    "minimax_m2": ("minimax_m2", minimax_m2),
    "dbrx": ("dbrx", dbrx),
    "gpt_oss": ("gpt_oss", gpt_oss),
    "llama": ("llama", llama),
}
VARIANTS = 3


def is_fused(variant):
    """Of the third configuration."""
    return variant == 2


def configuration(family, variant, seed=1):
    """Fields of the family's configuration class."""
    draw = random.Random(f"{family} {variant} {seed}")
    fields = FAMILIES[family][1](draw, variant)
    return {key: value for key, value in fields.items() if value is not None or key != "head_dim"}


def deviation_of(name, tensor, config):
    """Of a weight's random elements: what keeps activations near one, and choices of experts apart."""
    if name.endswith(("embed_tokens.weight", "wte.weight")):
        return 0.3 if config.tie_word_embeddings else 1.0  # tied: a row is the head's, too
    if name.endswith("e_score_correction_bias"):
        return 0.3
    if name.endswith("sinks"):
        return 2.0
    if tensor.dim() == 1 or name.endswith("_proj_bias"):  # biases; norms are not drawn so
        return 0.5
    inputs = tensor.shape[-1]
    if config.model_type == "gpt_oss" and "experts" in name:
        inputs = tensor.shape[-2]  # [experts, inputs, outputs]
    if name.endswith("mlp.w2"):
        inputs = config.ffn_config.ffn_hidden_size  # [experts * inputs, outputs]
    gain = 1.0
    if name.endswith(("gate.weight", "router.weight", "router.layer.weight")):
        gain = 2.0
    if name == "lm_head.weight":
        gain = 2.5
    return gain * inputs**-0.5


@torch.no_grad()
def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        values = torch.randn(tensor.shape, generator=generator)
        if tensor.dim() == 1 and "norm" in name:
            tensor.copy_(1 + 0.25 * values)
        else:
            tensor.copy_(deviation_of(name, tensor, model.config) * values)


def make_tokenizer(token_count):
    """Byte-level BPE with so many tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=token_count, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    words = "one two three four five six seven eight nine ten and the other tokens of a small vocabulary are pairs"
    tokenizer.train_from_iterator([words] * 4, trainer)
    assert tokenizer.get_vocab_size() == token_count, tokenizer.get_vocab_size()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def write(family, fields, out, seed=1, token_count=300, fused=False):
    """A checkpoint by save_pretrained, with BF16 weights. `fused`: with the names of transformers' own modules, which
    keep a layer's experts in one tensor. Nothing of what it writes is changed, except that kimi_k2 has its published
    model_type: the model's classes are DeepSeek-V3's."""
    model_type = FAMILIES[family][0]
    config = transformers.AutoConfig.for_model(model_type, **fields)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    randomise(model, seed)
    out = pathlib.Path(out)
    model.save_pretrained(out, save_original_format=not fused)
    make_tokenizer(token_count).save_pretrained(out)
    if family == "kimi_k2":
        path = out / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": family}, indent=2) + "\n")


def load(family, directory, dtype):
    """The checkpoint in transformers, with the plain implementations. REQUIRES that it leaves no weight unread or
    unset."""
    config = None
    if family == "kimi_k2":
        fields = json.loads((pathlib.Path(directory) / "config.json").read_text())
        del fields["model_type"]
        config = transformers.AutoConfig.for_model(FAMILIES[family][0], **fields)
    loader = transformers.AutoModelForCausalLM if config is None else transformers.DeepseekV3ForCausalLM
    model, info = loader.from_pretrained(directory, config=config, dtype=dtype, attn_implementation="eager",
                                         experts_implementation="eager", output_loading_info=True)
    faults = {key: value for key, value in info.items() if value}
    assert not faults, faults
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for variant in range(VARIANTS):
        write(args.family, configuration(args.family, variant, args.seed), f"{args.out}/{variant}", args.seed,
              fused=is_fused(variant))


if __name__ == "__main__":
    main()
