"""Control groups that freeze a process."""

from pathlib import Path

# The folder of a hierarchy, its switch, and the words that freeze and thaw: version 2, the same beside version 1, and 1.
FREEZERS = [("/sys/fs/cgroup", "cgroup.freeze", "1", "0"), ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"),
            ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED")]


class Frozen:
    """A process in a group of its own that is frozen. OSError where the machine has no such hierarchy, or no right."""

    def __init__(self, pid, hierarchy, switch, frozen, thawed):
        self.pid, self.switch, self.thawed = pid, switch, thawed
        self.home, self.group = Path(hierarchy), Path(hierarchy, f"moestro-test-{pid}")
        self.group.mkdir()
        try:
            (self.group / switch).read_text()
            (self.group / "cgroup.procs").write_text(str(pid))
            (self.group / switch).write_text(frozen)
        except OSError:
            self.group.rmdir()
            raise

    def end(self):
        """The process goes on, in its parent group."""
        (self.group / self.switch).write_text(self.thawed)
        (self.home / "cgroup.procs").write_text(str(self.pid))
        self.group.rmdir()
