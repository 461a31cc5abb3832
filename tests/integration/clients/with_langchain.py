"""langchain's classes for OpenAI (both APIs) and Anthropic: chats, streams, tools, schemas, and a prompt that is too long."""

import pydantic
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from session import LONG, MODEL, OPENAI_URL, SORT, SORTED, URL, Side, fails, is_side


@tool
def move(to: Side) -> str:
    """Moves."""
    return "done"


class Step(pydantic.BaseModel):
    """A step."""

    to: Side


chat = {"model": MODEL, "api_key": "none", "max_retries": 0, "temperature": 0}
for model in (ChatOpenAI(**chat, base_url=OPENAI_URL), ChatOpenAI(**chat, base_url=OPENAI_URL, use_responses_api=True),
              ChatAnthropic(**chat, base_url=URL, max_tokens=256)):
    whole = model.invoke(SORT).text
    assert SORTED in whole, (model, whole)
    assert "".join(chunk.text for chunk in model.stream(SORT)) == whole, model
    any_call = "required" if isinstance(model, ChatOpenAI) else "any"
    asked = model.bind_tools([move], tool_choice=any_call, parallel_tool_calls=False).invoke(SORT)
    call = asked.tool_calls[0]
    assert call["name"] == "move" and is_side(call["args"]), (model, call)
    turns = [HumanMessage(SORT), asked, ToolMessage(move.invoke(call["args"]), tool_call_id=call["id"])]
    assert model.bind_tools([move]).invoke(turns).type == "ai", model
    for method in ("json_schema", "function_calling"):
        step = model.with_structured_output(Step, method=method).invoke(SORT)
        assert isinstance(step, Step), (model, method, step)
    fails(ContextOverflowError, lambda: model.invoke(LONG))
