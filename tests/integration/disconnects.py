#!/usr/bin/env python3
"""Clients of a running node that leave at random moments, beside one that stays. test_http.py does a little of it.

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


async def leave(port, chance):
    """One client, which leaves before, in or after its answer."""
    body = request_body(">>> sorted([5, 2, 9, 7, 1, 3])\n", 120, stream=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    try:
        await asyncio.wait_for(reader.read(chance.choice([1, 400, 4000, 10**9])), chance.random() * 0.3)
    except asyncio.TimeoutError:
        pass
    except ConnectionError:
        return  # the router was first
    writer.transport.abort() if chance.random() < 0.5 else writer.close()


async def storm(port, clients, rounds, report=lambda done: None):
    """In each round all clients come at once, and each leaves at a random moment."""
    chance = random.Random(1)
    for done in range(1, rounds + 1):
        await asyncio.gather(*(leave(port, chance) for _ in range(clients)))
        report(done)


def ask(port):
    """The answer of a client that waits for it."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions",
                                     request_body(">>> sum([4, 5, 6])\n", 60), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["text"]


async def beside(port, weather):
    """The answers that a client gets while `weather`, a coroutine, runs."""
    answers, task = [], asyncio.create_task(weather)
    while not task.done():
        answers.append(await asyncio.to_thread(ask, port))
    await task
    return answers


def resident_mib(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


async def run(options):
    alone = {ask(options.port) for _ in range(5)}
    print(f"alone: {len(alone)} text, router {resident_mib(options.router_pid)} MiB")

    def report(done):
        if done % 100 == 0:
            print(f"{done} rounds, {done * options.clients} left, router {resident_mib(options.router_pid)} MiB", flush=True)
    answers = await beside(options.port, storm(options.port, options.clients, options.rounds, report))
    print(f"{len(answers)} answers beside it, {'the same' if set(answers) == alone else 'OTHER'} text")
    await asyncio.sleep(2)
    metrics = urllib.request.urlopen(options.decode_metrics).read().decode()
    for line in metrics.splitlines():
        if line.startswith(("moestro_kv_pages{", "moestro_kv_pages_free{", "moestro_kv_leases{")):
            print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8080, help="of the HTTP API (default %(default)s)")
    parser.add_argument("--decode-metrics", default="http://127.0.0.1:9403/metrics", help="default %(default)s")
    parser.add_argument("--router-pid", type=int, required=True)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1000)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
