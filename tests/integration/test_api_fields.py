"""Every field of the requests of OpenAI's and Anthropic's clients, and of what is inside of them, has its place in
services/router/http/api_fields.cc. A new version of a client (pypi.txt) fails here until somebody has decided what becomes
of its new fields. And every field that is honoured is read: a value of a wrong type is an error that names it."""

import copy
import importlib
import json
import re
import typing

import pytest
from node import Node
from pypi import load
from test_forced_calls import SYNTAXES, demo_with
from test_http import Http

load("openai")
load("anthropic")
import typing_extensions  # noqa: E402 (the one that came with them)

pytestmark = pytest.mark.smoke

APIS = ["Chat", "Completions", "Responses", "Messages"]
# Fields of the API's table that other or earlier clients send.
ALSO = {"Chat": set(), "Completions": set(), "Responses": set(), "Messages": {"temperature", "top_k", "top_p"}}
# They are checked whole, where they are compiled, or taken whole.
SCHEMAS = {"tools[].input_schema", "input[].action", "input[].operation"}
TYPES = {
    "Chat": [("openai.types.chat.completion_create_params", "CompletionCreateParams")],
    "Completions": [("openai.types.completion_create_params", "CompletionCreateParams")],
    "Responses": [("openai.types.responses.response_create_params", "ResponseCreateParams")],
    "Messages": [("anthropic.types.message_create_params", "MessageCreateParams"),
                 ("anthropic.types.message_count_tokens_params", "MessageCountTokensParams"),
                 ("anthropic.types.beta.message_create_params", "MessageCreateParams")],
}


def table(repo, api):
    """{path: (use, values that are not refused)}"""
    source = (repo / "services/router/http/api_fields.cc").read_text()
    names = dict(re.findall(r'^constexpr char (\w+)\[\] = R"\((.*?)\)";', source, re.M))
    rows = re.search(rf"^constexpr ApiField k{api}Fields\[\] = {{\n(.*?)^}};", source, re.M | re.S)[1]
    found = re.findall(r'^    \{"([\w.\[\]]+)",\s+k(Honoured|NoEffect|Refused)\b(?:,\s*(?:R"\((.*?)\)"|(k\w+)))?', rows,
                       re.M | re.S)
    assert len(found) == rows.count("    {") - rows.count("kLeftOut")
    return {path: (use, json.loads(values or names.get(name) or "[]")) for path, use, values, name in found}


def plain(kind):
    """Without Required and the like."""
    while typing.get_origin(kind) in (typing_extensions.Required, typing_extensions.NotRequired, typing_extensions.Annotated):
        kind = typing.get_args(kind)[0]
    return kind


def is_refused(kind, path, rows):
    """Whether elements of this type are, because of their field `type`."""
    type_ = plain(typing_extensions.get_type_hints(kind, include_extras=True).get("type"))
    parts = typing.get_args(type_) if typing.get_origin(type_) is typing.Union else [type_]
    values = {value for part in parts for value in typing.get_args(part)}
    use, allowed = rows.get(path + ".type", ("", []))
    return use == "Refused" and values != set() and not values & set(allowed)


def walk(kind, path, rows, found, above=()):
    """Adds the paths of a type's fields, but for what is inside of a field without effect, or refused."""
    kind = plain(kind)
    if not typing_extensions.is_typeddict(kind):
        many = typing.get_origin(kind) not in (None, typing.Union, dict, typing_extensions.Literal, typing.Literal)
        for inner in () if typing.get_origin(kind) is dict else typing.get_args(kind):
            walk(inner, path + "[]" * many, rows, found, above)
    elif kind not in above and not is_refused(kind, path, rows):
        for name, inner in typing_extensions.get_type_hints(kind, include_extras=True).items():
            field = f"{path}.{name}".lstrip(".")
            found.add(field)
            if rows.get(field, ("Honoured",))[0] == "Honoured" and field not in SCHEMAS:
                walk(inner, field, rows, found, (*above, kind))


def fields_of(api, rows):
    """Of all classes <name>..., which a request may be: with and without stream, and what they share."""
    found = set()
    for module, name in TYPES[api]:
        for key, value in vars(importlib.import_module(module)).items():
            if key.startswith(name) and typing_extensions.is_typeddict(value):
                walk(value, "", rows, found)
    return found


@pytest.mark.parametrize("which", APIS)
def test_every_field_is_honoured_or_has_no_effect_or_is_refused(repo, which):
    rows = table(repo, which)
    sent = fields_of(which, rows)
    assert {"model", "stream"} <= sent and (which == "Completions" or "tools[].type" in sent)
    assert sent - set(rows) == set(), "the client has new fields"
    assert set(rows) - sent - ALSO[which] == set(), "the client has these fields no more"


PATHS = {"Chat": "/v1/chat/completions", "Completions": "/v1/completions", "Responses": "/v1/responses",
         "Messages": "/v1/messages"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
COMMON = {"model": "", "stream": False, "temperature": 0, "top_p": 1}
OPENAI = COMMON | {"max_tokens": 2, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {"5": 1}, "n": 1, "seed": 1,
                   "stop": ["x"], "stream_options": {"include_usage": True}}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
CALL = {"name": "f", "arguments": "{}"}
HELLO = "data:text/plain;base64,aGVsbG8="


def file():
    return {"type": "input_file", "filename": "a", "file_data": HELLO}


def custom():
    return {"type": "custom", "name": "edit", "description": "d",
            "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}}


def documents():
    return [{"type": "document", "title": "t", "context": "c", "source": {"type": "text", "data": "x"}},
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
            {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "x"}]}]


# Requests that have all honoured fields between them.
SAMPLES = {
    "Chat": [
        OPENAI | {"messages": [
            {"role": "user", "name": "me", "content": [{"type": "text", "text": "x"}, {"type": "refusal", "refusal": "y"},
                {"type": "file", "file": {"filename": "a", "file_data": HELLO}}]},
            {"role": "assistant", "content": "z", "refusal": "no",
             "tool_calls": [{"id": "1", "type": "function", "function": CALL},
                            {"id": "2", "type": "custom", "custom": {"name": "c", "input": "x"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "1"}],
            "tools": [{"type": "function", "function": FUNCTION}], "parallel_tool_calls": True, "logprobs": True,
            "tool_choice": {"type": "function", "function": {"name": "f"}}, "top_logprobs": 1, "max_completion_tokens": 2,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
            "reasoning_effort": "low"},
        OPENAI | {"messages": [{"role": "assistant", "function_call": CALL}], "functions": [FUNCTION],
                  "function_call": {"name": "f"}},
        OPENAI | {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": FUNCTION}],
                  "tool_choice": {"type": "allowed_tools", "allowed_tools": {
                      "mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}}}],
    "Completions": [OPENAI | {"prompt": "x", "best_of": 1, "echo": False, "logprobs": 1}],
    "Responses": [
        COMMON | {"input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "refusal", "refusal": "y"}, file()]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]},
            {"type": "function_call", "call_id": "1", "namespace": "n"} | CALL,
            {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "x"}, file()]},
            {"type": "custom_tool_call", "call_id": "2", "name": "c", "input": "x"},
            {"type": "shell_call", "call_id": "3", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "3", "output": [{"stdout": "x", "stderr": "y"}]},
            {"type": "apply_patch_call", "call_id": "4", "operation": {"type": "delete_file", "path": "x"}}],
            "instructions": "x", "max_output_tokens": 2, "metadata": {}, "parallel_tool_calls": True,
            "reasoning": {"effort": "low"}, "tools": [
                {"type": "function", "defer_loading": False} | FUNCTION, custom(),
                {"type": "namespace", "name": "n", "tools": [{"type": "function", "defer_loading": False} | FUNCTION,
                                                             custom()]}],
            "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
            "tool_choice": {"type": "function", "name": "f"}},
        COMMON | {"input": "x", "tools": [{"type": "function"} | FUNCTION], "tool_choice": {
            "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}}],
    "Messages": [COMMON | {
        "max_tokens": 2, "stop_sequences": ["x"], "system": [{"type": "text", "text": "x"}], "top_k": 1, "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}, *documents()]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""},
                                              {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
                                          "content": [{"type": "text", "text": "x"}, *documents(),
                                                      {"type": "tool_reference", "tool_name": "f"}]}]}],
        "tools": [{"name": "f", "description": "d", "strict": True, "defer_loading": False, "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}}],
}


@pytest.fixture(scope="module")
def node(api, bin_dir, repo, tmp_path_factory):
    """Its model's template knows tools."""
    with Node(api, bin_dir, demo_with(repo, tmp_path_factory.mktemp("model") / "demo", SYNTAXES["hermes"])) as running:
        yield running


def places(value, path):
    """The (owner, key, name in errors) of each value at a path."""
    name, _, rest = path.partition(".")
    key = name.removesuffix("[]")
    if not isinstance(value, dict) or key not in value:
        return
    if not rest:
        yield value, key, key
    elif name != key and isinstance(value[key], list):
        for i, element in enumerate(value[key]):
            yield from ((owner, last, f"{key}[{i}].{place}") for owner, last, place in places(element, rest))
    elif name == key:
        yield from ((owner, last, f"{key}.{place}") for owner, last, place in places(value[key], rest))


def error_of(web, which, body):
    """(status, the field that is named)"""
    status, reply = web.post(PATHS[which], body)
    error = reply.get("error") or {"message": ""}
    return status, error.get("param") or error["message"].partition(": ")[0]



@pytest.mark.parametrize("which", APIS)
def test_a_wrong_type_of_a_field_that_is_honoured_is_an_error_that_names_it(node, repo, which):
    web = Http(node)
    for path, (use, _) in table(repo, which).items():
        if use != "Honoured":
            continue
        tried = 0
        for sample in SAMPLES[which]:
            for i in range(len(list(places(sample, path)))):
                body = copy.deepcopy(sample)
                owner, key, place = list(places(body, path))[i]
                owner[key] = "x" if isinstance(owner[key], (bool, int, float)) else 5
                assert error_of(web, which, body) == (400, place), (path, body)
                tried += 1
        assert tried > 0, f"no sample has {path}"


@pytest.mark.parametrize("which", APIS)
def test_the_samples_are_right(node, which):
    """So an error above is due to what was changed."""
    for sample in SAMPLES[which]:
        status, reply = Http(node).post(PATHS[which], sample)
        assert status == 200, (reply, sample)
