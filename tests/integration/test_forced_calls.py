"""Calls that tool_choice forces, and constraints behind reasoning: in a real node, in the syntax of each family. The demo
model knows none of them, so whatever comes out right is due to the constraint."""

import json
import shutil
import urllib.error
import urllib.request

import pypi
import pytest
from node import HANG_SECONDS, Node

TURN = [{"role": "user", "content": "Sort [5, 2, 9]."}]
MOVE = {"type": "object", "properties": {
    "to": {"enum": ["left", "right"]}, "steps": {"type": "integer", "minimum": 1, "maximum": 30},
    "fast": {"type": "boolean"}}, "required": ["to", "steps"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "move", "description": "Moves.", "parameters": MOVE}},
         {"type": "function", "function": {"name": "halt", "description": "Halts."}}]
# What the templates of models with these syntaxes mention.
SYNTAXES = {"deepseek_r1": "<｜tool▁call▁begin｜>```json", "deepseek_v3_1": "<｜tool▁call▁begin｜>",
            "kimi": "<|tool_call_begin|>", "hermes": "<tool_call>", "qwen_coder": "<function=", "glm": "<arg_key>",
            "minimax": "<minimax:tool_call>", "mistral": "[TOOL_CALLS]", "llama": "<|python_tag|>",
            "harmony": "<|channel|>"}
ONE_CALL = ("llama", "harmony")  # syntaxes without several calls
END_THINK = 500  # a row of the head that the demo's vocabulary does not use


def demo_with(repo, folder, mark, thinks=False):
    """The demo model, as if its template were that of another family."""
    demo = repo / "deploy/models/demo"
    folder.mkdir()
    for file in demo.iterdir():
        if file.is_file():
            shutil.copy(file, folder / file.name)
    config = json.loads((demo / "tokenizer_config.json").read_text())
    config["chat_template"] = "{#- " + mark + (" </think>" if thinks else "") + " -#}" + \
        "{%- if tools -%}{{- tools | length -}}{%- endif -%}{%- for message in messages -%}" \
        "{%- if message.tool_calls -%}{{- message.tool_calls[0].function.name -}}{%- endif -%}" \
        "{%- if message.role == 'tool' -%}{{- message.content -}}{%- endif -%}{%- endfor -%}" + config["chat_template"]
    if thinks:
        config["chat_template"] += "{%- if enable_thinking -%}{{- '<think>' -}}{%- endif -%}"
        tokenizer = json.loads((demo / "tokenizer.json").read_text())
        tokenizer["added_tokens"].append({"id": END_THINK, "content": "</think>", "special": True, "single_word": False,
                                          "lstrip": False, "rstrip": False, "normalized": False})
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module", params=SYNTAXES)
def syntax(request):
    return request.param


@pytest.fixture(scope="module")
def node(api, bin_dir, repo, tmp_path_factory, syntax):
    model = demo_with(repo, tmp_path_factory.mktemp("model") / "demo", SYNTAXES[syntax])
    with Node(api, bin_dir, model) as running:
        yield running


@pytest.fixture(scope="module")
def thinker(api, bin_dir, repo, tmp_path_factory):
    """A node whose model opens <think> if it is asked to, and likes to close it."""
    model = demo_with(repo, tmp_path_factory.mktemp("model") / "demo", SYNTAXES["hermes"], thinks=True)
    with Node(api, bin_dir, model) as running:
        yield running


def post(node, path="/v1/chat/completions", **fields):
    body = fields if path == "/tokenize" else {"messages": TURN, "max_tokens": 900, "temperature": 1.3} | fields
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}", data=json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        error.msg = error.read().decode()
        raise


def error_of(node, **fields):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(node, **fields)
    return refused.value.code, json.loads(refused.value.msg)["error"]


def check(name, arguments):
    assert name in ("move", "halt")
    value = json.loads(arguments)
    if name == "halt":
        assert value == {}
        return
    assert set(value) <= set(MOVE["properties"]) and {"to", "steps"} <= set(value)
    assert value["to"] in ("left", "right") and type(value["steps"]) is int and 1 <= value["steps"] <= 30
    assert type(value.get("fast", True)) is bool


def calls_of(answer, whole=True):
    """The names of its calls; of an answer that need not be whole, the last one may be cut off."""
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls" or not whole and choice["finish_reason"] == "length", choice
    assert choice["message"]["content"] is None or not whole, choice
    calls = choice["message"]["tool_calls"]
    if choice["finish_reason"] == "length":
        del calls[-1]
    for call in calls:
        check(call["function"]["name"], call["function"]["arguments"])
    return [call["function"]["name"] for call in calls]


def without(node, text):
    """A bias against all tokens that `text` may begin with."""
    ids = [post(node, "/tokenize", content=text[:end])["tokens"] for end in range(1, len(text) + 1)]
    return {str(one[0]): -100 for one in ids if len(one) == 1}


def test_every_answer_is_a_call(node, syntax):
    # The answers of gpt-oss may begin with reasoning, which this model would never end.
    common = dict(tools=TOOLS, logit_bias=without(node, "analysis") if syntax == "harmony" else {})
    for seed in range(3):
        names = calls_of(post(node, tool_choice="required", seed=seed, **common), whole=False)
        assert len(names) <= 1 or syntax not in ONE_CALL
    for seed, name in enumerate(("move", "halt")):
        named = {"type": "function", "function": {"name": name}}
        fields = dict(common, parallel_tool_calls=False, seed=seed)
        assert len(calls_of(post(node, tool_choice="required", **fields))) == 1
        assert calls_of(post(node, tool_choice=named, **fields)) == [name]


def test_functions_are_the_older_form_of_tools(node, syntax):
    older = {"functions": [tool["function"] for tool in TOOLS], "function_call": {"name": "move"}, "seed": 3}
    common = {"logit_bias": without(node, "analysis") if syntax == "harmony" else {}}
    choice = post(node, **older, **common)["choices"][0]
    call = choice["message"]["function_call"]
    check(call["name"], call["arguments"])
    assert choice["finish_reason"] == "function_call" and "tool_calls" not in choice["message"]
    newer = post(node, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "move"}}, seed=3,
                 parallel_tool_calls=False, **common)
    assert newer["choices"][0]["message"]["tool_calls"][0]["function"] == call


def allowed(mode, *names):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [
        {"type": "function", "function": {"name": name}} for name in names]}}


def test_only_some_tools_are_allowed(node, syntax):
    common = dict(tools=TOOLS, parallel_tool_calls=False,
                  logit_bias=without(node, "analysis") if syntax == "harmony" else {})
    for seed, name in enumerate(("move", "halt")):
        assert calls_of(post(node, tool_choice=allowed("required", name), seed=seed, **common)) == [name]
    free = dict(common, response_format={"type": "json_object"}, max_tokens=300)
    if syntax in ONE_CALL:  # without a mark nothing tells a call from an answer
        code, error = error_of(node, tool_choice=allowed("auto", "halt"), **free)
        assert code == 400 and error["param"] == "tool_choice" and "allowed_tools" in error["message"]
        return
    # Either what response_format asks for, or a call of what is allowed.
    no_object = {**common["logit_bias"], **without(node, "{")}
    assert calls_of(post(node, tool_choice=allowed("auto", "halt"), **(free | {"logit_bias": no_object}))) == ["halt"]
    no_call = {**common["logit_bias"], **without(node, "<"), **without(node, "[")}
    answer = post(node, tool_choice=allowed("auto", "halt"), temperature=0, **(free | {"logit_bias": no_call}))
    message = answer["choices"][0]["message"]
    assert not message.get("tool_calls") and message["content"].lstrip().startswith("{"), message


def test_errors_name_the_field(thinker):
    code, error = error_of(thinker, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "jump"}})
    assert code == 400 and error["param"] == "tool_choice" and "jump" in error["message"]
    assert error_of(thinker, tool_choice="required")[1]["param"] == "tool_choice"
    bad = {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}
    strict = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": bad}}]
    for choice in ("required", "auto"):
        code, error = error_of(thinker, tools=strict, tool_choice=choice)
        assert code == 400 and error["param"] == "tools[0].function.parameters" and "uniqueItems" in error["message"]
    code, error = error_of(thinker, tools=TOOLS, tool_choice=allowed("auto", "halt", "jump"))
    assert code == 400 and error["param"] == "tool_choice" and "jump" in error["message"]
    for fields, param in [
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": bad}}},
             "response_format.json_schema.schema"),
            ({"response_format": {"type": "json_object", "schema": bad}}, "response_format.schema"),
            ({"json_schema": bad}, "json_schema"), ({"grammar": "root ::= x"}, "grammar")]:
        code, error = error_of(thinker, **fields)
        assert code == 400 and error["param"] == param, error


def test_a_constraint_begins_behind_the_reasoning(thinker):
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    asked = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
    reasoned = 0
    for seed, bias in enumerate((5, 10, 15, 20, 25, 30, 35, 100)):  # how soon the model closes its reasoning
        answer = post(thinker, seed=seed, chat_template_kwargs={"enable_thinking": True}, max_tokens=300,
                      logit_bias={END_THINK: bias}, **asked)["choices"][0]
        if answer["finish_reason"] == "length" and bias < 100:
            continue
        assert answer["finish_reason"] == "stop", answer
        assert set(json.loads(answer["message"]["content"])) == {"x"}, (bias, answer)
        reasoned += bool(answer["message"].get("reasoning_content"))
    assert reasoned > 0, "the constraint bound the reasoning"
    calm = without(thinker, "\n<think>") | without(thinker, "<think>")
    plain = post(thinker, seed=1, logit_bias=calm, **asked)["choices"][0]["message"]
    assert set(json.loads(plain["content"])) == {"x"} and not plain.get("reasoning_content")
    call = post(thinker, seed=2, chat_template_kwargs={"enable_thinking": True}, logit_bias={END_THINK: 100}, tools=TOOLS,
                tool_choice="required", parallel_tool_calls=False)
    assert len(calls_of(call)) == 1


def test_openai(thinker):
    openai = pypi.load("openai")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{thinker.http_port}/v1", api_key="none", max_retries=0) as client:
        calm = without(thinker, "\n<think>") | without(thinker, "hink>")  # no reasoning
        fields = dict(model="", messages=TURN, tools=TOOLS, tool_choice="required", seed=3, max_tokens=900,
                      parallel_tool_calls=False, logit_bias=calm)
        whole = client.chat.completions.create(**fields).choices[0]
        assert whole.finish_reason == "tool_calls"
        with client.chat.completions.stream(**fields) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_completion().choices[0]
        assert streamed.finish_reason == "tool_calls"

        def functions(choice):
            return [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
        assert functions(streamed) == functions(whole)
        for function in functions(whole):
            check(*function)
        flat = [{"type": "function", **tool["function"], "strict": False} for tool in TOOLS]
        for choice in ("required", {"type": "function", "name": "move"}):
            reply = client.responses.create(model="", input="Go.", tools=flat, tool_choice=choice,
                                            parallel_tool_calls=False, max_output_tokens=900,
                                            extra_body={"logit_bias": calm})
            assert [item.type for item in reply.output] == ["function_call"]
            check(reply.output[0].name, reply.output[0].arguments)
            assert reply.output[0].name == "move" or choice == "required"
            assert reply.tools[0].name == "move" and reply.parallel_tool_calls is False
            assert (reply.tool_choice if choice == "required" else reply.tool_choice.name) in ("required", "move")


def test_custom_tools(thinker):
    """The model calls a function of a text; the client sees a call with a text."""
    openai = pypi.load("openai")
    calm = without(thinker, "\n<think>") | without(thinker, "hink>")  # no reasoning
    with openai.OpenAI(base_url=f"http://127.0.0.1:{thinker.http_port}/v1", api_key="none", max_retries=0) as client:
        quote = post(thinker, "/tokenize", content='"')["tokens"][-1]  # else the text of this model hardly ends

        def edit(seed, **more):
            fields = dict(model="", input="Go.", tools=[{"type": "custom", "name": "edit", "description": "Edits."}],
                          tool_choice={"type": "custom", "name": "edit"}, max_output_tokens=900, temperature=1.3,
                          extra_body={"logit_bias": calm | {str(quote): 8}, "seed": seed})
            return client.responses.create(**fields | more)

        seed, reply = next((seed, reply) for seed in range(20) if (reply := edit(seed)).status == "completed"
                           and reply.output[0].input)
        call = reply.output[0]
        assert (call.type, call.name, call.status) == ("custom_tool_call", "edit", "completed")
        assert not call.input.startswith("{")
        events = list(edit(seed, stream=True))
        of_call = [event for event in events if event.type.startswith("response.custom_tool_call_input.")]
        assert [event.type.rpartition(".")[2] for event in of_call] == ["delta", "done"]
        assert of_call[0].delta == of_call[1].input == call.input
        added = [event.item for event in events if event.type == "response.output_item.added"]
        assert [(item.type, item.name, item.input) for item in added] == [("custom_tool_call", "edit", "")]
        assert events[-1].response.output[0].input == call.input
        back = [{"role": "user", "content": "Go."}, call.model_dump(exclude_none=True),
                {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "done"}]
        assert edit(seed, input=back, max_output_tokens=1).usage.input_tokens > reply.usage.input_tokens


def test_anthropic(thinker):
    anthropic = pypi.load("anthropic")
    client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{thinker.http_port}", api_key="any", max_retries=0)
    tools = [{"name": tool["function"]["name"], "description": tool["function"]["description"],
              "input_schema": tool["function"].get("parameters", {"type": "object", "properties": {}})}
             for tool in TOOLS]
    calm = {"temperature": 0, "logit_bias": without(thinker, "\n<think>") | without(thinker, "hink>")}  # no reasoning
    fields = dict(model=client.models.list().data[0].id, max_tokens=900, messages=TURN, tools=tools)

    def blocks(message):
        return [(block.name, block.input) for block in message.content if block.type == "tool_use"]

    one = {"disable_parallel_tool_use": True}
    for choice in ({"type": "any", **one}, {"type": "tool", "name": "move", **one}):
        whole = client.messages.create(tool_choice=choice, extra_body=calm, **fields)
        assert whole.stop_reason == "tool_use" and [block.type for block in whole.content] == ["tool_use"]
        for name, value in blocks(whole):
            check(name, json.dumps(value))
            assert name == "move" or choice["type"] == "any"
        with client.messages.stream(tool_choice=choice, extra_body=calm, **fields) as stream:
            final = stream.get_final_message()
        assert final.stop_reason == "tool_use" and blocks(final) == blocks(whole)
        # The results of the calls go back.
        turn = [*TURN, {"role": "assistant", "content": whole.content},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "done"}
                                             for block in whole.content]}]
        assert client.messages.create(**(fields | {"messages": turn, "max_tokens": 4})).content is not None

    # The prompt opens the reasoning, which the bias ends.
    thinking = dict(fields, thinking={"type": "enabled", "budget_tokens": 1024},
                    extra_body={"temperature": 1.0, "logit_bias": {str(END_THINK): 100}})
    whole = client.messages.create(tool_choice={"type": "any", **one}, **thinking)
    assert whole.stop_reason == "tool_use" and whole.content[-1].type == "tool_use"
    assert [block.type for block in whole.content][0] in ("thinking", "tool_use")
