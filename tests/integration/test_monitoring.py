"""deploy/prometheus and deploy/grafana against a real node: a real Prometheus scrapes it, and every panel, rule and
alert finds its data."""

import json
import re
import subprocess
import threading
import urllib.request

import pytest
import yaml

from node import HANG_SECONDS, ROLES, Node, wait_until
from prometheus import Prometheus, program

# Empty on a node without a device, which streams no prompt and schedules no experts: quotients of nothing by nothing.
NEEDS_A_DEVICE = ("stream_stall_seconds", "prefill_device_share", "prefill_exchange_seconds", "prefill_exchange_wait_seconds",
                  "expert_planned_seconds", "decode_batch_busy_seconds", "decode_batch_forecast_seconds",
                  "decode_batch_micro_batches")
# Empty where the path is chosen by the paper's numbers, as here; test_predicted_paths.py has a node that predicts.
NEEDS_PREDICTIONS = ("path_prediction_ratio",)


@pytest.fixture(scope="module")
def prometheus(repo, api, bin_dir, tiny_model, tmp_path_factory):
    """Prometheus of a node on which requests of all paths have just run and still run. Slow: six scrapes
    of a node that has started, a second apart."""
    flags = {"router": ["--chunked-below-tokens", "64", "--decode-idle-window-seconds", "0"]}
    with Node(api, bin_dir, tiny_model, flags) as node:
        server = Prometheus(node, tmp_path_factory.mktemp("prometheus"))
        over = threading.Event()

        def load():
            number = 0
            while not over.wait(0.1):
                number += 1
                ids = [1 + (number + i) % 200 for i in range(200 if number % 2 else 20)]
                node.generate(ids, 8)
                body = json.dumps({"prompt": ids, "max_tokens": 8, "stream": True}).encode()
                urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/v1/completions", body, timeout=HANG_SECONDS).read()

        clients = [threading.Thread(target=load) for _ in range(2)]
        for client in clients:
            client.start()
        try:
            wait_until(lambda: server.query("min(count_over_time(up[1m]))") >= [6.0], 60, "six scrapes of every role")
            yield server
        finally:
            over.set()
            for client in clients:
                client.join()
            server.stop()


def test_all_roles_are_scraped(prometheus):
    targets = prometheus.get("targets")["activeTargets"]
    assert {t["labels"]["role"]: t["health"] for t in targets} == {role: "up" for role in ROLES}
    assert prometheus.query('count(count by (role) (up{job="moestro"} == 1))') == [4]
    assert prometheus.query('count({__name__=~"moestro_.*", exported_role!=""})') == []


def test_every_series_says_its_model(prometheus):
    assert prometheus.query('count(count by (role) ({__name__=~"moestro_.*", model_name="tiny"}))') == [4]
    wait_until(lambda: prometheus.query('count({__name__=~"moestro_.*", model_name!="tiny"})') == [], 10,
               "no series without a model's name is left")


def test_every_panel_has_data(prometheus, repo):
    empty = []
    for file in sorted((repo / "deploy/grafana/dashboards").glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                expr = target["expr"].replace("$job", "moestro")
                expr = expr.replace("$__rate_interval", "20s").replace("$__range", "1m")
                if not prometheus.query(expr) and not any(name in expr for name in NEEDS_A_DEVICE + NEEDS_PREDICTIONS):
                    empty.append(f"{file.stem}, {panel['title']}: {expr}")
    assert empty == []


def test_every_alias_has_data(prometheus, repo):
    rules = yaml.safe_load((repo / "deploy/prometheus/rules/vllm.yml").read_text())["groups"][0]["rules"]
    for record in {rule["record"] for rule in rules}:
        wait_until(lambda: prometheus.query(f'{{__name__="{record}", model_name="tiny"}}'), 10, record)


def test_rules_hold_on_a_healthy_node(prometheus):
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    wait_until(lambda: all(rule["health"] == "ok" for group in prometheus.get("rules")["groups"]
                           for rule in group["rules"]), 10, "every rule is evaluated without an error")
    # Inter-token objectives depend on the machine, not on the node's health.
    firing = [rule["name"] for rule in rules if rule["type"] == "alerting" and rule["state"] == "firing"]
    assert [name for name in firing if "SloBurn" not in name] == []


@pytest.mark.parametrize("role", ROLES)
def test_metrics_are_named_as_prometheus_wants_them(node, role):
    with urllib.request.urlopen(f"http://127.0.0.1:{node.metrics_port[role]}/metrics", timeout=5) as reply:
        checked = subprocess.run([program("promtool"), "check", "metrics"], input=reply.read(), capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_objectives_count_what_is_late(prometheus):
    late = set(re.findall(r"moestro_\w+_late_total", " ".join(
        rule["query"] for group in prometheus.get("rules")["groups"] for rule in group["rules"]
        if rule["type"] == "recording")))
    assert len(late) == 2 and all(prometheus.query(f"count({metric})")[0] >= 1 for metric in late)
