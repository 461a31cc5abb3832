"""Commands and a server whose connections take a second until its first byte arrives."""

import json
import os
import socket
import subprocess
import threading
import time

import pytest

from certificates import Authority

DELAY_SECONDS = 1


class SlowProxy:
    """Takes connections for a port of this machine at once, and holds all bytes for some time after."""

    def __init__(self, port, delay):
        self.target, self.delay = port, delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.forward, args=(client,), daemon=True).start()

    def forward(self, client):
        time.sleep(self.delay)
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:  # the node has ended, and so has the client's patience
            return client.close()
        threading.Thread(target=pump, args=(client, server), daemon=True).start()
        pump(server, client)


def pump(source, sink):
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:  # an end has gone
        pass


PROMPT = ["--prompt", "x", "--max-tokens", 1]


@pytest.fixture
def loadtest(bin_dir):
    def run(*arguments):
        return subprocess.run([os.path.join(bin_dir, "moestro-loadtest"), *map(str, arguments)], capture_output=True,
                              text=True, timeout=120)
    return run


def test_commands_wait_for_a_slow_connection(node, cli, loadtest):
    with SlowProxy(node.grpc_port, DELAY_SECONDS) as proxy:
        server = ["--server", f"127.0.0.1:{proxy.port}"]
        cli("generate", *server, *PROMPT)
        cli("health", *server, "--timeout", 10)
        traffic = loadtest("poisson", *server, "--rate", 5, "--duration", 1, "--prompt-tokens", 8, "--output-tokens", 2)
        assert traffic.returncode == 0, traffic.stderr


def test_the_flag_says_how_long(node, cli, loadtest):
    with SlowProxy(node.grpc_port, DELAY_SECONDS) as proxy:
        hasty = ["--server", f"127.0.0.1:{proxy.port}", "--connect-timeout", DELAY_SECONDS / 10]
        for refused in (cli("generate", *hasty, *PROMPT, check=False), loadtest("poisson", *hasty)):
            assert refused.returncode == 3, refused.stderr
            assert f"cannot reach 127.0.0.1:{proxy.port}" in refused.stderr and "--connect-timeout" in refused.stderr


def test_tls_may_be_slow(make_node, absorbed, cli, tmp_path):
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.issue("server")
    secure = make_node(dict(absorbed, router=["--tls-cert", str(certificate), "--tls-key", str(key)]))
    secure.health_address = f"unix:{secure.run_dir}/router.sock"
    with secure, SlowProxy(secure.grpc_port, DELAY_SECONDS) as grpc, SlowProxy(secure.http_port, DELAY_SECONDS) as http:
        tls = ["--tls-ca", authority.certificate]
        server = ["--server", f"localhost:{grpc.port}", *tls]
        cli("generate", *server, *PROMPT)
        cli("health", *server, "--timeout", 10)
        requests = tmp_path / "requests.jsonl"
        requests.write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions",
                                        "body": {"prompt": "x", "max_tokens": 1}}) + "\n")
        url = ["--url", f"https://localhost:{http.port}", *tls]
        cli("batch", requests, "--out", tmp_path / "answers.jsonl", *url)
        hasty = cli("generate", *server, *PROMPT, "--connect-timeout", DELAY_SECONDS / 10, check=False)
        assert hasty.returncode == 3 and "--connect-timeout" in hasty.stderr
