"""`moestro` when its input or output fails; no node is needed."""

import os
import pty
import re
import resource
import shutil
import subprocess
import termios
import time

import pytest

pytestmark = pytest.mark.smoke


@pytest.mark.no_sanitizer(reason="shadow memory needs more address space")
def test_an_exception_is_one_line(cli):
    def limit_memory():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    result = cli("generate", "--prompt-file", "/dev/zero", check=False, preexec_fn=limit_memory)
    assert (result.returncode, result.stderr) == (3, "moestro: out of memory\n")


@pytest.mark.parametrize("arguments", [["inspect", "tiny"], ["inspect", "tiny", "--json"], ["--version"], ["--help"]])
def test_results_that_cannot_be_written_are_a_failure(bin_dir, tiny_model, arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run([f"{bin_dir}/moestro", *arguments], cwd=tiny_model.parent, stdout=full,
                                stderr=subprocess.PIPE, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr == "moestro: stdout: cannot be written; the result is incomplete\n"


def test_watch_ends_when_nobody_reads(bin_dir, tmp_path):
    # SIGPIPE stays ignored, as in Python and under systemd: only the failed write reveals the closed pipe.
    watch = subprocess.Popen([f"{bin_dir}/moestro", "status", "--run-dir", str(tmp_path), "--watch", "0.1", "--json"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, restore_signals=False)
    watch.stdout.readline()
    watch.stdout.close()
    try:
        assert watch.wait(timeout=60) == 1
    finally:
        watch.kill()
    assert "stdout: cannot be written" in watch.stderr.read()


def test_chat_takes_lines_of_utf8(cli):
    result = cli("chat", "--server", "127.0.0.1:1", check=False, input="na\udcefve\n", errors="surrogateescape")
    assert result.returncode == 2 and "the line on stdin: not valid UTF-8 at byte 2" in result.stderr


@pytest.mark.parametrize("keys, failures", [
    (["/eit\x1b[D\x1b[Dx\r"], 0),  # left, left
    (["/eit\r", "\x1b[A\x1b[D\x1b[Dx\r"], 1),  # up, left, left
    (["no\x03/exit\r"], 0),  # Ctrl-C
    (["\u00e4\u4e2d\x7f\x7f/exit\r"], 0),  # backspace takes whole characters
    (["\x04"], 0),  # Ctrl-D
], ids=["editing", "history", "interrupt", "utf-8", "end"])
def test_chat_edits_its_line_in_a_terminal(bin_dir, keys, failures):
    terminal, inside = pty.openpty()
    chat = subprocess.Popen([f"{bin_dir}/moestro", "chat", "--server", "127.0.0.1:1"], stdin=inside, stdout=inside,
                            stderr=inside, env={"TERM": "xterm", "LANG": "C"})
    os.close(inside)
    shown = b""
    try:
        for line in keys:
            while not shown.endswith(b"> "):
                shown += os.read(terminal, 4096)
            while termios.tcgetattr(terminal)[3] & termios.ICANON:  # the prompt is there a little before the editor
                time.sleep(0.01)
            os.write(terminal, line.encode())
            shown += os.read(terminal, 1)
        while True:
            shown += os.read(terminal, 4096)
    except OSError:  # the program has closed its end
        pass
    finally:
        os.close(terminal)
        code = chat.wait(timeout=60)
    assert (code, shown.count(b"cannot reach")) == (0, failures)


def test_commands_of_the_lab(cli, bin_dir):
    """They are those of the program moestro-lab, and `moestro` starts it."""
    [named] = [line for line in cli("--help").stdout.splitlines() if "make-model" in line]
    commands = named.split(": ")[1].split()
    listed = subprocess.check_output([f"{bin_dir}/moestro-lab", "--help"], text=True).split("Subcommands:")[1]
    assert sorted(commands) == sorted(line.split()[0] for line in listed.splitlines() if re.match(r"  \S", line))
    for command in commands:
        assert "OPTIONS" in cli(command, "--help").stdout.upper()


def test_commands_of_a_lab_that_was_not_built(bin_dir, tmp_path):
    shutil.copy(f"{bin_dir}/moestro", tmp_path)
    result = subprocess.run([tmp_path / "moestro", "bench"], capture_output=True, text=True)
    assert result.returncode == 3 and "cmake --build BUILD_DIR --target moestro-lab" in result.stderr
    assert str(tmp_path / "moestro-lab") in result.stderr
