"""What is announced can be served: the context is the model's, or what decode's KV pool can hold."""

import json
import urllib.error
import urllib.request

import pytest

from node import Node, wait_until

POOL = 640


@pytest.fixture(scope="module")
def small(api, bin_dir, tiny_model):
    with Node(api, bin_dir, tiny_model, {"decode": ["--kv-tokens", str(POOL)]}) as node:
        yield node


def call(node, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}",
                                     json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_announced_everywhere(small):
    assert small.stub.GetModel(small.api.inference.GetModelRequest()).max_context_tokens == POOL
    assert call(small, "/v1/models")[1]["data"][0]["max_model_len"] == POOL
    assert call(small, "/props")[1]["default_generation_settings"]["n_ctx"] == POOL
    assert f"context {POOL} tokens, of the model's" in small.log("router")


def test_the_longest_prompt_is_served_and_one_token_more_is_not(small):
    def complete(tokens):
        return call(small, "/v1/completions", {"prompt": [7] * tokens, "max_tokens": 4})
    status, reply = complete(POOL - 1)
    assert status == 200 and reply["usage"]["completion_tokens"] == 1, "one token is left"
    assert reply["choices"][0]["finish_reason"] == "length"
    status, reply = complete(POOL)
    assert status == 400 and reply["error"]["code"] == "context_length_exceeded"
    assert str(POOL) in reply["error"]["message"]


def test_a_larger_pool_is_announced_when_decode_comes_back(small):
    small.kill("decode")
    small.flags = {"decode": ["--kv-tokens", str(2 * POOL)]}
    small.start("decode")
    small.wait_serving("decode")
    small.wait_serving()
    wait_until(lambda: small.stub.GetModel(small.api.inference.GetModelRequest()).max_context_tokens == 2 * POOL, 20,
               "the router knows the larger pool")
