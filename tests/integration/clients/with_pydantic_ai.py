"""pydantic-ai over its three APIs: agents with tools, forms of output, streams, and texts as documents."""

import asyncio

import pydantic
from pydantic_ai import Agent, BinaryContent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from session import MODEL, OPENAI_URL, SORT, SORTED, URL, Side

openai = OpenAIProvider(base_url=OPENAI_URL, api_key="none")


class Step(pydantic.BaseModel):
    to: Side


async def main():
    for model in (OpenAIChatModel(MODEL, provider=openai), OpenAIResponsesModel(MODEL, provider=openai),
                  AnthropicModel(MODEL, provider=AnthropicProvider(base_url=URL, api_key="none"))):
        settings = {"temperature": 0, "max_tokens": 256, "parallel_tool_calls": False}
        whole = (await Agent(model, model_settings=settings).run(SORT)).output
        assert SORTED in whole, (model, whole)
        async with Agent(model, model_settings=settings).run_stream(SORT) as stream:
            assert await stream.get_output() == whole, model
        # pydantic-ai asks Anthropic's own models only for native output.
        forms = [ToolOutput(Step)] if isinstance(model, AnthropicModel) else [ToolOutput(Step), NativeOutput(Step)]
        for form in forms:
            step = (await Agent(model, output_type=form, model_settings=settings).run(SORT)).output
            assert isinstance(step, Step), (model, form, step)
        document = BinaryContent(data=SORT.encode(), media_type="text/plain")
        assert (await Agent(model, model_settings=settings).run([SORT, document])).output, model


asyncio.run(main())
