"""openai: chats, streams, tools, parsed answers, and the code of a prompt that is too long."""

import json

import openai
import pydantic
from session import LONG, MODEL, MOVE, OPENAI_URL, SORT, SORTED, Side, fails, is_side

client = openai.OpenAI(base_url=OPENAI_URL, api_key="none", max_retries=0)
turn = [{"role": "user", "content": SORT}]
tools = [{"type": "function", "function": {"name": "move", "description": "Moves.", "parameters": MOVE}}]

reply = client.chat.completions.create(model=MODEL, messages=turn, temperature=0)
assert SORTED in reply.choices[0].message.content and reply._request_id
with client.chat.completions.stream(model=MODEL, messages=turn, temperature=0) as stream:
    assert stream.get_final_completion().choices[0].message.content == reply.choices[0].message.content

# A choice by name is one call, also where nothing says how many there may be.
named = {"type": "function", "function": {"name": "move"}}
for choice in ("required", named):
    with client.chat.completions.stream(model=MODEL, messages=turn, tools=tools, tool_choice=choice,
                                        parallel_tool_calls=openai.omit if choice is named else False) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert len(calls) == 1 and is_side(json.loads(calls[0].function.arguments))
messages = [*turn, {"role": "assistant", "tool_calls": [calls[0].model_dump()]},
            {"role": "tool", "tool_call_id": calls[0].id, "content": "done"}]
assert client.chat.completions.create(model=MODEL, messages=messages, tools=tools, max_tokens=8).choices


class Step(pydantic.BaseModel):
    to: Side


parsed = client.chat.completions.parse(model=MODEL, messages=turn, response_format=Step)
assert isinstance(parsed.choices[0].message.parsed, Step)
parsed = client.responses.parse(model=MODEL, input=SORT, text_format=Step, store=True)
assert isinstance(parsed.output_parsed, Step)
assert client.responses.input_tokens.count(model=MODEL, input=SORT).input_tokens > 3

error = fails(openai.BadRequestError, lambda: client.chat.completions.create(
    model=MODEL, messages=[{"role": "user", "content": LONG}]))
assert error.code == "context_length_exceeded" and "maximum context length" in error.message
assert client.chat.completions.create(model=MODEL, messages=turn, max_tokens=10**6, temperature=0).choices
