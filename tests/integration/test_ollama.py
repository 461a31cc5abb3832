"""Ollama's own client against a node: what its programs list, ask and are refused."""

import json
import urllib.error
import urllib.request

import pytest
from node import REPO, Node
from pypi import load

ollama = load("ollama")

pytestmark = pytest.mark.smoke

SORT = [{"role": "user", "content": "Sort [5, 2, 9]."}]
GREEDY = {"temperature": 0, "num_predict": 32}
TOOL = {"type": "function", "function": {"name": "sort", "description": "Sorts.", "parameters": {
    "type": "object", "properties": {"values": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}}, "required": ["values"]}}}


@pytest.fixture(scope="module")
def model_with_tools(tmp_path_factory):
    """The demo model with a template that renders tools, calls and results."""
    folder = tmp_path_factory.mktemp("models") / "demo"
    folder.mkdir()
    demo = REPO / "deploy/models/demo"
    for file in demo.iterdir():
        if file.name != "tokenizer_config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((demo / "tokenizer_config.json").read_text())
    config["chat_template"] = (
        "{#- <tool_call> -#}{%- if tools -%}{{- tools | tojson -}}{%- endif -%}{%- for m in messages -%}{%- if m.tool_calls -%}"
        "{%- for c in m.tool_calls -%}{{- c.function.name + (c.function.arguments | tojson) -}}{%- endfor -%}{%- endif -%}"
        "{%- if m.role == 'tool' -%}{{- m.content -}}{%- endif -%}{%- endfor -%}" + config["chat_template"])
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def node(api, bin_dir, model_with_tools):
    with Node(api, bin_dir, model_with_tools) as running:
        yield running


@pytest.fixture(scope="module")
def client(node):
    return ollama.Client(host=f"http://127.0.0.1:{node.http_port}")


@pytest.fixture(scope="module")
def name(client):
    return client.list().models[0].model


def post(node, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def test_the_model_is_listed_and_described(node, client, name):
    listed = client.list().models[0]
    assert listed.size > 0 and listed.details.family
    shown = client.show(name)
    assert {"completion", "tools"} <= set(shown.capabilities)
    assert shown.modelinfo[f"{listed.details.family}.context_length"] > 0 and "messages" in shown.template
    assert client.ps().models[0].model == name and client.ps().models[0].context_length > 0
    with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/api/version") as reply:
        assert len(json.loads(reply.read())["version"].split(".")) == 3


def test_chats_and_texts(client, name):
    whole = client.chat(name, SORT, options=GREEDY)
    assert "[2, 5, 9]" in whole.message.content and whole.done and whole.done_reason == "stop"
    assert whole.prompt_eval_count > 0 and whole.eval_count > 0 and whole.total_duration > 0
    pieces = list(client.chat(name + ":latest", SORT, stream=True, options=GREEDY))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True] and len(pieces) > 2
    text = client.generate(name, SORT[0]["content"], options=GREEDY)
    assert text.response == whole.message.content
    raw = client.generate(name, ">>> sorted([5, 2, 9])\n", raw=True, options=GREEDY | {"num_predict": 8})
    assert raw.response.startswith("[2, 5, 9]")
    cut = client.generate(name, SORT[0]["content"], options=GREEDY | {"num_predict": 2})
    assert cut.done_reason == "length" and cut.eval_count == 2


def test_a_stream_is_lines_of_json_and_the_default(node, name):
    kind, body = post(node, "/api/generate", {"model": name, "prompt": "Sort [5, 2, 9].", "options": GREEDY})
    assert kind == "application/x-ndjson"
    lines = [json.loads(line) for line in body.splitlines()]
    assert len(lines) > 2 and lines[-1]["done"] and all(line["model"] == name for line in lines)
    kind, body = post(node, "/api/chat", {"model": name})
    assert json.loads(body)["done_reason"] == "load"


def test_formats_bind_the_answer(client, name):
    schema = {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "boolean"}}, "required": ["z", "a"]}
    answer = client.chat(name, SORT, format=schema, options=GREEDY | {"num_predict": 64}).message.content
    assert list(json.loads(answer)) == ["z", "a"]


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools(client, name, stream):
    """Calls and results of a conversation reach the model; a call that it writes comes whole, as an object."""
    turn = SORT + [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "sort", "arguments": {"values": [5, 2, 9]}}}]},
                   {"role": "tool", "content": "[2, 5, 9]", "tool_name": "sort"}]
    answer = client.chat(name, turn, tools=[TOOL], stream=stream, options=GREEDY)
    last = list(answer)[-1] if stream else answer
    assert last.done and last.prompt_eval_count > client.chat(name, SORT, options=GREEDY).prompt_eval_count


def test_what_one_model_cannot_do_is_refused_by_name(node, client, name):
    for call in (lambda: client.pull(name), lambda: client.embed(name, "x"), lambda: client.delete(name),
                 lambda: client.create("new", from_=name)):
        with pytest.raises(ollama.ResponseError, match="/api/.* is not supported") as refused:
            call()
        assert refused.value.status_code == 501
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(node, "/api/generate", {"model": name, "prompt": "x", "suffix": "y"})
    assert refused.value.code == 400 and json.loads(refused.value.read())["error"].startswith("suffix: ")
