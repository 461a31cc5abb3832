"""The SDK of litellm: its providers for such servers, streams, tools, schemas, and a prompt that is too long."""

import json

import litellm
import pydantic
from session import LONG, MODEL, MOVE, OPENAI_URL, SORT, SORTED, URL, Side, fails, is_side

litellm.telemetry = False
turn = [{"role": "user", "content": SORT}]
tools = [{"type": "function", "function": {"name": "move", "description": "Moves.", "parameters": MOVE}}]
SERVERS = [("openai", OPENAI_URL), ("hosted_vllm", OPENAI_URL), ("anthropic", URL), ("lm_studio", OPENAI_URL),
           ("llamafile", OPENAI_URL), ("deepseek", OPENAI_URL)]


class Step(pydantic.BaseModel):
    to: Side


for provider, url in SERVERS:
    def complete(**fields):
        return litellm.completion(
            **{"model": f"{provider}/{MODEL}", "api_base": url, "api_key": "none", "messages": turn,
               "max_tokens": 256, "temperature": 0, "num_retries": 0} | fields)

    whole = complete().choices[0].message.content
    assert SORTED in whole, (provider, whole)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in complete(stream=True)) == whole, provider
    call = complete(tools=tools, tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls[0]
    assert call.function.name == "move" and is_side(json.loads(call.function.arguments)), (provider, call)
    if provider not in ("llamafile", "deepseek"):  # litellm itself knows no schemas there
        Step.model_validate_json(complete(response_format=Step).choices[0].message.content)
    assert fails(litellm.ContextWindowExceededError,
                 lambda: complete(messages=[{"role": "user", "content": LONG}])), provider

# What its users do about that: another model answers.
router = litellm.Router(
    model_list=[{"model_name": name, "litellm_params": {"model": f"openai/{MODEL}", "api_base": OPENAI_URL,
                                                        "api_key": "none", "max_tokens": 8, **more}}
                for name, more in (("small", {}), ("large", {"mock_response": "a larger one"}))],
    context_window_fallbacks=[{"small": ["large"]}], num_retries=0)
long = [{"role": "user", "content": LONG}]
assert router.completion(model="small", messages=long).choices[0].message.content == "a larger one"
