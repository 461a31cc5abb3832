#!/usr/bin/env python3
"""Regenerates kinds/: small tokenizers of every published kind, and what the reference libraries make of hostile texts.

Needs: tokenizers, tiktoken, sentencepiece. Run it anywhere; it writes beside itself. fuzz.py compares more texts.
"""

import base64
import io
import json
import pathlib
import random
import sys
import unicodedata

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make_golden import CORPUS, HARD, PATTERNS, SUFFIX, TAIL, WORD, assigned

HERE = pathlib.Path(__file__).resolve().parent / "kinds"

LINES = CORPUS.splitlines(keepends=True) * 3
O200K = (rf"{WORD}[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{SUFFIX}?"
         rf"|{WORD}[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{SUFFIX}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CJK_AND_HANGUL = "[一-龥\u0800-一가-\ud7ff]+"
LETTERS = (
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗ"
    "\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17Ａ-Ｚａ-ｚ"
    "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+")
DEEPSEEK_V2 = ["[\r\n]", LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK_AND_HANGUL]


def splits(patterns, behavior="isolated", invert=False):
    return [pre_tokenizers.Split(Regex(p), behavior, invert) for p in patterns]


def train_byte_level(steps, vocab_size=560):
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    return tokenizer


def markers(names, special=True):
    return [AddedToken(name, normalized=False, special=special) for name in names]


class HuggingFace:
    """A tokenizer.json; the reference is tokenizers."""

    def __init__(self, name, tokenizer):
        self.name = name
        self.tokenizer = tokenizer
        self.files = {"tokenizer.json": tokenizer.to_str()}
        spec = json.loads(tokenizer.to_str())
        self.markers = [t["content"] for t in spec["added_tokens"]]
        self.size = tokenizer.get_vocab_size()
        spec["added_tokens"] = []
        spec["post_processor"] = None
        self.without = Tokenizer.from_str(json.dumps(spec))

    def parsed(self, text):
        return self.tokenizer.encode(text).ids

    def plain(self, text):
        return self.without.encode(text, add_special_tokens=False).ids

    def kept(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def skipped(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)


class Tiktoken:
    """Ranks and a tokenizer_config.json; the reference is tiktoken, with the names that the publisher's class gives."""

    def __init__(self, name, tokenizer_class, pattern, named, reserved):
        self.name = name
        spec = json.loads(train_byte_level(splits([pattern])).to_str())
        spelling = {c: b for b, c in byte_spelling().items()}
        tokens = sorted(spec["model"]["vocab"].items(), key=lambda item: item[1])
        ranks = {bytes(spelling[c] for c in token): rank for rank, (token, _) in enumerate(tokens)}
        specials = {name: len(ranks) + offset for offset, name in named.items()}
        taken = set(specials.values())
        specials |= {f"<|reserved_token_{i}|>": i for i in range(len(ranks), len(ranks) + reserved) if i not in taken}
        self.encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
        self.special_ids = set(specials.values())
        self.markers = list(specials)[:12]
        self.size = max(self.special_ids) + 1
        flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
        decoder = {str(len(ranks) + offset): {"content": name} | flags for offset, name in named.items()}
        self.files = {
            "tiktoken.model": "".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()),
            "tokenizer_config.json": json.dumps({"tokenizer_class": tokenizer_class, "added_tokens_decoder": decoder})}

    def parsed(self, text):
        return self.encoding.encode(text, allowed_special="all")

    def plain(self, text):
        return self.encoding.encode_ordinary(text)

    def known(self, ids):
        return [i for i in ids if i < self.encoding.n_vocab and self.is_token(i)]

    def is_token(self, i):
        try:
            self.encoding.decode_single_token_bytes(i)
        except KeyError:
            return False
        return True

    def kept(self, ids):
        return self.encoding.decode(self.known(ids))

    def skipped(self, ids):
        return self.encoding.decode([i for i in self.known(ids) if i not in self.special_ids])


class SentencePiece(HuggingFace):
    """A model of sentencepiece, converted. Plain text and text of byte tokens are compared with sentencepiece itself."""

    def __init__(self, name, processor, tokenizer, prefixed):
        super().__init__(name, tokenizer)
        self.processor = processor
        self.size = processor.get_piece_size()  # ids that both references know
        self.prefixed = prefixed  # the text begins with a dummy space, as the model was trained

    def plain(self, text):
        return self.processor.encode(text) if self.prefixed and text else super().plain(text)

    def skipped(self, ids):
        if self.prefixed:
            # Skipped tokens leave no gap: the bytes around one may be a character.
            return self.processor.decode([i for i in ids if not self.processor.is_control(i)])
        return super().skipped(ids)


def byte_spelling():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + i) for i, b in enumerate(others)}


def qwen():
    tokenizer = train_byte_level(splits(PATTERNS["qwen"]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens(markers(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    tokenizer.add_tokens(markers(["<think>", "</think>"], special=False))
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, use_regex=False)
    return HuggingFace("qwen", tokenizer)


def llama3():
    tokenizer = train_byte_level(splits(PATTERNS["cl100k"]))
    spec = json.loads(tokenizer.to_str())
    spec["model"]["ignore_merges"] = True
    # Tokens that no merge makes: only whole pieces become them.
    spec["model"]["vocab"] |= {"Ġunreached": 560, "混": 561, "ĊĊĊĊ": 562}
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer.add_special_tokens(markers(names))
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)])])
    return HuggingFace("llama3", tokenizer)


def gpt_oss():
    tokenizer = train_byte_level(splits([O200K]))
    tokenizer.add_special_tokens(markers(["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|channel|>", "<|start|>"]))
    return HuggingFace("gpt_oss", tokenizer)


def deepseek_v2():
    tokenizer = train_byte_level(splits(DEEPSEEK_V2) + [pre_tokenizers.Digits(individual_digits=True)])
    tokenizer.normalizer = normalizers.Sequence([])
    names = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"]
    # As published: the control tokens match only where no other added token does.
    tokenizer.add_special_tokens([AddedToken(name, normalized=True, special=True) for name in names])
    bos = tokenizer.token_to_id(names[0])
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{names[0]} $A", special_tokens=[(names[0], bos)])
    return HuggingFace("deepseek_v2", tokenizer)


def converted():
    """As converters of tiktoken's ranks write it: what matches is kept, the rest removed. Digits match nothing here."""
    pattern = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
    tokenizer = train_byte_level(splits([pattern], "removed", invert=True))
    tokenizer.add_special_tokens(markers(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    return HuggingFace("converted", tokenizer)


def kimi_k2():
    named = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 4: "<|im_assistant|>", 9: "[EOT]",
             10: "<|im_system|>", 17: "<|im_middle|>", 254: "[UNK]", 255: "[PAD]"}
    return Tiktoken("kimi_k2", "TikTokenTokenizer", PATTERNS["kimi_k2"][0], named, reserved=256)


def dbrx():
    named = {1: "<|endoftext|>", 20: "<|endofprompt|>", 21: "<|pad|>", 22: "<|im_start|>", 23: "<|im_end|>"}
    return Tiktoken("dbrx", "TiktokenTokenizerWrapper", PATTERNS["cl100k"][0], named, reserved=0)


def train_sentencepiece():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line.rstrip("\n") for line in LINES), model_writer=out, model_type="bpe",
        vocab_size=640, byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity",
        remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True, num_threads=1,
        max_sentence_length=10000, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def bpe_of(processor):
    """The model as converters write it: a merge for every way to cut a piece in two pieces, best score first."""
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece in pieces:
        if processor.is_byte(vocab[piece]) or processor.is_control(vocab[piece]):
            continue
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += [(processor.get_score(vocab[piece]), vocab[left], left, right) for left, right in cuts]
    merges.sort(key=lambda m: (-m[0], m[1]))
    return models.BPE(vocab=vocab, merges=[m[2:] for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def mixtral(name, normalizer, pre_tokenizer, strips, prefixed, more=None):
    processor = train_sentencepiece()
    tokenizer = Tokenizer(bpe_of(processor))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(content=" ", left=1)] if strips else []))
    tokenizer.add_special_tokens(markers(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]))
    tokenizer.add_tokens(more or [AddedToken("<tool>", normalized=True),
                                  AddedToken("<pad>", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return SentencePiece(name, processor, tokenizer, prefixed)


def kinds():
    legacy = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bare = normalizers.Replace(" ", "▁")
    metaspace = pre_tokenizers.Metaspace
    plain = markers(["<tool>", "<pad>"], special=False)  # without flags, as a GGUF file can say it
    return [
        qwen(), llama3(), gpt_oss(), deepseek_v2(), converted(), kimi_k2(), dbrx(),
        mixtral("mixtral", legacy, None, strips=True, prefixed=True),
        mixtral("mixtral_first", None, metaspace("▁", "first", split=False), strips=True, prefixed=False),
        mixtral("mixtral_always", None, metaspace("▁", "always", split=True), strips=True, prefixed=False),
        mixtral("mixtral_never", None, metaspace("▁", "never", split=False), strips=False, prefixed=False),
        mixtral("llama", legacy, None, strips=True, prefixed=True, more=plain),
        mixtral("llama_bare", bare, None, strips=False, prefixed=False, more=plain),
    ]


EMOJI = "😀😃👍🏽👩👨👧🏳️🌈🇩🇪❤️⌨️👁️🗨️1️⃣"
CLASSES = [
    "abcdefgh thequickbrownfox",
    "ABCdefGHIjkl 'S'T'LL's'll",
    " \t\n\r\u00a0\u2003\u3000\u0085\u2028\u180e\u200b",
    "0123456789٣½²Ⅷ",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~。，！？「」",
    "混合专家模型我想在工作的时候吃苹果龥㐀𠀀々",
    "東京カタカナひらがなｶﾀｶﾅゟー",
    "안녕하세요가각힣\u1100\u1161\u11a8\u1112\u1175\u11c2",
    "éàüÅΩñçe\u0301a\u0308\u0323\u0345\u0327\u0338\u0307\u212b\u2126\u0344\u1fbe\u0958क़ḍ\u0307",
    EMOJI + "\u200d\ufe0f\U000e0067",
    "Привет мир שלום مرحبا नमस्ते ไทย Γειά",
    "▁Ġ�\x00\x7f\xad\ufeff<>|",
    "\U0010ffff\U000f0000\ue000\ufdd0\u0378",
]
FRAGMENTS = ["<0x41>", "<0x0A>", "<s", "</s", "<|", "|>", "<|im_", "im_end|>", "[INST", "INST]", "<unk", "▁▁", "  ", "\r\n",
             "don't", "I'LL", "the quick", "unreached", " unreached", "\n\n\n\n", "<think", "<|reserved_token_", "𝟘", "ﷺ"]


def random_text(rng, everything, markers):
    parts = []
    for _ in range(rng.randint(1, 8)):
        kind = rng.random()
        if kind < 0.12:
            parts.append(rng.choice(markers))
        elif kind < 0.24:
            parts.append(rng.choice(FRAGMENTS))
        elif kind < 0.34:
            parts.append("".join(rng.choice(everything) for _ in range(rng.randint(1, 8))))
        elif kind < 0.40:
            parts.append(rng.choice(" \t\n\u3000▁a") * rng.randint(1, 70))
        elif kind < 0.45:
            alphabet = "".join(CLASSES)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40))))
        else:
            alphabet = rng.choice(CLASSES)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 12))))
    return "".join(parts)


def random_ids(rng, kind):
    low = [rng.randrange(0, 259), rng.randrange(0, kind.size)]
    ids = [rng.choice([rng.choice(low), rng.randrange(0, 300), rng.randrange(0, kind.size)])
           for _ in range(rng.randint(1, 16))]
    # sentencepiece decodes <unk> to a mark of its own, and does not strip a space that a byte token spells.
    unlike = {0, kind.processor.piece_to_id("<0x20>")} if isinstance(kind, SentencePiece) else set()
    return [i for i in ids if i not in unlike] or [1]


def decoded(kind, ids):
    """The references' texts of these ids, with special tokens kept and skipped."""
    if not isinstance(kind, SentencePiece):
        return {"kept": kind.kept(ids), "skipped": kind.skipped(ids)}
    # tokenizers makes a run of byte tokens all U+FFFD if any of it is ill-formed. A stream could not follow.
    well_formed = "\ufffd" not in kind.processor.decode(ids)
    texts = {"skipped": kind.skipped(ids)} if well_formed or kind.prefixed else {}
    return texts | ({"kept": kind.kept(ids)} if well_formed else {})


def golden(kind, texts, rng):
    sequences = [random_ids(rng, kind) for _ in range(60)]
    parsed = [kind.parsed(t) for t in texts]
    plain = [kind.plain(t) for t in texts]
    begins = len(kind.parsed(""))  # tokens that go before every text
    return {
        "files": kind.files,
        "begins": begins,
        "parsed": parsed,
        "plain": [None if ids == both[begins:] else ids for ids, both in zip(plain, parsed)],  # None: the same
        "decoded": [{"ids": ids} | decoded(kind, ids) for ids in sequences],
    }


def write(name, value):
    HERE.mkdir(exist_ok=True)
    (HERE / name).write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="ascii")


def main():
    rng = random.Random(20260101)
    everything = assigned()
    everyone = kinds()
    markers_of_all = sorted({m for kind in everyone for m in kind.markers})
    texts = [t for t in HARD if len(t) <= 320] + [random_text(rng, everything, markers_of_all) for _ in range(180)]
    write("texts.json", texts)
    for kind in everyone:
        write(f"{kind.name}.json", golden(kind, texts, rng))


if __name__ == "__main__":
    sys.exit(main())
