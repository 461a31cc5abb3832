"""llama-server's endpoints, and vLLM's forms of them: texts to tokens and back, the template, what is served."""

import json

import pytest

from test_http import CHAT, Http

pytestmark = pytest.mark.smoke

TURN = [{"role": "user", "content": "To be or not"}]


@pytest.fixture(scope="module")
def web(node):
    return Http(node)


def tokens(web, **body):
    status, reply = web.post("/tokenize", body)
    assert status == 200 and reply["count"] == len(reply["tokens"]), reply
    return reply["tokens"]


def test_texts_become_tokens_and_come_back(web, node):
    def over_grpc(**fields):
        return list(node.stub.Tokenize(node.api.inference.TokenizeRequest(text="To be or not", **fields)).ids)
    ids = over_grpc(no_special_tokens=True)
    assert tokens(web, content="To be or not") == tokens(web, prompt="To be or not", add_special_tokens=False) == ids
    whole = over_grpc()
    assert tokens(web, content="To be or not", add_special=True) == tokens(web, prompt="To be or not") == whole != ids
    assert web.post("/detokenize", {"tokens": ids}) == (200, {"content": "To be or not", "prompt": "To be or not"})
    for key in ("with_pieces", "return_token_strs"):
        _, reply = web.post("/tokenize", {"content": "To be or not", key: True})
        assert "".join(reply["token_strs"]) == "To be or not"
    assert reply["max_model_len"] > 0


def test_a_completion_of_a_rendered_chat_is_its_answer(web):
    """What programs do that have the template themselves: control tokens in the prompt are read as such."""
    rendered = web.post("/apply-template", {"messages": TURN})[1]["prompt"]
    fields = {"temperature": 0, "max_tokens": 8}
    _, chat = web.post("/v1/chat/completions", {"messages": TURN, **fields})
    _, text = web.post("/v1/completions", {"prompt": rendered, **fields})
    assert text["choices"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert text["usage"]["prompt_tokens"] == chat["usage"]["prompt_tokens"]


def test_the_template_is_that_of_chats(web):
    status, reply = web.post("/apply-template", {"messages": TURN})
    assert status == 200 and TURN[0]["content"] in reply["prompt"]
    count = len(tokens(web, messages=TURN))
    status, answer = web.post(CHAT, {"messages": TURN, "max_tokens": 1})
    assert status == 200 and answer["usage"]["prompt_tokens"] == count


@pytest.mark.parametrize("path, body, field", [
    ("/tokenize", {}, "content"), ("/tokenize", {"content": 5}, "content"), ("/tokenize", {"prompt": [1]}, "prompt"),
    ("/tokenize", {"messages": 5}, "messages"), ("/tokenize", {"content": "a", "with_pieces": 1}, "with_pieces"),
    ("/detokenize", {}, "tokens"), ("/detokenize", {"tokens": ["a"]}, "tokens"),
    ("/apply-template", {}, "messages"), ("/apply-template", {"messages": [{"role": 5}]}, "messages[0].role")])
def test_errors_name_the_field(web, path, body, field):
    status, reply = web.post(path, body)
    assert status == 400 and reply["error"]["param"] == field, reply


def test_props_tell_what_is_served(web):
    status, _, models = web.call("GET", "/v1/models")
    status, _, text = web.call("GET", "/props")
    assert status == 200
    props, model = json.loads(text), json.loads(models)["data"][0]
    assert props["model_alias"] == model["id"]
    assert props["default_generation_settings"]["n_ctx"] == model["max_model_len"]
    assert props["has_chat_template"] is True and props["modalities"] == {"vision": False, "audio": False}
