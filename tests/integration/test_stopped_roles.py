"""Roles that are stopped for a while, in each phase of a request, on a node under deploy/supervise: nobody replaces
them, so nothing is lost, and the answers are right. A stopped process keeps its connections open, like one that waits
for a disk or is frozen with its container."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import grpc
import pytest

import node as node_library
from freezer import FREEZERS, Frozen
from node import HANG_SECONDS, ROLES, Node, wait_until
from test_deploy import consecutive_free_ports
from test_recovery import Request

LATE_SECONDS = 5  # after the end of a stop, until the answer goes on
SHORT, SHORT_COUNT = [1, 50, 60, 70], 6000
CHUNKED = [20 + i * 41 % 900 for i in range(1900)]  # in decode: below the router's 2048
LONG = [20 + i * 37 % 900 for i in range(2500)]     # in prefill
COUNT = 20                                          # tokens for these two

CONFIG = """
[router]
queue-limit = 16
[prefill]
mla-form = "absorbed"  # every path gives the same bits
chunk-tokens = 256     # progress comes before the end
[decode]
prefix-cache = false  # a prompt takes as long every time
kv-tokens = 8192
reserve-ahead-tokens = 8192  # a request gets all its pages at once, and one of SHORT leaves none for LONG
"""


class SupervisedNode(Node):
    """Started by deploy/supervise, which replaces roles that end or hang."""

    def __enter__(self):
        first = consecutive_free_ports(4)
        self.metrics_port = dict(zip(("router", "weight_store", "prefill", "decode"), range(first, first + 4)))
        os.mkdir(os.path.join(self.run_dir, "logs"))
        config = Path(self.run_dir, "node.toml")
        config.write_text(CONFIG)
        Path(self.run_dir, "node.env").write_text(
            f"bin={self.bin}\ninstance={self.instance}\nmodel={self.model}\ngrpc_address=127.0.0.1:{self.grpc_port}\n"
            f"http_address=127.0.0.1:{self.http_port}\n"
            + "".join(f"metrics_{role}=127.0.0.1:{port}\n" for role, port in self.metrics_port.items())
            + f"config={config}\n")
        with open(self.log_path("supervise"), "ab") as log:
            self.supervisor = subprocess.Popen([node_library.REPO / "deploy/supervise", self.run_dir], stdout=log,
                                               stderr=log, start_new_session=True)
        try:
            self.wait_serving()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.channel.close()
        self.supervisor.terminate()
        try:
            self.supervisor.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self.supervisor.pid, signal.SIGKILL)
            raise
        finally:
            shutil.rmtree(self.run_dir, ignore_errors=True)

    def log_path(self, role):
        return os.path.join(self.run_dir, "logs", role + ".log")

    def pid(self, role):
        """None between two lives of the role."""
        try:
            return int(Path(self.run_dir, role + ".pid").read_text())
        except (FileNotFoundError, ValueError):
            return None


@pytest.fixture(scope="module")
def expected(api, bin_dir, tiny_model):
    """The result of each prompt when nothing is stopped."""
    with SupervisedNode(api, bin_dir, tiny_model) as undisturbed:
        return {tuple(prompt): undisturbed.generate(prompt, count, ignore_eos=True)[0]
                for prompt, count in ((SHORT, SHORT_COUNT), (CHUNKED, COUNT), (LONG, COUNT))}


# Phases: each brings a node into it, and returns the running requests.

def idle(node):
    return []


def decoding(node):
    request = Request(node, SHORT, SHORT_COUNT)
    wait_until(lambda: len(request.ids) > 20, 30, "it generates")
    return [request]


def prompt_in(node, prompt):
    request = Request(node, prompt, COUNT)
    assert request.progressed.wait(HANG_SECONDS) and not request.ids, "the prompt is too short for this test"
    return request


def prefilling(node):
    return [prompt_in(node, LONG)]


def chunked(node):
    return [prompt_in(node, CHUNKED)]


def queued_for_pages(node):
    front = decoding(node)
    behind = Request(node, LONG, COUNT)
    wait_until(lambda: node.metric("router", "moestro_requests_waiting") == 1, 10, "the second waits for pages")
    return [*front, behind]


def queued_for_prefill(node):
    front = prompt_in(node, LONG)
    behind = Request(node, LONG, COUNT)
    wait_until(lambda: node.metric("router", "moestro_requests_running") == 2, 10, "the second waits for prefill only")
    assert not (front.ids or behind.ids), "the prompt is too short for this test"
    return [front, behind]


PHASES = (idle, queued_for_pages, queued_for_prefill, prefilling, chunked, decoding)


@pytest.fixture(scope="module", params=PHASES, ids=lambda phase: phase.__name__)
def phase(request):
    return request.param


@pytest.fixture(scope="module")
def node(api, bin_dir, tiny_model, expected, phase):
    with SupervisedNode(api, bin_dir, tiny_model) as running:
        yield running
    assert not running.shared_memory()


class Stopped:
    """Of a process, by a signal."""

    def __init__(self, pid):
        self.pid = pid
        os.kill(pid, signal.SIGSTOP)

    def end(self):
        os.kill(self.pid, signal.SIGCONT)


def disturb(node, expected, requests, pauses, seconds):
    """Roles pause for so long, with these requests or one more. `pauses`: role to what pauses its process."""
    before = {role: node.pid(role) for role in ROLES}
    pools = [name for name in node.shared_memory() if ".kv." in name]
    resumed = node.metric("router", "moestro_request_resumed_total")
    paused = [pause(node.pid(role)) for role, pause in pauses.items()]
    try:
        requests = requests or [Request(node, CHUNKED, COUNT)]
        time.sleep(seconds)
    finally:
        for pause in paused:
            pause.end()
    if requests[0].prompt == SHORT:
        # Its other tokens would only take time.
        so_far = len(requests[0].ids)
        patience = LATE_SECONDS * node_library.SLOWNESS * node_library.PATIENCE
        wait_until(lambda: not requests[0].is_alive() or len(requests[0].ids) > so_far + 20, patience, "it goes on")
        requests[0].call.cancel()
    for request in requests:
        request.join(timeout=HANG_SECONDS)
        assert not request.is_alive(), "a request hangs"
        right = expected[tuple(request.prompt)]
        assert request.ids == right[:len(request.ids)], "wrong tokens"
        if request.prompt == SHORT:
            assert request.error is None or request.error.code() == grpc.StatusCode.CANCELLED, request.error
        else:
            assert request.error is None and len(request.ids) == len(right), request.error
    assert {role: node.pid(role) for role in ROLES} == before, "nobody is replaced"
    assert [name for name in node.shared_memory() if ".kv." in name] == pools
    assert node.metric("router", "moestro_request_resumed_total") == resumed, "nothing was done twice"
    node.wait_serving(seconds=20)
    assert node.generate(LONG, COUNT, ignore_eos=True)[0] == expected[tuple(LONG)]
    node.wait_all_pages_free()


@pytest.mark.parametrize("roles", [("weight_store", "prefill"), ("decode", "router")], ids="-".join)
def test_a_stop_of_four_seconds(node, expected, phase, roles):
    """Slow: it takes as long as it says. The first case also waits for `expected`."""
    node.wait_serving(seconds=20)
    node.wait_all_pages_free()
    disturb(node, expected, phase(node), dict.fromkeys(roles, Stopped), 4)


@pytest.fixture(scope="module")
def other_node(api, bin_dir, tiny_model):
    with SupervisedNode(api, bin_dir, tiny_model) as running:
        yield running
    assert not running.shared_memory()


@pytest.mark.parametrize("seconds", [10, 25])
def test_a_longer_stop_of_every_role(other_node, expected, seconds):
    """Slow: as above. All roles that compute, since they do so in turn, then the router."""
    for roles in (("prefill", "decode", "weight_store"), ("router",)):
        disturb(other_node, expected, decoding(other_node), dict.fromkeys(roles, Stopped), seconds)


def test_a_frozen_control_group(other_node, expected):
    """Slow: as above, and shorter than what breaks calls (kRoleKeepalive)."""
    def freeze(pid):
        for freezer in FREEZERS:
            try:
                return Frozen(pid, *freezer)
            except OSError:
                pass
        pytest.skip("no control group freezes here")

    disturb(other_node, expected, decoding(other_node), {"decode": freeze}, 20)
