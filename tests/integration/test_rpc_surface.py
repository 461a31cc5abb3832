"""What every process offers besides its own service: health, reflection, metrics, an orderly shutdown."""

import os
import resource
import signal
import subprocess
import threading

import grpc
import pytest

from node import HANG_SECONDS, ROLES, SERVICES, wait_until

pytestmark = pytest.mark.smoke


def reflect(target, request):
    """One raw message to the reflection service."""
    with grpc.insecure_channel(target) as channel:
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        return next(call(iter([request]), timeout=5))


@pytest.mark.parametrize("role", ROLES)
def test_health_and_reflection(node, role):
    target = f"unix:{node.run_dir}/{role}.sock"
    assert node.serving(role)
    services = reflect(target, b"\x3a\x01*")  # list_services
    assert f"moestro.v1.{SERVICES[role]}Service".encode() in services and b"grpc.health.v1.Health" in services
    symbol = b"grpc.health.v1.Health"
    described = reflect(target, b"\x22" + bytes([len(symbol)]) + symbol)  # file_containing_symbol
    assert b"HealthCheckResponse" in described, "the health service can be listed but not described"
    with grpc.insecure_channel(target) as channel:
        health = node.api.health_grpc.HealthStub(channel)
        reply = health.Check(node.api.health.HealthCheckRequest(service=f"moestro.v1.{SERVICES[role]}Service"), timeout=5)
        assert reply.status == node.api.health.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as unknown:
            health.Check(node.api.health.HealthCheckRequest(service="nobody"), timeout=5)
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("role, names", [
    ("weight_store", ["moestro_weights_segment_bytes", "moestro_weights_ready", "moestro_weights_attached"]),
    ("prefill", ["moestro_prefill_tokens_total", "moestro_prefill_waiting"]),
    ("decode", ["moestro_decode_tokens_total", "moestro_decode_prompt_tokens_total", "moestro_decode_chunk_tokens",
                "moestro_decode_step_seconds_count", "moestro_decode_step_sequences_count",
                "moestro_decode_step_decode_rows_count", "moestro_decode_step_prompt_rows_count",
                "moestro_decode_batch_size", "moestro_decode_sequences_waiting",
                "moestro_decode_sequences_waiting_for_pages", "moestro_kv_preemptions_total", "moestro_kv_usage_ratio",
                "moestro_kv_pages_free", "moestro_kv_pages_cached", "moestro_prefix_cache_queried_tokens_total",
                "moestro_prefix_cache_hit_tokens_total", "moestro_prefix_cache_evicted_pages_total"]),
    ("router", ["moestro_requests_running", "moestro_requests_waiting", "moestro_prompt_tokens_total",
                "moestro_prompt_tokens_cached_total", "moestro_request_path_total", "moestro_request_preempted_total",
                "moestro_request_prefill_seconds_count", "moestro_request_decode_seconds_count"]),
])
def test_metrics_are_there(node, role, names):
    for name in names:
        assert node.metric(role, name) >= 0


def test_metrics_move(node):
    before = node.metric("router", "moestro_generation_tokens_total")
    node.generate("count me", 7, ignore_eos=True)
    assert node.metric("router", "moestro_generation_tokens_total") == before + 7
    assert node.metric("weight_store", "moestro_weights_attached") >= 2


def test_inside_is_unix_sockets_and_outside_is_loopback(node):
    for role in ROLES:
        assert os.path.exists(f"{node.run_dir}/{role}.sock")
    listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True).stdout
    pids = {str(node.pid(role)) for role in ROLES}
    for line in listening.splitlines():
        if any(f"pid={pid}," in line for pid in pids):
            address = line.split()[3]
            assert address.startswith(("127.0.0.1:", "[::ffff:127.0.0.1]:")), f"open to the network: {line}"


def test_sigterm_lets_a_running_request_finish(make_node, absorbed):
    with make_node(absorbed) as other:
        expected = other.generate([1, 5, 6], 600, ignore_eos=True)[0]
        result = {}
        started = threading.Event()

        def run():
            call = other.stub.Generate(other.request([1, 5, 6], 600, temperature=0.0, ignore_eos=True), timeout=HANG_SECONDS)
            ids = []
            for reply in call:
                if reply.HasField("tokens"):
                    ids += [t.id for t in reply.tokens.tokens]
                    started.set()
            result["ids"] = ids

        thread = threading.Thread(target=run)
        thread.start()
        started.wait(HANG_SECONDS)
        os.kill(other.pid("decode"), signal.SIGSTOP)  # the request does not end before this has looked
        other.processes["router"].terminate()
        try:
            wait_until(lambda: not other.serving("router"), 5, "a draining router does not look healthy")
            assert other.processes["router"].poll() is None
        finally:
            os.kill(other.pid("decode"), signal.SIGCONT)
        thread.join(HANG_SECONDS)
        assert result["ids"] == expected
        assert other.processes["router"].wait(10) == 0


@pytest.mark.parametrize("instance", ["same", "other"])
@pytest.mark.parametrize("role", ROLES)
def test_second_process_on_the_same_run_dir_is_refused(node, role, instance):
    """Before it touches the first one's socket, whatever name it is given."""
    socket = f"{node.run_dir}/{role}.sock"
    flags = {"weight_store": ["--model", node.model], "router": ["--grpc-address", "127.0.0.1:0", "--http-address", "off"]}.get(role, [])
    name = node.instance if instance == "same" else node.instance + "-2"
    second = subprocess.run([*node.command(role)[:3], "--instance", name, *flags], capture_output=True, text=True,
                            timeout=30)
    assert second.returncode == 3, second.stderr
    for word in (socket, f"process {node.pid(role)} ", "--run-dir"):
        assert word in second.stdout + second.stderr
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        reply = node.api.health_grpc.HealthStub(channel).Check(node.api.health.HealthCheckRequest(), timeout=5)
    assert reply.status == node.api.health.HealthCheckResponse.SERVING
    assert node.generate("still here", 2, ignore_eos=True)[0]


def test_second_store_of_an_instance_leaves_the_segment_alone(node, tmp_path):
    before = node.shared_memory()
    second = subprocess.run([node.command("weight_store")[0], "--run-dir", tmp_path, "--instance", node.instance,
                             "--model", node.model], capture_output=True, text=True, timeout=30)
    assert second.returncode == 3 and "--instance" in second.stdout + second.stderr, second.stderr
    assert node.shared_memory() == before


@pytest.mark.no_sanitizer(reason="a sanitizer takes more address space than any limit leaves")
def test_threads_that_cannot_start_are_an_error(make_node):
    room = 6 << 30  # for the threads of gRPC and the stacks of some workers, not of 1024
    with make_node() as other:
        for role in ("decode", "prefill", "weight_store"):
            other.processes[role].terminate()
            assert other.processes[role].wait(30) == 0
            again = subprocess.run([*other.command(role), "--threads", "1024"], capture_output=True, text=True, timeout=30,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (room, room)))
            assert again.returncode == 3 and "1024 threads" in again.stdout + again.stderr, again.stderr
        assert not other.shared_memory()


def test_wrong_flags_are_usage_errors(bin_dir):
    for binary, flags, word in [
        ("moestro-decode", ["--max-batch", "65"], "--max-batch"),
        ("moestro-prefill", ["--mla-form", "folded"], "--mla-form"),
        ("moestro-decode", ["--int8-activations", "eight"], "--int8-activations"),
        ("moestro-weight-store", ["--model", "/nowhere"], "--model"),
        ("moestro-decode", ["--run-dir", "/" + "x" * 200], "--run-dir"),
        ("moestro-router", ["--log-level", "loud"], "--log-level"),
        ("moestro", ["status", "--timeout", "1e10"], "--timeout"),
        ("moestro-loadtest", ["poisson", "--timeout", "1e10"], "--timeout"),
        ("moestro-loadtest", ["poisson", "--connect-timeout", "0"], "--connect-timeout"),
        ("moestro", ["health", "--connect-timeout", "never"], "--connect-timeout"),
        ("moestro", ["batch", "a", "--out", "b", "--connect-timeout", "-1"], "--connect-timeout"),
        ("moestro-loadtest", ["paper", "--seconds-each", "1e300"], "--seconds-each"),
        ("moestro-loadtest", ["ramp", "--from", "10", "--to", "4"], "--from 10"),
    ]:
        result = subprocess.run([f"{bin_dir}/{binary}", *flags], capture_output=True, text=True, timeout=30)
        assert result.returncode == 2 and word in result.stderr, result.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_run_directories_of_others_are_refused(bin_dir, tmp_path):
    os.chown(tmp_path, 65534, -1)
    result = subprocess.run([f"{bin_dir}/moestro-decode", "--run-dir", tmp_path], capture_output=True, text=True, timeout=30)
    assert result.returncode == 2 and "another user" in result.stderr, result.stderr


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_run_directories_that_others_may_write_to_are_refused(bin_dir, tmp_path, mode):
    tmp_path.chmod(mode)
    result = subprocess.run([f"{bin_dir}/moestro-decode", "--run-dir", tmp_path], capture_output=True, text=True, timeout=30)
    assert result.returncode == 2 and "may be written by other users" in result.stderr, result.stderr


def test_run_directories_are_made_for_their_user_alone(bin_dir, tmp_path):
    subprocess.run([f"{bin_dir}/moestro-decode", "--run-dir", tmp_path / "new", "--instance", "new", "--max-batch", "65"],
                   capture_output=True, timeout=30, umask=0o002)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_forced_absent_isa_is_a_start_up_error(bin_dir, tmp_path):
    result = subprocess.run([f"{bin_dir}/moestro-decode", "--run-dir", tmp_path, "--instance", "isa"],
                            env=dict(os.environ, MOESTRO_ISA="sse1"), capture_output=True, text=True, timeout=30)
    assert result.returncode == 2 and "sse1" in result.stderr
