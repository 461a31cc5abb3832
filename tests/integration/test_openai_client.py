"""What people's programs do with OpenAI's own client, against a node that serves the demo model."""

import asyncio
import json
import time
import typing

import pytest
from node import Node
from pypi import load

openai = load("openai")
import pydantic  # noqa: E402 (the one that came with it)

pytestmark = pytest.mark.smoke

SORT = [{"role": "user", "content": "Sort [5, 2, 9]."}]


@pytest.fixture(scope="module")
def node(api, bin_dir, repo):
    with Node(api, bin_dir, repo / "deploy/models/demo") as running:
        yield running


@pytest.fixture(scope="module")
def client(node):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{node.http_port}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def chat(client, model, **fields):
    fields = {"messages": SORT, "temperature": 0, "max_tokens": 32} | fields
    return client.chat.completions.create(model=model, **fields)


def test_models(client, model):
    assert client.models.retrieve(model).id == model
    assert abs(client.models.retrieve(model).created - time.time()) < 3600
    assert client.models.retrieve("other").id == model


def test_chat(client, model):
    reply = chat(client, model)
    assert reply.object == "chat.completion" and reply.model == model and reply.system_fingerprint
    choice = reply.choices[0]
    assert choice.message.role == "assistant" and "[2, 5, 9]" in choice.message.content
    assert choice.finish_reason == "stop" and choice.message.tool_calls is None
    usage = reply.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert chat(client, model).usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens


def test_an_answer_goes_on_where_the_client_wants(client, model):
    begun = SORT + [{"role": "assistant", "content": "[2, 5"}]
    go_on = {"continue_final_message": True}
    assert chat(client, model, messages=begun, extra_body=go_on).choices[0].message.content == ", 9]"
    with pytest.raises(openai.BadRequestError, match="to be continued"):
        chat(client, model, extra_body=go_on)
    for word in ("prefix", "partial"):  # DeepSeek's and Kimi's
        begun[-1] = {"role": "assistant", "content": "[2, 5", word: True}
        assert chat(client, model, messages=begun).choices[0].message.content == ", 9]"


def test_a_stream_says_the_same(client, model):
    whole = chat(client, model)
    chunks = list(chat(client, model, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({c.id for c in chunks}) == 1


def test_two_choices(client, model):
    reply = chat(client, model, n=2, seed=1, temperature=2)
    assert [choice.index for choice in reply.choices] == [0, 1]
    assert reply.choices[0].message.content != reply.choices[1].message.content
    texts = ["", ""]
    for chunk in chat(client, model, n=2, seed=1, temperature=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in reply.choices]


def test_stop_texts_are_not_in_the_answer(client, model):
    whole = chat(client, model).choices[0].message.content
    for stop in (", 5", ["x y z", ", 5"]):
        choice = chat(client, model, stop=stop).choices[0]
        assert choice.message.content == whole[:whole.index(", 5")] and choice.finish_reason == "stop"
    streamed = "".join(c.choices[0].delta.content or "" for c in chat(client, model, stop=", 5", stream=True))
    assert streamed == whole[:whole.index(", 5")]


def test_logprobs(client, model):
    choice = chat(client, model, logprobs=True, top_logprobs=3).choices[0]
    tokens = choice.logprobs.content
    spelled = b"".join(bytes(token.bytes) for token in tokens).decode()
    assert spelled.startswith(choice.message.content)
    for token in tokens:
        best = token.top_logprobs
        assert len(best) == 3 and best[0].logprob == pytest.approx(token.logprob)  # greedy
        assert best == sorted(best, key=lambda other: -other.logprob)


class Animal(pydantic.BaseModel):
    name: typing.Literal["cat", "dog"]
    legs: typing.Annotated[int, pydantic.Field(ge=0, le=9)]
    tags: typing.Annotated[list[typing.Literal["old", "new"]], pydantic.Field(max_length=2)]


def test_answers_are_objects_of_the_clients_own_classes(client, model):
    """The client makes a strict JSON schema of a class, and reads the answer with it."""
    fields = {"model": model, "messages": SORT, "response_format": Animal, "max_tokens": 300}
    whole = client.chat.completions.parse(**fields).choices[0]
    assert whole.finish_reason == "stop" and isinstance(whole.message.parsed, Animal)
    with client.chat.completions.stream(**fields) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Animal)
    parsed = client.responses.parse(model=model, input=SORT, text_format=Animal, max_output_tokens=300)
    assert isinstance(parsed.output_parsed, Animal)


def test_a_developer_speaks_as_the_system_does(client, model):
    turns = [[{"role": role, "content": "Be brief."}, *SORT] for role in ("developer", "system")]
    answers = [chat(client, model, messages=turn, max_tokens=None, max_completion_tokens=8) for turn in turns]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    assert answers[0].usage.prompt_tokens == answers[1].usage.prompt_tokens


def test_many_at_once(node, model):
    async def ask():
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{node.http_port}/v1", api_key="none") as client:
            return await asyncio.gather(*[client.chat.completions.create(
                model=model, messages=SORT, temperature=0, max_tokens=16) for _ in range(20)])
    assert len({answer.choices[0].message.content for answer in asyncio.run(ask())}) == 1


def test_completions(client, model):
    prompt = ">>> sorted([5, 2, 9])\n"
    reply = client.completions.create(model=model, prompt=prompt, max_tokens=16, temperature=0, logprobs=2, echo=True)
    assert reply.choices[0].text.startswith(prompt + "[2, 5, 9]")
    logprobs = reply.choices[0].logprobs
    assert "".join(logprobs.tokens).endswith(reply.choices[0].text)
    assert logprobs.token_logprobs[0] is None and all(p <= 0 for p in logprobs.token_logprobs[1:])
    assert len(logprobs.top_logprobs) == len(logprobs.tokens) == len(logprobs.text_offset)


@pytest.mark.parametrize("prompt", [">>> sorted([5, 2, 9])\n", "日本é = 1\n", "tokens"])
def test_offsets_are_those_of_the_text(client, model, prompt):
    """The text of a prompt has no BOS, though it is among the tokens. Ids are spelled out."""
    if prompt == "tokens":
        prompt = [0, 40, 41]
    choice = client.completions.create(model=model, prompt=prompt, max_tokens=8, temperature=0, logprobs=1,
                                       echo=True).choices[0]
    spelled = list(zip(choice.logprobs.tokens, choice.logprobs.text_offset))
    assert spelled[0][1] == 0 and len(spelled) > 3
    if prompt[0] != 0:
        del spelled[0]
    last = 0
    for token, offset in spelled:
        assert offset >= last and ("\ufffd" in token or choice.text[offset:].startswith(token)), (token, offset)
        last = offset
    assert last < len(choice.text)


def test_a_prompt_is_scored_without_generating(client, model):
    reply = client.completions.create(model=model, prompt=[10, 20, 30], max_tokens=0, logprobs=1, echo=True)
    assert len(reply.choices[0].logprobs.tokens) == 3 and reply.usage.completion_tokens == 0
    again = client.completions.create(model=model, prompt=[10, 20, 30], max_tokens=0, logprobs=1, echo=True,
                                      extra_body={"way": "in_place"})
    assert again.choices[0].logprobs == reply.choices[0].logprobs
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=model, prompt=[10, 20, 30], max_tokens=0, logprobs=1, echo=True,
                                  extra_body={"way": "chunked"})


def test_penalties_and_biases_change_the_answer(client, model):
    plain = chat(client, model, max_tokens=16).choices[0].message.content
    body = {"logprobs": True, "top_logprobs": 1}
    first = chat(client, model, max_tokens=1, **body).choices[0].message.content
    ids = json.loads(client._client.post(str(client.base_url).replace("/v1/", "/tokenize"),
                                         json={"content": first}).text)["tokens"]
    assert chat(client, model, max_tokens=16, logit_bias={ids[0]: -100}).choices[0].message.content != plain
    assert chat(client, model, max_tokens=16, presence_penalty=2, frequency_penalty=2).choices[0].message.content


def test_errors(client, model):
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, model, temperature=5)
    assert error.value.param == "temperature" and "temperature" in error.value.message
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, model, messages=[{"role": "nobody", "content": "x"}])
    assert error.value.param == "messages[0].role"
    with pytest.raises(openai.APIStatusError) as error:
        client.embeddings.create(model=model, input="x")
    assert error.value.status_code == 501


def test_a_request_is_cancelled_by_the_id_of_its_answer(client, model, node):
    with pytest.raises(openai.APIError):
        for chunk in chat(client, model, stream=True, max_tokens=1900, extra_body={"ignore_eos": True}):
            if chunk.choices[0].delta.content:
                assert client.responses.cancel(chunk.id).status in ("cancelled", None)
    node.wait_all_pages_free()
    stream = client.responses.create(model=model, input="x", stream=True, extra_body={"ignore_eos": True})
    for event in stream:
        if event.type == "response.output_text.delta":
            assert event.logprobs == []
            client.responses.cancel(created)
            break
        if event.type == "response.created":
            created = event.response.id
    assert "response.failed" in [event.type for event in stream]
    for missing in (created, "chatcmpl-0"):
        with pytest.raises(openai.NotFoundError):
            client.responses.cancel(missing)


def test_a_stream_that_is_left_ends(client, model, node):
    with chat(client, model, stream=True, max_tokens=1000, extra_body={"ignore_eos": True}) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    node.wait_all_pages_free()


def test_fields_that_change_the_answer_are_honoured_or_refused(client, model):
    assert chat(client, model, store=True, modalities=["text"], user="me", service_tier="auto").choices
    for name, value in {"modalities": ["text", "audio"], "web_search_options": {}}.items():
        with pytest.raises(openai.BadRequestError) as error:
            chat(client, model, **{name: value})
        assert error.value.param == name and error.value.code == "unsupported_parameter"
    assert client.responses.create(model=model, input="x", max_output_tokens=2, store=False,
                                   include=["reasoning.encrypted_content"])
    for name, value in {"background": True, "top_logprobs": 2, "include": ["message.output_text.logprobs"]}.items():
        with pytest.raises(openai.BadRequestError) as error:
            client.responses.create(model=model, input="x", **{name: value})
        assert error.value.param == name


@pytest.mark.parametrize("thing", ["text", "tool"])
def test_contents_of_parts_and_results_of_tools_are_read(client, model, thing):
    if thing == "text":
        parts = [{"type": "text", "text": "Sort "}, {"type": "text", "text": "[5, 2, 9]."}]
        assert "[2, 5, 9]" in chat(client, model, messages=[{"role": "user", "content": parts}]).choices[0].message.content
        return
    with pytest.raises(openai.BadRequestError):
        image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
        chat(client, model, messages=[{"role": "user", "content": image}])


def test_responses(client, model):
    reply = client.responses.create(model=model, input="Sort [5, 2, 9].", temperature=0, max_output_tokens=32)
    assert "[2, 5, 9]" in reply.output_text and reply.status == "completed"
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    turn = [{"role": "user", "content": [{"type": "input_text", "text": "Sort [5, 2, 9]."}]}]
    assert client.responses.create(model=model, input=turn, temperature=0).output_text == reply.output_text
    short = client.responses.create(model=model, input=turn, temperature=0, max_output_tokens=2)
    assert short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens"
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model=model, input="x", previous_response_id="resp_1")
    assert error.value.param == "previous_response_id"


def test_an_answer_comes_back_as_the_next_input(client, model):
    items = [*SORT, *client.responses.create(model=model, input=SORT, temperature=0).output]
    assert client.responses.create(model=model, input=[*items, {"role": "user", "content": "Now reverse it."}],
                                   temperature=0).output_text == "[9, 5, 2]"


def test_responses_stream(client, model):
    whole = client.responses.create(model=model, input="Sort [5, 2, 9].", temperature=0).output_text
    with client.responses.stream(model=model, input="Sort [5, 2, 9].", temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole
    assert final.output_text == whole
