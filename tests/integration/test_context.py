"""What is announced can be served: the context is the model's, or what decode's KV pool can hold. Answers end there."""

import json
import urllib.error
import urllib.request

import grpc
import pytest

from node import Node, wait_until

POOL = 640


@pytest.fixture(scope="module")
def small(api, bin_dir, tiny_model):
    with Node(api, bin_dir, tiny_model, {"decode": ["--kv-tokens", str(POOL)]}) as node:
        yield node


def call_with_headers(node, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}",
                                     json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply), reply.headers
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers


def call(node, path, body=None):
    return call_with_headers(node, path, body)[:2]


def test_announced_everywhere(small):
    assert small.stub.GetModel(small.api.inference.GetModelRequest()).max_context_tokens == POOL
    assert call(small, "/v1/models")[1]["data"][0]["max_model_len"] == POOL
    assert call(small, "/props")[1]["default_generation_settings"]["n_ctx"] == POOL
    assert f"context {POOL} tokens, of " in small.log("router")


def test_the_longest_prompt_is_served_and_one_token_more_is_not(small):
    def complete(tokens):
        return call(small, "/v1/completions", {"prompt": [7] * tokens, "max_tokens": 4})
    status, reply = complete(POOL - 1)
    assert status == 200 and reply["usage"]["completion_tokens"] == 1, "one token is left"
    assert reply["choices"][0]["finish_reason"] == "length"
    status, reply = complete(POOL)
    assert status == 400 and reply["error"]["code"] == "context_length_exceeded"
    assert str(POOL) in reply["error"]["message"]


def test_an_answer_without_max_tokens_ends_at_the_end_of_the_context(small):
    status, reply, headers = call_with_headers(small, "/v1/completions", {"prompt": [7] * 100, "ignore_eos": True})
    assert status == 200 and reply["usage"]["total_tokens"] == POOL
    assert reply["choices"][0]["finish_reason"] == "length" and "X-Max-Tokens" not in headers
    model = small.stub.GetModel(small.api.inference.GetModelRequest())
    assert model.default_max_tokens == 0
    assert call(small, "/props")[1]["default_generation_settings"]["params"]["n_predict"] == -1


HTTP_APIS = {  # the path, the body of a question, and what the error of one that is too long says and has
    "/v1/chat/completions": (lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 4},
                             lambda error: error["error"]["code"] == "context_length_exceeded" and
                             f"maximum context length is {POOL} tokens" in error["error"]["message"]),
    "/v1/responses": (lambda text: {"input": text, "max_output_tokens": 4},
                      lambda error: error["error"]["code"] == "context_length_exceeded" and
                      f"maximum context length is {POOL} tokens" in error["error"]["message"]),
    "/v1/messages": (lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 4},
                     lambda error: error["error"]["message"] ==
                     f"prompt is too long: {POOL} tokens > {POOL - 1} maximum"),
    "/api/chat": (lambda text: {"model": "tiny", "messages": [{"role": "user", "content": text}], "stream": False,
                                "options": {"num_predict": 4}},
                  lambda error: f"maximum context length is {POOL} tokens" in error["error"]),
    "/api/generate": (lambda text: {"model": "tiny", "prompt": text, "stream": False, "options": {"num_predict": 4}},
                      lambda error: f"maximum context length is {POOL} tokens" in error["error"]),
}


@pytest.mark.parametrize("path", HTTP_APIS)
def test_the_longest_question_is_answered_in_every_api(small, path):
    question, says_both_numbers = HTTP_APIS[path]
    def tokens_of(text):
        return call(small, "/tokenize", {"messages": [{"role": "user", "content": text}]})[1]["count"]
    text = "x"
    while (missing := POOL - 1 - tokens_of(text)) > 0:
        text += "\n" * missing if missing < 4 else " x" * (missing // 4)
    assert tokens_of(text) == POOL - 1
    status, reply, headers = call_with_headers(small, path, question(text))
    assert status == 200, reply
    assert headers["X-Max-Tokens"] == "1", "of the four tokens that were asked for"
    assert "length" in json.dumps(reply) or "max_" in json.dumps(reply)
    while tokens_of(text) < POOL:
        text += "\nx"
    status, error = call(small, path, question(text))
    assert status == 400 and says_both_numbers(error), error


def test_the_longest_prompt_over_grpc(small):
    request = small.request([7] * (POOL - 1), max_tokens=4)
    replies = list(small.stub.Generate(request, timeout=60))
    assert replies[0].started.max_tokens == 1 and replies[-1].finished.usage.completion_tokens <= 1
    with pytest.raises(grpc.RpcError) as refused:
        list(small.stub.Generate(small.request([7] * POOL, max_tokens=4), timeout=60))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert f"has {POOL} tokens, and the model's context has {POOL}" in refused.value.details()


def test_a_larger_pool_is_announced_when_decode_comes_back(small):
    small.kill("decode")
    small.flags = {"decode": ["--kv-tokens", str(2 * POOL)]}
    small.start("decode")
    small.wait_serving("decode")
    small.wait_serving()
    wait_until(lambda: small.stub.GetModel(small.api.inference.GetModelRequest()).max_context_tokens == 2 * POOL, 20,
               "the router knows the larger pool")
