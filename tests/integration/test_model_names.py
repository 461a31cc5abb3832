"""By which names clients reach the one model that is served."""

import json
import urllib.error
import urllib.request

import pytest

from node import Node

CALLS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2},
    "/v1/completions": {"prompt": "x", "max_tokens": 2},
    "/v1/responses": {"input": "x", "max_output_tokens": 2},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2},
    "/api/chat": {"messages": [{"role": "user", "content": "x"}], "stream": False, "options": {"num_predict": 2}},
    "/api/generate": {"prompt": "x", "stream": False, "options": {"num_predict": 2}},
}


def call(node, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}",
                                     json.dumps(body).encode() if body else None)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def listed(node):
    models = call(node, "/v1/models")[1]
    ids = [model["id"] for model in models["data"]]
    assert ids[0] == models["first_id"] and ids[-1] == models["last_id"]
    assert {model["root"] for model in models["data"]} == {ids[0]}
    assert ids == [model["model"] for model in call(node, "/api/tags")[1]["models"]]
    return ids


@pytest.fixture(scope="module")
def strict(api, bin_dir, tiny_model):
    flags = {"router": ["--strict-model-names", "--model-aliases", "gpt-4o,claude-sonnet-4"]}
    with Node(api, bin_dir, tiny_model, flags) as running:
        yield running


@pytest.mark.parametrize("path", CALLS)
def test_any_name_reaches_the_model_and_the_answer_tells_the_real_one(node, path):
    for name in ("claude-opus-4-1", "gpt-5", "llama3:8b", "tiny"):
        status, reply = call(node, path, CALLS[path] | {"model": name})
        assert status == 200 and reply["model"] == "tiny", reply


def test_what_is_listed_is_what_is_served(node):
    assert listed(node) == ["tiny"]
    assert call(node, "/v1/models/anything")[1]["id"] == "tiny"
    assert call(node, "/api/show", {"model": "anything"})[0] == 200


@pytest.mark.parametrize("path", CALLS)
def test_strict_names_are_those_that_are_listed(strict, path):
    for name in ("gpt-4o", "claude-sonnet-4", "tiny"):
        status, reply = call(strict, path, CALLS[path] | {"model": name})
        assert status == 200 and reply["model"] == "tiny", reply
    status, error = call(strict, path, CALLS[path] | {"model": "claude-opus-4-1"})
    assert status == 404 and "claude-opus-4-1" in json.dumps(error) and "claude-sonnet-4" in json.dumps(error), error
    if path.startswith("/v1/messages"):
        assert error["error"]["type"] == "not_found_error" and error["request_id"].startswith("req_")


def test_aliases_are_listed(strict):
    assert listed(strict) == ["tiny", "gpt-4o", "claude-sonnet-4"]
    assert call(strict, "/v1/models/gpt-4o")[1]["id"] == "gpt-4o"
    assert call(strict, "/v1/models/other")[0] == 404
    assert call(strict, "/api/show", {"model": "gpt-4o:latest"})[0] == 200
    assert call(strict, "/api/show", {"model": "other"})[0] == 404
