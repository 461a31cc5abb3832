"""The node of these tests: one that cannot start leaves nothing behind."""

import os

import pytest

pytestmark = pytest.mark.smoke


def test_a_node_that_cannot_start_leaves_nothing(make_node):
    node = make_node({"router": ["--queue-limit", "0"]})
    with pytest.raises(AssertionError, match="router ended with 2"):
        node.__enter__()
    assert all(process.poll() is not None for process in node.processes.values())
    assert not node.shared_memory() and not os.path.exists(node.run_dir)
