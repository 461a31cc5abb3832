"""What llama-bench measures, through llama-cpp-python, and in the form of its `-o json`.

    PYTHON llama_cpp_driver.py MODEL PROMPT DECODE THREADS REPETITIONS

A prompt in one batch from an empty cache, and single tokens from an empty cache; random tokens, one repetition first
that does not count. llama.cpp's own batches and defaults otherwise.
"""

import json
import random
import sys
import time

import llama_cpp


class Model:
    def __init__(self, path, tokens, threads):
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_default_params()
        model.n_gpu_layers = 0
        model.use_mmap = False
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model)
        if not self.model:
            sys.exit(f"{path}: llama.cpp cannot load it")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = tokens
        context.n_batch = max(2048, tokens)
        context.n_ubatch = 512
        context.n_threads = context.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        if not self.context:
            sys.exit(f"{path}: llama.cpp has no context for {tokens} tokens")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def decode(self, count):
        tokens = (llama_cpp.llama_token * count)(*(random.randrange(self.vocabulary) for _ in range(count)))
        code = llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(tokens, count))
        if code != 0:
            sys.exit(f"llama_decode: code {code}")
        llama_cpp.llama_synchronize(self.context)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def time(self, passes, count):
        """Nanoseconds of so many passes of `count` tokens each, from an empty cache."""
        self.clear()
        begin = time.perf_counter_ns()
        for _ in range(passes):
            self.decode(count)
        return time.perf_counter_ns() - begin


def main():
    path, (prompt, decode, threads, repetitions) = sys.argv[1], map(int, sys.argv[2:])
    random.seed(1)
    model = Model(path, max(prompt, decode), threads)
    tests = []
    for n_prompt, n_gen in ((prompt, 0), (0, decode)):
        passes, count = (1, n_prompt) if n_prompt else (n_gen, 1)
        model.time(passes, count)
        samples = [model.time(passes, count) for _ in range(repetitions)]
        tests.append({"n_prompt": n_prompt, "n_gen": n_gen, "samples_ns": samples,
                      "build_number": f"llama-cpp-python {llama_cpp.__version__}",
                      "build_commit": llama_cpp.llama_print_system_info().decode().strip(" |")})
    print(json.dumps(tests))


if __name__ == "__main__":
    main()
