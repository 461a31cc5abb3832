"""anthropic: messages, streams, parsed answers, the tool runner, and the words of a prompt that is too long."""

import anthropic
import pydantic
from session import LONG, MODEL, SORT, SORTED, URL, Side, fails

client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
turn = [{"role": "user", "content": SORT}]
greedy = {"temperature": 0}

message = client.messages.create(model=MODEL, max_tokens=64, messages=turn, extra_body=greedy)
assert SORTED in message.content[0].text and message._request_id
with client.messages.stream(model=MODEL, max_tokens=64, messages=turn, extra_body=greedy) as stream:
    assert stream.get_final_message().content[0].text == message.content[0].text


class Step(pydantic.BaseModel):
    to: Side


parsed = client.messages.parse(model=MODEL, max_tokens=64, messages=turn, output_format=Step)
assert isinstance(parsed.parsed_output, Step)

moves = []


@anthropic.beta_tool
def move(to: Side) -> str:
    """Moves.

    Args:
        to: The side.
    """
    moves.append(to)
    return "done"


def run(**fields):
    return client.beta.messages.tool_runner(
        model=MODEL, max_tokens=256, messages=turn, tools=[move], max_iterations=2,
        tool_choice={"type": "any", "disable_parallel_tool_use": True}, **fields)


for runner in (run(), run(thread=False)):
    assert runner.until_done().role == "assistant"
for stream in run(stream=True):
    assert stream.get_final_message().role == "assistant"
assert len(moves) >= 3 and set(moves) <= {"left", "right"}

error = fails(anthropic.BadRequestError, lambda: client.messages.create(
    model=MODEL, max_tokens=8, messages=[{"role": "user", "content": LONG}]))
assert "prompt is too long: " in error.message
text = [{"role": "user", "content": [{"type": "document", "source": {
    "type": "text", "media_type": "text/plain", "data": SORT}}, {"type": "text", "text": SORT}]}]
assert client.messages.create(model=MODEL, max_tokens=8, messages=text).usage.output_tokens > 0
