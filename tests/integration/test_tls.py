"""HTTP behind TLS; test_access.py has gRPC's. Certificates are of an authority of the test."""

import json
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pypi
import pytest

from certificates import Authority
from node import HANG_SECONDS, wait_until

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0}


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "tls")


@pytest.fixture
def tls_node(make_node, absorbed, authority):
    def make(*flags):
        certificate, key = authority.issue("first", to="server")
        node = make_node(dict(absorbed, router=["--tls-cert", str(certificate), "--tls-key", str(key), *map(str, flags)]))
        node.health_address = f"unix:{node.run_dir}/router.sock"
        return node
    return make


def client_context(authority, certificate=None):
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if certificate:
        context.load_cert_chain(*map(str, certificate))
    return context


def post(node, context, path="/v1/chat/completions", body=None):
    request = urllib.request.Request(f"https://localhost:{node.http_port}{path}",
                                     data=json.dumps(CHAT if body is None else body).encode())
    with urllib.request.urlopen(request, context=context, timeout=HANG_SECONDS) as reply:
        return json.load(reply)


def served_name(node, context):
    with socket.create_connection(("localhost", node.http_port), timeout=20) as raw:
        with context.wrap_socket(raw, server_hostname="localhost") as tls:
            return dict(pair[0] for pair in tls.getpeercert()["subject"])["commonName"]


def curl(node, authority, *arguments):
    return subprocess.run(["curl", "-sS", "--cacert", str(authority.certificate), *arguments,
                           f"https://localhost:{node.http_port}/v1/chat/completions"], capture_output=True, text=True,
                          timeout=60)


def handshakes_failed(node, reason):
    found = [value for name, value in node.metrics("router").items()
             if name.startswith("moestro_http_handshakes_failed_total") and f'reason="{reason}"' in name]
    assert len(found) == 1
    return found[0]


def test_clients_over_tls_and_a_new_certificate(tls_node, authority):
    with tls_node() as node:
        context = client_context(authority)
        answer = post(node, context)["choices"][0]["message"]
        plain = curl(node, authority, "-d", json.dumps(CHAT))
        assert json.loads(plain.stdout)["choices"][0]["message"] == answer, plain.stderr
        # A stream to a client of HTTP/1.0 ends with the connection: curl complains of one that is cut off.
        for flags in ([], ["--http1.0"]):
            stream = curl(node, authority, *flags, "-N", "-d", json.dumps(dict(CHAT, stream=True)))
            assert stream.returncode == 0 and stream.stdout.endswith("data: [DONE]\n\n"), stream
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            post(node, ssl.create_default_context())
        assert served_name(node, context) == "first"
        expires = node.metric("router", "moestro_tls_certificate_expires_seconds")
        assert 24 * 3600 < expires - time.time() <= 2 * 24 * 3600
        # The stream that runs is not disturbed by the new certificate.
        with socket.create_connection(("localhost", node.http_port), timeout=60) as raw:
            with context.wrap_socket(raw, server_hostname="localhost") as tls:
                authority.issue("second", to="server", days=30)
                wait_until(lambda: served_name(node, context) == "second", 15, "the new certificate is used")
                tls.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert tls.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert node.metric("router", "moestro_tls_certificate_expires_seconds") > expires + 20 * 24 * 3600
        (authority.folder / "server.pem").write_text("no certificate")
        wait_until(lambda: node.metric("router", "moestro_tls_reloads_failed_total") == 1, 15, "the error is counted")
        assert "server.pem" in node.log("router") and "stays in use" in node.log("router")
        assert served_name(node, context) == "second"
        assert post(node, context)["choices"][0]["message"] == answer


def test_what_is_no_tls(tls_node, authority):
    """Slow, for the ten seconds that a header, or a handshake, may take."""
    with tls_node() as node:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://localhost:{node.http_port}/health", timeout=20)
        assert refused.value.code == 400 and "https://" in json.load(refused.value)["error"]["message"]
        # Each client knows before the router has counted it.
        wait_until(lambda: handshakes_failed(node, "plain_http") == 1, 5, "it is counted")
        # Clients that never finish their handshake hold nobody up, and are dropped after the time of a header.
        silent = [socket.create_connection(("localhost", node.http_port), timeout=60) for _ in range(20)]
        for connection in silent[::2]:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01")
        begun = time.monotonic()
        assert post(node, client_context(authority))["usage"]["completion_tokens"] == 4
        assert time.monotonic() - begun < 9
        for connection in silent:
            assert connection.recv(1) == b"", "closed by the router"
            connection.close()
        wait_until(lambda: handshakes_failed(node, "too_slow") == 20, 5, "all are counted")
        wait_until(lambda: node.metric("router", "moestro_http_connections") == 0, 5, "all connections are gone")


def test_clients_with_certificates(tls_node, authority, tmp_path):
    other = Authority(tmp_path / "other")
    with tls_node("--tls-client-ca", authority.certificate) as node:
        mine = client_context(authority, authority.issue("client"))
        assert post(node, mine)["usage"]["completion_tokens"] == 4
        refused = {"none": None, "of another authority": other.issue("client"),
                   "expired": authority.issue("late", days=0)}
        for certificate in refused.values():
            # In TLS 1.3 a client learns of it only when it reads.
            with pytest.raises((ssl.SSLError, urllib.error.URLError, ConnectionError)):
                post(node, client_context(authority, certificate))
        # Each client knows before the router has counted it.
        wait_until(lambda: handshakes_failed(node, "client_certificate") == len(refused), 5, "all are counted")
        assert post(node, mine)["usage"]["completion_tokens"] == 4


def test_openai_over_tls(tls_node, authority):
    openai = pypi.load("openai")
    with tls_node("--tls-client-ca", authority.certificate) as node:
        context = client_context(authority, authority.issue("client"))
        with openai.DefaultHttpxClient(verify=context) as transport:
            client = openai.OpenAI(base_url=f"https://localhost:{node.http_port}/v1", api_key="any", max_retries=0,
                                   http_client=transport)
            answer = client.chat.completions.create(model="", **CHAT).choices[0].message.content
            stream = client.chat.completions.create(model="", stream=True, **CHAT)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == answer


def test_many_streams_over_tls(tls_node, authority):
    """Records of many clients at once; those that leave give their pages back."""
    with tls_node() as node:
        context = client_context(authority)
        body = dict(CHAT, max_tokens=40, ignore_eos=True)
        expected = post(node, context, body=body)["choices"][0]["message"]["content"]
        answers = []

        def run(leaves):
            request = urllib.request.Request(f"https://localhost:{node.http_port}/v1/chat/completions",
                                             data=json.dumps(dict(body, stream=True)).encode())
            with urllib.request.urlopen(request, context=context, timeout=HANG_SECONDS) as reply:
                if leaves:
                    reply.readline()
                    return
                frames = [json.loads(line[6:]) for line in reply if line.startswith(b"data: {")]
            answers.append("".join(choice["delta"].get("content") or "" for frame in frames
                                   for choice in frame["choices"]))

        threads = [threading.Thread(target=run, args=(i % 2,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [expected] * 8
        node.wait_all_pages_free()
        wait_until(lambda: node.metric("router", "moestro_http_streams") == 0, 5, "no stream is left")
