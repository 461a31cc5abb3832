"""decode --device host: the same tokens as decode without a device, with and without steps cut in two."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from node import HANG_SECONDS

PROMPTS = [[20 + (i * 131 + j * 17) % 900 for j in range(30 + 10 * i)] for i in range(4)]


def answers(node):
    """Long enough that all sequences are decoded at the same time, however late the last prompt is ready."""
    def ask(prompt):
        replies = node.stub.Generate(node.request(prompt, 240, temperature=0.0, ignore_eos=True), timeout=HANG_SECONDS)
        return [token.id for reply in replies if reply.HasField("tokens") for token in reply.tokens.tokens]
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(ask, PROMPTS))


def totals(node, names):
    """Of decode, in one look: between two, it may bring them up to date."""
    seen = {name.split("{")[0]: value for name, value in node.metrics("decode").items()}
    return {name: seen[f"moestro_decode_{name}_total"] for name in names}


@pytest.fixture(scope="module")
def expected(node):
    return answers(node)


@pytest.mark.parametrize("overlap", ["on", "off", "auto"])
def test_tokens_do_not_depend_on_the_device(make_node, absorbed, expected, overlap):
    flags = dict(absorbed, decode=["--device", "host", "--overlap", overlap])
    with make_node(flags) as node:
        assert answers(node) == expected
        overlapped = node.metric("decode", "moestro_decode_overlapped_steps_total")
        assert overlap == "auto" or (overlapped > 0) == (overlap == "on")
        choice = [line for line in node.log("decode").splitlines() if "batches for each number of sequences" in line]
        assert len(choice) == 1 and f"--overlap {overlap}" in choice[0]


@pytest.mark.parametrize("schedule, policy, prefetch", [
    ("fixed", "lru", 0), ("hybrid", "lru", 0), ("on-demand", "lru", 0), ("fixed", "first-layers", 0),
    ("hybrid", "mrs", 3), ("on-demand", "lfu", 1)])
def test_tokens_do_not_depend_on_where_experts_are_computed(make_node, absorbed, expected, schedule, policy, prefetch):
    flags = ["--device", "host", "--expert-cache-bytes", "4MB", "--expert-schedule", schedule,
             "--expert-policy", policy, "--prefetch-layers", str(prefetch)]
    with make_node(dict(absorbed, decode=flags)) as node:
        assert answers(node) == expected
        metric = totals(node, (
            "expert_cache_hits", "expert_cache_misses", "experts_on_device", "expert_loads", "expert_planned_seconds",
            "expert_measured_seconds", "expert_loads_ahead", "foreseen_expert_hits"))
        assert metric["expert_cache_misses"] > 0, metric
        # Beside other load the device may be measured as so slow that a hybrid schedule never takes it.
        if schedule != "hybrid":
            assert metric["expert_cache_hits"] > 0 and metric["experts_on_device"] > 0, metric
            assert (metric["expert_loads"] > 0) == (policy != "first-layers"), metric
        assert metric["foreseen_expert_hits"] <= metric["expert_loads_ahead"] <= metric["expert_loads"], metric
        assert prefetch > 0 or metric["expert_loads_ahead"] == 0, metric
        assert metric["expert_planned_seconds"] > 0 and metric["expert_measured_seconds"] > 0, metric
        assert f"--expert-schedule {schedule}, --expert-policy {policy}: the device holds up to" in node.log("decode")


@pytest.mark.parametrize("schedule", ["tri-domain", "monde", "ktransformers"])
def test_tokens_do_not_depend_on_processors_near_the_data(make_node, absorbed, expected, schedule):
    flags = ["--device", "host", "--expert-cache-bytes", "4MB", "--near-units", "3", "--near-rate", "4GB",
             "--domain-schedule", schedule]
    with make_node(dict(absorbed, decode=flags)) as node:
        assert answers(node) == expected
        metric = totals(node, (
            "expert_cache_hits", "expert_cache_misses", "experts_near_data", "expert_measured_seconds"))
        assert metric["expert_cache_hits"] + metric["expert_cache_misses"] > 0, metric
        assert schedule != "ktransformers" or metric["experts_near_data"] == 0, metric
        assert metric["expert_measured_seconds"] > 0, metric
        assert f"--near-units 3, --domain-schedule {schedule}: the device holds up to" in node.log("decode")


def test_a_device_that_is_not_there_is_an_error_of_the_start(make_node):
    for flags, message in ((["--device", "tpu"], "--device tpu: use none, host or cuda:N"),
                           (["--overlap", "maybe"], "--overlap maybe: use auto, on or off"),
                           (["--expert-cache-bytes", "1MB"], "--device is none"),
                           (["--device", "host", "--expert-schedule", "hybrid"], "set --expert-cache-bytes"),
                           (["--device", "host", "--prefetch-layers", "1"], "set --expert-cache-bytes"),
                           (["--device", "host", "--prefetch-layers", "4", "--expert-cache-bytes", "1MB"],
                            "--prefetch-layers"),
                           (["--near-units", "2"], "needs --device host and --expert-cache-bytes"),
                           (["--near-rate", "1GB"], "need --near-units"),
                           (["--expert-policy", "random"], "use lru, lfu, mrs or first-layers"),
                           (["--expert-schedule", "best"], "use fixed, hybrid or on-demand")):
        node = make_node({"decode": flags})
        try:
            node.start("decode")
            assert node.processes["decode"].wait(timeout=60) == 2
            assert message in node.log("decode")
        finally:
            node.stop()
