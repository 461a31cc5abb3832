#!/usr/bin/env python3
"""Clients of a running node that leave at random moments, beside one that stays. By hand: not a test.

Prints how many left, whether the answers of the one that stayed are those it had alone, the router's memory, and how
many of decode's pages are free in the end. The node: deploy/up --detach."""

import argparse
import asyncio
import json
import random
import time
import urllib.request
from pathlib import Path


def request_body(prompt, tokens, **fields):
    return json.dumps({"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, **fields}).encode()


async def leave(port, end, seed):
    """Clients, one after the other; each leaves before, in or after its answer. Returns how many."""
    chance = random.Random(seed)
    body = request_body(">>> sorted([5, 2, 9, 7, 1, 3])\n", 120, stream=True)
    left = 0
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        try:
            await asyncio.wait_for(reader.read(chance.choice([1, 400, 4000, 10**9])), chance.random() * 0.3)
        except asyncio.TimeoutError:
            pass
        writer.transport.abort() if chance.random() < 0.5 else writer.close()
        left += 1
    return left


async def stay(port, end):
    """The answers of a client that waits for them, a list."""
    def ask():
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions",
                                         request_body(">>> sum([4, 5, 6])\n", 60), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["text"]
    answers = []
    while time.monotonic() < end:
        answers.append(await asyncio.to_thread(ask))
    return answers


def resident_mib(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


async def run(options):
    alone = await stay(options.port, time.monotonic() + 1)
    print(f"alone: {len(set(alone))} text, router {resident_mib(options.router_pid)} MiB")
    for round_number in range(options.rounds):
        end = time.monotonic() + options.seconds
        leavers = [leave(options.port, end, round_number * 10**6 + i) for i in range(options.clients)]
        stayed, *left = await asyncio.gather(stay(options.port, end), *leavers)
        text = "the same" if set(stayed) == set(alone) else "OTHER"
        print(f"round {round_number}: {sum(left)} left, {len(stayed)} answers, {text} text, "
              f"router {resident_mib(options.router_pid)} MiB", flush=True)
    await asyncio.sleep(2)
    metrics = urllib.request.urlopen(options.decode_metrics).read().decode()
    for line in metrics.splitlines():
        if line.startswith(("moestro_kv_pages{", "moestro_kv_pages_free{", "moestro_kv_leases{")):
            print(line)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--port", type=int, default=8080, help="of the HTTP API (default %(default)s)")
parser.add_argument("--decode-metrics", default="http://127.0.0.1:9403/metrics", help="default %(default)s")
parser.add_argument("--router-pid", type=int, required=True)
parser.add_argument("--clients", type=int, default=200)
parser.add_argument("--rounds", type=int, default=6)
parser.add_argument("--seconds", type=float, default=20, help="of a round")
asyncio.run(run(parser.parse_args()))
