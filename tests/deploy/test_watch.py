"""deploy/watch, which runs a role in a container: exit codes, signals, and what a role that hangs comes to."""

import os
import signal
import subprocess
import time
from pathlib import Path

from freezer import FREEZERS, Frozen

WATCH = Path(__file__).resolve().parents[2] / "deploy/watch"
SILENT = "echo $$ >'{name}.pid'; echo 1 >'{name}.heartbeat'; "
BEATING = "i=0; while sleep 0.3; do i=$((i + 1)); echo $i >'{name}.heartbeat'; done"


def watch(name, script, silent=3):
    """`silent`: seconds, instead of half a minute."""
    return subprocess.Popen([WATCH, name, "bash", "-c", script], stderr=subprocess.PIPE, text=True,
                            env=dict(os.environ, MOESTRO_SILENT_SECONDS=str(silent)))


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


def dies_of(running):
    """What `watch` said about a role that it killed."""
    _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGKILL, said
    return said


def goes_on_after(pid, seconds):
    time.sleep(seconds)
    return Path(f"/proc/{pid}").exists()


def role_of(name):
    """The process that `watch` runs, by SILENT."""
    wait_for(Path(f"{name}.heartbeat"))
    return int(Path(f"{name}.pid").read_text())


def test_a_role_whose_file_stands_still_is_killed(tmp_path):
    name, heartbeat = tmp_path / "role", tmp_path / "role.heartbeat"
    heartbeat.write_text("left by a predecessor")
    said = dies_of(watch(name, BEATING.format(name=name).replace("while sleep 0.3", "while sleep 0.3 && [ $i -lt 10 ]") +
                         "; trap '' TERM; while true; do sleep 0.3; done"))
    assert "role shows no sign of life" in said
    assert heartbeat.read_text() == "10\n", "it was not killed while it counted on"


def test_a_role_that_says_that_it_hangs_is_killed_at_once(tmp_path):
    """Though it works, which would give it more time."""
    running = watch(tmp_path / "role", f"echo hangs >'{tmp_path}/role.heartbeat'; while true; do :; done", silent=1000)
    assert "role shows no sign of life" in dies_of(running)


def test_a_role_that_beats_is_left_alone_and_so_is_one_in_a_debugger(tmp_path):
    name = tmp_path / "role"
    running = watch(name, BEATING.format(name=name))
    (tmp_path / "other.unwatched").touch()
    other = watch(tmp_path / "other", f"echo 1 >'{tmp_path}/other.heartbeat'; exec sleep 6")
    assert other.wait(timeout=60) == 0
    assert running.poll() is None
    running.terminate()
    assert running.wait(timeout=30) == 128 + signal.SIGTERM


def test_a_silent_role_that_works_has_more_time(tmp_path):
    name = tmp_path / "role"
    running = watch(name, SILENT.format(name=name) + "while true; do :; done")
    assert goes_on_after(role_of(name), 6), "an idle one would have been killed"
    running.terminate()
    running.wait(timeout=30)


def test_a_role_that_is_kept_from_working_is_left_alone_until_it_goes_on(tmp_path):
    """Stopped, or frozen by each hierarchy of control groups that this machine has; all at once, since it takes long."""
    def start(name):
        running = watch(tmp_path / name, SILENT.format(name=tmp_path / name) + "exec sleep 1000", silent=2)
        return running, role_of(tmp_path / name)

    frozen = []
    for i, freezer in enumerate(FREEZERS):
        running, pid = start(f"role{i}")
        try:
            frozen.append((running, pid, Frozen(pid, *freezer)))
        except OSError:  # no such hierarchy, or no right to it
            running.terminate()
    stopped, pid = start("stopped")
    os.kill(pid, signal.SIGSTOP)
    assert all(goes_on_after(pid, 0) for _, pid, _ in frozen) and goes_on_after(pid, 7)
    assert all(goes_on_after(pid, 0) for _, pid, _ in frozen), "they had as long"
    for _, _, freezer in frozen:
        freezer.end()
    os.kill(pid, signal.SIGCONT)
    said = dies_of(stopped)
    assert f"stopped is stopped: kill -CONT {pid} lets it go on" in said and "stopped shows no sign of life" in said
    for running, _, _ in frozen:
        said = dies_of(running)
        assert "frozen" in said and "shows no sign of life" in said, said


def test_usage(tmp_path):
    result = subprocess.run([WATCH, tmp_path], capture_output=True, text=True)
    assert result.returncode == 2 and "usage" in result.stderr
