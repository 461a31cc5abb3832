"""Threats to a node's shared memory: another user's objects with its names, memory faults, and a control group's
limit."""

import contextlib
import ctypes
import mmap
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from node import HANG_SECONDS, Node, wait_until

SHM = Path("/dev/shm")
VICTIM, OTHER = 12345, 65534  # user ids: whose node it is, and who else is on the machine

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of two users")


def as_user(uid, *command):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *map(str, command)]


class NodeOf(Node):
    """A node of another user than the one that runs the tests."""

    def __init__(self, api, bin_dir, model, uid, instance=None):
        super().__init__(api, bin_dir, model)
        self.uid = uid
        self.instance = instance or self.instance
        self.model = os.path.join(self.run_dir, "model")
        shutil.copytree(model, self.model)
        for path in [self.run_dir, self.model, *Path(self.model).iterdir()]:
            os.chown(path, uid, uid)

    def command(self, role):
        return as_user(self.uid, *super().command(role))

    def segments(self, action):
        return subprocess.run(as_user(self.uid, os.path.join(self.bin, "moestro"), "segments", action, "--instance",
                                      self.instance), capture_output=True, text=True, timeout=60)

    def own_objects(self):
        return [name for name in self.shared_memory() if (SHM / name).stat().st_uid == self.uid]

    def kill_all(self):
        super().kill_all()
        self.segments("prune")


@pytest.fixture
def open_bin_dir(bin_dir):
    """The binaries in a folder that every user may read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for binary in Path(bin_dir).glob("moestro*"):
            shutil.copy(binary, folder)
        yield folder


def leave(name, mode, contents=b""):
    """An object of another user."""
    path = SHM / name
    path.write_bytes(contents)
    os.chown(path, OTHER, OTHER)
    path.chmod(mode)
    return path


def facts(path):
    info = path.lstat()
    contents = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
    return info.st_ino, info.st_mode, info.st_uid, contents


@needs_root
def test_objects_of_another_user_change_nothing(api, open_bin_dir, tiny_model):
    with NodeOf(api, open_bin_dir, tiny_model, VICTIM) as first:
        expected = first.generate("Hello", 8, ignore_eos=True)[0]
        weights, = [name for name in first.shared_memory() if ".weights." in name]
        segment = (SHM / weights).read_bytes()
    instance = first.instance
    prefix = weights.rsplit(".", 1)[0]
    # Forged segments that are READY and have the right fingerprint, readable or writable, and objects that have only
    # the names.
    foreign = [leave(f"{prefix}.{1 + i}", mode, segment) for i, mode in enumerate((0o666, 0o644, 0o444, 0o600))]
    foreign += [leave(f"moestro.{instance}.weights.x.9", 0o444)]
    foreign += [leave(f"moestro.{instance}.kv.{i}", mode) for i, mode in enumerate((0o444, 0o644, 0o666))]
    foreign += [SHM / f"moestro.{instance}.kv.pipe"]
    os.mkfifo(foreign[-1])
    os.chown(foreign[-1], OTHER, OTHER)
    before = [facts(path) for path in foreign]
    try:
        with NodeOf(api, open_bin_dir, tiny_model, VICTIM, instance) as node:
            assert node.generate("Hello", 8, ignore_eos=True)[0] == expected
            assert len(node.own_objects()) == 2
            assert "adopted" not in node.log("weight_store")
            for role, paths in (("weight_store", foreign[:5]), ("decode", foreign[5:])):
                lines = [line for line in node.log(role).splitlines() if "/dev/shm/" in line]
                assert all(" warn" in line and "remove it with rm" in line for line in lines), lines
                for path in paths:
                    assert any(f"{path} belongs to user {OTHER}" in line for line in lines), path
            # A killed role's successor finds its own leftovers, and nothing else.
            for role in ("decode", "weight_store"):
                node.kill(role)
                node.start(role)
                node.wait_serving(role)
            node.wait_serving()
            assert node.log("weight_store").count("adopted") == 1
            assert node.generate("Hello", 8, ignore_eos=True)[0] == expected
            listed = node.segments("list")
            assert listed.returncode == 0
            assert listed.stderr.count(f"belongs to user {OTHER}") == 8 and "1 more object" in listed.stderr
            assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == node.own_objects()
        pruned = node.segments("prune")
        assert pruned.returncode == 0 and "0 removed" in pruned.stdout
        assert [facts(path) for path in foreign] == before
        assert node.shared_memory() == sorted(path.name for path in foreign)
    finally:
        for path in foreign:
            path.unlink()


@needs_root
def test_down_leaves_objects_of_another_user(repo, tmp_path):
    """A run directory without a node: its only leftover is another user's object."""
    instance = subprocess.run(["bash", "-c", '. "$1/deploy/lib.sh"; instance_of "$2"', "bash", repo, tmp_path],
                              capture_output=True, text=True, check=True).stdout
    foreign = leave(f"moestro.{instance}.kv.1", 0o666)
    try:
        down = subprocess.run([repo / "deploy/down", "--run-dir", tmp_path], capture_output=True, text=True, timeout=60)
        assert down.returncode == 0, down.stderr
        assert foreign.exists()
    finally:
        foreign.unlink()


# Memory faults ------------------------------------------------------------------------------------------------------


def truncate(path):
    """After its first 64 KiB, which hold the header, the object has no memory any more: any access is a SIGBUS."""
    os.truncate(path, 64 << 10)


def poison(path):
    """Every other page from the second 64 KiB on has an uncorrectable error, as the machine would report it."""
    if "MOESTRO_TEST_HWPOISON" not in os.environ:
        pytest.skip("takes pages of memory out of use until the machine restarts: MOESTRO_TEST_HWPOISON=1 allows it")
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for page in range(start + (64 << 10), start + (128 << 10), 8192):
            if libc.madvise(ctypes.c_void_p(page), ctypes.c_size_t(4096), 100) != 0:
                pytest.skip(f"MADV_HWPOISON: {os.strerror(ctypes.get_errno())} (root and CONFIG_MEMORY_FAILURE)")


LONG_PROMPT = [20 + i * 37 % 900 for i in range(2500)]


@contextlib.contextmanager
def supervised(node):
    """Restarts roles that end, as a supervisor does; returns {role: [exit codes]}."""
    codes, done = {}, threading.Event()

    def supervise():
        while not done.wait(0.1):
            for role, process in list(node.processes.items()):
                if process.poll() is not None:
                    codes.setdefault(role, []).append(process.returncode)
                    node.start(role)
    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    try:
        yield codes
    finally:
        done.set()
        supervisor.join()


@pytest.mark.parametrize("damage", [truncate, poison])
@pytest.mark.parametrize("kind", ["weights", "kv"])
def test_damaged_memory_is_replaced(make_node, absorbed, kind, damage):
    """Slow: roles end and start again, then both requests are computed anew."""
    # Otherwise decode would meet it first, in the free pages that it checks.
    flags = dict(absorbed, decode=["--prefix-cache", "false", "--poison-freed-pages", "false"])
    with make_node(flags) as node:
        requests = [(LONG_PROMPT, 8), ("Hello", 16)]  # by prefill, by decode
        expected = [node.generate(*request, ignore_eos=True, timeout=HANG_SECONDS)[0] for request in requests]
        name, = [name for name in node.shared_memory() if f".{kind}." in name]
        inode = (SHM / name).stat().st_ino
        damage(SHM / name)
        with supervised(node) as codes:
            for request, tokens in zip(requests, expected):
                assert node.generate(*request, ignore_eos=True, timeout=HANG_SECONDS)[0] == tokens
        assert 4 in codes["prefill"], codes
        # 4: met the fault; 3: its memory was damaged by then. A role that met it repeatedly would end more often.
        assert all(set(ends) <= {3, 4} and ends.count(4) <= 1 for ends in codes.values()), codes
        assert set(codes) <= ({"prefill", "decode", "weight_store"} if kind == "weights" else {"prefill", "decode"})
        assert any(f"memory fault in {name}" in node.log(role) for role in codes)
        assert "adopted" not in node.log("weight_store")
        left = [(SHM / name).stat().st_ino for name in node.shared_memory()]
        assert len(left) == 2 and inode not in left
        node.wait_serving()
        node.wait_all_pages_free()


# Limits of memory ---------------------------------------------------------------------------------------------------


@pytest.fixture
def memory_cgroup():
    """(directory, its limit's file) of a control group below that of the tests."""
    groups = dict((line.split(":", 2)[1:]) for line in Path("/proc/self/cgroup").read_text().splitlines())
    if "memory" in groups:
        parent, limit = Path("/sys/fs/cgroup/memory" + groups["memory"]), "memory.limit_in_bytes"
    else:
        parent, limit = Path("/sys/fs/cgroup" + groups.get("", "/")), "memory.max"
    group = parent / f"moestro-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    if not (group / limit).exists():
        group.rmdir()
        pytest.skip(f"{parent} does not let its groups limit memory")
    yield group, group / limit
    wait_until(lambda: not (group / "cgroup.procs").read_text().strip(), 10, "the control group is empty")
    group.rmdir()


def test_limit_of_a_control_group_is_an_error_at_the_start(node, memory_cgroup):
    group, limit = memory_cgroup
    limit.write_text(str(256 << 20))
    # A pool of some GiB, far above the limit.
    instance = node.instance + "-limited"
    command = [*node.command("decode"), "--kv-tokens", "2000000"]
    command[command.index("--instance") + 1] = instance
    del command[command.index("--metrics-address"):command.index("--metrics-address") + 2]
    run_dir = Path(node.run_dir) / "limited"
    run_dir.mkdir()
    (run_dir / "weight_store.sock").symlink_to(Path(node.run_dir) / "weight_store.sock")
    command[command.index("--run-dir") + 1] = str(run_dir)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60,
                           preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
    assert ended.returncode == 3, (ended.returncode, ended.stderr)
    message = (ended.stdout + ended.stderr).splitlines()[-1]
    assert f"the limit of 0.25 GiB in {limit} leaves 0." in message
    assert "systemd: MemoryMax" in message and "--memory" in message
    assert not list(SHM.glob(f"moestro.{instance}.*"))
