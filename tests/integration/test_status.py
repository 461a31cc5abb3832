"""moestro status, against a node that deploy/up did not start."""

import json
import os
import signal
import subprocess

import pytest

from node import HANG_SECONDS, wait_until

pytestmark = pytest.mark.smoke


PATIENT = ["--timeout", 30]  # a busy machine may need longer than the second that people wait


def metrics_flags(node, roles):
    return [word for role in roles for word in ("--metrics", f"{role}=127.0.0.1:{node.metrics_port[role]}")]


def test_a_request_at_work(node, cli):
    call = node.stub.Generate(node.request("Hello", 20000, ignore_eos=True), timeout=HANG_SECONDS)
    next(reply for reply in call if reply.HasField("tokens"))
    seen = json.loads(cli("status", "--run-dir", node.run_dir, *metrics_flags(node, node.metrics_port), "--json",
                          *PATIENT).stdout)
    call.cancel()
    assert seen["requests_running"] == seen["batch_size"] == 1
    assert seen["tokens_per_second"] > 0 and seen["inter_token_latency"]["interval"]["count"] > 0
    assert seen["kv_pages"]["leased"] > 0


def test_without_metrics_there_is_still_health(node, cli):
    shown = cli("status", "--run-dir", node.run_dir, *PATIENT)
    assert shown.stdout.count("serving") == 4 and shown.stdout.count("none") == 4
    seen = json.loads(cli("status", "--run-dir", node.run_dir, *metrics_flags(node, ["router"]), "--json",
                          *PATIENT).stdout)
    assert seen["roles"]["router"]["metrics"] and not seen["roles"]["decode"]["metrics"]
    assert seen["kv_pages"] is None and seen["requests_waiting"] == 0


@pytest.mark.parametrize("role", ["router", "decode"])
def test_a_stopped_role_is_down(node, cli, role):
    def others_are_up():
        result = cli("status", "--run-dir", node.run_dir, *metrics_flags(node, node.metrics_port), "--json",
                     check=False, timeout=60)
        roles = json.loads(result.stdout)["roles"]
        assert not roles[role]["up"] and not roles[role]["metrics"]
        return roles["prefill"]["up"] and roles["prefill"]["metrics"]

    os.kill(node.pid(role), signal.SIGSTOP)
    try:
        wait_until(others_are_up, 10, "prefill answers within a second")
    finally:
        os.kill(node.pid(role), signal.SIGCONT)
    node.wait_serving(seconds=10)


def test_no_node(cli, tmp_path):
    result = cli("status", "--run-dir", tmp_path, check=False)
    assert result.returncode == 3 and result.stdout.count("down") == 4 and str(tmp_path) in result.stderr
    assert cli("status", "--metrics", "nowhere", check=False).returncode == 2


def test_watch_looks_again(node, bin_dir):
    watch = subprocess.Popen([f"{bin_dir}/moestro", "status", "--run-dir", node.run_dir, "--watch", "0.2", "--json"],
                             stdout=subprocess.PIPE, text=True)
    looks = [json.loads(watch.stdout.readline()) for _ in range(3)]
    watch.kill()
    watch.wait()
    assert [look["interval_seconds"] > 0 for look in looks] == [False, True, True]
