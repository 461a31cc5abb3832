"""The CPUs and the priority of a role's threads."""

import os
import subprocess
from pathlib import Path

import pytest

from node import HANG_SECONDS

CPUS = sorted(os.sched_getaffinity(0))
TWO_CPUS = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def parse(text):
    """{0, 1, 2, 8} of "0-2,8"."""
    cpus = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def allowed(status):
    return parse(next(line for line in status.read_text().splitlines() if line.startswith("Cpus_allowed_list:"))[18:])


def cpus_of_threads(pid):
    """One set per thread."""
    return [allowed(path / "status") for path in Path(f"/proc/{pid}/task").iterdir()]


def with_background(nice):
    """Of a role whose work for constraints that take long stands back by 10 more."""
    return {min(nice, 19), min(nice + 10, 19)}


def nice_of_threads(pid):
    """Per thread: field 19 of stat."""
    return {int((path / "stat").read_text().rpartition(")")[2].split()[16]) for path in Path(f"/proc/{pid}/task").iterdir()}


@TWO_CPUS
def test_auto_gives_decode_and_prefill_cpus_of_their_own(node):
    decode, prefill = (allowed(Path(f"/proc/{node.pid(role)}/status")) for role in ("decode", "prefill"))
    assert decode and prefill and decode | prefill == set(CPUS)
    one_core = decode == prefill  # the two hardware threads of a single core are not split
    assert one_core or not decode & prefill
    # Each has a thread on every CPU of the other, for the time in which that one computes nothing.
    for role, own, others in [("decode", decode, prefill), ("prefill", prefill, decode)]:
        assert all(cpus == own or cpus <= others for cpus in cpus_of_threads(node.pid(role))), role
        on_others = sum(cpus <= others and not one_core for cpus in cpus_of_threads(node.pid(role)))
        assert on_others == (0 if one_core else len(others)), role
    started_with = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice_of_threads(node.pid("decode")) == with_background(started_with)
    assert nice_of_threads(node.pid("prefill")) == with_background(started_with + 5)


@TWO_CPUS
def test_cores_follow_the_work(node):
    decode, prefill = (allowed(Path(f"/proc/{node.pid(role)}/status")) for role in ("decode", "prefill"))
    if decode == prefill:
        pytest.skip("the two hardware threads of a single core are not split")
    node.generate("A short prompt", 4, ignore_eos=True)
    assert node.metric("decode", "moestro_decode_workers") == len(CPUS)  # prefill had nothing to do
    node.score(list(range(30, 60)))
    assert node.metric("prefill", "moestro_prefill_workers") == len(CPUS)  # and neither had decode
    call = node.stub.Generate(node.request("Another short prompt", 20000, ignore_eos=True), timeout=HANG_SECONDS)
    while not next(call).HasField("tokens"):
        pass
    node.score(list(range(30, 60)))  # while decode computes
    assert node.metric("prefill", "moestro_prefill_workers") == len(prefill)
    call.cancel()


@TWO_CPUS
def test_cpus_and_nice_bound_every_thread(make_node, absorbed, node):
    one, other = CPUS[-1], CPUS[0]
    flags = {
        "weight_store": ["--cpus", str(one)],
        "prefill": absorbed["prefill"] + ["--cpus", f"{other}", "--threads", "1", "--nice", "0"],
        "decode": ["--cpus", f"{other},{one}", "--nice", "7"],
    }
    prompt = "The same tokens on any CPUs"
    with make_node(flags) as bound:
        tokens = bound.generate(prompt, 12, ignore_eos=True)[0]
        for role, cpus in [("weight_store", {one}), ("prefill", {other}), ("decode", {one, other})]:
            assert all(found == cpus for found in cpus_of_threads(bound.pid(role))), role
        started_with = os.getpriority(os.PRIO_PROCESS, 0)
        assert nice_of_threads(bound.pid("decode")) == with_background(started_with + 7)
        assert nice_of_threads(bound.pid("prefill")) == with_background(started_with)
        assert f"1 threads on CPUs {other} " in bound.log("prefill") and "2 threads on CPUs " in bound.log("decode")
    assert tokens == node.generate(prompt, 12, ignore_eos=True)[0]


@pytest.mark.parametrize("binary", ["moestro-decode", "moestro-prefill", "moestro-weight-store"])
def test_bad_cpus_are_usage_errors(bin_dir, binary):
    model = ["--model", "/"] if binary == "moestro-weight-store" else []
    for flags, words in [(["--cpus", "1000"], ("--cpus 1000", "no CPU 1000", "it may use")),
                         (["--cpus", "3-1"], ("--cpus 3-1", "is descending")), (["--nice", "20"], ("--nice 20",))]:
        result = subprocess.run([f"{bin_dir}/{binary}", *model, *flags], capture_output=True, text=True, timeout=30)
        assert result.returncode == 2 and all(word in result.stderr for word in words), result.stderr
