"""Constrained decoding in a real node: whatever the model would say, the answer has the asked form. On the path of decode
and on that of prefill, beside other requests, and after decode was killed in the middle."""

import json
import re
import signal
import threading
from pathlib import Path

import grpc
import pytest

from node import HANG_SECONDS, Node, collect, wait_until

pytestmark = pytest.mark.smoke

DEMO = Path(__file__).resolve().parents[2] / "deploy/models/demo"
PATHS = {"chunked": {}, "split": {"router": ["--chunked-below-tokens", "0"]}}
SCHEMA = {"type": "object",
          "properties": {"name": {"type": "string", "maxLength": 12},
                         "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 3},
                         "size": {"type": "integer", "minimum": -5, "maximum": 250},
                         "done": {"type": "boolean"}},
          "required": ["name", "tags", "size"], "additionalProperties": False}
PROMPT = ">>> sorted([5, 2, 9])\n"
ALL = "root ::= [^\\x00]* | \"\\x00\""  # any text


@pytest.fixture(scope="module", params=PATHS)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def node(api, bin_dir, path):
    with Node(api, bin_dir, DEMO, {"prefill": ["--mla-form", "absorbed"], **PATHS[path]}) as running:
        yield running
    assert not running.shared_memory()


def constraint(node, kind, text=""):
    message = node.api.types.Constraint
    return message(kind=getattr(message, "KIND_" + kind), text=text)


def check(text):
    value = json.loads(text)
    assert set(value) <= set(SCHEMA["properties"]) and set(SCHEMA["required"]) <= set(value)
    assert isinstance(value["name"], str) and len(value["name"]) <= 12
    assert 1 <= len(value["tags"]) <= 3 and set(value["tags"]) <= {"red", "green"}
    assert isinstance(value["size"], int) and -5 <= value["size"] <= 250
    assert isinstance(value.get("done", True), bool)


def test_every_sampled_answer_has_the_form_of_the_schema(node):
    schema = constraint(node, "JSON_SCHEMA", json.dumps(SCHEMA))
    texts = set()
    for seed in range(20):
        _, text, finished = node.generate(PROMPT, 400, temperature=1.5, seed=seed, constraint=schema)
        assert finished.reason == node.api.types.FINISH_REASON_STOP, text
        check(text)
        texts.add(text)
    assert len(texts) > 5, "the model chooses within the schema"


def test_grammars_and_expressions(node):
    _, text, _ = node.generate(PROMPT, 100, constraint=constraint(node, "REGEX", "(yes|no), [0-9]{3}-[a-f]{1,4}\\."))
    assert re.fullmatch("(yes|no), [0-9]{3}-[a-f]{1,4}\\.", text)
    grammar = "root ::= item{2,3}\nitem ::= \"- \" [a-z]{1,8} \"\\n\""
    _, text, _ = node.generate(PROMPT, 100, temperature=1, seed=3, constraint=constraint(node, "GRAMMAR", grammar))
    assert re.fullmatch("(- [a-z]{1,8}\n){2,3}", text)


def test_a_text_that_is_complete_ends_without_a_stop_id(node):
    _, text, finished = node.generate(PROMPT, 100, ignore_eos=True, constraint=constraint(node, "REGEX", "abc[0-9]"))
    assert re.fullmatch("abc[0-9]", text) and finished.reason == node.api.types.FINISH_REASON_STOP


def test_a_constraint_that_allows_everything_changes_no_bit(node):
    def run(**fields):
        call = node.stub.Generate(node.request(PROMPT, 40, **fields), timeout=HANG_SECONDS)
        return [(token.id, token.logprob) for reply in call for token in reply.tokens.tokens]
    free = constraint(node, "GRAMMAR", ALL)
    assert run(temperature=0.0, constraint=free) == run(temperature=0.0)
    assert run(temperature=0.7, seed=5, constraint=free) == run(temperature=0.7, seed=5)


def test_neighbours_keep_their_tokens(node):
    alone = node.generate(PROMPT, 60, temperature=0.8, seed=1, ignore_eos=True)[0]
    schema = constraint(node, "JSON_SCHEMA", json.dumps(SCHEMA))
    calls = [node.stub.Generate(node.request(PROMPT, 400, temperature=1.5, seed=seed, constraint=schema), timeout=HANG_SECONDS)
             for seed in range(3)]
    assert node.generate(PROMPT, 60, temperature=0.8, seed=1, ignore_eos=True)[0] == alone
    for call in calls:
        check(collect(call)[1])


@pytest.mark.parametrize("kind, text, message", [
    ("JSON_SCHEMA", '{"type":"array","uniqueItems":true}', "uniqueItems"),
    ("JSON_SCHEMA", "{", "not valid JSON"),
    ("GRAMMAR", "root ::= x\n", "line 1: rule 'x' is not defined"),
    ("REGEX", "(?=a)", "look-around"),
    ("GRAMMAR", "root ::= ((\"a\"{9999}){9999}){9999}", "too large"),
])
def test_a_bad_constraint_is_refused_before_anything_runs(node, kind, text, message):
    with pytest.raises(grpc.RpcError) as error:
        node.generate(PROMPT, 10, constraint=constraint(node, kind, text))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "constraint" in error.value.details() and message in error.value.details()


def dear_grammar(rules=3800, length=50):
    """Any printable text, by `rules` ways at once: each mask takes tens of milliseconds."""
    letters = "|".join(f'"{chr(92) if chr(c) in chr(34) + chr(92) else ""}{chr(c)}"' for c in range(32, 127))
    return "\n".join(['root ::= x+ | "\\x01" lit', "x ::= " + "|".join(f"r{i}" for i in range(rules)), f"lit ::= {letters}",
                      *(f"r{i} ::= [ -~]{{{length}}}" for i in range(rules))]) + "\n"


def test_masks_that_take_long_hold_up_their_own_request_only(node):
    """More such requests than the batch has places. Four seconds: one of them spends the budget for its masks."""
    alone = node.generate(PROMPT, 60, temperature=0.8, seed=1, ignore_eos=True)[0]
    dear = [node.stub.Generate(node.request(PROMPT, 300, ignore_eos=True, seed=seed,
                                            constraint=constraint(node, "GRAMMAR", dear_grammar())), timeout=HANG_SECONDS)
            for seed in range(8)]
    for call in dear:
        assert next(call).WhichOneof("event") == "started"
    assert node.generate(PROMPT, 60, temperature=0.8, seed=1, ignore_eos=True)[0] == alone
    for call in dear[1:]:
        assert call.is_active(), "it did not end before its neighbour"
        call.cancel()
    with pytest.raises(grpc.RpcError) as error:
        collect(dear[0])
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "constraint" in error.value.details() and "steps for" in error.value.details()


def test_decode_killed_in_the_middle(node):
    """The text goes on from its last token, within its form, as it would have without."""
    schema = constraint(node, "JSON_SCHEMA", json.dumps({"type": "array", "items": {"type": "integer"},
                                                         "minItems": 60, "maxItems": 60}))
    fields = dict(temperature=1.0, seed=7, constraint=schema)
    expected = node.generate(PROMPT, 900, **fields)[1]
    begun, replies = threading.Event(), []

    def run():
        for reply in node.stub.Generate(node.request(PROMPT, 900, **fields), timeout=HANG_SECONDS):
            replies.append(reply)
            if sum(len(each.tokens.tokens) for each in replies) >= 10:
                begun.set()
    client = threading.Thread(target=run)
    client.start()
    assert begun.wait(HANG_SECONDS)
    node.processes["decode"].send_signal(signal.SIGKILL)
    node.processes["decode"].wait()
    node.start("decode")
    client.join(HANG_SECONDS)
    text = "".join(reply.tokens.text for reply in replies)
    assert text == expected and len(json.loads(text)) == 60
    wait_until(lambda: node.serving("decode"), 10, "decode is back")
