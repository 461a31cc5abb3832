"""prefill --devices: prompts shared by several devices give one device's greedy tokens, survive failures of the role,
and leave nothing behind. The devices are the host's."""

import json
import threading
from pathlib import Path

import pytest

from node import HANG_SECONDS, collect, wait_until

SPLIT = ["--chunked-below-tokens", "0"]
STREAM = ["--mla-form", "unabsorbed", "--device-dense-bytes", "8MB", "--device-memory", "256MB",
          "--stream-from-tokens", "1"]
LONG_PROMPT = [*(20 + i * 37 % 900 for i in range(2499)), 158]  # of all last tokens one that makes the answer clear
ANSWER_TOKENS = 8


def run(node, prompt, max_tokens):
    """Returns (token ids, started, finished)."""
    replies = list(node.stub.Generate(node.request(prompt, max_tokens, temperature=0.0, ignore_eos=True), timeout=HANG_SECONDS))
    ids = [token.id for reply in replies if reply.HasField("tokens") for token in reply.tokens.tokens]
    return ids, replies[0].started, replies[-1].finished


def devices(*names):
    return ["--devices", ",".join(names), *STREAM]


@pytest.fixture(scope="module")
def long_answer(node):
    return node.generate_clear(LONG_PROMPT, ANSWER_TOKENS)


@pytest.mark.parametrize("ranks, experts, shares, exchange", [
    (1, "small", "auto", "auto"), (2, "small", "auto", "host"), (2, "small", "auto", "peer"),
    (3, "standard", "auto", "auto"), (4, "small", "auto", "auto"), (3, "small", "5,1,2", "host")])
def test_greedy_tokens_do_not_depend_on_the_devices(make_node, node, repo, tmp_path, ranks, experts, shares, exchange):
    """The golden prompts, chosen so that no step is a near tie; the second time after a cached prefix."""
    trace = tmp_path / "trace.json"
    golden = sorted((repo / "tests/golden/deepseek_v3_tiny").glob("prompt_*.json"))
    flags = {"prefill": [*devices(*["host"] * ranks), "--trace-file", str(trace), "--expert-parallel", experts,
                         "--device-shares", shares, "--device-exchange", exchange],
             "router": SPLIT}
    with make_node(flags) as several:
        for path in golden:
            prompt = json.loads(path.read_text())["prompt"]
            expected = node.generate(prompt, 32, ignore_eos=True)[0]
            for _ in range(2):
                assert several.generate(prompt, 32, ignore_eos=True)[0] == expected, path
        assert several.metric("prefill", "moestro_prefill_devices") == ranks
        assert several.metric("prefill", "moestro_prefill_devices_lost_total") == 0
        assert (several.metric("prefill", "moestro_prefill_link_bytes_total") > 0) == (ranks > 1)
        assert (several.metric("prefill", "moestro_prefill_exchange_seconds_total") > 0) == (ranks > 1)
        assert several.metric("prefill", "moestro_prefill_peer_exchange") == (ranks > 1 and exchange != "host")
        assert several.metric("prefill", "moestro_prefill_device_share") == (8 if shares == "5,1,2" else ranks)
        assert several.metric("prefill", "moestro_prefill_streamed_bytes_total") > 0
        several.wait_all_pages_free()
    lanes = [e["args"]["name"] for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "M"]
    assert lanes.count("loader: copies") == ranks
    assert lanes.count("exchanges") == (ranks if ranks > 1 else 0)


def test_progress_cancellation_and_death(make_node, long_answer):
    """A client that leaves, then a role that is killed, each in the middle of a prompt on two devices. Slow: 2,500
    tokens of a prompt, five times."""
    flags = {"prefill": devices("host", "host"), "router": SPLIT, "decode": ["--prefix-cache", "false"]}
    with make_node(flags) as node:
        assert node.generate(LONG_PROMPT, ANSWER_TOKENS, ignore_eos=True)[0] == long_answer
        request = node.request(LONG_PROMPT, ANSWER_TOKENS, temperature=0.0, ignore_eos=True)

        call = node.stub.Generate(request, timeout=HANG_SECONDS)
        progress = next(reply.prefill for reply in call if reply.HasField("prefill"))
        assert 0 < progress.done_tokens < progress.total_tokens == len(LONG_PROMPT)
        call.cancel()
        wait_until(lambda: node.metric("prefill", "moestro_prefill_running") == 0, 5, "the prompt is given up")
        node.wait_all_pages_free()
        assert node.generate(LONG_PROMPT, ANSWER_TOKENS, ignore_eos=True)[0] == long_answer

        answer = []
        begun = threading.Event()

        def ask():
            for reply in node.stub.Generate(request, timeout=HANG_SECONDS):
                answer.extend(token.id for token in reply.tokens.tokens)
                if reply.HasField("prefill"):
                    begun.set()

        client = threading.Thread(target=ask)
        client.start()
        assert begun.wait(HANG_SECONDS)
        node.kill("prefill")
        node.start("prefill")
        client.join()
        assert answer == long_answer
        node.wait_all_pages_free()


def test_decode_lends_its_device_and_gets_it_back(make_node, long_answer):
    """While decode is idle, a long prompt uses decode's device as well. A short request in between gets the device
    back, is answered before the prompt is done, and costs no tokens. Slow: 2,500 tokens of a prompt, four times."""
    flags = {"prefill": ["--device", "host", "--borrow-device", "host", *STREAM],
             "decode": ["--device", "host", "--prefix-cache", "false", "--overlap", "off"],
             "router": ["--chunked-below-tokens", "64", "--decode-idle-window-seconds", "0"]}
    with make_node(flags) as node:
        lost = lambda: node.metric("prefill", "moestro_prefill_devices_lost_total")
        assert run(node, LONG_PROMPT, ANSWER_TOKENS)[0] == long_answer
        short = node.generate(LONG_PROMPT[:20], 4, ignore_eos=True)[0]
        assert node.metric("prefill", "moestro_prefill_devices") == 2 and lost() == 0

        request = node.request(LONG_PROMPT, ANSWER_TOKENS, temperature=0.0, ignore_eos=True)
        call = node.stub.Generate(request, timeout=HANG_SECONDS)
        started = next(reply.started for reply in call if reply.HasField("started"))
        assert started.path == node.api.types.PREFILL_PATH_WHOLE_MACHINE
        next(reply for reply in call if reply.HasField("prefill"))
        assert node.generate(LONG_PROMPT[:20], 4, ignore_eos=True)[0] == short
        assert node.metric("prefill", "moestro_prefill_running") == 1  # still at it
        ids, _, finished = collect(call)
        assert ids == long_answer and finished is not None
        assert node.metric("prefill", "moestro_prefill_devices") == 1 and lost() == 1
        assert node.metric("prefill", "moestro_prefill_repeated_layers_total") == 0
        assert node.metric("decode", "moestro_decode_device_wait_seconds_total") > 0
        assert "owner wants it back" in node.log("prefill")
        node.wait_all_pages_free()

        # A prompt that arrives while decode is busy does not take its device; afterwards it is lent again.
        busy = node.stub.Generate(node.request(LONG_PROMPT[:20], 4000, temperature=0.0, ignore_eos=True), timeout=HANG_SECONDS)
        next(reply for reply in busy if reply.HasField("tokens"))
        ids, started, _ = run(node, LONG_PROMPT, ANSWER_TOKENS)
        assert ids == long_answer and started.path == node.api.types.PREFILL_PATH_SPLIT
        assert node.metric("prefill", "moestro_prefill_devices") == 1 and lost() == 1
        busy.cancel()
        wait_until(lambda: node.metric("decode", "moestro_decode_batch_size") == 0, 5, "decode is idle")
        assert run(node, LONG_PROMPT, ANSWER_TOKENS)[0] == long_answer
        assert node.metric("prefill", "moestro_prefill_devices") == 2


@pytest.mark.parametrize("flags, message", [
    (["--devices", "host,abacus"], "--devices host,abacus: 'abacus' is not a device; use host, or the numbers of GPUs (0,1)"),
    (["--devices", "host,"], "'' is not a device"),
    (["--devices", "host,0"], "use GPUs (--devices 0,1) or host devices (--devices host,host)"),
    (["--devices", "1,1"], "--devices 1,1: cuda:1 is listed twice; list a GPU once"),
    (["--devices", "host", "--device", "host"], "use one of them"),
    (["--devices", "host,host", "--device-shares", "3,0"], "--device-shares 3,0: '0' is not a share; use a number from 1"),
    (["--devices", "host,host", "--device-shares", "3"], "1 shares, but --devices host,host names 2 devices"),
    (["--devices", "host", "--device-exchange", "peer"], "--device-exchange peer: --devices host names 1 devices; use auto"),
    (["--devices", "host,host", "--mla-form", "absorbed"], "--mla-form absorbed"),
    (["--borrow-device", "host"], "--borrow-device needs a device of the role's own: --device host"),
])
def test_a_wrong_list_is_an_error_of_the_start(make_node, flags, message):
    node = make_node({"prefill": flags})
    try:
        node.start("prefill")
        assert node.processes["prefill"].wait(timeout=60) == 2
        assert message in node.log("prefill")
    finally:
        node.stop()


def test_devices_that_are_too_small_are_not_used(make_node, node, repo):
    prompt = json.loads((repo / "tests/golden/deepseek_v3_tiny/prompt_65.json").read_text())["prompt"]
    flags = {"prefill": ["--devices", "host,host", "--device-memory", "1MB", "--stream-from-tokens", "1",
                         "--mla-form", "unabsorbed"], "router": SPLIT}
    with make_node(flags) as small:
        assert small.generate(prompt, 8, ignore_eos=True)[0] == node.generate(prompt, 8, ignore_eos=True)[0]
        assert "--devices host,host is not used" in small.log("prefill")
        assert small.metric("prefill", "moestro_prefill_streamed_bytes_total") == 0


def test_prefill_lets_go_of_the_pool_of_a_dead_decode(make_node):
    """Without another prompt: its successor may need that memory to start."""
    with make_node({"prefill": ["--device", "host", *STREAM], "router": SPLIT}) as node:
        expected = node.generate(LONG_PROMPT, 4, ignore_eos=True)[0]

        def maps_a_pool():
            maps = Path(f"/proc/{node.pid('prefill')}/maps").read_text()
            return f"/dev/shm/moestro.{node.instance}.kv." in maps

        assert maps_a_pool()
        node.kill("decode")
        wait_until(lambda: not maps_a_pool(), 10, "the pool is unmapped")
        node.start("decode")
        node.wait_serving()
        assert node.generate(LONG_PROMPT, 4, ignore_eos=True)[0] == expected
