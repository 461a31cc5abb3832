"""A control group of a test's own, of either version."""

import os
from pathlib import Path

import pytest


class ControlGroup:
    """Skips the test where none can be made. As a context manager, it ends with its processes in the parent group."""

    def __init__(self, controller):
        found = [Path("/sys/fs/cgroup", name) for name in (controller, "cpu,cpuacct" if controller == "cpu" else controller, "")]
        root = next((path for path in found if (path / "cgroup.procs").exists()), None)
        if root is None:
            pytest.skip("no control groups here")
        self.path = root / f"moestro-test-{os.getpid()}"
        try:
            self.path.mkdir()
            (self.path / "cgroup.procs").read_text()
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in (self.path / "cgroup.procs").read_text().split():
            self.leave(pid)
        self.path.rmdir()

    def write(self, **values):
        """By name of a file, with "__" for its point. The files of the other version are left out."""
        written = [(self.path / name.replace("__", ".")).write_text(str(value)) for name, value in values.items()
                   if (self.path / name.replace("__", ".")).exists()]
        if not written:
            pytest.skip(f"control groups here have none of {', '.join(values)}")

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def leave(self, pid):
        (self.path.parent / "cgroup.procs").write_text(str(pid))
