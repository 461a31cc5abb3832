"""Hostile clients of the HTTP API, all at once: each gets a 4xx, the router's memory stays bounded, and others are served."""

import json
import threading
import time

import pytest

from test_bounds import MIB, Growth
from test_http import PLAIN, Http, request


def body(text):
    return request("POST", PLAIN, text.encode() if isinstance(text, str) else text)


def chunked(piece, count):
    """Pieces of a body in chunks."""
    yield request("POST", PLAIN, Transfer_Encoding="chunked")
    for _ in range(count):
        yield b"%x\r\n" % len(piece) + piece + b"\r\n"
    yield b"0\r\n\r\n"


def announced(size, sent):
    """A body of `size` bytes, of which `sent` come."""
    yield request("POST", PLAIN, Content_Length=size)
    for _ in range(sent // MIB):
        yield b"a" * MIB


# name: (how many clients, what each sends, the status)
ATTACKS = {
    "100 MB announced": (8, lambda: announced(100 * 10**6, 100 * 10**6), 413),
    "100 MB in chunks": (8, lambda: chunked(b"a" * MIB, 96), 413),
    "largest body, deep": (8, lambda: [body("[" * (16 * MIB - 1))], 400),
    "deep nesting": (8, lambda: [body('{"prompt":' + "[" * 10**6 + "]" * 10**6 + "}")], 400),
    "largest body, tiny values": (8, lambda: [body('{"prompt":[' + "1," * (8 * MIB - 16) + "1]}")], 400),
    "largest body, one string": (8, lambda: [body('{"prompt":"' + "a" * (16 * MIB - 16) + '"}')], 400),
    "invalid UTF-8": (8, lambda: [body(b'{"prompt":"' + b"\xff\xc0\xed\xa0\x80" * MIB + b'"}')], 400),
    "huge n": (8, lambda: [body('{"prompt":"a","n":4611686018427387904}')], 400),
    "huge max_tokens": (8, lambda: [body('{"prompt":"a","max_tokens":1e30}')], 400),
    "many keys": (8, lambda: [body("{" + ",".join(f'"{i}":{i}' for i in range(10**6)) + "}")], 400),
    "long header": (8, lambda: [b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10**6], 431),
    "both lengths": (8, lambda: [request("POST", PLAIN, Content_Length=5, Transfer_Encoding="chunked")], 400),
}


# Beside the status of the attack: 503, because more bodies than fit arrive at once; 408, because on a busy machine this
# client is one of the slow ones.
OTHER_STATUS = (503, 408)


def attack(web, pieces):
    """The status that answers it; None: the router took its answer along, because this client read it too late."""
    with web.connect() as client:
        try:
            for piece in pieces:
                client.sendall(piece)
        except OSError:
            pass  # the router does not want the rest
        try:
            return int(client.recv(65536)[9:12] or b"0")
        except ConnectionResetError:
            return None


def drip(web, over):
    """A client that sends a header byte by byte. Its status, 0 if it gave up first."""
    with web.connect() as client:
        client.settimeout(0.5)
        client.sendall(b"POST /v1/completions HTTP/1.1\r\n")
        while not over.is_set():
            try:
                client.sendall(b"X")
                return int(client.recv(100)[9:12] or b"0")
            except TimeoutError:
                pass
            except OSError:
                return 0
    return 0


@pytest.mark.no_sanitizer(reason="the allocator keeps what is freed")
def test_hostile_clients_all_at_once(node):
    """Slow: 96 attacks, of which 40 send 16 MB and more."""
    web, wrong, over = Http(node), [], threading.Event()

    def run(name, pieces, status):
        got = attack(web, pieces())
        if got not in (status, *OTHER_STATUS, None):
            wrong.append(f"{name}: {got}")

    slow = [threading.Thread(target=lambda: drip(web, over)) for _ in range(100)]
    threads = [threading.Thread(target=run, args=(name, pieces, status))
               for name, (count, pieces, status) in ATTACKS.items() for _ in range(count)]
    served = 0
    # All bodies together may have 256 MiB, and up to twice that while they grow. One of the large ones is parsed at a time.
    with Growth(node, limit=640 * MIB):
        for thread in slow + threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            status, _, text = web.call("POST", PLAIN, {"prompt": "a", "max_tokens": 2})
            assert status == 200, text
            served += 1
            time.sleep(0.1)
        over.set()
        for thread in slow:
            thread.join()
    assert not wrong, wrong
    # Behind the large bodies it would be one.
    assert served >= 10
    print(f"{len(threads)} attacks, {served} requests served beside them")
    assert json.loads(web.call("GET", "/health")[2]) == {"status": "ok"}
