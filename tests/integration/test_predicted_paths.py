"""The path by prediction: what the roles measure and say, that the router goes by it, and what becomes of it when a role
restarts."""

import re
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from node import HANG_SECONDS, wait_until
from test_router_paths import run

pytestmark = pytest.mark.serial

FLAGS = {"router": ["--path-policy", "predicted", "--decode-idle-window-seconds", "0"],
         "prefill": ["--mla-form", "absorbed", "--device", "host", "--device-memory", "64MB",
                     "--device-dense-bytes", "8MB"]}
LONG = [20 + i * 41 % 900 for i in range(3000)]
REASON = re.compile(r"(\d+) new tokens: chunked (\S+) s, in prefill (\S+) s( \(streamed\))?, decode is (idle|in use)")


def costs(node, role):
    stub = {"prefill": node.api.prefill_grpc.PrefillServiceStub, "decode": node.api.decode_grpc.DecodeServiceStub}[role]
    with grpc.insecure_channel(f"unix:{node.run_dir}/{role}.sock") as channel:
        return stub(channel).Costs(node.api.types.CostsRequest(), timeout=HANG_SECONDS).costs


def predicted(node):
    """The reason for the path of a short prompt, once the router knows what prompts take."""
    reasons = []
    wait_until(lambda: reasons.append(run(node, [5, 6, 7], 1)[1].path_reason) or "in prefill" in reasons[-1], 10,
               "the router predicts")
    return reasons[-1]


def test_roles_say_what_prompts_take(make_node):
    with make_node(FLAGS) as node:
        types = node.api.types
        in_prefill = costs(node, "prefill")
        assert {cost.way for cost in in_prefill} == {types.PROMPT_WAY_IN_PLACE, types.PROMPT_WAY_STREAMED}
        in_decode = costs(node, "decode")
        assert {cost.way for cost in in_decode} == {types.PROMPT_WAY_CHUNKED}
        decoding = {cost.decoding for cost in in_decode}
        assert {0, 1, 2, 4} <= decoding and max(decoding) <= 64, "up to the sequences of a step"
        for cost in [*in_prefill, *in_decode]:
            assert list(cost.tokens) == sorted(set(cost.tokens)) and len(cost.tokens) == len(cost.seconds)
            assert all(0 < seconds <= 1e6 for seconds in cost.seconds)
            assert cost.seconds[-1] > cost.seconds[0], "a long prompt takes longer"
        beside = {cost.decoding: cost.seconds[-1] for cost in in_decode if not cost.alone}
        assert beside[max(decoding)] > beside[0], "steps are bounded while sequences decode"


def test_the_router_goes_by_them(make_node):
    with make_node(FLAGS) as node:
        predicted(node)
        expected = None
        for _ in range(3):
            ids, started, finished = run(node, LONG, 4)
            expected = expected or ids
            assert ids == expected
            assert finished.path == started.path
        match = REASON.fullmatch(run(node, LONG[:1500] + [7], 4)[1].path_reason)
        assert match and int(match[1]) <= 1501
        assert node.metric("router", "moestro_path_prediction_ratio_count") >= 4
        log = node.log("router")
        assert re.search(r"predicted: chunked \S+ s, in_place \S+ s, streamed \S+ s", log)


def test_a_role_that_restarts_is_predicted_again(make_node):
    with make_node(FLAGS) as node:
        predicted(node)
        node.kill("prefill")
        wait_until(lambda: "<" in run(node, [5, 6, 7], 1)[1].path_reason, 10, "the paper's rule holds without prefill")
        node.start("prefill")
        node.wait_serving("prefill", seconds=20)
        predicted(node)


def test_the_wait_for_a_place_is_queue_time(make_node):
    with make_node({"router": ["--path-policy", "paper"], "decode": ["--max-batch", "1"]}) as node:
        with ThreadPoolExecutor() as pool:
            calls = [pool.submit(run, node, [first, 6, 7], 300) for first in range(5, 9)]
            last = max((call.result()[2] for call in calls), key=lambda finished: finished.total_seconds)
        assert last.queue_seconds > 0.4 * last.total_seconds, "three others had the only place before"
        assert last.prefill_seconds < last.queue_seconds
        assert node.metric("router", "moestro_request_queue_seconds_sum") >= last.queue_seconds


def test_the_papers_policy_goes_by_numbers(make_node):
    with make_node({"router": ["--path-policy", "paper"]}) as node:
        assert run(node, [5, 6, 7], 1)[1].path_reason == "3 new tokens < 2048"
