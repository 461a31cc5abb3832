#!/usr/bin/python3
"""What watching a node costs: tokens a second of a node whose four roles log every request as JSON and are scraped every
second (five times as often as deploy/prometheus does), against one that serves no metrics and logs nothing; and how long a
scrape of a busy role takes. Prints Markdown. Not a test: it wants a machine that does nothing else.

    tests/integration/overhead.py [--bin build/release/bin] [--rounds 20] [--tokens 200]

The two nodes take turns on the same CPUs, in the order A B B A, with the same requests; the other one sleeps meanwhile. The model
is the tiny one: its steps are the shortest, so what is paid by the step or by the second weighs most."""

import argparse
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from node import ROLES, Node, compile_api

PROMPT = [20 + i * 37 % 900 for i in range(32)]
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


def tokens_per_second(node, tokens):
    """Of one greedy answer, after its first token, as the router measured it."""
    ids, _, finished = node.generate(PROMPT, tokens, ignore_eos=True)
    assert len(ids) == tokens
    return (tokens - 1) / (finished.total_seconds - finished.time_to_first_token_seconds)


def compare(watched, silent, rounds, tokens):
    """Tokens a second of both, one pair a round, while the watched node is scraped every second."""
    over = threading.Event()

    def scrape():
        while not over.wait(1):
            for role in ROLES:
                scrape_seconds(watched, role)

    scraper = threading.Thread(target=scrape)
    scraper.start()
    pairs = []
    for number in range(-2, rounds):  # the first two warm up
        order = (watched, silent) if number % 2 else (silent, watched)
        found = {node: tokens_per_second(node, tokens) for node in order}
        if number >= 0:
            pairs.append((found[watched], found[silent]))
    over.set()
    scraper.join()
    return pairs


def scrape_while_busy(node, tokens):
    """role -> ([seconds], bytes), while STREAMS answers are generated."""
    over = threading.Event()

    def load():
        while not over.is_set():
            node.generate(PROMPT, tokens, ignore_eos=True)

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
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    arguments = parser.parse_args()
    bin_dir = str(Path(arguments.bin).resolve())
    with tempfile.TemporaryDirectory() as folder:
        api = compile_api(Path(folder))
        model = Path(folder) / "tiny"
        subprocess.run([f"{bin_dir}/moestro", "make-model", "--preset", "tiny", "--out", model], check=True, stdout=subprocess.DEVNULL)
        json_logs = {role: ["--log-format", "json"] for role in ROLES}
        with Node(api, bin_dir, model, json_logs) as watched, Silent(api, bin_dir, model) as silent:
            pairs = compare(watched, silent, arguments.rounds, arguments.tokens)
            scrapes = scrape_while_busy(watched, arguments.tokens)
    medians = [statistics.median(column) for column in zip(*pairs)]
    ratios = sorted(watched_rate / silent_rate for watched_rate, silent_rate in pairs)
    quarter = len(ratios) // 4
    print(f"| one stream, {arguments.tokens} tokens, median of {len(pairs)} | tokens/s |\n|---|---|")
    print(f"| metrics scraped every second, JSON logs | {medians[0]:.1f} |\n| neither | {medians[1]:.1f} |\n")
    print(f"Cost by the median of the pairs: {100 * (1 - statistics.median(ratios)):.2f} % "
          f"(middle half of the pairs: {100 * (1 - ratios[-1 - quarter]):.2f} to {100 * (1 - ratios[quarter]):.2f} %)\n")
    print(f"| scrape while {STREAMS} streams decode | bytes | median ms | slowest of {SCRAPES} ms |\n|---|---|---|---|")
    for role, (seconds, size) in scrapes.items():
        print(f"| {role} | {size} | {1000 * statistics.median(seconds):.2f} | {1000 * max(seconds):.2f} |")


if __name__ == "__main__":
    main()
