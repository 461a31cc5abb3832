#!/usr/bin/python3
"""Measures what the router adds to requests while many streams are open that get nothing. Prints Markdown. Not a test: it
needs an otherwise idle machine.

    tests/integration/idle_streams.py [--bin build/release/bin] [--model deploy/models/demo] [--streams 2000] [--rate 200]
                                      [--seconds 20] [--real-time] [--peer HOST:PORT]

One key has one request running, and all its other streams wait in the line. Another key sends short streamed requests at
random times. The router's own histograms tell from a request's last byte to the call of decode, and from decode's token to
its bytes in the socket. With --real-time the router goes before the roles that compute, as deploy/README.md says; that
must be permitted. With --peer another server of the same API, such as llama-server with the same GGUF file, is asked, too:
one request after the other, and what its client waits for beyond the times that the answer gives for prompt and
generation."""

import argparse
import asyncio
import json
import os
import random
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from node import REPO, Node, compile_api

HISTOGRAMS = {"request: last byte in to decode called": "moestro_http_request_overhead_seconds",
              "token: out of decode to byte out": "moestro_http_token_overhead_seconds"}
SHORT = {"prompt": list(range(30, 38)), "max_tokens": 4, "ignore_eos": True, "temperature": 0, "stream": True}


def request(body, key):
    text = json.dumps(body).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Length: {len(text)}\r\n\r\n").encode() + text


def process(pid):
    """(seconds of CPU, MiB of memory, the most MiB ever, threads)"""
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = Path(f"/proc/{pid}/status").read_text()
    mib = {name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M)[1]) for name in ("VmRSS", "VmHWM", "Threads")}
    cpu = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
    return cpu, mib["VmRSS"] // 1024, mib["VmHWM"] // 1024, mib["Threads"]


class Client:
    def __init__(self, port):
        self.port, self.free, self.times, self.failed = port, [], [], 0

    async def idle(self, data):
        """A stream of which only the beginning is read."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        head = await reader.readuntil(b"\r\n")
        assert b" 200 " in head, head
        return writer

    async def short(self, data):
        """One streamed request on a connection of its own or one that is free."""
        reader, writer = self.free.pop() if self.free else await asyncio.open_connection("127.0.0.1", self.port)
        begin = time.perf_counter()
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"data: ")
        self.times.append(time.perf_counter() - begin)
        rest = await reader.readuntil(b"[DONE]\n\n\r\n0\r\n\r\n")
        if b" 200 " not in head or b'"error"' in rest:
            self.failed += 1
        self.free.append((reader, writer))

    async def load(self, data, rate, seconds):
        chance, tasks = random.Random(1), []
        at, end = time.perf_counter(), time.perf_counter() + seconds
        while at < end:
            await asyncio.sleep(max(0, at - time.perf_counter()))
            tasks.append(asyncio.create_task(self.short(data)))
            at += chance.expovariate(rate)
        await asyncio.gather(*tasks)
        return len(tasks)


async def beyond_computing(host, port, key, count=300):
    """Sorted: of requests one after the other, the ms that are not the prompt's, the generation's or a queue's."""
    times = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(host, port)  # llama-server ends it after a stream
        begin = time.perf_counter()
        writer.write(request(SHORT, key))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head, head
        answer = await reader.readuntil(b"0\r\n\r\n")
        total = 1000 * (time.perf_counter() - begin)
        frames = [json.loads(line[6:]) for line in re.findall(rb"^data: \{.*\}$", answer, re.M)]
        timings = next(frame["timings"] for frame in frames if "timings" in frame)
        times.append(total - timings["prompt_ms"] - timings["predicted_ms"] - timings.get("queue_ms", 0))
        writer.close()
        await asyncio.sleep(0.005)
    return sorted(times)


def compare(node, key, peer):
    print("\n| ms beyond computing, one request after the other | p50 | p99 |\n|---|--:|--:|")
    servers = [("this node", "127.0.0.1", node.http_port)]
    if peer:
        host, port = peer.rsplit(":", 1)
        servers.append((peer, host, int(port)))
    for name, host, port in servers:
        times = asyncio.run(beyond_computing(host, port, key))
        print(f"| {name} | {times[len(times) // 2]:.2f} | {times[int(0.99 * len(times))]:.2f} |")


def buckets(metrics, name):
    """[(bound, count so far)]"""
    found = [(float(re.search(r'[,{]le="([^"]+)"', key)[1]), value) for key, value in metrics.items()
             if key.startswith(name + "_bucket")]
    return sorted(found)


def percentile(counts, share):
    """The bound below which this share of the observations is, in ms."""
    return next(1000 * bound for bound, count in counts if count >= share * counts[-1][1])


async def measure(node, keys, args, streams):
    client = Client(node.http_port)
    longest = node.stub.GetModel(node.api.inference.GetModelRequest(), metadata=[("x-api-key", keys["idle"])])
    long = SHORT | {"max_tokens": longest.max_context_tokens - len(SHORT["prompt"])}
    opened = [await client.idle(request(long, keys["idle"])) for _ in range(streams)]
    before = process(node.pid("router"))
    await asyncio.sleep(5)
    waiting = process(node.pid("router"))
    print(f"\n**{streams} streams**: router {waiting[1]} MiB, {waiting[3]} threads, "
          f"{100 * (waiting[0] - before[0]) / 5:.1f} % of a CPU while nothing else happens\n")
    begin = node.metrics("router")
    sent = await client.load(request(SHORT, keys["short"]), args.rate, args.seconds)
    loaded, end = process(node.pid("router")), node.metrics("router")
    print("| ms | p50 ≤ | p99 ≤ | within 1 ms | observations |\n|---|--:|--:|--:|--:|")
    for title, name in HISTOGRAMS.items():
        counts = [(bound, count - first) for (bound, count), (_, first) in zip(buckets(end, name), buckets(begin, name))]
        within = next(count for bound, count in counts if bound == 0.001) / counts[-1][1]
        print(f"| {title} | {percentile(counts, 0.5):g} | {percentile(counts, 0.99):g} | {100 * within:.2f} % | "
              f"{counts[-1][1]:.0f} |")
    times = sorted(client.times)
    print(f"\n{sent} short requests in {args.seconds} s, {client.failed} failed; first token after "
          f"{1000 * times[len(times) // 2]:.1f} ms (p50), {1000 * times[int(0.99 * len(times))]:.1f} ms (p99); router "
          f"{loaded[2]} MiB at most, {100 * (loaded[0] - waiting[0]) / args.seconds:.0f} % of a CPU")
    for writer in opened + [writer for _, writer in client.free]:
        writer.transport.abort()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=REPO / "build/release/bin", type=Path)
    parser.add_argument("--model", default=REPO / "deploy/models/demo", type=Path)
    parser.add_argument("--streams", default=2000, type=int)
    parser.add_argument("--rate", default=200, type=float, help="short requests in a second")
    parser.add_argument("--seconds", default=20, type=float)
    parser.add_argument("--real-time", action="store_true", help="give the router real-time priority")
    parser.add_argument("--peer", help="HOST:PORT of another server")
    args = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with tempfile.TemporaryDirectory() as folder:
        path, keys = os.path.join(folder, "keys.toml"), {}
        for name, limits in (("idle", ["--running", "1"]), ("short", [])):
            keys[name] = subprocess.run([args.bin / "moestro", "keys", "add", "--file", path, "--name", name, *limits],
                                        check=True, capture_output=True, text=True).stdout.strip()
        # A key may fill no more of the line than is still free.
        flags = {"router": ["--keys-file", path, "--queue-limit", str(2 * args.streams + 512), "--log-level", "warn",
                            "--http-connections", str(args.streams + 1024),
                            "--real-time", "auto" if args.real_time else "off"]}
        with Node(compile_api(Path(folder)), str(args.bin), args.model, flags) as node:
            if args.real_time and os.sched_getscheduler(node.pid("router")) != os.SCHED_RR:
                raise SystemExit("the system does not permit real-time priority: deploy/README.md, CPUs")
            compare(node, keys["short"], args.peer)
            for streams in (0, args.streams):
                asyncio.run(measure(node, keys, args, streams))
                time.sleep(1)


if __name__ == "__main__":
    main()
