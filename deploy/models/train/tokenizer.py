"""The demo model's tokenizer: byte-level BPE, trained on the tasks, in the file format of published models."""

import json
import random

import tasks
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
VOCAB = 512
FILE = "tokenizer.json"

# Function names, words of a sentence and a few fixed strings are units. Quoted text and every digit are one token per
# character, so that letters and digits can be counted, reversed and added. (One token for each number up to 99 was
# tried: after the same examples it was better at sorting and far worse at arithmetic.)
UNITS = r"(?<!['\p{L}])\p{L}+(?=\()|(?<=\.)\p{L}+|(?<!['\p{L}])[A-Z]\p{Ll}+| \p{L}+|, |>>> | [-+*<>=!]=?[ ]|[\s\S]"

CHAT_TEMPLATE = (
    "{{- bos_token -}}{%- for message in messages -%}"
    "{%- if message['role'] == 'user' -%}{{- '<｜User｜>' + message['content'] + '<｜Assistant｜>' -}}"
    "{%- elif message['role'] == 'assistant' -%}{{- message['content'] + eos_token -}}"
    "{%- endif -%}{%- endfor -%}"
)


def train(seed=0, examples=20000):
    rng = random.Random(seed)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(UNITS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(t, normalized=False, special=True) for t in (BOS, EOS, PAD, tasks.USER, tasks.ASSISTANT)]
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    texts = ("".join(text for text, _ in tasks.sample(rng)[1]) for _ in range(examples))
    marks = (tasks.USER, tasks.ASSISTANT)
    tokenizer.train_from_iterator((t for text in texts for t in text.replace(marks[0], "\0").replace(marks[1], "\0").split("\0")), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
    return tokenizer


def load(directory):
    return Tokenizer.from_file(str(directory / FILE))


def config():
    def token(content):
        return {"__type": "AddedToken", "content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}

    return {"add_bos_token": True, "add_eos_token": False, "bos_token": token(BOS), "eos_token": token(EOS), "pad_token": token(EOS),
            "clean_up_tokenization_spaces": False, "model_max_length": 2048, "unk_token": None,
            "tokenizer_class": "LlamaTokenizerFast", "chat_template": CHAT_TEMPLATE}  # fmt: skip


def write(tokenizer, directory):
    tokenizer.save(str(directory / FILE))
    (directory / "tokenizer_config.json").write_text(json.dumps(config(), indent=2, ensure_ascii=False) + "\n")
