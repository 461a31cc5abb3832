"""Alerts of deploy/prometheus fire on a real node in trouble, and only the expected ones. Time in the rules runs sixty
times as fast."""

import threading

import pytest

from node import HANG_SECONDS, wait_until
from prometheus import Prometheus

PATIENCE_SECONDS = 150


class Alerts(Prometheus):
    def firing(self):
        """name -> summary"""
        return {alert["labels"]["alertname"]: alert["annotations"]["summary"]
                for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}


class Load:
    """Clients that repeat requests, as a context manager."""

    def __init__(self, *requests):
        self.over = threading.Event()
        self.clients = [threading.Thread(target=self.repeat, args=(request,)) for request in requests]

    def repeat(self, request):
        number = 0
        while not self.over.is_set():
            number += 1
            request(number)

    def __enter__(self):
        for client in self.clients:
            client.start()

    def __exit__(self, *_):
        self.over.set()
        for client in self.clients:
            client.join()


@pytest.fixture
def watch(tmp_path):
    servers = []

    def start(node):
        servers.append(Alerts(node, tmp_path, hurry=60))
        wait_until(lambda: servers[0].query("count(up == 1)") == [4], 60, "four roles are scraped")
        return servers[0]
    yield start
    for server in servers:
        server.stop()


def test_a_missed_objective(make_node, watch):
    """Slow: clients compute prompts of 3,000 tokens until rules, whose hour is a minute here, have seen enough."""
    # Steps include large chunks of prompts, and some request always has one: the next token of every other request
    # waits for it.
    flags = {"decode": ["--itl-bound-ms", "60000", "--max-chunk-tokens", "1024", "--prefix-cache", "false",
                        "--kv-tokens", "32768"],
             "router": ["--mode", "unified"]}

    def prompt(number):
        node.generate([1 + (number + i) % 200 for i in range(3000)], 2, ignore_eos=True, timeout=HANG_SECONDS)

    def stream(number):
        node.generate([1, 50, 60, 70], 40, ignore_eos=True, timeout=HANG_SECONDS)

    with make_node(flags) as node:
        server = watch(node)
        with Load(prompt, prompt, prompt, prompt, stream, stream):
            wait_until(lambda: "more than 0.05 s, and than twice a full batch's step" in server.firing().get("MoestroInterTokenSloBurnFast", ""),
                       PATIENCE_SECONDS, "the alert fires")
            assert not {name for name in server.firing() if "Ttft" in name}, "first tokens came in time"


def test_a_role_that_is_gone(make_node, watch):
    """Slow: Prometheus starts, and must see decode go and come back."""
    with make_node() as node:
        server = watch(node)
        assert not server.firing()
        node.kill("decode")
        wait_until(lambda: {"MoestroRoleDown", "MoestroRoleNotServing"} <= set(server.firing()), PATIENCE_SECONDS, "both fire")
        assert server.labels('ALERTS{alertname="MoestroRoleDown"}', "role") == ["decode"]
        assert server.labels('ALERTS{alertname="MoestroRoleNotServing"}', "peer") == ["decode"]
        node.start("decode")
        wait_until(lambda: not server.firing(), PATIENCE_SECONDS, "they end when it is back")
