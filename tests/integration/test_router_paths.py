"""Which path a prompt takes, what the client learns of it, and that the path does not change the tokens."""

import threading
import time

import grpc
import pytest

from node import HANG_SECONDS, collect, wait_until

PROMPT = [20 + i * 37 % 900 for i in range(40)]
LONG_PROMPT = [20 + i * 41 % 900 for i in range(2100)]


def run(node, prompt, max_tokens=12):
    """Returns (token ids, started, finished)."""
    replies = list(node.stub.Generate(node.request(prompt, max_tokens, temperature=0.0, ignore_eos=True), timeout=HANG_SECONDS))
    ids = [token.id for reply in replies if reply.HasField("tokens") for token in reply.tokens.tokens]
    return ids, replies[0].started, replies[-1].finished


def wait_until_missed(node, role):
    """Waits until the router's health checks have noticed that the role is gone."""
    wait_until(lambda: [up for name, up in node.metrics("router").items()
                        if name.startswith("moestro_role_up") and f'peer="{role}"' in name] == [0], 5, "it is missed")


def test_short_prompts_run_in_decode(node):
    before = node.metric("prefill", "moestro_prefill_tokens_total")
    _, started, finished = run(node, PROMPT)
    new = len(PROMPT) - started.cached_tokens
    assert started.path == finished.path == node.api.types.PREFILL_PATH_CHUNKED
    assert started.path_reason == f"{new} new tokens < 2048"
    assert finished.usage.cached_tokens == started.cached_tokens < len(PROMPT)
    assert 0 < finished.prefill_seconds <= finished.time_to_first_token_seconds
    assert node.metric("prefill", "moestro_prefill_tokens_total") == before


def test_every_path_gives_the_same_tokens(make_node, absorbed):
    """Slow: three nodes, whose flags choose the path, compute a prompt of 2,100 tokens."""
    answers, paths = [], []
    for flags in (["--mode", "unified"], ["--chunked-below-tokens", "0"],
                  ["--chunked-below-tokens", "0", "--decode-idle-window-seconds", "0"]):
        with make_node(dict(absorbed, router=flags)) as node:
            for _ in range(2):  # the second right after the decode of the first, and with its prefix cached
                answer = [run(node, prompt) for prompt in (PROMPT, LONG_PROMPT)]
                answers.append([ids for ids, _, _ in answer])
                paths += [started.path for _, started, _ in answer]
    assert all(answer == answers[0] for answer in answers)
    assert set(paths) == {node.api.types.PREFILL_PATH_CHUNKED, node.api.types.PREFILL_PATH_SPLIT,
                          node.api.types.PREFILL_PATH_WHOLE_MACHINE}


def test_unified_node_needs_prefill_for_scoring_only(make_node, absorbed):
    with make_node(dict(absorbed, router=["--mode", "unified", "--recovery-seconds", "1"])) as node:
        node.kill("prefill")
        wait_until_missed(node, "prefill")
        time.sleep(1)  # two rounds of the health check
        assert node.serving()
        ids, started, _ = run(node, LONG_PROMPT)
        assert len(ids) == 12 and started.path == node.api.types.PREFILL_PATH_CHUNKED
        with pytest.raises(grpc.RpcError) as refused:
            node.score(PROMPT)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE and "prefill" in refused.value.details()
        node.start("prefill")


def test_long_prompt_goes_to_decode_when_prefill_stays_away(make_node, absorbed):
    with make_node(dict(absorbed, router=["--recovery-seconds", "3"])) as node:
        expected = run(node, LONG_PROMPT)[0]
        node.kill("decode")  # and with it the prefix cache
        node.kill("prefill")
        node.start("decode")
        wait_until(lambda: node.serving("decode"), 10, "decode serves again")
        wait_until_missed(node, "prefill")
        ids, started, finished = run(node, LONG_PROMPT)
        assert ids == expected
        assert started.path == finished.path == node.api.types.PREFILL_PATH_CHUNKED
        assert "prefill is down" in started.path_reason
        node.start("prefill")
        node.wait_serving(seconds=5)


def test_prefill_that_dies_unnoticed_is_replaced_by_decode(make_node, absorbed):
    """The client learns the first choice when its request is admitted, and the last one at the end."""
    with make_node(dict(absorbed, router=["--recovery-seconds", "1"])) as node:
        expected = run(node, LONG_PROMPT)[0]
        node.kill("decode")  # and with it the prefix cache
        node.kill("prefill")
        node.start("decode")
        wait_until(lambda: node.serving("decode"), 10, "decode serves again")
        ids, _, finished = run(node, LONG_PROMPT)
        assert ids == expected
        assert finished.path == node.api.types.PREFILL_PATH_CHUNKED
        node.start("prefill")
        node.wait_serving(seconds=5)


def test_requests_that_want_all_pages_take_turns(make_node, absorbed):
    """More than the pool holds: the youngest requests give up their pages, and all get the tokens they would have
    had."""
    flags = dict(absorbed, decode=["--kv-tokens", "1024"])
    with make_node(flags) as node:
        alone = [run(node, PROMPT + [i], 300)[0] for i in range(6)]
        together = [None] * len(alone)

        def start(i):
            together[i] = run(node, PROMPT + [i], 300)[0]

        threads = [threading.Thread(target=start, args=(i,)) for i in range(len(alone))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert together == alone
        node.wait_all_pages_free()


# A client whose library reads little from the network in advance.
STALLING = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16384)]


def test_a_client_that_does_not_read_leaves_the_machine_to_others(make_node, absorbed):
    """Slow, for an answer of 4,000 tokens."""
    flags = dict(absorbed, router=["--decode-idle-window-seconds", "0", "--write-stall-seconds", "600"],
                 decode=["--kv-tokens", "65536"])
    with make_node(flags) as node, grpc.insecure_channel(f"127.0.0.1:{node.grpc_port}", options=STALLING) as channel:
        unread = node.api.inference_grpc.InferenceServiceStub(channel).Generate(
            node.request([1, 2, 3], 4000, temperature=0.0, ignore_eos=True))
        next(unread)
        wait_until(lambda: node.metric("decode", "moestro_decode_tokens_total") >= 3999, 120, "decode is done with it")
        # The router, too, must have had the last token: until then decode is not idle for it.
        wait_until(lambda: node.metric("router", "moestro_requests_running") == 0, 10, "nothing is in decode")
        started = next(node.stub.Generate(node.request(LONG_PROMPT, 2, temperature=0.0, ignore_eos=True),
                                          timeout=HANG_SECONDS)).started
        assert started.path == node.api.types.PREFILL_PATH_WHOLE_MACHINE, started.path_reason
        assert len(collect(unread)[0]) == 4000, "it may still read all of it"


def test_a_client_that_reads_nothing_loses_its_call_and_its_pages(make_node):
    flags = {"router": ["--write-stall-seconds", "1"], "decode": ["--kv-tokens", "65536"]}
    with make_node(flags) as node, grpc.insecure_channel(f"127.0.0.1:{node.grpc_port}", options=STALLING) as channel:
        unread = node.api.inference_grpc.InferenceServiceStub(channel).Generate(
            node.request([1, 2, 3], 30000, temperature=0.0, ignore_eos=True))
        next(unread)
        wait_until(lambda: node.metric("router", "moestro_slow_clients_total") == 1, 30, "the router gives it up")
        node.wait_all_pages_free()
        assert node.metric("decode", "moestro_decode_tokens_total") < 30000, "nobody would have read the rest"
        with pytest.raises(grpc.RpcError) as error:
            list(unread)
        assert error.value.code() == grpc.StatusCode.CANCELLED
