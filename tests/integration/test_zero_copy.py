"""One copy of the weights: prefill and decode map the store's segment shared and read-only, and their own memory does
not grow with the model."""

import re
from pathlib import Path

import pytest

from node import HANG_SECONDS

MIB = 1 << 20
PRIVATE_LIMIT = 300 * MIB


@pytest.fixture(scope="module")
def layer_model(cli, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "layer"
    cli("make-model", "--preset", "layer", "--layers", "2", "--experts", "32", "--out", path, timeout=300)
    yield path
    for file in path.iterdir():
        file.unlink()


def mappings(pid):
    """[(permissions, inode, path, {field: bytes})] of /proc/PID/smaps."""
    result = []
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"^[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ (\d+)\s*(.*)$", line)
        if head:
            result.append((head[1], int(head[2]), head[3], {}))
        elif field := re.match(r"^(\w+):\s+(\d+) kB$", line):
            result[-1][3][field[1]] = int(field[2]) * 1024
    return result


@pytest.mark.no_sanitizer(reason="shadow memory and quarantine are private memory")
def test_segment_is_shared_and_private_memory_is_small(make_node, layer_model):
    """Slow: 2 GiB of weights are made, loaded and read, beside which 300 MiB are small."""
    with make_node({"decode": ["--kv-tokens", "1024"]}, model=layer_model) as node:
        size = sum(f.stat().st_size for f in layer_model.glob("*.safetensors"))
        assert size >= 2 << 30, "the model must be large enough to mean something"
        node.generate([10 + i % 300 for i in range(300)], 4, ignore_eos=True, timeout=HANG_SECONDS)
        inodes = set()
        for role in ("prefill", "decode"):
            maps = mappings(node.pid(role))
            weights = [m for m in maps if f"moestro.{node.instance}.weights." in m[2]]
            assert weights, f"{role} does not map the segment"
            for permissions, inode, _, _ in weights:
                assert permissions == "r--s"
                inodes.add(inode)
            assert sum(m[3]["Size"] for m in weights) >= 2 << 30
            # The kernel counts shared objects that only one process has touched so far as private: exclude them.
            private = sum(m[3].get("Private_Clean", 0) + m[3].get("Private_Dirty", 0)
                          for m in maps if "/dev/shm/" not in m[2])
            print(f"{role}: private {private / MIB:.0f} MiB of a {size / MIB:.0f} MiB model")
            assert private < PRIVATE_LIMIT
        assert len(inodes) == 1
        log = node.log("weight_store")
        print("\n".join(line for line in log.splitlines() if "loaded" in line or "ceilings" in line))
        store_private = node.metric("weight_store", "moestro_process_private_bytes")
        print(f"weight store: private {store_private / MIB:.0f} MiB")
