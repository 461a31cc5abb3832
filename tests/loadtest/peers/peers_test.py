#!/usr/bin/env python3
"""Tests of loadtest/peers; with the folder of moestro's programs as an argument, also a whole comparison of a tiny
model with a llama-bench that is a script."""

import argparse
import contextlib
import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "loadtest/peers"))

import compare  # noqa: E402
import formats  # noqa: E402
import llama_bench  # noqa: E402
import model_file  # noqa: E402
import ours  # noqa: E402
import processes  # noqa: E402
import report  # noqa: E402
import rounds  # noqa: E402

BIN = None
TESTS = [{"n_prompt": 512, "n_gen": 0, "samples_ns": [4e9, 2e9, 1e9], "build_number": 7, "build_commit": "abc"},
         {"n_prompt": 0, "n_gen": 64, "samples_ns": [1e9], "build_number": 7, "build_commit": "abc"}]
MACHINE = {"cpu_model": "CPU", "cpu_family": 1, "cpu_number": 2, "kernels_isa": "avx2", "revision": "4a2ffd1"}
OURS = {"date": "2026-11-24", "machine": MACHINE, "decode_token_bytes": 2e8, "experts_token_bytes": 1e8,
        "prompt_operations": 5.0, "model": {"segment_bytes": 100, "segment_huge_bytes": 40}, "settings": {"prompt_tokens": 512, "decode_tokens": 64},
        "repetitions": [{"read_bytes_per_second": 2e10, "prompt_seconds": seconds, "decode_seconds": seconds / 2,
                         "experts_prompt_seconds": 0.5, "experts_decode_seconds": 0.25} for seconds in (9, 1, 2)]}


class Side:
    rows = ("prompt", "decode")

    def __init__(self, name, speeds, taken):
        self.name, self.speeds, self.taken = name, iter(speeds), taken

    def turn(self):
        self.taken.append(self.name)
        speed = next(self.speeds)
        return {"prompt": speed, "decode": speed, "read_bytes_per_second": 100.0}

    def describe(self):
        return {"name": self.name, "build": "7", "arguments": []}


def settings(**changes):
    values = {"prompt": 512, "decode": 64, "threads": 2, "repetitions": 3, "timeout": 60, "cores": {0},
              "int8_activations": "published"}
    return argparse.Namespace(**{**values, **changes})


class ParseTest(unittest.TestCase):
    def refuse(self, text, expected):
        with self.assertRaisesRegex(processes.PeerError, expected):
            llama_bench.parse(text, 512, 64)

    def test_medians_of_both_tests(self):
        speeds, build = llama_bench.parse(json.dumps(TESTS), 512, 64)
        self.assertEqual(speeds, {"prompt": 256.0, "decode": 64.0})
        self.assertIn("7", build)
        self.assertIn("abc", build)

    def test_lines_around_the_json_are_skipped(self):
        text = f"a line [1]\n[Loader] a name\n{json.dumps(TESTS, indent=1)}\nGoodbye\n"
        self.assertEqual(llama_bench.parse(text, 512, 64)[0]["prompt"], 256.0)

    def test_other_output_is_refused(self):
        self.refuse("| model | size |", "--llama-bench: its output has no JSON: '| model")
        self.refuse("", "no JSON")
        self.refuse(json.dumps(TESTS)[:-1], "no JSON")
        self.refuse("[]", "no test of prompt and of decode")
        self.refuse(json.dumps(TESTS[:1]), "no test of decode")
        self.refuse(json.dumps([{"n_prompt": 512}]), "lacks a field: KeyError")
        self.refuse(json.dumps([{**TESTS[0], "samples_ns": []}]), "lacks a field")
        self.refuse(json.dumps([{**TESTS[0], "samples_ns": [0]}]), "lacks a field")

    def test_our_side(self):
        side = ours.Moestro.__new__(ours.Moestro)
        self.assertEqual(side.read(OURS), {"read_bytes_per_second": 2e10, "prompt": 256.0, "decode": 64.0,
                                                        "experts_prompt": 1024.0, "experts_decode": 256.0})
        self.assertEqual(side.machine, MACHINE)
        dense = {**OURS, "repetitions": [{**r, "experts_prompt_seconds": 0, "experts_decode_seconds": 0}
                                         for r in OURS["repetitions"]]}
        self.assertNotIn("experts_decode", side.read(dense))


class GgufTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "m.gguf"

    def refuse(self, data, expected):
        self.path.write_bytes(data)
        with self.assertRaisesRegex(processes.PeerError, f"--model .*m.gguf: .*{expected}"):
            model_file.describe(self.path)

    @staticmethod
    def text(value):
        return struct.pack("<Q", len(value)) + value

    def test_architecture_and_type(self):
        entries = [self.text(b"tokens") + struct.pack("<IIQ", 9, 8, 2) + self.text(b"a") + self.text(b"b"),
                   self.text(b"types") + struct.pack("<IIQ3i", 9, 5, 3, 1, 2, 3),
                   self.text(b"general.architecture") + struct.pack("<I", 8) + self.text(b"qwen3moe"),
                   self.text(b"general.file_type") + struct.pack("<II", 4, 15)]
        header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
        self.path.write_bytes(header + b"".join(entries) + b"data")
        self.assertEqual(model_file.describe(self.path), {"architecture": "qwen3moe", "weights": "q4_k_m",
                                                    "bytes": self.path.stat().st_size})
        for cut in range(4, len(header + b"".join(entries))):
            self.refuse((header + b"".join(entries))[:cut], "not a file in GGUF")

    def test_other_files_are_refused(self):
        self.refuse(b"", "does not begin with GGUF; write one with `moestro make-model")
        self.refuse(b"\x80safetensors", "does not begin with GGUF")
        self.refuse(b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9")
        self.refuse(b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "entries of metadata")
        self.refuse(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 60), "a text of")
        self.refuse(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + self.text(b"k") + struct.pack("<IIQ", 9, 5, 1 << 60),
                    "an array of")
        self.refuse(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + self.text(b"k") + struct.pack("<I", 99), "type 99")
        with self.assertRaisesRegex(processes.PeerError, "No such file"):
            model_file.describe(self.path.parent / "absent.gguf")


class RoundsTest(unittest.TestCase):
    def setUp(self):
        self.taken = []
        self.sides = [Side("moestro", (30.0, 10.0, 20.0), self.taken),
                      Side("ik_llama.cpp", (10.0, 10.0, 5.0), self.taken)]
        self.results = rounds.take_turns(self.sides, 3)

    def test_each_round_begins_with_the_next_side(self):
        self.assertEqual(self.taken, ["moestro", "ik_llama.cpp", "ik_llama.cpp", "moestro", "moestro",
                                      "ik_llama.cpp"])

    def test_ratios_are_taken_round_by_round(self):
        compared = rounds.compare(self.results, "moestro", "ik_llama.cpp", "decode")
        self.assertEqual(compared["ratio"], {"median": 3.0, "min": 1.0, "max": 4.0})
        self.assertEqual(compared["ours"]["median"], 20.0)
        self.assertEqual(rounds.shares(self.results, "moestro", "ik_llama.cpp", "decode", 2.0)["peer"]["median"], 0.2)

    def test_report_has_verdicts_of_the_type_of_weights(self):
        moestro = self.sides[0]
        moestro.machine = MACHINE
        moestro.facts = {key: OURS[key] for key in ("date", "decode_token_bytes", "experts_token_bytes",
                                                    "prompt_operations")}
        moestro.facts["huge_pages_ratio"] = 0.4
        model = {"architecture": "qwen3moe", "weights": "q4_k_m", "bytes": 10**9}
        built = report.build(moestro, self.sides[1:], self.results, model, settings())
        rows = built["peers"][0]["rows"]
        self.assertEqual((rows["prompt"]["target"], rows["prompt"]["verdict"]), (1.8, "pass"))
        text = report.text(built)
        self.assertIn("40 % of our segment on huge pages", text)
        self.assertIn("| prompt of 512 | 20.0 (10.0 - 30.0) | 10.0 (5.0 - 10.0) | 3.00 (1.00 - 4.00) | 1.8: pass |",
                      text)
        self.assertIn("revision 4a2ffd1", text)
        other = report.build(moestro, self.sides[1:], self.results, {**model, "weights": "f16"}, settings())
        self.assertNotIn("target", other["peers"][0]["rows"]["decode"])
        for result in self.results:
            result["llama.cpp"] = result["ik_llama.cpp"]
        other_peer = Side("llama.cpp", (), [])
        built = report.build(moestro, [other_peer], self.results, model, settings())
        self.assertNotIn("target", built["peers"][0]["rows"]["decode"])


class ErrorsTest(unittest.TestCase):
    def refuse(self, expected, call, *arguments, **named):
        with self.assertRaisesRegex(processes.PeerError, expected):
            call(*arguments, **named)

    def test_programs(self):
        self.refuse("--llama-bench /absent/llama-bench: no such program", processes.find_program, "--llama-bench",
                    "/absent/llama-bench")
        self.refuse("not executable", processes.find_program, "--llama-bench", __file__ + "x")
        cores = os.sched_getaffinity(0)
        self.refuse("--x sh: exit code 3: a | b", processes.run, "--x", ["sh", "-c", "echo a >&2; echo b >&2; exit 3"],
                    cores)
        self.refuse("--x sh: signal 9: nothing on stderr", processes.run, "--x", ["sh", "-c", "kill -9 $$"], cores)
        self.refuse("not done after 0 s", processes.run, "--x", ["sleep", "60"], cores, timeout=0.01)
        self.refuse("no such program", processes.run, "--x", ["/absent/program"], cores)

    def test_programs_run_on_the_cores(self):
        core = min(os.sched_getaffinity(0))
        out = processes.run("--x", [sys.executable, "-c", "import os; print(os.sched_getaffinity(0), os.environ['A'])"],
                            {core}, {"A": "b"})
        self.assertEqual(out, f"{{{core}}} b\n")

    def test_cores(self):
        allowed = os.sched_getaffinity(0)
        self.assertEqual(processes.parse_cores(",".join(map(str, allowed))), allowed)
        for text in ("", "a", "0-", "0-100000", "5-4"):
            self.refuse("--cores", processes.parse_cores, text)

    def test_revision(self):
        compare.check_revision({"revision": "4a2ffd1"})
        self.refuse("--json: built from 4a2ffd1-dirty", compare.check_revision, {"revision": "4a2ffd1-dirty"})
        self.refuse("unknown revision", compare.check_revision, {"revision": ""})


class WholeTest(unittest.TestCase):
    def setUp(self):
        if BIN is None:
            self.skipTest("needs the folder of moestro's programs as an argument")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "tiny.gguf"
        subprocess.run([BIN / "moestro", "make-model", "--preset", "tiny-qwen3", "--weights", "q8_0", "--vocab-rows",
                        "1461", "--out", self.model], check=True, stdout=subprocess.DEVNULL)

    def peer(self, body):
        path = self.folder / "llama-bench"
        path.write_text("#!/bin/sh\n" + body + "\n")
        path.chmod(0o755)
        return path

    def compare(self, *flags):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = compare.main(["--model", str(self.model), "--bin", str(BIN), "--rounds", "2", "--repetitions", "1",
                                 "--prompt", "16", "--decode", "4", *map(str, flags)])
        return code, out.getvalue(), err.getvalue()

    def test_a_comparison(self):
        tests = [{**TESTS[0], "n_prompt": 16}, {**TESTS[1], "n_gen": 4}]
        peer = self.peer(f"echo \"$@\" >> {self.folder}/flags\necho '{json.dumps(tests)}'")
        code, out, err = self.compare("--llama-bench", peer, "--llama-bench-args", "-fa 1", "--name", "a peer",
                                      "--threads", "1")
        self.assertEqual(code, 0, err)
        self.assertIn("a peer (build 7, commit abc) -mmp 0 -fa 1", out)
        self.assertRegex(out, r"prompt of 16 \| [0-9.]+ \([0-9.]+ - [0-9.]+\) \| 8.0 \(8.0 - 8.0\)")
        lines = (self.folder / "flags").read_text().splitlines()
        self.assertEqual(len(lines), 2)
        self.assertIn("-p 16 -n 4 -t 1 -r 1 -o json -mmp 0 -fa 1", lines[0])
        left = subprocess.run([BIN / "moestro", "segments", "list", "--instance", f"peers-{os.getpid()}", "--json"],
                              check=True, stdout=subprocess.PIPE)
        self.assertEqual(json.loads(left.stdout), [])

    def test_a_peer_that_fails(self):
        code, out, err = self.compare("--llama-bench", self.peer("echo no memory >&2; exit 5"))
        self.assertEqual((code, out), (2, ""))
        self.assertIn("exit code 5: no memory", err)

    def test_no_peer_and_no_model(self):
        self.assertIn("no peer: give --llama-bench", self.compare()[2])
        self.model.write_bytes(b"GGUF")
        self.assertIn("not a file in GGUF", self.compare("--llama-bench", self.peer("exit 0"))[2])

    def test_formats(self):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = formats.main(["--bin", str(BIN), "--weights", "fp8,q8_0", "--quick", "--repetitions", "1", "--prompt",
                                 "16", "--decode", "4", "--threads", "1", "--models", str(self.folder / "models")])
        self.assertEqual(code, 0, err.getvalue())
        rows = [line for line in out.getvalue().splitlines() if line.startswith(("| fp8", "| q8_0"))]
        self.assertEqual([row.split(" | ")[:2] for row in rows],
                         [["| fp8", "as published"], ["| q8_0", "as published"], ["| q8_0", "coded"]])
        self.assertTrue((self.folder / "models/tiny-q8_0.gguf").exists())

    def test_formats_that_are_unknown(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as err:
            formats.main(["--weights", "q3_k"])
        self.assertIn("q3_k: use some of fp8,bf16", err.getvalue())


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
