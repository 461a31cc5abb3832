#!/usr/bin/env python3
"""What check_results.py refuses."""

import json
import tempfile
import unittest
from pathlib import Path

import check_results

CLEAN = {"schema": "moestro-bench-1", "machine": {"revision": "4a2ffd1"}}
DIRTY = {"schema": "moestro-bench-1", "machine": {"revision": "4a2ffd1-dirty"}}
NAMELESS = {"schema": "moestro-loadtest-1"}


class CheckResultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    def problems(self):
        return list(check_results.problems(self.folder))

    def test_clean_reports_and_other_files_pass(self):
        self.write("a/bench.json", CLEAN)
        self.write("a/run.json", {"schema": "moestro-loadtest-1", "revision": "v1-2-g4a2ffd1"})
        self.write("a/timeline.json", [1, 2])
        self.assertEqual(self.problems(), [])

    def test_dirty_and_nameless_reports_are_refused(self):
        self.write("a/bench.json", DIRTY)
        self.write("b/chat.json", NAMELESS)
        self.write("c/bench.json", {"schema": "moestro-bench-1", "machine": {"revision": ""}})
        self.write("d/bench.json", {"schema": "moestro-bench-1"})
        self.write("f/peers.json", {**DIRTY, "schema": "moestro-peers-1"})
        self.write("e/bench.json", '{"schema": "moestro-be')
        found = self.problems()
        self.assertEqual(len(found), 6)
        self.assertIn("a/bench.json was measured with uncommitted changes (4a2ffd1-dirty)", found[0])
        self.assertIn("b/chat.json names no revision", found[1])

    def test_pages_are_refused(self):
        self.write("a/bench.json", CLEAN)
        self.write("a/bench.html", "<html></html>")
        self.assertEqual(len(self.problems()), 1)

    def test_the_list_excuses_what_needs_it_and_nothing_else(self):
        self.write("a/bench.json", DIRTY)
        self.write("b/bench.json", CLEAN)
        self.write(check_results.LIST, "# reports of before\na/bench.json: older than the rule\n")
        self.assertEqual(self.problems(), [])
        self.write(check_results.LIST, "a/bench.json\nb/bench.json: old\nc/bench.json: old\n")
        self.assertEqual(len(self.problems()), 3)


if __name__ == "__main__":
    unittest.main()
