"""Prefill's leases: kept while it works, and ended when it does not."""

import os
import signal

from node import HANG_SECONDS, wait_until
from test_recovery import LONG_PROMPT, Request

LEASE_SECONDS = 2


def long_prompts(count):
    """Prompts of 2500 tokens that share nothing."""
    return [[20 + (i * 37 + 11 * n) % 900 for i in range(2500)] for n in range(count)]


def test_a_long_line_in_front_of_prefill_does_not_time_leases_out(make_node, absorbed):
    """Slow, for twenty prompts: a fast CPU must need more than two lease timeouts for the line."""
    flags = dict(absorbed, router=["--chunked-below-tokens", "0"],
                 decode=["--lease-timeout-seconds", str(LEASE_SECONDS), "--kv-tokens", "65536",
                         "--prefix-cache", "false"])
    with make_node(flags) as node:
        requests = [Request(node, prompt, 4) for prompt in long_prompts(20)]
        for request in requests:
            request.join(timeout=HANG_SECONDS)
        assert [r.error for r in requests] == [None] * len(requests)
        waited = max(r.finished.time_to_first_token_seconds for r in requests)
        assert waited > 2 * LEASE_SECONDS, "the line is too short for this test"
        assert sum(r.finished.resumed for r in requests) == 0, "nobody died, nobody was preempted"


def test_a_stopped_prefill_loses_the_leases_of_its_whole_line(make_node, absorbed):
    """Slow: after the lease timeouts prefill still computes all eight prompts."""
    flags = dict(absorbed, router=["--chunked-below-tokens", "0", "--recovery-seconds", "1"],
                 decode=["--lease-timeout-seconds", str(LEASE_SECONDS), "--kv-tokens", "65536",
                         "--prefix-cache", "false"])
    with make_node(flags) as node:
        requests = [Request(node, prompt, 4) for prompt in long_prompts(8)]
        wait_until(lambda: node.metric("prefill", "moestro_prefill_waiting") >= 3, 30, "three stand in line")
        os.kill(node.pid("prefill"), signal.SIGSTOP)
        try:
            wait_until(lambda: node.metric("decode", "moestro_kv_lease_timeouts_total") >= 3, 10,
                       "the leases that nobody works on are over")
        finally:
            os.kill(node.pid("prefill"), signal.SIGCONT)
            for request in requests:
                request.join(timeout=HANG_SECONDS)


def test_a_stopped_prefill_does_not_hold_up_an_older_request_in_decode(make_node, absorbed):
    """103 pages: 40 for the youngest, which prefill keeps, and enough for one of the others, but not for both. Slow,
    for two answers of 3,000 tokens."""
    flags = dict(absorbed, router=["--chunked-below-tokens", "2000"],
                 decode=["--kv-tokens", "6592", "--reserve-ahead-tokens", "16", "--prefix-cache", "false"])
    with make_node(flags) as node:
        older = Request(node, [1, 50, 60, 70], 3000)
        older.progressed.wait(HANG_SECONDS)
        middle = Request(node, [1, 50, 60, 70], 3000)
        middle.progressed.wait(HANG_SECONDS)
        youngest = Request(node, LONG_PROMPT, 4)
        youngest.progressed.wait(HANG_SECONDS)
        os.kill(node.pid("prefill"), signal.SIGSTOP)
        try:
            older.join(timeout=HANG_SECONDS)
            assert older.finished is not None, f"stands at {len(older.ids)} of 3000 tokens"
        finally:
            os.kill(node.pid("prefill"), signal.SIGCONT)
            for request in (older, middle, youngest):
                request.join(timeout=HANG_SECONDS)
        assert middle.finished.resumed >= 1, "there were pages for all: this shows nothing"
        assert older.ids == middle.ids and len(older.ids) == 3000
        assert len(youngest.ids) == 4
