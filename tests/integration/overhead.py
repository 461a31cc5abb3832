#!/usr/bin/python3
"""Measures the cost of monitoring a node: CPU time per token, and the duration of a scrape.

One node logs every request as JSON, and its four roles are scraped every second (five times as often as in deploy/prometheus).
The other serves no metrics and logs nothing. Measured are the CPU time of decode and of the router per token, and the scrapes of a
busy role. Prints Markdown. Not a test: it needs an otherwise idle machine.

    tests/integration/overhead.py [--bin build/release/bin] [--pairs 4] [--control]

The two nodes take turns on the same CPUs, in the order A B B A, with the same requests. It measures CPU time, since
elapsed time includes other work of the machine. A node's memory placement changes the result by some per cent, so every
pair of nodes is new, and the pairs alternate in which node starts first. The model is the tiny one: its steps are the
shortest, so costs per step or per second weigh most. --control: both nodes are silent, which shows the noise."""

import argparse
import contextlib
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from node import ROLES, Node, compile_api

PROMPT = [20 + i * 37 % 900 for i in range(32)]
MEASURED = ("decode", "router")
TURNS, TOKENS = 10, 100  # of each node
STREAMS = 4
SCRAPES = 50


class Silent(Node):
    """Serves no metrics and logs nothing."""

    def command(self, role):
        command = super().command(role)
        at = command.index("--metrics-address")
        return command[:at] + command[at + 2:] + ["--log-level", "off"]


def scrape_seconds(node, role):
    begin = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{node.metrics_port[role]}/metrics", timeout=5) as reply:
        size = len(reply.read())
    return time.perf_counter() - begin, size


def cpu_seconds(node, role):
    """CPU time of a process with all its threads."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{node.pid(role)}/task").glob("*/schedstat")) / 1e9


@contextlib.contextmanager
def scraped(node):
    """Repeats every second from now on."""
    over = threading.Event()

    def scrape():
        while not over.wait(1):
            for role in ROLES:
                scrape_seconds(node, role)

    scraper = threading.Thread(target=scrape)
    scraper.start()
    yield
    over.set()
    scraper.join()


def compare(watched, silent):
    """role -> per cent by which the monitored node needs more CPU time."""
    def take_turns():
        for turn in range(TURNS):
            for node in (watched, silent) if turn % 2 else (silent, watched):
                node.generate(PROMPT, TOKENS, ignore_eos=True)

    def used():
        return {(node, role): cpu_seconds(node, role) for node in (watched, silent) for role in MEASURED}

    take_turns()  # warms up
    before = used()
    take_turns()
    after = used()
    spent = {key: after[key] - before[key] for key in after}
    return {role: 100 * (spent[watched, role] / spent[silent, role] - 1) for role in MEASURED}


def scrape_while_idle(node):
    """role -> CPU seconds per scrape"""
    found = {}
    for role in ROLES:
        before = cpu_seconds(node, role)
        for _ in range(SCRAPES):
            scrape_seconds(node, role)
        found[role] = (cpu_seconds(node, role) - before) / SCRAPES
    return found


def scrape_while_busy(node):
    """role -> ([seconds], bytes), while STREAMS answers are generated."""
    over = threading.Event()

    def load():
        while not over.is_set():
            node.generate(PROMPT, TOKENS, ignore_eos=True)

    clients = [threading.Thread(target=load) for _ in range(STREAMS)]
    for client in clients:
        client.start()
    found = {role: [scrape_seconds(node, role) for _ in range(SCRAPES)] for role in ROLES}
    over.set()
    for client in clients:
        client.join()
    return {role: ([seconds for seconds, _ in scrapes], scrapes[-1][1]) for role, scrapes in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--control", action="store_true")
    arguments = parser.parse_args()
    bin_dir = str(Path(arguments.bin).resolve())
    json_logs = {role: ["--log-format", "json"] for role in ROLES}
    costs, busy, idle = [], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        api = compile_api(Path(folder))
        model = Path(folder) / "tiny"
        subprocess.run([f"{bin_dir}/moestro", "make-model", "--preset", "tiny", "--out", model], check=True, stdout=subprocess.DEVNULL)
        for number in range(arguments.pairs):
            watched = Silent(api, bin_dir, model) if arguments.control else Node(api, bin_dir, model, json_logs)
            silent = Silent(api, bin_dir, model)
            first, second = (watched, silent) if number % 2 else (silent, watched)
            with first, second:
                with contextlib.nullcontext() if arguments.control else scraped(watched):
                    costs.append(compare(watched, silent))
                if not arguments.control and not busy:
                    busy, idle = scrape_while_busy(watched), scrape_while_idle(watched)
    print("| more CPU time a token | median | by pair of nodes |\n|---|---|---|")
    for role in MEASURED:
        cost = [pair[role] for pair in costs]
        print(f"| {role} | {statistics.median(cost):.2f} % | {', '.join(f'{one:.1f}' for one in cost)} |")
    print(f"\n| scrape | bytes | CPU us | median ms while {STREAMS} streams decode | slowest of {SCRAPES} |\n|---|---|---|---|---|")
    for role, (seconds, size) in busy.items():
        print(f"| {role} | {size} | {1e6 * idle[role]:.0f} | {1000 * statistics.median(seconds):.2f} | {1000 * max(seconds):.2f} |")


if __name__ == "__main__":
    main()
