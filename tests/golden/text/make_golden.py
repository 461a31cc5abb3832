#!/usr/bin/env python3
"""Regenerates the golden files of this folder from the reference implementations.

Needs: tokenizers, jinja2. Run it anywhere; it writes beside itself. The output is deterministic.
"""

import copy
import json
import pathlib
import random
import unicodedata

import jinja2.ext
import jinja2.sandbox
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import snippets

HERE = pathlib.Path(__file__).resolve().parent

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"

DEEPSEEK_V3 = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
]
WORD = r"[^\r\n\p{L}\p{N}]?"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "deepseek_v3": DEEPSEEK_V3,
    "gpt2": [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    "kimi_k2": [
        rf"[\p{{Han}}]+|{WORD}{UPPER}*{LOWER}+{SUFFIX}?|{WORD}{UPPER}+{LOWER}*{SUFFIX}?"
        rf"|\p{{N}}{{1,3}}|{TAIL}"
    ],
    "qwen": [rf"{SUFFIX}|{WORD}\p{{L}}+|\p{{N}}|{TAIL}"],
    "cl100k": [rf"{SUFFIX}|{WORD}\p{{L}}+|\p{{N}}{{1,3}}|{TAIL}"],
    "cl100k_possessive": [
        rf"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?+\p{{L}}++|\p{{N}}{{1,3}}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ],
    # The dialect: line anchors, set union, difference and negation, hexadecimal digits, open intervals, escapes.
    "dialect": [
        r"[\r\n]", r"\s+$", r"^[\u4e00-\x{9fa5}]", r"[a-z&&[^aeiou]]+", r"[0[\p{P}]\h]{2,}", r"[^[a-z][A-Z]\s]{,2}\S"
    ],
}

CORPUS = """
The quick brown fox jumps over the lazy dog. The weights of a mixture of experts are loaded once and shared by all.
It's said that we've 12345 apples, they'd 67890 pears; I'll count them again: 1, 2, 3, 10, 100, 1000, 2024.
for (int i = 0; i < count; ++i) {\n    total += values[i] * weights[i];\n\tif (total > limit) return false;\n}
def render(messages, options):\n    return "".join(m["content"] for m in messages)\n\n\nprint(render([], None))
混合专家模型的权重只加载一次，由所有进程共享。我想在工作的时候吃苹果。今天天气很好，我们去公园散步吧。
東京は日本の首都です。カタカナとひらがなとを混ぜて書きます。これはテストです。
안녕하세요, 세계! 오늘은 날씨가 좋습니다. Größe, façade, naïve, Übermut, señor, œuvre, Ångström.
Привет, мир! Это небольшой пример текста для обучения. Γειά σου Κόσμε. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया।
😀 😃 😄 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 ❤️ e\u0301 a\u0308 ﷺ ½ ² Ⅷ ٣ ௧ … — “quoted” ‘text’ «это» 「引用」
"""

FAMILY = "\U0001F469\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466"

HARD = [
    "",
    " ",
    "a",
    "I've 12345 apples, 我想在apple工作1314 \n\n  x_y  (z).",
    "Hello, world! It's 2024-11-05T12:34:56.789Z; 1234567890 12 3 1,000,000.00",
    "混合专家模型，今天天气很好。龥龦一丁 ぁゟ゠ヿ㐀𠀀",
    "カタカナ ひらがな ｶﾀｶﾅ 々〆〇 ー・",
    "안녕하세요 ᄒ\u1161\u11ab 각",
    "😀" + FAMILY + "👍🏽🏳️\u200d🌈🇩🇪 ❤️ x😀y",
    "e\u0301 \u0301 a\u0308\u0323 Z\u0351\u036b\u0343 \u200d \ufe0f नि ကျွန်",
    "".join(map(chr, range(256))),
    "".join(map(chr, range(0x100, 0x180))),
    "0123456789" * 7 + " ٣٤٥ ௧௨ ½¾ ²³ ⅧⅨ ①②③ 𝟘𝟙",
    "tab\tspace nbsp\u00a0em\u2003ideo\u3000nel\u0085ls\u2028ps\u2029mvs\u180ezwsp\u200bwj\u2060bom\ufeffend",
    "\t\t\tx \t y\t \tz",
    " \u00a0 \u2003\u2003x\u2003 \u3000y \u0085\u0085z\u180e\u180e \u200b \u1680\u202f\u205f",
    "\r\n\r\nline\r\n  next \r\r \n\r x\n\n\n   \n",
    "   leading", "trailing   ", "\n", "\n\n \n", "  \n  ", "a\n", "a \n b", "x  y   z    w",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ !a\"b#c$d %e&f 'g(h )i",
    "_x -y .z @user #tag $var %d &amp; 'quote' \"text\" [[link]] {{x}} <tag> C++ c# a.b.c http://x.y/z?q=1&r=2",
    "'s 'T 'Re 'VE 'm 'LL 'd 'ſ 'x don't DON'T I’m we\u2019ll K\u212a",
    "ÀÉÎõü ﬁ ﬆ ǅ ᾈ ʰ ª º ß ẞ İı ſ",
    "＜｜User｜＞ ！？，。 ‘’“” … — ￥ € £ ⁂ ∑∫√ ☃ ⌘ ␀",
    "a" * 301, " " * 300 + "x", "1" * 100, "\n" * 100, "ab" * 200, "中" * 100, "😀" * 40, "=" * 77, " \n" * 60,
    "a b " * 30, "aaaaaaab" * 40, "the" * 100,
    BOS + "system text<｜User｜>hi<｜Assistant｜>ok" + EOS,
    "<｜User｜><｜User｜> x <think>deep</think> y" + EOS + EOS,
    "x  <lstrip>  y  <rstrip>  z <both> <both>\n\u2003<both>w<lstrip><rstrip>",
    "solo asolo solob solo. (solo) solo_ 中solo solo\u0301 solo\u200d solo solo1",
    "<think <think> <think>> <<think>> <thin think> <longest><longest token>",
    "<｜User｜", "User｜>", "<｜begin▁of▁sentence｜ >",
]


def assigned():
    assert unicodedata.unidata_version == "14.0.0", "the version of Unicode that PCRE2 10.42 knows"
    return [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]


def random_texts(count):
    """Strings over assigned code points: uniform ones, and ones where classes meet often."""
    rng = random.Random(20240917)
    everything = assigned()
    mixed = list(" \t\n\r'\"._-,!aZéß1２½中あカ가́ाʰǅ\u00a0\u2003\u0085\u180e\u200b\u200d😀$€+<>") + ["  ", "\r\n", "'s", "'ll"]
    texts = []
    for i in range(count):
        alphabet = everything if i % 3 == 0 else mixed
        texts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 24))))
    return texts


def split(patterns):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])


def train():
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in DEEPSEEK_V3]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits + [byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=[BOS, EOS], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False)
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True) * 3, trainer)
    tokenizer.add_tokens([
        AddedToken("<｜User｜>", normalized=False), AddedToken("<｜Assistant｜>", normalized=False),
        AddedToken("<think>"), AddedToken("</think>"), AddedToken("<longest>"), AddedToken("<longest token>"),
        AddedToken("<lstrip>", lstrip=True), AddedToken("<rstrip>", rstrip=True),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False), AddedToken("solo", single_word=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return tokenizer


def variant(tokenizer, **changes):
    spec = copy.deepcopy(json.loads(tokenizer.to_str()))
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = spec
        for parent in parents:
            node = node[parent]
        node[last] = value
    return Tokenizer.from_str(json.dumps(spec))


def encodings(tokenizer, texts):
    plain = variant(tokenizer, added_tokens=[], post_processor=None)
    gpt2 = variant(
        tokenizer, pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True})
    whole = variant(tokenizer, model__ignore_merges=True, model__merges=[])
    return [{
        "text": text,
        "ids": tokenizer.encode(text).ids,
        "without_special": tokenizer.encode(text, add_special_tokens=False).ids,
        "plain": plain.encode(text, add_special_tokens=False).ids,
        "gpt2": gpt2.encode(text, add_special_tokens=False).ids,
        "ignore_merges": whole.encode(text, add_special_tokens=False).ids,
    } for text in texts]


def decodings(tokenizer):
    rng = random.Random(7)
    cases = []
    for _ in range(150):
        # Byte tokens are frequent, so that sequences break and mend.
        ids = [rng.choice([rng.randrange(2, 258), rng.randrange(0, tokenizer.get_vocab_size())])
               for _ in range(rng.randint(1, 20))]
        cases.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                      "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    return cases


def splits(texts):
    """For each pattern set and text the byte lengths of the pieces."""
    result = []
    for name, patterns in PATTERNS.items():
        splitter = split(patterns)
        lengths = [[len(piece.encode()) for piece, _ in splitter.pre_tokenize_str(t)] for t in texts]
        result.append({"name": name, "patterns": patterns, "lengths": lengths})
    return result


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def message(role, content):
    return {"role": role, "content": content}


A = [message("user", "hi")]
B = [message("system", "S"), message("user", "u1"), message("assistant", "a1"), message("user", "u2")]
THOUGHT = [message("user", "q"), message("assistant", "<think>\nhm\n</think>\n\nanswer"), message("user", "中文 😀 \n")]
TWO_SYSTEMS = [message("system", "S1"), message("system", "S2"), message("user", "u")]
OPEN_TURN = [message("user", "q"), message("assistant", "<think>why</think> because ")]

# What the publishers' templates render for A and B; our own templates of the same layout must agree.
K2_B = ("<|im_system|>system<|im_middle|>S<|im_end|><|im_user|>user<|im_middle|>u1<|im_end|><|im_assistant|>assistant"
        "<|im_middle|>a1<|im_end|><|im_user|>user<|im_middle|>u2<|im_end|><|im_assistant|>assistant<|im_middle|>")
KNOWN = {
    ("kimi_k2_first", "A"):
        "<|im_system|>system<|im_middle|>You are a helpful assistant<|im_end|><|im_user|>user<|im_middle|>hi<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>",
    ("kimi_k2_first", "B"): K2_B,
    ("kimi_k2_later", "A"):
        "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>\n"
        "<|im_user|>user<|im_middle|>hi<|im_end|><|im_assistant|>assistant<|im_middle|>",
    ("kimi_k2_later", "B"): K2_B,
    ("glm4", "A"): "[gMASK]<sop><|user|>\nhi<|assistant|>",
    ("glm4", "A, thinking off"): "[gMASK]<sop><|user|>\nhi/nothink<|assistant|>\n<think></think>",
    ("glm4", "B"):
        "[gMASK]<sop><|system|>\nS<|user|>\nu1<|assistant|>\n<think></think>\na1<|user|>\nu2<|assistant|>",
    ("qwen3", "A"): "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    ("qwen3", "A, thinking off"):
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    ("qwen3", "B"):
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nu1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n"
        "<|im_start|>user\nu2<|im_end|>\n<|im_start|>assistant\n",
    ("deepseek_v3", "B"): f"{BOS}S<｜User｜>u1<｜Assistant｜>a1{EOS}<｜User｜>u2<｜Assistant｜>",
    ("deepseek_r1", "B"): f"{BOS}S<｜User｜>u1<｜Assistant｜>a1{EOS}<｜User｜>u2<｜Assistant｜><think>\n",
    ("deepseek_v2", "B"): f"{BOS}S\n\nUser: u1\n\nAssistant: a1{EOS}User: u2\n\nAssistant:",
}


def chats():
    env = environment()
    cases = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        compiled = env.from_string(path.read_text(encoding="utf-8"))
        for name, messages, flags, prompt in [
                ("A", A, {}, True), ("A, no prompt", A, {}, False), ("B", B, {}, True),
                ("A, thinking off", A, {"enable_thinking": False, "thinking": False}, True),
                ("A, thinking on", A, {"enable_thinking": True, "thinking": True}, True),
                ("thought", THOUGHT, {}, True), ("two systems", TWO_SYSTEMS, {}, True), ("open", OPEN_TURN, {}, False)]:
            expected = compiled.render(messages=messages, add_generation_prompt=prompt, bos_token=BOS, eos_token=EOS,
                                       tools=None, documents=None, **flags)
            known = KNOWN.get((path.stem, name), expected)
            assert expected == known, (path.stem, name, expected, known)
            cases.append({"template": path.name, "name": name, "messages": messages, "flags": flags,
                          "add_generation_prompt": prompt, "expected": expected})
    return cases


def rendered_snippets():
    env = environment()
    variables = dict(messages=B, add_generation_prompt=True, bos_token="<s>", eos_token="</s>", tools=None,
                     documents=None, flag=False)
    cases = [{"template": s, "expected": env.from_string(s).render(**variables)} for s in snippets.RENDERED]
    for source in snippets.REJECTED:
        try:
            text = env.from_string(source).render(**variables)
        except (jinja2.exceptions.TemplateError, TypeError, ValueError, ZeroDivisionError, AttributeError, SyntaxError):
            cases.append({"template": source})
        else:
            raise AssertionError(f"{source!r} renders {text!r}")
    return cases


def write(name, value):
    (HERE / name).write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="ascii")


def main():
    tokenizer = train()
    (HERE / "tokenizer.json").write_text(tokenizer.to_str(pretty=False) + "\n", encoding="utf-8")
    texts = HARD + random_texts(240)
    write("encode.json", encodings(tokenizer, texts))
    write("decode.json", decodings(tokenizer))
    write("split.json", {"texts": texts, "sets": splits(texts)})
    write("chat.json", chats())
    write("snippets.json", rendered_snippets())


if __name__ == "__main__":
    main()
