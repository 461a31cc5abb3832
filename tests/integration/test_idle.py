"""An idle node leaves the CPU alone: workers sleep, nothing polls."""

import ctypes
import os
import time

import pytest

from node import ROLES

pytestmark = pytest.mark.serial

IDLE_SECONDS = 3
MOST = 0.01  # of one CPU, per process
MOST_WINDOWS = 5


def cpu_seconds(pid):
    """CPU time of a process with all its threads, to the nanosecond: /proc/PID/stat counts ticks of 10 ms, and three of
    them are already MOST."""
    clock = ctypes.c_int()
    if error := ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError(error, os.strerror(error))
    return time.clock_gettime(clock.value)


def used_shares(node):
    """Of one CPU, by each process, in a window of IDLE_SECONDS."""
    begin = time.monotonic()
    before = {role: cpu_seconds(node.pid(role)) for role in ROLES}
    time.sleep(IDLE_SECONDS)
    elapsed = time.monotonic() - begin
    return {role: (cpu_seconds(node.pid(role)) - before[role]) / elapsed for role in ROLES}


@pytest.mark.no_sanitizer(reason="sanitizers have threads of their own that wake up")
def test_idle_processes_use_no_cpu(node):
    tokens, _, _ = node.generate("Hello", 8, ignore_eos=True)
    assert len(tokens) == 8
    node.wait_all_pages_free()
    shares = [used_shares(node)]
    # On a busy machine the request's last sounds may come late; what polls is in every window.
    while not all(share < MOST for share in shares[-1].values()) and len(shares) < MOST_WINDOWS:
        shares.append(used_shares(node))
    print([{role: f"{100 * share:.2f} %" for role, share in used.items()} for used in shares])
    assert all(share < MOST for share in shares[-1].values()), shares


def test_two_numa_domains_give_the_same_tokens(node, make_node, absorbed):
    two = ["--threads", "2", "--numa-domains", "2"]
    flags = {"weight_store": ["--numa-domains", "2"], "prefill": absorbed["prefill"] + two, "decode": two}
    prompt = "The quick brown fox jumps over the lazy dog"
    with make_node(flags) as split:
        ours, _, _ = split.generate(prompt, 24, ignore_eos=True)
        assert "2 NUMA domains" in split.log("decode")
    assert ours == node.generate(prompt, 24, ignore_eos=True)[0]
