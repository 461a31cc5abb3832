"""Every field of the requests of OpenAI's and Anthropic's clients has its place in services/router/http/api_fields.cc. A
new version of a client (pypi.txt) fails here until somebody has decided what becomes of its new fields."""

import importlib
import re

import pytest
from pypi import load

load("openai")
load("anthropic")

# Fields of the API's table that other or earlier clients send.
ALSO = {"Chat": set(), "Completions": set(), "Responses": set(), "Messages": {"temperature", "top_k", "top_p"}}
TYPES = {
    "Chat": [("openai.types.chat.completion_create_params", "CompletionCreateParams")],
    "Completions": [("openai.types.completion_create_params", "CompletionCreateParams")],
    "Responses": [("openai.types.responses.response_create_params", "ResponseCreateParams")],
    "Messages": [("anthropic.types.message_create_params", "MessageCreateParams"),
                 ("anthropic.types.message_count_tokens_params", "MessageCountTokensParams"),
                 ("anthropic.types.beta.message_create_params", "MessageCreateParams")],
}


def fields_of(module, name):
    """Of all classes <name>..., which a request may be: with and without stream, and what they share."""
    classes = [value for key, value in vars(importlib.import_module(module)).items()
               if key.startswith(name) and hasattr(value, "__annotations__")]
    return {field for one in classes for field in one.__annotations__}


@pytest.mark.parametrize("api", TYPES)
def test_every_field_is_honoured_or_has_no_effect_or_is_refused(repo, api):
    source = (repo / "services/router/http/api_fields.cc").read_text()
    table = re.search(rf"^constexpr ApiField k{api}Fields\[\] = {{\n(.*?)^}};", source, re.M | re.S)[1]
    known = set(re.findall(r'^    \{"(\w+)",\s+k(?:Honoured|NoEffect|Refused)\b', table, re.M))
    sent = set().union(*(fields_of(*where) for where in TYPES[api]))
    assert {"model", "stream"} <= sent
    assert sent - known == set(), "the client has new fields"
    assert known - sent - ALSO[api] == set(), "the client has these fields no more"
