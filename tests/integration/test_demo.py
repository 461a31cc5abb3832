"""The demo model as served: right answers, the same on every path, no worse than its PyTorch original."""

import json
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
    """Plain rounding, without any correction, costs at most two answers of a hundred."""
    rewrite(demo, tmp_path / form, form)
    with Node(api, bin_dir, tmp_path / form) as node:
        scores = cli("eval", demo / "questions.jsonl", "--server", f"127.0.0.1:{node.grpc_port}", "--json",
                     "--concurrency", 16, timeout=600)
    share, original = json.loads(scores.stdout)["share"], evaluate("batched")[0]["share"]
    print(f"{form}: {share:.4f}, FP8: {original:.4f}")
    assert share >= original - 0.02


def test_a_conversation_of_three_turns(api, bin_dir, cli, demo, make_node):
    with make_node(model=demo) as node:
        chat = cli("chat", "--server", f"127.0.0.1:{node.grpc_port}", input="Sort [5, 2, 9].\nNow reverse it.\nWhat is the first one?\n")
    assert [line.strip() for line in chat.stdout.splitlines() if line.strip()] == ["[2, 5, 9]", "[9, 5, 2]", "9"]
