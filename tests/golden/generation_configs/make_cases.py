"""Writes cases.json: what published generation settings mean, by transformers.

    python tests/golden/generation_configs/make_cases.py        # transformers

The documents have the forms in which families publish theirs; ids are left out. Of a GGUF file they are the keys under
`general.sampling`. A field that is absent, or null, is neutral: vLLM samples so, while transformers would take the 50
likeliest tokens. `do_sample` counts only where it says false: then the answer is greedy.
"""

import json
from pathlib import Path

from transformers import GenerationConfig

OF_CONFIG = {"_from_model_config": True, "bos_token_id": 0, "eos_token_id": 1, "transformers_version": "4.46.0"}

DOCUMENTS = {
    "deepseek-v2": OF_CONFIG | {"do_sample": True, "temperature": 0.3, "top_p": 0.95},
    "deepseek-v3": OF_CONFIG,
    "deepseek-r1": OF_CONFIG | {"do_sample": True, "temperature": 0.6, "top_p": 0.95},
    "deepseek-v3.2": OF_CONFIG | {"do_sample": True, "temperature": 1.0, "top_p": 0.95},
    "qwen2.5-base": {"do_sample": False, "max_new_tokens": 2048},
    "qwen2.5-instruct": {"do_sample": True, "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20},
    "qwen1.5-moe-chat": {"do_sample": True, "repetition_penalty": 1.05, "top_p": 0.8, "top_k": 20,
                         "max_new_tokens": 2048},
    "qwen3": {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95},
    "qwen3-instruct-2507": {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8},
    "qwen3-thinking-2507": {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95},
    "qwen3-coder": {"do_sample": True, "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20},
    "glm-4.5": {"_from_model_config": True, "eos_token_id": [1, 2, 3]},
    "glm-4.6, values without do_sample": {"_from_model_config": True, "temperature": 1.0, "top_p": 0.95, "top_k": 40},
    "kimi-k2": {"max_length": 131072, "eos_token_id": 1},
    "kimi-k2-thinking": {"max_length": 262144, "eos_token_id": 1},
    "gpt-oss": {"bos_token_id": 0, "do_sample": True, "eos_token_id": [1, 2]},
    "minimax-m2": {"do_sample": True, "temperature": 1.0, "top_p": 0.95, "top_k": 40},
    "mixtral": OF_CONFIG,
    "dbrx": OF_CONFIG | {"use_cache": True},
    "llama-3": {"do_sample": True, "temperature": 0.6, "max_length": 4096, "top_p": 0.9},
    "llama-4": {"do_sample": True, "temperature": 0.6, "top_p": 0.9},
    "phi-3.5-moe": OF_CONFIG | {"eos_token_id": [1, 2, 3], "pad_token_id": 4},
    "olmoe": {"_from_model_config": True, "eos_token_id": 1, "pad_token_id": 2},
    "ernie-4.5": {"do_sample": True, "top_p": 0.8, "temperature": 0.8, "repetition_penalty": 1.0},
    "granite": OF_CONFIG | {"pad_token_id": 0},
    "smollm2": OF_CONFIG,
    "smollm3": {"do_sample": True, "temperature": 0.6, "top_p": 0.95},
    "hunyuan": {"do_sample": True, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05, "temperature": 0.7},
    "lfm2": {"do_sample": True, "temperature": 0.3, "min_p": 0.15, "repetition_penalty": 1.05},
    "baichuan": {"do_sample": True, "temperature": 0.3, "top_k": 5, "top_p": 0.85, "repetition_penalty": 1.05,
                 "max_new_tokens": 2048},
    "greedy, with values for who samples": {"do_sample": False, "temperature": 0.7, "top_p": 0.9, "top_k": 30},
    "a temperature of 0": {"temperature": 0.0},
    "the library's former defaults, written out": {"do_sample": True, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
    "no limit, as -1": {"do_sample": True, "temperature": 0.8, "top_k": -1},
    "nulls": {"do_sample": None, "temperature": None, "top_p": None, "max_new_tokens": None},
    "a penalty alone": {"repetition_penalty": 1.1},
    "min_p alone": {"min_p": 0.05},
}

SAMPLING_KEYS = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
                 "penalty_repeat": "repetition_penalty"}
GGUF = {
    "gguf: nothing": {},
    "gguf: qwen3": {"temp": 0.6, "top_k": 20, "top_p": 0.95},
    "gguf: qwen3-coder": {"temp": 0.7, "top_k": 20, "top_p": 0.8, "penalty_repeat": 1.05},
    "gguf: gpt-oss": {"temp": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
    "gguf: lfm2": {"temp": 0.3, "min_p": 0.15, "penalty_repeat": 1.05},
    "gguf: greedy": {"temp": 0.0},
    "gguf: a penalty alone": {"penalty_repeat": 1.1},
}

NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "max_new_tokens": 0}


def meaning(document):
    config = GenerationConfig.from_dict(document)
    values = {key: getattr(config, key) for key in NEUTRAL}
    means = {key: NEUTRAL[key] if value is None else value for key, value in values.items()}
    if config.do_sample is False:
        means["temperature"] = 0.0
    means["top_k"] = max(0, means["top_k"])
    means["publishes"] = config.do_sample is False or any(
        value is not None for key, value in values.items() if key != "max_new_tokens")
    return means


cases = [{"name": name, "document": document, "means": meaning(document)} for name, document in DOCUMENTS.items()]
for name, sampling in GGUF.items():
    document = {SAMPLING_KEYS[key]: value for key, value in sampling.items()}
    cases.append({"name": name, "sampling": sampling, "means": meaning(document)})
text = "[\n" + ",\n".join("  " + json.dumps(case) for case in cases) + "\n]\n"
(Path(__file__).parent / "cases.json").write_text(text)
