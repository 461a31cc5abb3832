"""Limits on what a client can make the router hold: nothing it sends grows the process beyond them."""

import re
import threading
from pathlib import Path

import grpc
import pytest

from node import HANG_SECONDS
from test_generate import error_of

pytestmark = pytest.mark.smoke

MIB = 1 << 20


class Growth:
    """How far the router's memory rises above its value at the start of the block; 20 MiB at most."""

    def __init__(self, node, limit=20 * MIB):
        self.process, self.limit = Path(f"/proc/{node.pid('router')}"), limit

    def peak(self):
        return int(re.search(r"^VmHWM:\s+(\d+)", (self.process / "status").read_text(), re.M)[1]) << 10

    def __enter__(self):
        (self.process / "clear_refs").write_text("5")  # the peak is what it has now
        self.before = self.peak()

    def __exit__(self, error, *_):
        if error is None:
            grown = self.peak() - self.before
            print(f"{grown / MIB:.1f} MiB")
            assert grown < self.limit, f"{grown / MIB:.1f} MiB"


def varint(n):
    out = b""
    while n >= 128:
        out, n = out + bytes([n % 128 | 128]), n // 128
    return out + bytes([n])


def field(number, value):
    """A field of bytes in wire format."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def raw_call(node, method, message, **options):
    """(code, details) of a call with bytes that no client library would produce; code None on success."""
    with grpc.insecure_channel(f"127.0.0.1:{node.grpc_port}", options=[("grpc.max_send_message_length", -1),
                                                                        ("grpc.max_receive_message_length", -1)]) as channel:
        path = method if method.startswith("/") else f"/moestro.v1.InferenceService/{method}"
        try:
            for _ in channel.unary_stream(path)(message, timeout=HANG_SECONDS, **options):
                pass
        except grpc.RpcError as error:
            return error.code(), error.details()
    return None, ""


EMPTY_MESSAGES = b"\x0a\x00" * (4 * MIB)
IDS = b"\x01" * (8 * MIB)
UNKNOWN = b"\xc0\x3e\x01" * (8 * MIB // 3)  # field 1000
TOO_MANY = {
    # 8 MiB each. The tiny model's context has 163840 tokens.
    "chat": ("Generate", field(3, EMPTY_MESSAGES), "chat.messages: has more than 163840 messages"),
    "chat in parts": ("Generate", field(3, b"\x0a\x00") * (8 * MIB // 4), "chat.messages: has more than 163840 messages"),
    "ids": ("Generate", field(2, field(1, IDS)), "token_ids.ids: has more than 163840 ids"),
    "unpacked ids": ("Generate", field(2, b"\x08\x01" * (4 * MIB)), "token_ids.ids: has more than 163840 ids"),
    "stop ids": ("Generate", field(1, b"x") + field(9, IDS), "stop_ids: has more than 256 ids"),
    "stop texts": ("Generate", field(1, b"x") + field(12, b"") * (4 * MIB), "stop: has more than 16 texts"),
    "a stop text": ("Generate", field(1, b"x") + field(12, IDS), "stop: has more than 256 bytes"),
    "biases": ("Generate", field(1, b"x") + field(17, b"") * (3 * MIB), "logit_bias: has more than 1024 token ids"),
    "constraint": ("Generate", field(1, b"x") + field(21, field(2, IDS)), "constraint.text: has more than 262144 bytes"),
    "name": ("Generate", field(1, b"x") + field(20, IDS), "request_id: has more than 64 bytes"),
    "name to abort": ("Abort", field(1, IDS), "request_id: has more than 64 bytes"),
    "cache scope": ("Generate", field(1, b"x") + field(11, IDS), "cache_scope: has more than 64 bytes"),
    "unknown": ("Generate", UNKNOWN, "more than 4096 bytes"),
    "wrong type": ("Generate", b"\x08\x01" * (4 * MIB), "more than 4096 bytes"),  # a prompt that is a number
    "ids to score": ("Score", field(2, field(1, IDS)), "token_ids.ids: has more than 163840 ids"),
    "score, unknown": ("Score", UNKNOWN, "more than 4096 bytes"),
    "chat to tokenize": ("Tokenize", field(2, EMPTY_MESSAGES), "chat.messages: has more than 163840 messages"),
    "ids to detokenize": ("Detokenize", field(1, IDS), "ids: has more than 163840 ids"),
    "model, unknown": ("GetModel", UNKNOWN, "more than 4096 bytes"),
}


@pytest.mark.no_sanitizer(reason="the allocator keeps what is freed")
@pytest.mark.parametrize("name", TOO_MANY)
def test_a_message_is_counted_before_it_is_parsed(node, name):
    method, message, words = TOO_MANY[name]
    with Growth(node):
        code, details = raw_call(node, method, message)
    assert code == grpc.StatusCode.INVALID_ARGUMENT and words in details


TEXTS = {"controls": "\x01", "letters": "a", "spaces": " ", "words": "a b", "lines": "a\n", "punctuation": "!", "marks": "<|",
         "digits": "7", "ideographs": "我", "emoji": "🦙"}


@pytest.mark.no_sanitizer(reason="the allocator keeps what is freed")
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("method", ["Tokenize", "Score", "Generate"])
def test_a_text_costs_little_more_than_itself(node, method, name):
    text = TEXTS[name] * (2 * MIB // len(TEXTS[name].encode()))
    with Growth(node):
        code, details = raw_call(node, method, field(1, text.encode()))
    assert code == grpc.StatusCode.INVALID_ARGUMENT, details
    assert "and the model's context has 163840" in details or "without a break between words" in details


@pytest.mark.no_sanitizer(reason="the allocator keeps what is freed")
def test_a_tokenization_that_fills_the_context(node):
    text = "a\n" * 75000
    with Growth(node):
        reply = node.stub.Tokenize(node.api.inference.TokenizeRequest(text=text), timeout=HANG_SECONDS)
    assert 150000 <= len(reply.ids) == len(reply.pieces) <= 163840
    assert "".join(reply.pieces[1:]) == text
    with Growth(node):
        again = node.stub.Detokenize(node.api.inference.DetokenizeRequest(ids=reply.ids), timeout=HANG_SECONDS).text
    assert again == text


@pytest.mark.no_sanitizer(reason="the allocator keeps what is freed")
@pytest.mark.parametrize("method", ["Tokenize", "/grpc.health.v1.Health/Check", "/nobody/Knows"])
def test_a_message_over_the_limit_is_refused(node, method):
    assert raw_call(node, method, field(1, b"x" * (17 * MIB)))[0] in (grpc.StatusCode.RESOURCE_EXHAUSTED,
                                                                     grpc.StatusCode.UNIMPLEMENTED)
    with Growth(node, limit=192 * MIB):  # thrice what all calls together may have: gRPC reads ahead
        code, _ = raw_call(node, method, field(1, b"x" * (400 * MIB)))
    assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED)
    assert node.generate("still here", 1)[0]


@pytest.mark.no_sanitizer(reason="the allocator keeps what is freed")
@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_message_is_not_unpacked(node, algorithm):
    """200 MiB in 200 KiB: the receive limit would not notice it."""
    with Growth(node):
        code, _ = raw_call(node, "Tokenize", field(1, b"x" * (200 * MIB)), compression=algorithm)
    assert code == grpc.StatusCode.UNIMPLEMENTED
    assert node.generate("still here", 1)[0]


def test_text_that_is_not_utf8(node):
    code, details = raw_call(node, "Generate", field(1, b"caf\xe9"))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "UTF-8" in details


def test_work_on_texts_ends_with_its_client(node):
    """Many clients start long work and leave: later requests do not wait for it."""
    text = "a b" * 54000
    calls = [node.stub.Tokenize.future(node.api.inference.TokenizeRequest(text=text), timeout=HANG_SECONDS) for _ in range(40)]
    for call in calls:
        call.cancel()
    assert node.generate("after them", 1, timeout=30)[0]


def test_texts_wait_their_turn_and_all_are_answered(node):
    text = "a b" * 5000
    expected = list(node.stub.Tokenize(node.api.inference.TokenizeRequest(text=text), timeout=HANG_SECONDS).ids)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(
        list(node.stub.Tokenize(node.api.inference.TokenizeRequest(text=text), timeout=HANG_SECONDS).ids))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 16
