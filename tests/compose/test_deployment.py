"""deploy/compose.yaml in a real container engine, from the build to the last trace; in this order."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import PROJECT, run
from node import wait_until

MIB = 1 << 20
ROLES = ("weight-store", "prefill", "decode", "router")
BACK_SECONDS = 60  # a killed container is started again, and its health is asked every 5 s


def test_the_image_is_small(image):
    size = int(run("docker", "image", "inspect", "--format={{.Size}}", image))
    print("\n" + run("docker", "history", "--format={{.Size}} {{.CreatedBy}}", image) + f"image: {size / 1e6:.0f} MB")
    assert size < 200e6


def test_every_container_is_healthy_and_has_few_rights(node):
    containers = node.containers()
    assert set(containers) == {*ROLES, "prometheus"}
    for service, container in containers.items():
        assert container["State"]["Health"]["Status"] == "healthy", service
        assert container["HostConfig"]["ReadonlyRootfs"] and container["HostConfig"]["CapDrop"] == ["ALL"], service
        status = Path(f"/proc/{container['State']['Pid']}/status").read_text()
        assert re.search(r"^Uid:\t(\d+)", status, re.M)[1] != "0", service
        assert re.search(r"^CapEff:\t(\w+)", status, re.M)[1] == "0" * 16, service


def test_a_streamed_answer(node):
    answer = json.loads(node.moestro("moestro", "generate", "--prompt=Hello", "--max-tokens=8", "--ignore-eos", "--json"))
    assert len(answer["token_ids"]) == 8


def test_the_load_test_sees_no_error(node):
    report = json.loads(node.moestro("moestro-loadtest", "poisson", "--rate=2", "--duration=20", "--prompt-tokens=16-256",
                                     "--output-tokens=8-32", "--json=-", seconds=300))["all"]
    print(f"\n{report['completed']} requests, {report['output_tokens']} tokens, first token after "
          f"{1000 * report['ttft_seconds']['p50']:.0f} ms (median)")
    assert report["completed"] == report["requests"] > 10 and report["failed"] == 0
    assert node.metric("router", "moestro_requests_running") == 0


def test_the_roles_share_one_copy_of_the_weights(node):
    # Prefill's work, so that it touches its weights, as the load has made decode do.
    node.moestro("moestro", "score", "--text=" + "The quick brown fox jumps over the lazy dog. " * 3, seconds=120)
    segment = node.metric("weight-store", "moestro_weights_segment_bytes")
    shares, inodes = {}, set()
    for role in ROLES:
        head, pss, rss = False, 0, 0
        for line in Path(f"/proc/{node.role_pid(role)}/smaps").read_text().splitlines():
            if found := re.match(r"^[0-9a-f]+-[0-9a-f]+ (\S+) \S+ (\S+) (\d+)\s*(.*)$", line):
                head = ".weights." in found[4]
                if head:
                    inodes.add((found[2], found[3]))
                    assert found[1] == ("rw-s" if role == "weight-store" else "r--s")
            elif head and (field := re.match(r"^(Pss|Rss):\s+(\d+) kB$", line)):
                pss, rss = pss + int(field[2]) * 1024 * (field[1] == "Pss"), rss + int(field[2]) * 1024 * (field[1] == "Rss")
        shares[role] = (pss, rss)
    print(f"\nsegment {segment / MIB:.0f} MiB")
    for role, (pss, rss) in shares.items():
        print(f"  {role:13} maps {rss / MIB:7.0f} MiB of it; its share (Pss) {pss / MIB:7.0f} MiB")
    assert len(inodes) == 1, "one object in memory, the same for all"
    assert shares["router"] == (0, 0)
    assert sum(pss for pss, _ in shares.values()) <= segment * 1.001
    assert sum(rss for _, rss in shares.values()) > segment * 1.5, "too little was touched to say anything"


def test_prometheus_scrapes_every_role(node):
    wait_until(lambda: node.query('up{job="moestro"}') == {role.replace("-", "_"): 1 for role in ROLES}, 30, "four targets up")


class Answer(threading.Thread):
    """A long answer that streams to the image's command line outside the node; always the same, as far as it goes."""

    def __init__(self, node, tokens=800):
        super().__init__()
        self.node, self.tokens, self.ids, self.error = node, tokens, None, None
        self.before = node.metric("router", "moestro_generation_tokens_total")
        self.start()
        wait_until(lambda: node.metric("router", "moestro_generation_tokens_total") > self.before + 3, 60, "tokens stream")

    def run(self):
        try:
            out = self.node.moestro("moestro", "generate", "--prompt=Hello", f"--max-tokens={self.tokens}", "--ignore-eos",
                                    "--temperature=0", "--json", seconds=180)
            self.ids = json.loads(out)["token_ids"]
        except AssertionError as error:
            self.error = error

    def result(self):
        self.join()
        assert self.error is None, self.error
        assert len(self.ids) == self.tokens
        return self.ids


@pytest.fixture(scope="module")
def first_answer(node):
    """Token ids, and how many there were a second."""
    begin = time.monotonic()
    ids = Answer(node).result()
    return ids, len(ids) / (time.monotonic() - begin)


@pytest.fixture(scope="module")
def expected(first_answer):
    return first_answer[0]


@pytest.mark.parametrize("service", [*ROLES, "prometheus"])
def test_a_killed_container_comes_back_without_loading(node, expected, service):
    weights = {entry for entry in node.shared_objects() if ".weights." in entry[0]}
    assert len(weights) == 1
    answer = Answer(node) if service not in ("router", "prometheus") else None
    killed, begin = node.pid(service), time.monotonic()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: node.pid(service) not in (0, killed) and node.healthy(service), BACK_SECONDS, f"{service} is healthy")
    print(f"\n{service}: healthy {time.monotonic() - begin:.1f} s after its end")
    if answer is not None:
        assert answer.result() == expected, "the request goes on where it was"
    wait_until(lambda: node.healthy("router"), BACK_SECONDS, "the router is healthy")
    assert {entry for entry in node.shared_objects() if ".weights." in entry[0]} == weights, "the same memory"
    if service == "weight-store":
        assert node.metric(service, "moestro_weights_load_seconds") == 0
        assert "nothing to load" in node.compose("logs", service)
    node.moestro("moestro", "generate", "--prompt=Hello", "--max-tokens=2")


@pytest.mark.parametrize("service", ROLES)
def test_a_stopped_role_goes_on_in_its_container(node, service):
    """Nothing replaces it, though ten seconds are longer than an answer may be late."""
    container, stopped = node.pid(service), node.role_pid(service)
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(10)
    os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: node.healthy(service) and node.healthy("router"), BACK_SECONDS, "all are healthy")
    assert (node.pid(service), node.role_pid(service)) == (container, stopped)
    node.moestro("moestro", "generate", "--prompt=Hello", "--max-tokens=2")


def test_down_drains_and_leaves_nothing(node, first_answer):
    root = run("docker", "info", "--format={{.DockerRootDir}}").strip()
    assert f"{root}/volumes/{PROJECT}_shm" in Path("/proc/mounts").read_text()
    objects = {name for name, _ in node.shared_objects()}
    assert objects
    expected, rate = first_answer
    answer = Answer(node, tokens=min(3000, int(10 * rate)))  # well within the drain time, and not over at once
    log = subprocess.Popen(["docker", "logs", "--follow", "--tail=0", node.containers()["router"]["Id"]], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    begin = time.monotonic()
    node.compose("down", seconds=120)
    print(f"\ndown took {time.monotonic() - begin:.1f} s with a request at work")
    ids = answer.result()
    assert ids[:len(expected)] == expected[:len(ids)]
    last_words = log.communicate()[0]
    assert 0 <= last_words.find("terminating") < last_words.find("generate done"), "what ran was let to its end"
    label = f"--filter=label=com.docker.compose.project={PROJECT}"
    assert run("docker", "ps", "--all", "--quiet", label) == run("docker", "network", "ls", "--quiet", label) == ""
    assert f"{root}/volumes/{PROJECT}" not in Path("/proc/mounts").read_text(), "sockets and shared memory are gone"
    assert not objects & set(os.listdir("/dev/shm")), "nothing in the machine's own"
    node.compose("down", "--volumes")
    assert run("docker", "volume", "ls", "--quiet", label) == ""


def test_a_missing_model_directory_is_an_error(node):
    node.environment["MOESTRO_MODEL_DIR"] = "/nowhere"
    with pytest.raises(AssertionError, match="/nowhere"):
        node.compose("up", "--detach", "--no-build", "weight-store")
