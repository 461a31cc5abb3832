"""The demo model as served: right answers, the same on every path, no worse than its PyTorch original."""

import json
import math
from pathlib import Path

import pytest

from node import Node
from requantise import FOUR_BITS, INT8, rewrite

DEMO = Path(__file__).resolve().parents[2] / "deploy/models/demo"
SPLIT = ["--chunked-below-tokens", "0"]
STREAMED = ["--device", "host", "--stream-from-tokens", "1", "--ring-slots", "2"]

PATHS = {  # name: (flags of the roles, questions at a time)
    "chunked": ({}, 1),
    "batched": ({}, 16),
    "split": ({"router": SPLIT}, 4),
    "streamed": ({"router": SPLIT, "prefill": STREAMED}, 4),
}


@pytest.fixture(scope="module")
def demo():
    return DEMO


@pytest.fixture(scope="module")
def evaluate(api, bin_dir, cli, demo, tmp_path_factory):
    """{path: (scores, answers)}; each path is queried once."""
    def run(path):
        if path not in done:
            flags, concurrency = PATHS[path]
            answers = tmp_path_factory.mktemp("eval") / "answers.jsonl"
            with Node(api, bin_dir, demo, flags) as node:
                scores = cli("eval", demo / "questions.jsonl", "--server", f"127.0.0.1:{node.grpc_port}", "--json",
                             "--concurrency", concurrency, "--answers", answers, timeout=600)
                prompts = node.metric("prefill", "moestro_prefill_requests_total")
                streamed = node.metric("prefill", "moestro_prefill_streamed_bytes_total")
            assert (prompts > 0) == (SPLIT == flags.get("router")) and (streamed > 0) == (path == "streamed")
            done[path] = json.loads(scores.stdout), [json.loads(line) for line in answers.read_text().splitlines()]
        return done[path]

    done = {}
    return run


@pytest.mark.parametrize("path", PATHS)
def test_served_scores_are_those_of_the_original(evaluate, demo, path):
    """Slow: each path answers 1,600 questions, and chunked one at a time."""
    original = json.loads((demo / "scores.json").read_text())
    scores, answers = evaluate(path)
    assert scores["of"] == len(answers) == original["examples"]
    for task, share in original["tasks"].items():
        assert scores["tasks"][task]["share"] >= share - 0.01, task
    assert scores["share"] >= 0.8


@pytest.mark.parametrize("path", [path for path in PATHS if path != "chunked"])
def test_every_path_gives_the_same_answers(evaluate, path):
    assert evaluate(path)[1] == evaluate("chunked")[1]


@pytest.mark.parametrize("form", FOUR_BITS)
def test_routed_experts_in_four_bits_know_the_answers(api, bin_dir, cli, demo, evaluate, tmp_path, form):
    """Plain rounding, without any correction, costs at most two answers of a hundred. Slow, for 1,600 questions."""
    rewrite(demo, tmp_path / form, form)
    with Node(api, bin_dir, tmp_path / form) as node:
        scores = cli("eval", demo / "questions.jsonl", "--server", f"127.0.0.1:{node.grpc_port}", "--json",
                     "--concurrency", 16, timeout=600)
    share, original = json.loads(scores.stdout)["share"], evaluate("batched")[0]["share"]
    print(f"{form}: {share:.4f}, FP8: {original:.4f}")
    assert share >= original - 0.02


def test_perplexity_is_that_of_the_tokens_that_were_generated(api, bin_dir, cli, demo, tmp_path):
    """Of right answers, to plain prompts and to chats: the model chose these tokens, with these probabilities."""
    questions = [json.loads(line) for line in (demo / "questions.jsonl").read_text().splitlines()]
    plain = [question for question in questions if "prompt" in question][::100]
    chats = [question for question in questions if "messages" in question][::100]
    assert plain and chats
    file = tmp_path / "questions.jsonl"
    with Node(api, bin_dir, demo) as node:
        for question in plain + chats:
            file.write_text(json.dumps(question))
            scores = json.loads(cli("eval", file, "--server", f"127.0.0.1:{node.grpc_port}", "--json",
                                    "--perplexity").stdout)
            if not scores["right"]:
                continue
            request = api.inference.GenerateRequest(max_tokens=64, temperature=0)
            if "prompt" in question:
                request.prompt = question["prompt"]
            else:
                for message in question["messages"]:
                    request.chat.messages.add(**message)
            generated = [token.logprob for event in node.stub.Generate(request, timeout=60) for token in event.tokens.tokens]
            generated = generated[: scores["tokens"]]  # without the one that ends the answer
            assert len(generated) == scores["tokens"]
            assert scores["sum_logprob"] == pytest.approx(sum(generated), abs=0.05)
            assert scores["perplexity"] == pytest.approx(math.exp(-scores["sum_logprob"] / scores["tokens"]))


@pytest.mark.parametrize("form,coded,limit", [(INT8, "published", 0.002), ("int4", "all", 0.002)])
def test_what_inputs_in_eight_bits_cost(api, bin_dir, cli, demo, tmp_path, form, coded, limit):
    """The difference to BF16 inputs, in right answers and in perplexity, as eval prints it; of a quarter of the
    questions. Slow: two nodes answer these 400, and score the answers."""
    rewrite(demo, tmp_path / form, form)
    printed = {}
    for setting in ["bf16", coded]:
        with Node(api, bin_dir, tmp_path / form,
                  {role: ["--int8-activations", setting] for role in ["prefill", "decode"]}) as node:
            arguments = ["eval", demo / "questions.jsonl", "--server", f"127.0.0.1:{node.grpc_port}", "--concurrency", 16,
                         "--limit", 400, "--perplexity"]
            if setting != "bf16":
                arguments += ["--compare", tmp_path / "bf16.json"]
            printed[setting] = json.loads(cli(*arguments, "--json", timeout=600).stdout)
        (tmp_path / f"{setting}.json").write_text(json.dumps(printed[setting]))
    bf16, int8 = printed["bf16"], printed[coded]
    print(f"{form}: {bf16['share']:.4f}, perplexity {bf16['perplexity']:.5f}; with --int8-activations {coded} "
          f"{int8['difference']['right']:+d} right, {int8['difference']['perplexity']:+.5f}")
    assert int8["difference"]["right"] == int8["right"] - bf16["right"]
    assert 0 < abs(int8["difference"]["perplexity"]) < limit
    assert int8["share"] >= bf16["share"] - 0.02


def test_what_prompts_in_fp8_cost(api, bin_dir, cli, demo):
    """Less than a point, of a quarter of the questions: prefill computes all prompts and scores with inputs in FP8.
    Slow: two nodes stream each of 400 prompts."""
    printed = {}
    for setting in ["bf16", "fp8"]:
        flags = {"router": SPLIT, "prefill": [*STREAMED, "--prefill-activations", setting]}
        with Node(api, bin_dir, demo, flags) as node:
            printed[setting] = json.loads(
                cli("eval", demo / "questions.jsonl", "--server", f"127.0.0.1:{node.grpc_port}", "--concurrency", 16,
                    "--limit", 400, "--perplexity", "--json", timeout=600).stdout)
            answer = cli("generate", "--prompt", ">>> 1 + 1\n", "--server", f"127.0.0.1:{node.grpc_port}", "--json")
            assert json.loads(answer.stdout)["prefill_activations"] == setting
    bf16, fp8 = printed["bf16"], printed["fp8"]
    print(f"bf16: {bf16['share']:.4f}, perplexity {bf16['perplexity']:.5f}; with --prefill-activations fp8: "
          f"{fp8['share']:.4f}, {fp8['perplexity']:.5f}")
    assert fp8["perplexity"] != bf16["perplexity"]
    assert fp8["share"] >= bf16["share"] - 0.01


@pytest.mark.smoke
def test_a_conversation_of_three_turns(api, bin_dir, cli, demo, make_node):
    with make_node(model=demo) as node:
        chat = cli("chat", "--server", f"127.0.0.1:{node.grpc_port}", input="Sort [5, 2, 9].\nNow reverse it.\nWhat is the first one?\n")
    assert [line.strip() for line in chat.stdout.splitlines() if line.strip()] == ["[2, 5, 9]", "[9, 5, 2]", "9"]
