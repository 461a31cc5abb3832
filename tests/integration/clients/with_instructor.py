"""instructor: objects by calls of tools and by schemas, whole and in parts."""

import anthropic
import instructor
import openai
import pydantic
from session import MODEL, OPENAI_URL, SORT, URL, Side


class Step(pydantic.BaseModel):
    to: Side


turn = [{"role": "user", "content": SORT}]
client = openai.OpenAI(base_url=OPENAI_URL, api_key="none")
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    patched = instructor.from_openai(client, mode=mode)
    step = patched.create(model=MODEL, messages=turn, response_model=Step, max_retries=0)
    assert isinstance(step, Step), mode
    parts = list(patched.create_partial(model=MODEL, messages=turn, response_model=Step, max_retries=0))
    assert parts[-1].to in ("left", "right"), mode
claude = anthropic.Anthropic(base_url=URL, api_key="none")
patched = instructor.from_anthropic(claude, mode=instructor.Mode.ANTHROPIC_TOOLS)
assert isinstance(patched.create(model=MODEL, messages=turn, response_model=Step, max_tokens=256, max_retries=0), Step)
