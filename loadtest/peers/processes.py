"""Runs a program on given cores, and says by name what is wrong with it."""

import os
import shutil
import subprocess

MAX_CORES = 1 << 16  # more than Linux has


class PeerError(Exception):
    """A message for the user: what is wrong with which flag, file or program, and the remedy."""


def find_program(flag, path):
    """The program's path, or PeerError if it is not an executable file."""
    found = shutil.which(str(path))
    if found is None:
        raise PeerError(f"{flag} {path}: no such program, or it is not executable; build it and give its path")
    return found


def run(flag, command, cores, environment=None, timeout=600):
    """stdout of the program on `cores`. PeerError with the exit code and the end of stderr if it fails."""
    command = [str(part) for part in command]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                              timeout=timeout, env={**os.environ, **(environment or {})},
                              preexec_fn=lambda: os.sched_setaffinity(0, cores))
    except FileNotFoundError as error:
        raise PeerError(f"{flag} {command[0]}: no such program") from error
    except OSError as error:
        raise PeerError(f"{flag} {command[0]}: cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"{flag} {command[0]}: not done after {timeout:.0f} s; use a smaller model or --timeout") \
            from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-5:] or ["nothing on stderr"]
        code = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise PeerError(f"{flag} {command[0]}: {code}: " + " | ".join(said))
    return done.stdout


def parse_cores(text):
    """{0, 1, 4} of "0-1,4". PeerError if it is none, or names a core that this process may not use."""
    cores = set()
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            first, last = int(first), int(last if dash else first)
            if last >= MAX_CORES:
                raise ValueError
            cores.update(range(first, last + 1))
    except ValueError as error:
        raise PeerError(f"--cores {text}: not a list of cores; use for example 0-3,8") from error
    allowed = os.sched_getaffinity(0)
    if not cores or not cores <= allowed:
        raise PeerError(f"--cores {text}: use cores of {sorted(allowed)}, which this process may use")
    return cores
