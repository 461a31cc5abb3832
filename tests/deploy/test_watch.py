"""deploy/watch, which runs a role in a container: exit codes, signals, and what a role that hangs comes to."""

import signal
import subprocess
import time
from pathlib import Path

WATCH = Path(__file__).resolve().parents[2] / "deploy/watch"
BEATING = "i=0; while sleep 0.3; do i=$((i + 1)); echo $i >'{name}.heartbeat'; done"


def watch(name, script):
    return subprocess.Popen([WATCH, name, "bash", "-c", script], stderr=subprocess.PIPE, text=True)


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def test_the_exit_code_is_the_roles(tmp_path):
    for code in (0, 2, 3):
        assert watch(tmp_path / "role", f"exit {code}").wait(timeout=30) == code


def test_a_termination_reaches_the_role_which_takes_its_time(tmp_path):
    started = tmp_path / "started"
    running = watch(tmp_path / "role", f"trap 'sleep 2; exit 7' TERM; touch {started}; while true; do sleep 0.1; done")
    wait_for(started)
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=60) == 7


def test_a_role_whose_file_stands_still_is_killed(tmp_path):
    name, heartbeat = tmp_path / "role", tmp_path / "role.heartbeat"
    heartbeat.write_text("left by a predecessor")
    running = watch(name, BEATING.format(name=name).replace("while sleep 0.3", "while sleep 0.3 && [ $i -lt 10 ]") +
                    "; trap '' TERM; while true; do sleep 0.1; done")
    _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGKILL and "role shows no sign of life" in said
    assert heartbeat.read_text() == "10\n", "it was not killed while it counted on"


def test_a_role_that_beats_is_left_alone_and_so_is_one_in_a_debugger(tmp_path):
    name = tmp_path / "role"
    running = watch(name, BEATING.format(name=name))
    time.sleep(8)
    assert running.poll() is None
    (tmp_path / "other.unwatched").touch()
    other = watch(tmp_path / "other", f"echo 1 >'{tmp_path}/other.heartbeat'; exec sleep 8")
    assert other.wait(timeout=60) == 0
    running.terminate()
    assert running.wait(timeout=30) == 128 + signal.SIGTERM


def test_usage(tmp_path):
    result = subprocess.run([WATCH, tmp_path], capture_output=True, text=True)
    assert result.returncode == 2 and "usage" in result.stderr
