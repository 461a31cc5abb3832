"""kill -9 of each role during a request: soon after the role is back, the client has an error or a correct
continuation. Never wrong tokens, a hang, or a lost page or shared-memory object."""

import os
import re
import signal
import threading
import time
from pathlib import Path

import grpc
import pytest

from node import HANG_SECONDS, Node, wait_until

# With the patience of wait_until on a busy machine:
BACK_SECONDS = 2.0   # a restarted role must serve again within this
AFTER_SECONDS = 2.0  # after that a client must have its answer or its error within this


class Request(threading.Thread):
    """A streaming request; records what arrived and how it ended."""

    def __init__(self, node, prompt, max_tokens, **fields):
        super().__init__()
        self.node, self.prompt, self.max_tokens = node, prompt, max_tokens
        self.ids, self.finished, self.error = [], None, None
        self.progressed = threading.Event()
        self.last_event = None
        self.times = []  # of everything that came, and of the end
        self.call = node.stub.Generate(
            node.request(prompt, max_tokens, temperature=0.0, ignore_eos=True, **fields), timeout=HANG_SECONDS)
        self.start()

    def run(self):
        try:
            for reply in self.call:
                self.last_event = time.monotonic()
                self.times.append(self.last_event)
                if reply.HasField("tokens"):
                    self.ids += [t.id for t in reply.tokens.tokens]
                    self.progressed.set()
                elif reply.HasField("prefill"):
                    self.progressed.set()
                elif reply.HasField("finished"):
                    self.finished = reply.finished
        except grpc.RpcError as error:
            self.error = error
        self.times.append(time.monotonic())


LONG_PROMPT = [20 + i * 37 % 900 for i in range(2500)]


@pytest.fixture(scope="module")
def node(api, bin_dir, tiny_model, absorbed):
    """Without a prefix cache: the same long prompt must take long every time."""
    with Node(api, bin_dir, tiny_model, dict(absorbed, decode=["--prefix-cache", "false"])) as running:
        yield running
    assert not running.shared_memory()


@pytest.fixture(scope="module")
def expected(node):
    return {"decode": node.generate([1, 50, 60, 70], 1500, ignore_eos=True)[0],
            "prefill": node.generate(LONG_PROMPT, 20, ignore_eos=True)[0]}


def restart(node, role):
    node.kill(role)
    node.start(role)
    wait_until(lambda: node.serving(role), BACK_SECONDS, f"{role} serves again")


def finish(request, expected):
    """The request has ended, with the right tokens or an error; returns whether it was answered."""
    if request.error is None and request.finished is None:
        # If it continues, it must make progress soon; then it may take the time that its tokens need.
        before = request.last_event
        wait_until(lambda: not request.is_alive() or request.last_event != before, AFTER_SECONDS + 1,
                   "the request moves again")
    request.join(timeout=HANG_SECONDS)
    assert not request.is_alive(), "the request hangs"
    assert request.ids == expected[:len(request.ids)], "wrong tokens"
    if request.error is not None:
        assert request.error.code() == grpc.StatusCode.UNAVAILABLE, request.error
        return False
    assert request.ids == expected and request.finished is not None
    return True


@pytest.mark.smoke
@pytest.mark.parametrize("role", ["decode", "prefill", "weight_store"])
def test_kill_while_decoding(node, expected, role):
    """Slow: 1,500 tokens, so that the kill finds work under way. The first case also waits for `expected`."""
    request = Request(node, [1, 50, 60, 70], 1500)
    request.progressed.wait(HANG_SECONDS)
    restart(node, role)
    assert finish(request, expected["decode"]), "the request can go on exactly, so it must"
    node.wait_serving(seconds=5)
    node.wait_all_pages_free()
    if role == "weight_store":
        assert "reserving" not in node.log("weight_store").split("adopted")[-1]


@pytest.mark.parametrize("role", ["decode", "prefill", "weight_store"])
def test_kill_while_prefilling(node, expected, role):
    request = Request(node, LONG_PROMPT, 20)
    request.progressed.wait(HANG_SECONDS)
    assert not request.ids, "the prompt is too short for this test: prefill is already over"
    restart(node, role)
    assert finish(request, expected["prefill"])
    node.wait_serving(seconds=5)
    node.wait_all_pages_free()


@pytest.mark.smoke
def test_kill_router(node, expected):
    request = Request(node, [1, 50, 60, 70], 1500)
    request.progressed.wait(HANG_SECONDS)
    restart(node, "router")
    assert not finish(request, expected["decode"]), "its stream is gone with the router"
    node.wait_serving(seconds=5)
    node.wait_all_pages_free()
    assert node.generate(LONG_PROMPT, 20, ignore_eos=True)[0] == expected["prefill"]


def orphaned_bytes(pid):
    """KV pools whose name is gone: those the process still maps, and their memory."""
    mapped = resident = 0
    ours = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            ours = ".kv." in line and line.endswith("(deleted)")
        elif ours and line.startswith("Size:"):
            mapped += int(line.split()[1]) * 1024
        elif ours and line.startswith("Rss:"):
            resident += int(line.split()[1]) * 1024
    return mapped, resident


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_decodes_successor_has_the_memory_of_its_pool(make_node, absorbed, expected, how):
    flags = dict(absorbed, decode=["--prefix-cache", "false", "--poison-freed-pages", "false"])  # poison takes memory
    with make_node(flags) as node:
        assert node.generate(LONG_PROMPT, 20, ignore_eos=True)[0] == expected["prefill"]
        os.kill(node.pid("prefill"), signal.SIGSTOP)  # it has the pool mapped, and would soon let go of it
        if how == "kill":
            node.kill("decode")
        else:
            node.processes["decode"].terminate()
            assert node.processes["decode"].wait(timeout=30) == 0
        node.start("decode")
        wait_until(lambda: node.serving("decode"), BACK_SECONDS, "decode serves again")
        mapped, resident = orphaned_bytes(node.pid("prefill"))
        os.kill(node.pid("prefill"), signal.SIGCONT)
        assert mapped > 1 << 20 and resident < 1 << 20
        node.wait_serving(seconds=5)
        assert node.generate(LONG_PROMPT, 20, ignore_eos=True)[0] == expected["prefill"]


@pytest.mark.smoke
def test_restarted_store_adopts_without_reading(node):
    node.kill("weight_store")
    node.start("weight_store")
    wait_until(lambda: node.serving("weight_store"), BACK_SECONDS, "the store serves again")
    last_life = node.log("weight_store").rsplit("fingerprint", 1)[-1]
    assert "adopted" in last_life and "reserving" not in last_life
    assert len([name for name in node.shared_memory() if ".weights." in name]) == 1


def test_role_that_stays_away_is_an_error_not_a_hang(make_node, absorbed):
    with make_node(dict(absorbed, router=["--recovery-seconds", "1"])) as other:
        request = Request(other, [1, 50, 60, 70], 1500)
        request.progressed.wait(HANG_SECONDS)
        other.kill("decode")
        request.join(timeout=HANG_SECONDS / 2)
        assert not request.is_alive() and request.error.code() == grpc.StatusCode.UNAVAILABLE
        assert "decode" in request.error.details()
        other.start("decode")
        other.wait_serving(seconds=5)
        assert len(other.generate("x", 4, ignore_eos=True)[0]) == 4


@pytest.mark.smoke
def test_killed_node_leaves_nothing_behind(make_node, cli, absorbed):
    with make_node(absorbed) as other:
        other.generate("x", 4, ignore_eos=True)
        for role in ("router", "prefill", "decode", "weight_store"):
            other.kill(role)
        assert other.shared_memory(), "kill -9 cannot clean up"
        cli("segments", "prune", "--instance", other.instance)
        assert not other.shared_memory()


@pytest.mark.parametrize("role", ["decode", "prefill"])
def test_a_stopped_role_that_nobody_replaces_is_an_error_or_done_without(make_node, absorbed, role):
    """Slow: a node of its own, keepalive and --recovery-seconds."""
    with make_node(dict(absorbed, router=["--recovery-seconds", "2"], decode=["--lease-timeout-seconds", "5"])) as other:
        prompt, count = (LONG_PROMPT, 20) if role == "prefill" else ([1, 50, 60, 70], 1500)
        request = Request(other, prompt, count)
        request.progressed.wait(HANG_SECONDS)
        assert len(request.ids) < count, "the request is too short for this test"
        os.kill(other.pid(role), signal.SIGSTOP)
        try:
            request.join(timeout=HANG_SECONDS / 2)  # keepalive and recovery-seconds are 6 s
            assert not request.is_alive(), "hangs until the client's own deadline"
        finally:
            os.kill(other.pid(role), signal.SIGCONT)
            request.join(timeout=HANG_SECONDS)
        if role == "decode":
            assert request.error.code() == grpc.StatusCode.UNAVAILABLE and "decode" in request.error.details()
        else:
            assert request.error is None and len(request.ids) == count, "decode can do it"
            assert request.finished.path == other.api.types.PREFILL_PATH_CHUNKED
        other.wait_serving(seconds=10)
        other.wait_all_pages_free()
