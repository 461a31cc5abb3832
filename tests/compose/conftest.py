import json
import os
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "integration"))
from node import REPO, free_port  # noqa: E402

PROJECT = "moestro-test"
IMAGE = "moestro-test:local"
BASE = "moestro-test-base"
# tests/compose/run sets DOCKER_HOST; the stop grace of compose.yaml bounds `down`.
BUILD_SECONDS, START_SECONDS = 3600, 300


def run(*command, seconds=60, check=True, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=seconds, **options)
    assert not check or result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout[-3000:]}{result.stderr[-3000:]}"
    return result.stdout


class Deployment:
    """deploy/compose.yaml, and files on top of it, as one project of the engine, with ports of its own."""

    def __init__(self, model, project=PROJECT, on_top=()):
        self.project = project
        self.files = [f"--file={file}" for file in (REPO / "deploy/compose.yaml", HERE / "compose.ci.yaml", *on_top)]
        self.port, self.prometheus_port = free_port(), free_port()
        cache = run("ccache", "--get-config", "cache_dir").strip()
        os.makedirs(cache, exist_ok=True)
        self.environment = dict(
            os.environ, COMPILER_CACHE=cache, MOESTRO_BASE=BASE, MOESTRO_IMAGE=IMAGE, MOESTRO_MODEL_DIR=str(model),
            MOESTRO_MODEL_NAME="compose", MOESTRO_PORT=str(self.port), PROMETHEUS_PORT=str(self.prometheus_port))

    def compose(self, *arguments, **options):
        return run("docker", "compose", "--project-name", self.project, *self.files, *arguments, env=self.environment, **options)

    def __enter__(self):
        """Up and healthy."""
        self.compose("down", "--volumes", "--remove-orphans", seconds=120)
        begin = time.monotonic()
        try:
            self.compose("up", "--detach", "--wait", "--no-build", seconds=START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        print(f"\nup --wait returned after {time.monotonic() - begin:.1f} s")
        return self

    def __exit__(self, *_):
        self.compose("down", "--volumes", "--remove-orphans", seconds=120)

    def containers(self):
        """service -> what `docker inspect` says."""
        ids = self.compose("ps", "--all", "--quiet").split()
        return {item["Config"]["Labels"]["com.docker.compose.service"]: item
                for item in (json.loads(run("docker", "inspect", *ids)) if ids else ())}

    def pid(self, service):
        return self.containers()[service]["State"]["Pid"]

    def role_pid(self, service):
        """Of the role, which the container's first process watches."""
        first = self.pid(service)
        for child in Path(f"/proc/{first}/task/{first}/children").read_text().split():
            if os.readlink(f"/proc/{child}/exe").rpartition("/")[2].startswith("moestro-"):
                return int(child)
        return None

    def healthy(self, service):
        state = self.containers()[service]["State"]
        return state["Running"] and state["Health"]["Status"] == "healthy"

    def moestro(self, *arguments, **options):
        """The image's own command line, from outside the node."""
        return run("docker", "run", "--rm", "--network=host", f"--env=MOESTRO_SERVER=127.0.0.1:{self.port}", IMAGE,
                   *arguments, **options)

    def metric(self, service, name):
        networks = self.containers()[service]["NetworkSettings"]["Networks"]
        port = {"router": 9400, "weight-store": 9401, "prefill": 9402, "decode": 9403}[service]
        url = f"http://{next(iter(networks.values()))['IPAddress']}:{port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as reply:
            lines = reply.read().decode().splitlines()
        values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0] == name]
        assert values, f"{service} has no {name}"
        return sum(values)

    def query(self, expr):
        """Label `role` -> value."""
        url = f"http://127.0.0.1:{self.prometheus_port}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
        with urllib.request.urlopen(url, timeout=5) as reply:
            return {series["metric"].get("role", ""): float(series["value"][1])
                    for series in json.load(reply)["data"]["result"]}

    def shared_objects(self):
        """(name, inode) of everything in the shared memory of the node, as decode sees it."""
        folder = f"/proc/{self.pid('decode')}/root/dev/shm"
        return {(entry.name, entry.inode()) for entry in os.scandir(folder)}


@pytest.fixture(scope="session")
def image():
    """Built from docker/Dockerfile as compose does it; and Prometheus, from Debian's package."""
    run(HERE / "base", BASE, seconds=BUILD_SECONDS)
    prometheus = run(HERE / "next-release", "prometheus", "prometheus", "promtool", seconds=BUILD_SECONDS).strip()
    run("docker", "build", "--build-arg", f"BASE={BASE}", "--tag", "moestro-test-prometheus", "--file",
        HERE / "prometheus.dockerfile", f"{prometheus}/usr/bin", seconds=BUILD_SECONDS)
    begin = time.monotonic()
    Deployment(REPO).compose("build", seconds=BUILD_SECONDS)
    print(f"\nimage built in {time.monotonic() - begin:.0f} s")
    return IMAGE


@pytest.fixture(scope="session")
def model(image, tmp_path_factory):
    """A checkpoint that user 10001 may read: small steps, but some 160 MiB of weights."""
    folder = tmp_path_factory.mktemp("models")
    for parent in (folder, *folder.parents[:-1]):
        parent.chmod(parent.stat().st_mode | 0o755)
    run("docker", "run", "--rm", "--user=0:0", "--volume", f"{folder}:/out", image, "moestro", "make-model", "--preset=tiny",
        "--layers=16", "--experts=64", "--out=/out/model", seconds=600)
    yield folder / "model"
    shutil.rmtree(folder, ignore_errors=True)


def refusal(image):
    """Why the engine starts no container of compose.rights.yaml; empty: it does."""
    try:
        run("docker", "run", "--rm", "--ulimit=rtprio=1", "--ulimit=memlock=-1", "--oom-score-adj=-900", image, "true")
        return ""
    except AssertionError as error:
        return str(error).strip().splitlines()[-1]


# As it is, which must work on every engine, and with the rights that some grant.
@pytest.fixture(scope="module", params=["", "compose.rights.yaml"], ids=["plain", "rights"])
def node(model, image, request):
    if request.param and (reason := refusal(image)):
        pytest.skip(f"this engine grants no such rights: {reason}")
    with Deployment(model, on_top=[REPO / "deploy" / request.param] if request.param else ()) as deployment:
        yield deployment
