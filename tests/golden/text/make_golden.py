#!/usr/bin/env python3
"""Regenerates the golden files of this folder from the reference implementations.

Needs: tokenizers, transformers, jinja2. Run it anywhere; it writes beside itself. The output is deterministic. With
names of files as arguments, it writes only those.
"""

import copy
import datetime
import json
import pathlib
import random
import sys
import unicodedata

import jinja2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from transformers.utils import chat_template_utils

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


class GoldenTime(datetime.datetime):
    """The clock of transformers' strftime_now."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 15, 4, 5)


chat_template_utils.datetime = GoldenTime


def message(role, content):
    return {"role": role, "content": content}


def assistant(content, **fields):
    return {"role": "assistant", "content": content, **fields}


def call(number, name, arguments):
    return {"id": f"call0000{number}", "name": name, "arguments": arguments}


def result(number, name, content):
    return {"role": "tool", "content": content, "tool_call_id": f"call0000{number}", "name": name}


A = [message("user", "hi")]
B = [message("system", "S"), message("user", "u1"), message("assistant", "a1"), message("user", "u2")]
THOUGHT = [message("user", "q"), message("assistant", "<think>\nhm\n</think>\n\nanswer"), message("user", "中文 😀 \n")]
TWO_SYSTEMS = [message("system", "S1"), message("system", "S2"), message("user", "u")]
OPEN_TURN = [message("user", "q"), message("assistant", "<think>why</think> because ")]
REASONED = [message("user", "q"), assistant(" answer", reasoning_content="\nsince\n")]
CALLED = [message("user", "Weather?"), assistant("", tool_calls=[
    call(1, "weather", '{"city": "Köln", "days": [1, 2], "deep": {"b": null, "a": 1.5, "é": true}}')])]
ANSWERED = CALLED + [result(1, "weather", '{"t": 3, "sky": "☁"}')]
TWO_CALLS = [message("system", "Be brief."), message("user", "Both"),
             assistant("I look.", reasoning_content="need two", tool_calls=[
                 call(1, "weather", '{"city": "Rom"}'), call(2, "now", "{}")]),
             result(1, "weather", "rain"), result(2, "now", "12:00"),
             assistant("Rain at noon.", reasoning_content="done"), message("user", "Thanks")]
NO_ARGUMENTS = [message("user", "n"), assistant("", tool_calls=[call(3, "now", "")]), result(3, "now", "noon"),
                assistant("It is noon."), message("user", "more")]
NO_JSON = [message("user", "n"), assistant("", tool_calls=[call(4, "weather", '{"city": ')]), result(4, "weather", "error")]

TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "Weather of a \"city\" <now>",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Its name, e.g. Köln"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": "array", "items": {"type": "integer"}}, "near": {"type": ["string", "null"]},
            "at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}}}}},
    {"type": "function", "function": {
        "name": "now", "description": "Zeit", "parameters": {"type": "object", "properties": {}}, "return": {}}},
]
OFF = {"enable_thinking": False, "thinking": False}
ON = {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}

# Name, messages, tools, flags, generation prompt.
CHATS = [
    ("A", A, None, {}, True), ("A, no prompt", A, None, {}, False), ("B", B, None, {}, True),
    ("A, thinking off", A, None, OFF, True), ("A, thinking on", A, None, ON, True),
    ("thought", THOUGHT, None, {}, True), ("two systems", TWO_SYSTEMS, None, {}, True),
    ("open", OPEN_TURN, None, {}, False), ("reasoned", REASONED, None, {}, False),
    ("A, tools", A, TOOLS, {}, True), ("B, tools, date", B, TOOLS, {"date_string": "1 Jan 2025"}, True),
    ("called", CALLED, TOOLS, {}, False), ("answered", ANSWERED, TOOLS, ON, True),
    ("answered, thinking off", ANSWERED, TOOLS, OFF, True), ("answered, no tools", ANSWERED, None, {}, True),
    ("two calls", TWO_CALLS, TOOLS, {}, True), ("no arguments", NO_ARGUMENTS, TOOLS, {}, True),
    ("no JSON", NO_JSON, TOOLS, {}, True),
]

# Templates that read arguments as text, and a missing content of a call as none.
ARGUMENTS_AS_TEXT = ("deepseek_r1_tools", "deepseek_v3_1_tools")
CONTENT_IS_NONE = ("deepseek_r1_tools",)

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


def arguments_of(text, as_text):
    """As the router hands them to a template: the object if the text is one."""
    text = text or "{}"
    if as_text:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def reference_message(given, as_text, is_none):
    fields = {"role": given["role"], "content": given["content"]}
    calls = given.get("tool_calls", [])
    if calls and is_none and not given["content"]:
        fields["content"] = None
    if "name" in given:
        fields["name"] = given["name"]
    if calls:
        fields["tool_calls"] = [
            {"id": c["id"], "type": "function",
             "function": {"name": c["name"], "arguments": arguments_of(c["arguments"], as_text)}} for c in calls]
    for key in ("tool_call_id", "reasoning_content"):
        if key in given:
            fields[key] = given[key]
    return fields


def chats():
    cases = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        as_text, is_none = path.stem in ARGUMENTS_AS_TEXT, path.stem in CONTENT_IS_NONE
        for name, messages, tools, flags, prompt in CHATS:
            case = {"template": path.name, "chat": name}
            try:
                expected = chat_template_utils.render_jinja_template(
                    [[reference_message(m, as_text, is_none) for m in messages]], tools=tools, chat_template=source,
                    add_generation_prompt=prompt, bos_token=BOS, eos_token=EOS, **flags)[0][0]
            except (jinja2.exceptions.TemplateError, TypeError, AttributeError):
                pass  # so must we
            else:
                known = KNOWN.get((path.stem, name), expected)
                assert expected == known, (path.stem, name, expected, known)
                case["expected"] = expected
            cases.append(case)
    dump = lambda value: json.dumps(value, ensure_ascii=False)
    return {
        "chats": [{"name": name, "messages": messages, "tools": dump(tools) if tools else "", "flags": dump(flags),
                   "add_generation_prompt": prompt} for name, messages, tools, flags, prompt in CHATS],
        "arguments_as_text": [f"{stem}.jinja" for stem in ARGUMENTS_AS_TEXT],
        "content_is_none": [f"{stem}.jinja" for stem in CONTENT_IS_NONE],
        "cases": cases,
    }


def rendered_snippets():
    compiled = chat_template_utils._compile_jinja_template
    variables = dict(messages=B, add_generation_prompt=True, bos_token="<s>", eos_token="</s>", tools=None,
                     documents=None, flag=False)
    cases = [{"template": s, "expected": compiled(s).render(**variables)} for s in snippets.RENDERED]
    for source in snippets.REJECTED:
        try:
            text = compiled(source).render(**variables)
        except (jinja2.exceptions.TemplateError, TypeError, ValueError, ZeroDivisionError, AttributeError, SyntaxError):
            cases.append({"template": source})
        else:
            raise AssertionError(f"{source!r} renders {text!r}")
    return cases


def tokenizer_files():
    tokenizer = train()
    texts = HARD + random_texts(240)
    return {"tokenizer.json": tokenizer.to_str(pretty=False), "encode.json": encodings(tokenizer, texts),
            "decode.json": decodings(tokenizer), "split.json": {"texts": texts, "sets": splits(texts)}}


def main():
    files = {}
    wanted = sys.argv[1:]
    if not wanted or set(wanted) - {"chat.json", "snippets.json"}:
        files.update(tokenizer_files())
    files.update({"chat.json": chats(), "snippets.json": rendered_snippets()})
    for name in wanted or files:
        value = files[name]
        if isinstance(value, str):
            (HERE / name).write_text(value + "\n", encoding="utf-8")
        else:
            text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
            (HERE / name).write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
