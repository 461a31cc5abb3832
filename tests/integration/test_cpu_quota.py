"""Roles in a control group with a quota of CPU time, as `docker --cpus` makes it: no more threads compute than it has
time for, also where it changes while they run."""

import os

import pytest

from control_group import ControlGroup
from node import wait_until

PERIOD = 100_000  # microseconds, of both versions


class CpuGroup(ControlGroup):
    def set(self, cpus):
        quota = int(cpus * PERIOD)
        self.write(cpu__cfs_period_us=PERIOD, cpu__max=f"{quota} {PERIOD}")
        self.write(cpu__cfs_quota_us=quota, cpu__max=f"{quota} {PERIOD}")


@pytest.fixture
def group():
    with CpuGroup("cpu") as made:
        made.set(1)
        yield made


def workers_become(node, count):
    """While prefill computes nothing."""
    def reached():
        node.generate([7, 8, 9], 2, ignore_eos=True)
        return node.metric("decode", "moestro_decode_workers") == count
    wait_until(reached, 20, f"decode computes with {count} threads")


def test_threads_follow_the_quota(make_node, group):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU has one thread anyway")
    with make_node() as node:
        workers_become(node, len(os.sched_getaffinity(0)))
        before = node.generate([7, 8, 9], 30, ignore_eos=True)[0]
        for role in ("prefill", "decode"):
            group.add(node.pid(role))
        workers_become(node, 1)
        assert node.generate([7, 8, 9], 30, ignore_eos=True)[0] == before
        group.set(0.5)
        assert node.generate([7, 8, 9], 30, ignore_eos=True)[0] == before
        group.set(2)
        workers_become(node, 2)
        # A role that starts in the group says what it found.
        node.kill("decode")
        group.set(1.5)
        group.add(os.getpid())  # it inherits the group
        node.start("decode")
        group.leave(os.getpid())
        node.wait_serving("decode")
        workers_become(node, 1)
        assert "allows 1.5 CPUs" in node.log("decode")
