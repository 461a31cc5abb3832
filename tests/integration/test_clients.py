"""Clients that take more than their share: the router limits them, and continues when they are gone."""

import re
import resource
import socket
import struct
import threading
import time
from pathlib import Path

import grpc
import pytest

from node import wait_until


def status(node, role, field):
    return int(re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{node.pid(role)}/status").read_text(), re.M)[1])


def ask_for_the_model(node, timeout=5):
    """Uses a new connection."""
    with grpc.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
        stub = node.api.inference_grpc.InferenceServiceStub(channel)
        return stub.GetModel(node.api.inference.GetModelRequest(), timeout=timeout)


def connections(node, count):
    held = []
    for _ in range(count):
        client = socket.socket()
        client.settimeout(1)
        client.connect(("127.0.0.1", node.grpc_port))
        held.append(client)
    return held


def test_descriptors_are_raised_to_the_hard_limit(node):
    soft, hard = resource.prlimit(node.pid("router"), resource.RLIMIT_NOFILE)
    assert soft == hard


@pytest.mark.parametrize("none_at_all", [False, True])
def test_the_listener_survives_running_out_of_descriptors(make_node, none_at_all):
    with make_node() as node:
        node.generate("its connection stays open", 1)
        pid = node.pid("router")
        in_use = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use if none_at_all else 256, 256))
        held = connections(node, 400)
        wait_until(lambda: "connections are refused" in node.log("router"), 10, "some find no descriptor")
        assert node.generate("old connections are served", 2, ignore_eos=True)[0]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, 256))
        for client in held:
            client.close()

        def answered():
            try:
                return ask_for_the_model(node, timeout=2)
            except grpc.RpcError:
                return None

        wait_until(answered, 20, "new connections are served again")
        assert node.serving() and node.processes["router"].poll() is None


def test_idle_reflection_streams_cost_no_threads(node):
    with grpc.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        done = threading.Event()

        def requests():
            yield b"\x3a\x01*"
            done.wait()

        open_calls = [call(requests()) for _ in range(500)]
        for each in open_calls:
            next(each)
        threads = status(node, "router", "Threads")
        done.set()
        assert threads < 200, f"{threads} threads for 500 idle streams"


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header(name, value):
    """HPACK: literal, not indexed."""
    def text(data):
        prefix, rest = (bytes([len(data)]), b"") if len(data) < 127 else (b"\x7f", len(data) - 127)
        while rest != b"":
            prefix, rest = (prefix + bytes([rest % 128 | 128]), rest >> 7) if rest >= 128 else (prefix + bytes([rest]), b"")
        return prefix + data
    return b"\x00" + text(name) + text(value)


REQUEST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/moestro.v1.InferenceService/GetModel"),
           (b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc")]


def test_header_bytes_cost_what_they_take_on_the_wire(node):
    """14 MB of headers in one call, in frames of 7 KB each: gRPC 1.51 has no limit for all of them together."""
    before = status(node, "router", "VmHWM")
    with socket.create_connection(("127.0.0.1", node.grpc_port), timeout=3) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        client.recv(4096)
        client.sendall(frame(4, 1, 0, b"") + frame(1, 0, 1, b"".join(header(*each) for each in REQUEST)))
        try:
            for i in range(2000):
                client.sendall(frame(9, 4 if i == 1999 else 0, 1, header(b"x-%d" % i, b"a" * 7000)))
        except OSError:
            pass  # it has had enough
        time.sleep(0.5)
    grown = status(node, "router", "VmHWM") - before
    print(f"{grown} KiB for 14 MB of headers")
    assert ask_for_the_model(node).name
    assert grown < 64 << 10
