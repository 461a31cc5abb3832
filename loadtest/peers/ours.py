"""Our side: a weight store loads the file once, and each turn is a run of `moestro bench-model` over its segment."""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from processes import PeerError, find_program, run

POLL_SECONDS = 0.1


class Moestro:
    """Use as a context manager: at its end the segment is gone."""

    name = "moestro"

    def __init__(self, bin_folder, model, settings):
        self.settings = settings
        self.model = model
        self.cli = find_program("--bin", pathlib.Path(bin_folder) / "moestro")
        self.store_program = find_program("--bin", pathlib.Path(bin_folder) / "moestro-weight-store")
        self.instance = f"peers-{os.getpid()}"
        self.machine = {}
        self.facts = {}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="moestro-peers-")
        self.log = open(pathlib.Path(self.folder.name) / "log", "w+")
        self.store = subprocess.Popen([self.store_program, "--model", str(self.model), "--run-dir",
                                       f"{self.folder.name}/run", "--instance", self.instance],
                                      stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self.segment = self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.store.terminate()
        self.store.wait()
        self.log.close()
        self.folder.cleanup()

    def _wait(self):
        """The segment's name, once it is loaded."""
        deadline = time.monotonic() + self.settings.timeout
        while time.monotonic() < deadline:
            if self.store.poll() is not None:
                self.log.seek(0)
                said = " | ".join(self.log.read().strip().splitlines()[-3:])
                raise PeerError(f"--model {self.model}: the weight store ended with code {self.store.returncode}: "
                                f"{said}")
            listed = json.loads(run("--bin", [self.cli, "segments", "list", "--instance", self.instance, "--json"],
                                    self.settings.cores))
            for segment in listed:
                if segment["state"] == "weights, ready":
                    return segment["name"]
            time.sleep(POLL_SECONDS)
        raise PeerError(f"--model {self.model}: not loaded after {self.settings.timeout:.0f} s; use --timeout")

    def report(self):
        """What a run of `moestro bench-model` prints."""
        s = self.settings
        return json.loads(run("--bin", [self.cli, "bench-model", "--segment", self.segment, "--threads", s.threads,
                                        "--repetitions", s.repetitions, "--prompt", s.prompt, "--decode", s.decode,
                                        "--int8-activations", s.int8_activations],
                              s.cores, timeout=s.timeout))

    def turn(self):
        """Tokens a second of one turn, and what was measured beside them."""
        return self.read(self.report())

    def read(self, report):
        self.machine = report["machine"]
        self.facts = {key: report[key] for key in ("date", "decode_token_bytes", "experts_token_bytes",
                                                   "prompt_operations")}
        self.facts["huge_pages_ratio"] = report["model"]["segment_huge_bytes"] / report["model"]["segment_bytes"]
        median = {key: statistics.median(r[key] for r in report["repetitions"]) for key in report["repetitions"][0]}
        result = {"read_bytes_per_second": median["read_bytes_per_second"]}
        for prefix in ("", "experts_"):
            for what in ("prompt", "decode"):
                seconds = median[f"{prefix}{what}_seconds"]
                if seconds > 0:  # a model without routed experts has no times of them
                    result[prefix + what] = report["settings"][f"{what}_tokens"] / seconds
        return result
