"""Anthropic's Messages API of a running node, over raw HTTP. test_anthropic_client.py has Anthropic's own client."""

import json

import pytest

from test_http import Http

pytestmark = pytest.mark.smoke

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
HELLO = {"max_tokens": 16, "temperature": 0, "messages": [{"role": "user", "content": "Sort [5, 2, 9]."}]}


@pytest.fixture(scope="module")
def web(node):
    return Http(node)


def events_of(text):
    """[(event, data)] of a stream; each must say its type twice."""
    events = []
    for frame in text.split("\n\n"):
        if not frame:
            continue
        name, data = frame.split("\n")
        assert name.startswith("event: ") and data.startswith("data: ")
        events.append((name[7:], json.loads(data[6:])))
        assert events[-1][1]["type"] == events[-1][0]
    return events


def stream(web, body):
    status, headers, text = web.call("POST", MESSAGES, body | {"stream": True})
    assert status == 200, text
    assert headers["Content-Type"].startswith("text/event-stream")
    return [event for event in events_of(text.decode()) if event[0] != "ping"]


def test_message(web):
    status, message = web.post(MESSAGES, HELLO)
    assert status == 200, message
    assert message["type"] == "message" and message["role"] == "assistant"
    assert message["id"].startswith("msg_")
    assert [block["type"] for block in message["content"]] == ["text"]
    assert message["stop_reason"] in ("end_turn", "max_tokens") and message["stop_sequence"] is None
    usage = message["usage"]
    status, count = web.post(COUNT, {"messages": HELLO["messages"]})
    assert status == 200
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count["input_tokens"]
    assert 0 < usage["output_tokens"] <= 16


def test_stream_says_the_same(web):
    _, message = web.post(MESSAGES, HELLO)
    events = stream(web, HELLO)
    assert [name for name, _ in events if name != "content_block_delta"] == [
        "message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    start = events[0][1]["message"]
    assert start["content"] == [] and start["stop_reason"] is None
    text = "".join(data["delta"]["text"] for name, data in events if name == "content_block_delta")
    assert text == message["content"][0]["text"]
    assert events[-2][1]["delta"] == {"stop_reason": message["stop_reason"], "stop_sequence": None}
    assert events[-2][1]["usage"]["output_tokens"] == message["usage"]["output_tokens"]


def test_stop_sequence(web):
    _, message = web.post(MESSAGES, HELLO)
    text = message["content"][0]["text"]
    stop = text[1:3]
    _, cut = web.post(MESSAGES, HELLO | {"stop_sequences": [stop]})
    assert cut["stop_reason"] == "stop_sequence" and cut["stop_sequence"] == stop
    assert cut["content"][0]["text"] == text[:text.index(stop)]


def test_max_tokens(web):
    _, message = web.post(MESSAGES, HELLO | {"max_tokens": 1})
    assert message["stop_reason"] == "max_tokens" and message["usage"]["output_tokens"] == 1


def test_system_and_earlier_turns_are_read(web):
    turns = [{"role": "user", "content": [{"type": "text", "text": "Sort [5, 2]."}]},
             {"role": "assistant", "content": "[2, 5]"}, {"role": "user", "content": "Now reverse it."}]
    counts = []
    for body in ({"messages": turns[:1]}, {"messages": turns}, {"messages": turns, "system": "Be brief."}):
        status, count = web.post(COUNT, body)
        assert status == 200, count
        counts.append(count["input_tokens"])
    assert counts == sorted(set(counts))


@pytest.mark.parametrize("change, status, kind, words", [
    ({"messages": "hi"}, 400, "invalid_request_error", "messages: "),
    ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens: "),
    ({"temperature": "warm"}, 400, "invalid_request_error", "temperature: "),
])
def test_errors_have_anthropics_form(web, change, status, kind, words):
    for more in ({}, {"stream": True}):
        got, error = web.post(MESSAGES, HELLO | change | more)
        assert got == status
        assert error["type"] == "error" and error["error"]["type"] == kind
        assert words in error["error"]["message"]
        assert error["request_id"].startswith("req_")


def test_errors_before_the_endpoint_have_anthropics_form_too(web):
    for method, path, status, kind in (("GET", MESSAGES, 405, "invalid_request_error"),
                                       ("GET", MESSAGES + "/nothing", 404, "not_found_error")):
        got, headers, body = web.call(method, path)
        error = json.loads(body)
        assert got == status and error["error"]["type"] == kind
        assert error["request_id"] == headers["request-id"]
