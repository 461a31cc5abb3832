"""Peers that are modules of a given Python: llama.cpp in llama-cpp-python, and kt-kernel."""

import pathlib

import llama_bench
from processes import find_program, run

FOLDER = pathlib.Path(__file__).resolve().parent


class PythonPeer:
    """Runs `driver`, which prints what llama-bench prints."""

    def __init__(self, flag, python, model, settings):
        self.flag = flag
        self.python = find_program(flag, python)
        self.model = model
        self.settings = settings
        self.build = ""

    def describe(self):
        return {"name": self.name, "build": self.build, "arguments": []}

    def turn(self):
        s = self.settings
        text = run(self.flag, [self.python, FOLDER / self.driver, self.model, s.prompt, s.decode, s.threads,
                               s.repetitions], s.cores, llama_bench.HUGE_PAGES, s.timeout)
        speeds, self.build = llama_bench.parse(text, s.prompt, s.decode, self.flag)
        return {mine: speeds[its] for mine, its in zip(self.rows, ("prompt", "decode"))}


class LlamaCppPython(PythonPeer):
    """For machines without a llama-bench."""

    name = "llama.cpp (llama-cpp-python)"
    driver = "llama_cpp_driver.py"
    rows = ("prompt", "decode")


class KtKernel(PythonPeer):
    """Routed experts only: its host computes the rest of a model."""

    name = "kt-kernel"
    driver = "kt_kernel_driver.py"
    rows = ("experts_prompt", "experts_decode")
