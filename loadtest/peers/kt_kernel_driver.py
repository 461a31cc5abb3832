"""Times kt-kernel's routed experts on a file in GGUF, in the form of llama-bench's `-o json`.

    PYTHON kt_kernel_driver.py MODEL PROMPT DECODE THREADS REPETITIONS

kt-kernel computes routed experts only; attention and head are its host's. So a pass is the experts of all layers, each
token sent to other random experts: what `moestro bench-model` times as experts. The method is kt-kernel's for GGUF.
"""

import contextlib
import json
import random
import sys
import time

import torch

if not torch.cuda.is_available():  # kt-kernel asks for pinned memory, which needs a GPU
    def pageable(allocate):
        return lambda *a, pin_memory=False, **k: allocate(*a, **k)
    torch.zeros, torch.empty = pageable(torch.zeros), pageable(torch.empty)

import kt_kernel  # noqa: E402
from kt_kernel.utils.loader import GGUFLoader  # noqa: E402


def metadata(path):
    """Layers, experts, experts a token, hidden size and width of an expert."""
    values = GGUFLoader(path).metadata
    prefix = values["general.architecture"] + "."
    return [int(values[prefix + key][0]) for key in ("block_count", "expert_count", "expert_used_count",
                                                  "embedding_length", "expert_feed_forward_length")]


class Experts:
    def __init__(self, path, rows, threads):
        layers, self.experts, self.used, self.hidden, width = metadata(path)
        self.layers = []
        for layer in range(layers):
            wrapper = kt_kernel.KTMoEWrapper(
                layer_idx=layer, num_experts=self.experts, num_experts_per_tok=self.used, hidden_size=self.hidden,
                moe_intermediate_size=width, gpu_experts_mask=None, cpuinfer_threads=threads, threadpool_count=1,
                weight_path=path, chunked_prefill_size=rows, method="LLAMAFILE")
            wrapper.load_weights()
            self.layers.append(wrapper)
        self.x = torch.randn(rows, self.hidden).to(torch.bfloat16)
        self.out = torch.zeros(rows, self.hidden, dtype=torch.bfloat16)
        self.weights = torch.full((rows, self.used), 1 / self.used)

    def routes(self, rows):
        """Distinct random experts of each row, for each layer; made before the time is taken."""
        return [torch.tensor([random.sample(range(self.experts), self.used) for _ in range(rows)]) for _ in self.layers]

    def run(self, rows, routes):
        count = torch.tensor([rows], dtype=torch.int32)
        for wrapper, ids in zip(self.layers, routes):
            wrapper.cpu_infer.submit(wrapper.moe.forward_task(
                count.data_ptr(), self.used, ids.data_ptr(), self.weights.data_ptr(), self.x.data_ptr(),
                self.out.data_ptr(), False))
            wrapper.cpu_infer.sync()

    def time(self, passes, rows):
        """Nanoseconds of so many passes."""
        routes = [self.routes(rows) for _ in range(passes)]
        begin = time.perf_counter_ns()
        for one in routes:
            self.run(rows, one)
        return time.perf_counter_ns() - begin


def main():
    path, (prompt, decode, threads, repetitions) = sys.argv[1], map(int, sys.argv[2:])
    random.seed(1)
    with contextlib.redirect_stdout(sys.stderr):
        experts = Experts(path, max(prompt, decode), threads)
    tests = []
    for n_prompt, n_gen in ((prompt, 0), (0, decode)):
        passes, rows = (1, n_prompt) if n_prompt else (n_gen, 1)
        experts.time(passes, rows)
        if not experts.out[:rows].any():
            sys.exit(f"kt-kernel left the output of {rows} rows empty")
        tests.append({"n_prompt": n_prompt, "n_gen": n_gen,
                      "samples_ns": [experts.time(passes, rows) for _ in range(repetitions)],
                      "build_number": f"kt-kernel {kt_kernel.__version__}",
                      "build_commit": f"{kt_kernel.__cpu_variant__}"})
    print("\n" + json.dumps(tests))


if __name__ == "__main__":
    main()
