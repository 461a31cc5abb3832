"""The current client of Anthropic, from PyPI, against a running node."""

import json
import time
import typing

import pypi
import pytest

anthropic = pypi.load("anthropic")
import pydantic  # noqa: E402 (the one that came with it)

pytestmark = pytest.mark.smoke

MESSAGES = [{"role": "user", "content": "Sort [5, 2, 9]."}]
GREEDY = {"temperature": 0}  # newer clients send no sampling parameters of their own


@pytest.fixture(scope="module")
def client(node):
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{node.http_port}", api_key="any", max_retries=0)


@pytest.fixture(scope="module")
def model(node, client):
    return client.models.list().data[0].id


def create(client, model, **fields):
    return client.messages.create(
        **{"model": model, "max_tokens": 16, "extra_body": GREEDY, "messages": MESSAGES} | fields)


def test_models(client, model):
    page = client.models.list()
    assert [one.id for one in page] == [page.first_id] == [page.last_id] == [model]
    one = client.models.retrieve(model)
    assert one.type == "model" and one.display_name == model and one.max_input_tokens > 0
    assert abs(one.created_at.timestamp() - time.time()) < 3600


def test_message(client, model):
    message = create(client, model)
    assert message.content[0].text
    assert message.usage.output_tokens > 0
    count = client.messages.count_tokens(model=model, messages=MESSAGES)
    assert count.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_the_last_message_may_begin_the_answer(client, model):
    """Its text follows the prompt directly: no turn of the assistant ends, and none begins."""
    def prompt_tokens(messages):
        usage = create(client, model, messages=messages).usage
        return usage.input_tokens + usage.cache_read_input_tokens
    assert prompt_tokens(MESSAGES + [{"role": "assistant", "content": "a"}]) == prompt_tokens(MESSAGES) + 1


def test_stream(client, model):
    whole = create(client, model)
    with client.messages.stream(model=model, max_tokens=16, extra_body=GREEDY, messages=MESSAGES) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_stop_sequences(client, model):
    text = create(client, model).content[0].text
    message = create(client, model, stop_sequences=[text[1:3]])
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == text[1:3]


def test_errors_become_the_clients_exceptions(client, model):
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        create(client, model, extra_body={"temperature": -1})


def test_the_answer_is_what_output_config_says(client, model):
    schema = {"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "schema": schema}
    assert json.loads(create(client, model, output_config={"format": form}).content[0].text) == {"a": 7}
    older = GREEDY | {"output_format": form}
    assert json.loads(create(client, model, extra_body=older).content[0].text) == {"a": 7}


def test_answers_are_objects_of_the_clients_own_classes(client, model):
    class Animal(pydantic.BaseModel):
        name: typing.Literal["cat", "dog"]
        legs: typing.Literal[2, 4]

    message = client.messages.parse(model=model, max_tokens=64, messages=MESSAGES, output_format=Animal)
    assert isinstance(message.parsed_output, Animal)


def test_the_beta_forms_are_the_same(client, model):
    betas = {"model": model, "messages": MESSAGES, "betas": ["interleaved-thinking-2025-05-14", "token-counting-2024-11-01"]}
    message = client.beta.messages.create(max_tokens=16, extra_body=GREEDY, **betas)
    assert message.content[0].text == create(client, model).content[0].text
    assert client.beta.messages.count_tokens(**betas).input_tokens > 0


def test_the_system_may_speak_in_between(client, model):
    turns = [*MESSAGES, {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}]
    assert client.messages.count_tokens(model=model, messages=turns).input_tokens > \
        client.messages.count_tokens(model=model, messages=MESSAGES).input_tokens


def test_fields_that_change_the_answer_are_refused(client, model):
    for name, value in {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}], "thread": {"type": "create"},
                        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}.items():
        with pytest.raises(anthropic.BadRequestError, match=name):
            create(client, model, extra_body={name: value})
