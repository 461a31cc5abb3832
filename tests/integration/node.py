"""Runs the real binaries as one node and talks to it over gRPC."""

import importlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import grpc

REPO = Path(__file__).resolve().parents[2]
ROLES = ("weight_store", "prefill", "decode", "router")
START_SECONDS = 60
# Tests may compare greedy tokens across changes that affect the last bits (number of devices, form of MLA), if each
# token leads the second best by more than the movement of two logits of the tiny models. That is 0.25 each, in natural
# logarithms, as in tests/common/model/tolerance.h. Golden prompts need no such check: tests/golden/README.md explains
# why.
CLEAR_LEAD = 0.5
SLOWNESS = 1  # the slowness of the binaries: multiplies limits on what they do
PATIENCE = 4  # multiplies waits: on a busy machine they take as long as they must
HANG_SECONDS = 300  # a request that takes longer hangs: no request here needs that, however busy the machine is


# Below the ports of outgoing connections: one of these must not take the port between this check and the listening.
PORTS = range(12000, 32000)
first_port = os.getpid() * 101 % len(PORTS)
ports = itertools.cycle([*PORTS[first_port:], *PORTS[:first_port]])


def free_port():
    """A port without a listener. Test processes begin at different ones, and none is returned twice soon."""
    for port in ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


SERVICES = {"weight_store": "WeightStore", "prefill": "Prefill", "decode": "Decode", "router": "Inference"}


def wait_until(condition, seconds, what):
    """Polls until `condition()` is true; fails the test after `seconds`, times what a slow machine needs."""
    seconds *= SLOWNESS * PATIENCE
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


class Api:
    """The generated messages and calls of proto/, compiled once per session."""

    def __init__(self, modules):
        self.__dict__.update(modules)


def compile_api(out):
    """Python messages and stubs from proto/, made in the folder `out` with the same protoc as the C++ ones."""
    plugin = subprocess.run(["which", "grpc_python_plugin"], capture_output=True, text=True, check=True).stdout.strip()
    protos = sorted(str(p.relative_to(REPO / "proto")) for p in (REPO / "proto").rglob("*.proto"))
    subprocess.run(["protoc", "-I", str(REPO / "proto"), f"--python_out={out}", f"--grpc_out={out}",
                    f"--plugin=protoc-gen-grpc={plugin}", *protos], check=True)
    sys.path.insert(0, str(out))
    modules = {}
    for name in ("types", "inference", "weight_store", "prefill", "decode"):
        modules[name] = importlib.import_module(f"moestro.v1.{name}_pb2")
    for name in ("inference", "decode", "prefill"):
        modules[name + "_grpc"] = importlib.import_module(f"moestro.v1.{name}_pb2_grpc")
    # The health messages are in package grpc.health.v1, whose folder would hide the grpc library: load them by path.
    grpc.__path__.append(str(out / "grpc"))
    modules["health"] = importlib.import_module("grpc.health.v1.health_pb2")
    modules["health_grpc"] = importlib.import_module("grpc.health.v1.health_pb2_grpc")
    return Api(modules)


class Node:
    """Four processes in a separate run directory. Use as a context manager."""

    def __init__(self, api, bin_dir, model, flags=None):
        self.api, self.bin, self.model = api, bin_dir, str(model)
        self.flags = flags or {}
        self.run_dir = tempfile.mkdtemp(prefix="moe-")
        self.instance = "t" + os.path.basename(self.run_dir)[4:].replace("_", "-")
        self.grpc_port = free_port()
        self.http_port = free_port()
        self.grpc_address = f"127.0.0.1:{self.grpc_port}"  # where the router listens
        self.health_address = self.grpc_address            # and where it tells its health
        self.metrics_port = {role: free_port() for role in ROLES}
        self.processes = {}
        self.channel = grpc.insecure_channel(
            f"127.0.0.1:{self.grpc_port}",
            options=[("grpc.max_receive_message_length", 64 << 20), ("grpc.max_reconnect_backoff_ms", 200),
                     ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.min_reconnect_backoff_ms", 10000)],
        )
        self.stub = api.inference_grpc.InferenceServiceStub(self.channel)

    def __enter__(self):
        try:
            for role in ROLES:
                self.start(role)
            self.wait_serving()
        except BaseException:
            # Nobody calls __exit__ if __enter__ fails.
            self.channel.close()
            self.kill_all()
            shutil.rmtree(self.run_dir, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_):
        self.channel.close()
        self.stop()
        shutil.rmtree(self.run_dir, ignore_errors=True)

    # Processes -----------------------------------------------------------------------------------------------------

    def command(self, role):
        binary = os.path.join(self.bin, "moestro-" + role.replace("_", "-"))
        command = [binary, "--run-dir", self.run_dir, "--instance", self.instance, "--drain-seconds", "5",
                   "--metrics-address", f"127.0.0.1:{self.metrics_port[role]}"]
        if role == "weight_store":
            command += ["--model", self.model]
        if role == "router":
            command += ["--grpc-address", self.grpc_address, "--http-address", f"127.0.0.1:{self.http_port}"]
        flags = self.flags.get(role, [])
        if role == "router" and "--path-policy" not in flags:
            command += ["--path-policy", "paper"]  # the path depends on the request, not on the machine's speed
        # Progress comes as often on every machine.
        rows = {"prefill": "--chunk-tokens", "decode": "--max-chunk-tokens"}.get(role)
        if rows and rows not in flags:
            command += [rows, "256"]
        if role == "decode" and "--poison-freed-pages" not in flags:
            command += ["--poison-freed-pages", "true"]  # whoever reads a page that is not its own gets an error
        return command + flags

    def start(self, role):
        with open(self.log_path(role), "ab") as log:
            self.processes[role] = subprocess.Popen(self.command(role), stdout=log, stderr=log)

    def log_path(self, role):
        return os.path.join(self.run_dir, role + ".log")

    def log(self, role):
        with open(self.log_path(role), errors="replace") as log:
            return log.read()

    def pid(self, role):
        return self.processes[role].pid

    def kill(self, role):
        self.processes[role].send_signal(signal.SIGKILL)
        self.processes[role].wait()

    def kill_all(self):
        """Ends the running processes at once, and removes their shared memory."""
        for role, process in self.processes.items():
            if process.poll() is None:
                self.kill(role)
        subprocess.run([os.path.join(self.bin, "moestro"), "segments", "prune", "--instance", self.instance],
                       stdout=subprocess.DEVNULL, check=True)

    def stop(self):
        """SIGTERM in the order of deploy/supervise; every process must end by itself with exit code 0."""
        codes = {}
        for role in reversed(ROLES):
            process = self.processes.get(role)
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            try:
                codes[role] = process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                codes[role] = "killed after 30 s"
        bad = {role: code for role, code in codes.items() if code != 0}
        assert not bad, f"bad exit codes {bad}: " + "".join(self.log(role)[-2000:] for role in bad)

    # Health and metrics --------------------------------------------------------------------------------------------

    def serving(self, role="router"):
        target = self.health_address if role == "router" else f"unix:{self.run_dir}/{role}.sock"
        with grpc.insecure_channel(target) as channel:
            try:
                reply = self.api.health_grpc.HealthStub(channel).Check(self.api.health.HealthCheckRequest(), timeout=1)
            except grpc.RpcError:
                return False
        return reply.status == self.api.health.HealthCheckResponse.SERVING

    def wait_serving(self, role="router", seconds=START_SECONDS):
        def alive_and_serving():
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}: {self.log(name)[-3000:]}"
            return self.serving(role)
        wait_until(alive_and_serving, seconds, f"{role} is serving")

    def metrics(self, role):
        """{name or name{labels}: value} of one role's /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port[role]}/metrics", timeout=5) as reply:
            text = reply.read().decode()
        return {m[1]: float(m[2]) for m in re.finditer(r"^([^#\s][^ ]*) (\S+)$", text, re.M)}

    def metric(self, role, name):
        """The sum of a metric over its labels."""
        values = [v for k, v in self.metrics(role).items() if k.split("{")[0] == name]
        assert values, f"{role} has no metric {name}"
        return sum(values)

    def wait_all_pages_free(self, seconds=5):
        wait_until(lambda: self.metric("decode", "moestro_kv_pages_free") == self.metric("decode", "moestro_kv_pages")
                   and self.metric("decode", "moestro_kv_pages") > 0, seconds, "all KV pages are free")

    # Requests ------------------------------------------------------------------------------------------------------

    def request(self, prompt, max_tokens=16, **fields):
        message = self.api.inference.GenerateRequest(max_tokens=max_tokens, **fields)
        if isinstance(prompt, str):
            message.prompt = prompt
        else:
            message.token_ids.ids.extend(prompt)
        return message

    def generate(self, prompt, max_tokens=16, timeout=HANG_SECONDS, temperature=0.0, **fields):
        """Runs a request to its end; returns (token ids, text, finished)."""
        call = self.stub.Generate(self.request(prompt, max_tokens, temperature=temperature, **fields), timeout=timeout)
        return collect(call)

    def generate_clear(self, prompt, max_tokens):
        """Greedy tokens that other devices must give, too; fails if a prompt is unsuitable for that."""
        ids = self.generate(prompt, max_tokens, ignore_eos=True)[0]
        best = [score.top for score in self.score(prompt + ids, top=2)[len(prompt):]]
        leads = [top[0].logprob - top[1].logprob for top in best]
        assert min(leads) > CLEAR_LEAD, f"near ties, take another prompt: leads {leads}"
        return ids

    def score(self, token_ids, top=0, timeout=HANG_SECONDS, way=0):
        message = self.api.inference.ScoreRequest(top=top, way=way)
        message.token_ids.ids.extend(token_ids)
        return [s for reply in self.stub.Score(message, timeout=timeout) for s in reply.scores]

    # Shared memory -------------------------------------------------------------------------------------------------

    def shared_memory(self):
        return sorted(name for name in os.listdir("/dev/shm") if name.startswith(f"moestro.{self.instance}."))


def collect(call):
    ids, text, finished = [], "", None
    for reply in call:
        if reply.HasField("tokens"):
            ids += [token.id for token in reply.tokens.tokens]
            text += reply.tokens.text
        elif reply.HasField("finished"):
            finished = reply.finished
    return ids, text, finished
