"""`moestro-decode --mode throughput`: all requests in one batch, with the tokens that they have in the mode latency; on
the CPU alone, and with experts that stream to a device."""

import json
import re
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from node import HANG_SECONDS, Node, collect

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
    """Slow, for 96 answers of 200 tokens."""
    flags = {"decode": ["--mode", "throughput", "--kv-tokens", "65536"]}  # fewer than its own: the test fills them
    with Node(api, bin_dir, tiny_model, flags) as many:
        # All begin before the first answer is read. Threads with a request each may begin so late that few overlap.
        calls = [many.stub.Generate(many.request(prompt(number), TOKENS, temperature=0.0, ignore_eos=True),
                                    timeout=HANG_SECONDS) for number in range(REQUESTS)]
        answers = [collect(call)[:2] for call in calls]  # not how long it took
        metrics = many.metrics("decode")
    assert steps_up_to(metrics, "+Inf") > steps_up_to(metrics, 8), "no step has more sequences than the mode latency's 6"
    for number in (0, 1, 40, REQUESTS - 1):
        assert node.generate(prompt(number), TOKENS, ignore_eos=True)[:2] == answers[number]


# The tiny model's experts take 7.5 MB, those of two layers 5. Where the device attends, half is for caches.
MEMORY = {"cgopipe": "6MB", "s2": "6MB", "s3": "6MB", "s4": "11MB", "whole-layer": "11MB"}


@pytest.fixture(scope="module")
def expected(node):
    return [node.generate(prompt(number), 40, ignore_eos=True)[:2] for number in range(12)]


@pytest.mark.parametrize("schedule, devices", [*((schedule, 1) for schedule in MEMORY), ("cgopipe", 2)])
def test_tokens_do_not_depend_on_how_experts_stream(make_node, absorbed, expected, schedule, devices):
    memory = MEMORY[schedule] if devices == 1 else "4MB"
    flags = ["--mode", "throughput", "--device", "host", "--device-memory", memory, "--batch-schedule", schedule,
             "--max-batch", "12", "--max-chunk-tokens", "8", "--kv-tokens", "16384", "--device-count", str(devices)]
    with make_node(dict(absorbed, decode=flags)) as node:
        with ThreadPoolExecutor(len(expected)) as clients:
            answers = list(clients.map(lambda i: node.generate(prompt(i), 40, ignore_eos=True)[:2],
                                       range(len(expected))))
        assert answers == expected
        node.wait_all_pages_free()
        log = node.log("decode")
        stay, experts = map(int, re.search(rf"--batch-schedule {schedule}: (\d+) of (\d+) routed experts stay", log).groups())
        assert 0 <= stay < experts
        assert (f"experts stay on {devices} devices, which share each" in log) == (devices > 1)
        assert "a step of 12 sequences of 512 tokens should take" in log
        metric = {name: node.metric("decode", f"moestro_decode_batch_{name}_total") for name in (
            "steps", "micro_batches", "seconds", "forecast_seconds", "streamed_bytes")}
        assert all(value > 0 for value in metric.values()), metric
        assert metric["micro_batches"] >= metric["steps"]
        assert node.metric("decode", "moestro_decode_batch_resident_ratio") == pytest.approx(stay / experts)


def test_what_does_not_fit_the_mode_is_named(bin_dir):
    def error(*flags):
        ended = subprocess.run([f"{bin_dir}/moestro-decode", *flags], capture_output=True, text=True, timeout=60)
        assert ended.returncode != 0
        return ended.stderr

    batch = ["--mode", "throughput", "--device", "host"]
    assert "use --mode throughput" in error("--max-batch", "65")
    assert "--batch-schedule: needs --mode throughput" in error("--batch-schedule", "s2")
    assert "--micro-batch: needs --mode throughput" in error("--mode", "throughput", "--micro-batch", "4")
    assert "--device-memory: needs --mode throughput" in error("--device", "host", "--device-memory", "1GB")
    assert "set --device-memory instead" in error(*batch, "--expert-cache-bytes", "1MB")
    assert "--routing-trace: not recorded" in error(*batch, "--routing-trace", "trace")
    assert "--device-count: needs --mode throughput" in error("--device", "host", "--device-count", "2")
    assert "GPUs do not share experts yet" in error("--mode", "throughput", "--device", "cuda:0", "--device-count", "2")
    assert "use cgopipe, s2 or s3" in error("--mode", "throughput", "--device", "cuda:0", "--batch-schedule", "s4")


def test_memory_that_is_too_small_is_an_error_of_the_start(make_node):
    node = make_node({"decode": ["--mode", "throughput", "--device", "host", "--device-memory", "2MB", "--max-batch", "8",
                                 "--max-chunk-tokens", "8", "--kv-tokens", "4096"]})
    try:
        node.start("weight_store")
        node.start("decode")
        assert node.processes["decode"].wait(timeout=60) == 2
        assert "--device-memory: routed experts of two layers need" in node.log("decode")
    finally:
        node.stop()


def test_a_context_that_the_device_can_never_hold_is_no_reason_to_try_again(make_node, absorbed):
    """429 and 503 are what clients, `moestro batch` and the router's batches repeat for as long as it takes."""
    flags = ["--mode", "throughput", "--device", "host", "--device-memory", MEMORY["s4"], "--batch-schedule", "s4",
             "--max-batch", "12", "--max-chunk-tokens", "64", "--kv-tokens", "16384"]
    with make_node(dict(absorbed, decode=flags)) as node:
        body = {"prompt": [20 + i % 900 for i in range(3900)], "max_tokens": 8, "ignore_eos": True}
        call = urllib.request.Request(f"http://127.0.0.1:{node.http_port}/v1/completions", json.dumps(body).encode(),
                                      {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(call, timeout=HANG_SECONDS)
        text = error.value.read().decode()
        assert "the device has room for the cache of" in text
        assert error.value.code not in (429, 503), text
