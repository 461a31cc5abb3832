"""The gRPC API of a node with asyncio.

    async with Client("127.0.0.1:50051") as client:
        async for text in client.generate("Once upon a time", max_tokens=50, stop=["\\n\\n"]):
            print(text, end="")

Options of a request are the fields of GenerateRequest in proto/moestro/v1/inference.proto, by their names. Errors are
grpc.aio.AioRpcError, with the status codes that the file names.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Union

import grpc
import grpc.aio

from moestro.v1 import inference_pb2 as api
from moestro.v1 import inference_pb2_grpc
from moestro.v1 import types_pb2 as types

Prompt = Union[str, Sequence[int]]  # a text, or token ids
Message = Union[Mapping[str, Any], api.ChatMessage]  # as in OpenAI's API
MAX_MESSAGE_BYTES = 64 << 20  # scores and tokens of a long text


class Answer:
    """One generation, while it runs: an asynchronous iterator over the pieces of its text.

    `await answer` reads it to the end, and returns the answer itself. Breaking out of a loop over it does not end the
    request; cancel() does. So does a task that is cancelled while it waits for the next piece.
    """

    def __init__(self, call: grpc.aio.UnaryStreamCall):
        self._call = call
        self.started: api.GenerateResponse.Started | None = None  # once the request is admitted
        self.prefill: types.PrefillProgress | None = None  # the last progress of the prompt
        self.tokens: list[types.Token] = []  # so far, with log-probabilities and alternatives
        self.text = ""  # so far; may lag behind the tokens
        self.finished: api.GenerateResponse.Finished | None = None  # reason, usage, times; None until the end

    def __aiter__(self) -> AsyncIterator[str]:
        return self._pieces()

    def __await__(self):
        return self._read().__await__()

    async def _read(self) -> Answer:
        async for _ in self:
            pass
        return self

    async def _pieces(self) -> AsyncIterator[str]:
        while (reply := await self._call.read()) is not grpc.aio.EOF:
            event = reply.WhichOneof("event")
            if event != "tokens":
                setattr(self, event, getattr(reply, event))
                continue
            self.tokens += reply.tokens.tokens
            self.text += reply.tokens.text
            if reply.tokens.text:
                yield reply.tokens.text

    async def wait_started(self) -> str:
        """Waits until the node has admitted the request; returns its id."""
        if self.started is None:  # it is the first event
            self.started = (await self._call.read()).started
        return self.started.request_id

    def cancel(self) -> None:
        """Ends the request on the node."""
        self._call.cancel()


class Client:
    """Calls to one node. Use as an asynchronous context manager, or close()."""

    def __init__(self, address: str = "127.0.0.1:50051", *, timeout: float | None = None,
                 credentials: grpc.ChannelCredentials | None = None, options: Iterable[tuple[str, Any]] = ()):
        """`timeout`: seconds for each call, the whole answer included; None: no limit."""
        options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), *options]
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=options)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._stub = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._timeout = timeout

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    def generate(self, prompt: Prompt, **options: Any) -> Answer:
        """Continues a text or token ids."""
        request = api.GenerateRequest(**options)
        if isinstance(prompt, str):
            request.prompt = prompt
        else:
            request.token_ids.ids.extend(prompt)
        return self._generate(request)

    def chat(self, messages: Iterable[Message], *, tools: Sequence[Mapping[str, Any]] = (),
             template_flags: Mapping[str, Any] | None = None, **options: Any) -> Answer:
        """The assistant's next message. `tools` and `messages` as in OpenAI's API; `template_flags`: variables of the
        model's chat template."""
        return self._generate(api.GenerateRequest(chat=_chat(messages, tools, template_flags), **options))

    def _generate(self, request: api.GenerateRequest) -> Answer:
        return Answer(self._stub.Generate(request, timeout=self._timeout))

    async def tokenize(self, text: str, *, special_tokens: bool = True) -> list[int]:
        """The token ids of a text. `special_tokens`: with BOS, where the model's tokenizer adds it."""
        request = api.TokenizeRequest(text=text, no_special_tokens=not special_tokens)
        return list((await self._stub.Tokenize(request, timeout=self._timeout)).ids)

    async def tokenize_chat(self, messages: Iterable[Message], *, tools: Sequence[Mapping[str, Any]] = (),
                            template_flags: Mapping[str, Any] | None = None) -> list[int]:
        """The token ids of a prompt that chat() would send."""
        request = api.TokenizeRequest(chat=_chat(messages, tools, template_flags))
        return list((await self._stub.Tokenize(request, timeout=self._timeout)).ids)

    async def detokenize(self, ids: Sequence[int], *, special_tokens: bool = False) -> str:
        """The text of token ids. `special_tokens`: spelled out rather than left out."""
        request = api.DetokenizeRequest(ids=ids, keep_special_tokens=special_tokens)
        return (await self._stub.Detokenize(request, timeout=self._timeout)).text

    async def score(self, text: Prompt, **options: Any) -> list[types.PositionScore]:
        """The log-probability of every token of a text, with the `top` most likely alternatives."""
        request = api.ScoreRequest(**options)
        if isinstance(text, str):
            request.text = text
        else:
            request.token_ids.ids.extend(text)
        return [score async for reply in self._stub.Score(request, timeout=self._timeout) for score in reply.scores]

    async def abort(self, request_id: str) -> None:
        """Ends a request, of whatever client. NOT_FOUND if none of this name runs."""
        await self._stub.Abort(api.AbortRequest(request_id=request_id), timeout=self._timeout)

    async def model(self) -> api.GetModelResponse:
        """The model that the node serves, its defaults, and which roles are up."""
        return await self._stub.GetModel(api.GetModelRequest(), timeout=self._timeout)


def _chat(messages: Iterable[Message], tools: Sequence[Mapping[str, Any]],
          template_flags: Mapping[str, Any] | None) -> api.Chat:
    return api.Chat(messages=[_message(message) for message in messages],
                    tools=json.dumps(list(tools)) if tools else "",
                    template_flags=json.dumps(template_flags) if template_flags else "")


def _message(message: Message) -> api.ChatMessage:
    """From OpenAI's form, in which a call's function is an object of its own."""
    if isinstance(message, api.ChatMessage):
        return message
    fields = {name: value for name, value in message.items() if name != "tool_calls" and value is not None}
    calls = [api.ToolCall(id=call.get("id", ""), name=call["function"]["name"],
                          arguments=call["function"].get("arguments", "")) for call in message.get("tool_calls") or ()]
    return api.ChatMessage(tool_calls=calls, **fields)
