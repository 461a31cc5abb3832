"""deploy/supervise: roles that hang, roles that keep failing, roles whose files are removed; on a separate node."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from node import ROLES, free_port, wait_until
from test_deploy import consecutive_free_ports, is_serving, pid_of

SILENT_SECONDS = 4  # instead of 30

pytestmark = pytest.mark.no_sanitizer(reason="deploy/up runs build/release")


def up(repo, model, run_dir, **options):
    ports = [consecutive_free_ports(), consecutive_free_ports()]
    result = subprocess.run([repo / "deploy/up", "--no-build", "--detach", "--model", model, "--run-dir", run_dir,
                             "--grpc-port", str(ports[0]), "--http-port", str(free_port()),
                             "--metrics-port", str(ports[1])],
                            capture_output=True, text=True, timeout=120, **options)
    return {"up": result, "run_dir": run_dir, "server": f"127.0.0.1:{ports[0]}"}


@pytest.fixture(scope="module")
def deployed(repo, bin_dir, tiny_model, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("supervise") / "node"
    node = up(repo, tiny_model, run_dir, env=dict(os.environ, MOESTRO_SILENT_SECONDS=str(SILENT_SECONDS)))
    assert node["up"].returncode == 0, node["up"].stdout + node["up"].stderr
    yield node
    subprocess.run([repo / "deploy/down", "--run-dir", run_dir], timeout=120)


def is_back(cli, deployed, role, old):
    try:
        return pid_of(deployed, role) != old and is_serving(cli, deployed)
    except (FileNotFoundError, ValueError):
        return False


@pytest.mark.parametrize("role", ROLES)
def test_a_role_without_a_sign_of_life_is_killed_and_started_again(deployed, cli, role):
    """It lives, but what it writes is not seen any more: it does not follow links. Slow: it has SILENT_SECONDS."""
    run_dir, old = deployed["run_dir"], pid_of(deployed, role)
    (run_dir / "link").symlink_to("node.env")
    (run_dir / "link").rename(run_dir / f"{role}.heartbeat")
    begin = time.monotonic()
    wait_until(lambda: not os.path.exists(f"/proc/{old}"), 3 * SILENT_SECONDS, f"the silent {role} is killed")
    print(f"{role} was killed after {time.monotonic() - begin:.1f} s")
    assert f"{role} shows no sign of life" in (run_dir / "logs/supervise.log").read_text()
    wait_until(lambda: is_back(cli, deployed, role, old), 15, f"{role} is back")
    assert cli("generate", "--server", deployed["server"], "--prompt", "Hi", "--max-tokens", 3).returncode == 0


def test_a_stopped_role_is_left_alone_and_so_is_one_in_a_debugger(deployed, cli):
    stopped, debugged = pid_of(deployed, "decode"), pid_of(deployed, "prefill")
    unwatched = deployed["run_dir"] / "prefill.unwatched"
    unwatched.touch()
    for pid in (stopped, debugged):
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(2 * SILENT_SECONDS)
        assert pid_of(deployed, "decode") == stopped and pid_of(deployed, "prefill") == debugged
    finally:
        for pid in (stopped, debugged):
            os.kill(pid, signal.SIGCONT)
        unwatched.unlink()
    wait_until(lambda: is_serving(cli, deployed), 10, "the node serves")
    log = (deployed["run_dir"] / "logs/supervise.log").read_text()
    assert f"decode is stopped: kill -CONT {stopped} lets it go on" in log and "prefill is stopped" not in log


def test_a_node_with_a_stopped_role_can_be_looked_at_and_ends(repo, cli, tiny_model, tmp_path):
    """Slow: a node of its own. The role hears SIGTERM as soon as it may go on."""
    node = up(repo, tiny_model, tmp_path / "node")
    assert node["up"].returncode == 0, node["up"].stdout + node["up"].stderr
    try:
        pid = pid_of(node, "decode")
        os.kill(pid, signal.SIGSTOP)
        status = subprocess.run([repo / "deploy/status", "--run-dir", node["run_dir"]], capture_output=True, text=True)
        assert f"stopped (kill -CONT {pid} lets it go on)" in status.stdout
        told = cli("config", "--run-dir", node["run_dir"], check=False)
        assert told.returncode == 3 and "[prefill]" in told.stdout and "[decode]" not in told.stdout
    finally:
        begin = time.monotonic()
        down = subprocess.run([repo / "deploy/down", "--run-dir", node["run_dir"]], capture_output=True, text=True)
    assert down.returncode == 0, down.stderr
    assert time.monotonic() - begin < 30, "it waited for the stopped role"


@pytest.mark.parametrize("seconds", ["abc", "1.5", "0", "-5", "30s"])
def test_a_wrong_time_of_silence_is_refused_by_name(repo, tmp_path, seconds):
    refused = subprocess.run([repo / "deploy/watch", tmp_path / "role", "true"], capture_output=True, text=True,
                             env=dict(os.environ, MOESTRO_SILENT_SECONDS=seconds))
    assert refused.returncode == 2 and "MOESTRO_SILENT_SECONDS" in refused.stderr


def test_the_out_of_memory_killer_takes_the_router_first(deployed):
    scores = {role: int(Path(f"/proc/{pid_of(deployed, role)}/oom_score_adj").read_text()) for role in ROLES}
    assert scores["router"] == 300
    may_lower = os.getuid() == 0 and allowed_to_lower()
    assert {scores[role] for role in ROLES if role != "router"} == ({-900} if may_lower else {0})


def allowed_to_lower():
    """Whether this process has CAP_SYS_RESOURCE."""
    effective = re.search(r"^CapEff:\t(\w+)", Path("/proc/self/status").read_text(), re.M)[1]
    return bool(int(effective, 16) >> 24 & 1)


def test_files_that_somebody_removes_do_not_make_the_next_crash_final(deployed, repo, cli):
    for name in ("supervise.pid", "router.heartbeat"):
        (deployed["run_dir"] / name).unlink()
    again = subprocess.run([repo / "deploy/up", "--no-build", "--run-dir", deployed["run_dir"]], capture_output=True,
                           text=True, timeout=60)
    assert again.returncode != 0 and "already runs" in again.stderr
    wait_until((deployed["run_dir"] / "router.heartbeat").exists, 5, "the file comes again")
    old = pid_of(deployed, "router")
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: is_back(cli, deployed, "router", old), 15, "the router is back")


def test_pauses_grow_with_failures_one_after_the_other(deployed):
    """A role that has been ready and run for ten seconds has recovered. Slow: it must run so long twice."""
    def pauses():
        log = (deployed["run_dir"] / "logs/supervise.log").read_text()
        return [int(pause) for pause in re.findall(r"decode ended with code \d+; starting it again in (\d+) s", log)]

    def times_ready():
        log = (deployed["run_dir"] / "logs/decode.log").read_text()
        return len(re.findall(r"^moestro-decode ready |\[decode\] ready", log, re.M))

    def kill():
        failures, ready = len(pauses()), times_ready()
        os.kill(pid_of(deployed, "decode"), signal.SIGKILL)
        # Not until the whole node serves: on a busy machine decode might recover meanwhile.
        wait_until(lambda: len(pauses()) == failures + 1 and times_ready() == ready + 1, 20, "decode is ready again")

    def let_it_recover():
        begun = (deployed["run_dir"] / "decode.pid").stat().st_mtime
        wait_until(lambda: time.time() - begun > 11, 12, "it has run for ten seconds")  # supervise counts whole ones

    let_it_recover()
    before = len(pauses())
    for _ in range(3):
        kill()
    let_it_recover()
    kill()
    assert pauses()[before:] == [0, 1, 2, 0]


def test_logs_do_not_grow_without_bound(deployed):
    log = deployed["run_dir"] / "logs/prefill.log"
    with open(log, "a") as out:
        out.write("x" * ((16 << 20) + 1))
    wait_until(lambda: log.stat().st_size < 1 << 20, 15, "the log begins anew")
    assert log.with_name("prefill.log.1").stat().st_size > 16 << 20
    os.kill(pid_of(deployed, "prefill"), signal.SIGKILL)
    wait_until(lambda: "ready" in log.read_text(), 20, "its successor writes where the log begins")
    assert "\0" not in log.read_text()


def test_down_ends_what_has_no_process_id_left(repo, tiny_model, deployed):
    """Last: the module's node is gone afterwards."""
    pids = [pid_of(deployed, role) for role in ROLES]
    for name in deployed["run_dir"].glob("*.pid"):
        name.unlink()
    down = subprocess.run([repo / "deploy/down", "--run-dir", deployed["run_dir"]], capture_output=True, text=True,
                          timeout=120)
    assert down.returncode == 0, down.stderr
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
