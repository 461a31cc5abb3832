"""Roles in a control group with a quota of CPU time, as `docker --cpus` makes it: no more threads compute than it has
time for, also where it changes while they run."""

import os
from pathlib import Path

import pytest

from node import wait_until

PERIOD = 100_000  # microseconds, of both versions


class Group:
    """A control group of the test's own, of either version."""

    def __init__(self, name):
        found = [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup")]
        root = next((path for path in found if (path / "cgroup.procs").exists()), None)
        if root is None:
            pytest.skip("no control groups here")
        self.path = root / name
        try:
            self.path.mkdir()
            self.version1 = (self.path / "cpu.cfs_quota_us").exists()
            self.set(1)
        except OSError as error:
            self.remove()
            pytest.skip(f"no control group can be made here: {error}")

    def set(self, cpus):
        quota = int(cpus * PERIOD)
        if self.version1:
            (self.path / "cpu.cfs_period_us").write_text(str(PERIOD))
            (self.path / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.path / "cpu.max").write_text(f"{quota} {PERIOD}")

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def leave(self, pid):
        (self.path.parent / "cgroup.procs").write_text(str(pid))

    def remove(self):
        if self.path.exists():
            for pid in (self.path / "cgroup.procs").read_text().split():
                self.leave(pid)
            self.path.rmdir()


@pytest.fixture
def group():
    made = Group(f"moestro-test-{os.getpid()}")
    yield made
    made.remove()


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
