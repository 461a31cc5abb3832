"""`moestro-decode --mode throughput`: all requests in one batch, with the tokens that they have in the mode latency."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

from node import Node

REQUESTS = 96
TOKENS = 200


def prompt(number):
    return [20 + (number * 37 + i) % 900 for i in range(3 + number % 60)]


def steps_up_to(metrics, sequences):
    """How many steps had at most so many sequences."""
    found = [value for key, value in metrics.items()
             if key.startswith("moestro_decode_step_sequences_bucket") and f'le="{sequences}"' in key]
    return found[0]


def test_many_sequences_share_steps_and_keep_their_tokens(api, bin_dir, tiny_model, node):
    def generate(each, number):
        return each.generate(prompt(number), TOKENS, ignore_eos=True)[:2]  # not how long it took

    flags = {"decode": ["--mode", "throughput", "--kv-tokens", "65536"]}  # fewer than its own: the test fills them
    with Node(api, bin_dir, tiny_model, flags) as many, ThreadPoolExecutor(REQUESTS) as clients:
        answers = list(clients.map(lambda number: generate(many, number), range(REQUESTS)))
        metrics = many.metrics("decode")
    assert steps_up_to(metrics, "+Inf") > steps_up_to(metrics, 8), "no step has more sequences than the mode latency's 6"
    for number in (0, 1, 40, REQUESTS - 1):
        assert generate(node, number) == answers[number]


def test_what_does_not_fit_the_mode_is_named(bin_dir):
    def error(*flags):
        ended = subprocess.run([f"{bin_dir}/moestro-decode", *flags], capture_output=True, text=True, timeout=60)
        assert ended.returncode != 0
        return ended.stderr

    assert "use --mode throughput" in error("--max-batch", "65")
    assert "use --device none" in error("--mode", "throughput", "--device", "host")
