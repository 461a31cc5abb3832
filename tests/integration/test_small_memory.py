"""Little memory for the KV pool, by a control group or by /dev/shm: the node starts, announces what it can hold, and
lives when that is full."""

import json
import os
import shutil
import subprocess

import pytest

from control_group import ControlGroup
from node import Node, wait_until

CONTEXT = 262_144
PROMPT = 6000   # tokens
NO_POISON = {"decode": ["--poison-freed-pages", "false"]}  # it would write to pages that nobody uses


@pytest.fixture(scope="module")
def long_model(cli, tmp_path_factory):
    """Three KB of KV a token."""
    path = tmp_path_factory.mktemp("models") / "long"
    cli("make-model", "--preset", "tiny-qwen3", "--layers", "8", "--seed", "1", "--out", path)
    config = path / "config.json"
    config.write_text(json.dumps(dict(json.loads(config.read_text()), max_position_embeddings=CONTEXT)))
    return path


def fill(node):
    """Prompts that have nothing in common, until pages are evicted. Returns the context that was announced."""
    announced = node.stub.GetModel(node.api.inference.GetModelRequest()).max_context_tokens
    pid = node.pid("decode")
    for i in range(announced // PROMPT + 2):
        prompt = [20 + (j * 37 + i * 101) % 900 for j in range(PROMPT)]
        assert len(node.generate(prompt, 2, ignore_eos=True)[0]) == 2
    assert node.metric("decode", "moestro_prefix_cache_evicted_pages_total") > 0, "the pool was never full"
    assert node.pid("decode") == pid and node.processes["decode"].poll() is None, "decode was killed"
    return announced


class DecodeInGroup(Node):
    def __init__(self, *arguments, group):
        super().__init__(*arguments)
        self.group = group

    def start(self, role):
        if role != "decode":
            return super().start(role)
        self.group.add(os.getpid())  # it inherits the group
        try:
            super().start(role)
        finally:
            self.group.leave(os.getpid())


def test_a_control_group(api, bin_dir, long_model):
    """Slow: some prompts."""
    limit = 160 << 20
    with ControlGroup("memory") as group:
        group.write(memory__limit_in_bytes=limit, memory__max=limit)
        with DecodeInGroup(api, bin_dir, long_model, NO_POISON, group=group) as node:
            announced = fill(node)
            assert PROMPT < announced < limit // 3000
            assert "control group" in node.log("router"), "the remedy"


class NodeWithSmallShm(Node):
    """Its processes have a /dev/shm of their own."""

    def __init__(self, *arguments, size):
        super().__init__(*arguments)
        script = f"mount -t tmpfs -o size={size} moestro /dev/shm && echo mounted && exec sleep infinity"
        self.holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "mounted\n":
            shutil.rmtree(self.run_dir)
            pytest.skip(f"no file system can be mounted here: {self.holder.communicate()[1]}")

    def command(self, role):
        return ["nsenter", f"--target={self.holder.pid}", "--mount", *super().command(role)]

    def __exit__(self, *_):
        super().__exit__()
        self.holder.kill()
        self.holder.wait()


def test_a_small_dev_shm(api, bin_dir, long_model):
    """Slow: some prompts. What Docker gives a container that asks for nothing."""
    with NodeWithSmallShm(api, bin_dir, long_model, NO_POISON, size="64m") as node:
        announced = fill(node)
        assert PROMPT < announced < (64 << 20) // 3000
        assert "/dev/shm" in node.log("router"), "the remedy"
