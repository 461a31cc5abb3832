"""API keys of a running node: who may call, how much, and what it can learn of others."""

import json
import os
import re
import signal
import stat
import subprocess
import time
import urllib.error
import urllib.request

import grpc
import pytest

from certificates import Authority
from node import HANG_SECONDS, wait_until

PROMPT = [100 + i % 700 for i in range(200)]  # three whole pages of 64 tokens


class Keys:
    """A file of keys, made by the command line."""

    def __init__(self, cli, path):
        self.cli, self.path = cli, str(path)

    def add(self, name, *flags):
        return self.cli("keys", "add", "--file", self.path, "--name", name, *flags).stdout.strip()


@pytest.fixture
def keys(cli, tmp_path):
    return Keys(cli, tmp_path / "keys.toml")


@pytest.fixture
def keyed_node(make_node, absorbed, keys):
    return lambda *flags: make_node(dict(absorbed, router=["--keys-file", keys.path, *flags]))


def call(node, key, prompt=PROMPT, max_tokens=4, channel=None, **fields):
    """(finished, None) of a request with that key, or (None, the error)."""
    stub = node.api.inference_grpc.InferenceServiceStub(channel) if channel else node.stub
    metadata = [("authorization", f"Bearer {key}")] if key else []
    try:
        request = node.request(prompt, max_tokens, temperature=0.0, ignore_eos=True, **fields)
        return list(stub.Generate(request, timeout=HANG_SECONDS, metadata=metadata))[-1].finished, None
    except grpc.RpcError as error:
        return None, error


def refusal(node, key, **options):
    error = call(node, key, **options)[1]
    return error and error.code()


UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def test_only_keys_open_the_door(keyed_node, keys, cli, tmp_path):
    alice = keys.add("alice")
    assert stat.S_IMODE(os.stat(keys.path).st_mode) == 0o600
    assert alice not in open(keys.path).read()
    with keyed_node() as node:
        assert call(node, alice)[0].usage.completion_tokens == 4
        assert refusal(node, None) == UNAUTHENTICATED
        assert refusal(node, "moe_" + "a" * 32) == UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as error:
            node.stub.GetModel(node.api.inference.GetModelRequest())
        assert error.value.code() == UNAUTHENTICATED

        server = f"127.0.0.1:{node.grpc_port}"
        key_file = tmp_path / "alice.key"
        key_file.write_text(alice + "\n")
        asked = cli("generate", "--server", server, "--api-key-file", key_file, "--prompt", "x", "--max-tokens", 1)
        assert asked.returncode == 0
        refused = cli("generate", "--server", server, "--prompt", "x", check=False)
        assert refused.returncode == 1 and "API key" in refused.stderr
        # The node's user needs no key on the unix socket.
        cli("generate", "--server", f"unix:{node.run_dir}/router.sock", "--prompt", "x", "--max-tokens", 1)

        log = node.log("router")
        assert "generate for alice" in log and "generate for operator" in log
        assert alice not in log
        metrics = node.metrics("router")
        tokens = {re.search(r'kind="(\w+)"', name)[1]: value for name, value in metrics.items()
                  if name.startswith("moestro_tenant_tokens_total") and 'tenant="alice"' in name}
        assert tokens["prompt"] == 200 + 2 and tokens["generated"] == 5
        assert node.metric("router", "moestro_access_keys") == 1
        assert node.metric("router", "moestro_access_refused_total") == 4


def test_no_key_finds_anothers_cached_tokens(keyed_node, keys):
    """Not even one that knows the other's name and prompt; those that say so share."""
    alice, bob = keys.add("alice"), keys.add("bob")
    carol, dave = (keys.add(name, "--cache-scope", "shared") for name in ("carol", "dave"))
    with keyed_node() as node:
        def cached(key, scope=b""):
            return call(node, key, cache_scope=scope)[0].usage.cached_tokens

        assert cached(alice) == 0
        assert cached(alice) == 192
        for scope in (b"", b"alice", b"alice\0", b"\0"):
            assert cached(bob, scope) == 0, scope
        assert cached(bob) == 192
        assert cached(alice, b"salt") == 0, "a client separates its own users"
        assert cached(alice, b"salt") == 192
        assert cached(carol) == 0
        assert cached(dave) == 192
        # A restarted router, with the same file, finds what was cached: the secret is in the file.
        node.kill("router")
        node.start("router")
        node.wait_serving()
        assert cached(alice) == 192
        assert cached(bob, b"new") == 0


def test_the_file_is_read_again(keyed_node, keys):
    alice = keys.add("alice")
    with keyed_node() as node:
        bob = keys.add("bob")
        wait_until(lambda: refusal(node, bob) is None, 5, "the new key works")
        assert refusal(node, alice) is None
        good = open(keys.path).read()
        with open(keys.path, "a") as file:
            file.write("[[key]\n")
        wait_until(lambda: node.metric("router", "moestro_access_reloads_failed_total") >= 1, 5, "the error is counted")
        assert refusal(node, alice) is None and refusal(node, bob) is None
        assert re.search(r"keys\.toml: line \d+: .*stay in use", node.log("router"))
        with open(keys.path, "w") as file:
            file.write("\n[[key]]".join(good.split("\n[[key]]")[:2]))  # without bob
        wait_until(lambda: refusal(node, bob) == UNAUTHENTICATED, 5, "the removed key is refused")
        reads = node.log("router").count("API keys from")
        node.processes["router"].send_signal(signal.SIGHUP)
        wait_until(lambda: node.log("router").count("API keys from") > reads, 5, "SIGHUP reads the file")
        assert refusal(node, alice) is None


def test_a_key_has_limits(keyed_node, keys):
    few = keys.add("few", "--requests-per-minute", 3)
    small = keys.add("small", "--tokens-per-minute", 840, "--max-tokens", 8, "--context", 220)
    scorer = keys.add("scorer", "--endpoints", "score")
    with keyed_node() as node:
        assert [refusal(node, few) for _ in range(3)] == [None] * 3
        error = call(node, few)[1]
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "requests-per-minute" in error.details()
        assert 10 <= int(dict(error.trailing_metadata())["retry-after"]) <= 20

        assert call(node, small, prompt=PROMPT + PROMPT[:20], max_tokens=1)[1].code() == grpc.StatusCode.INVALID_ARGUMENT
        assert [refusal(node, small, max_tokens=most) for most in (8, 9, 8, 32000)] == [None] * 4  # 8 tokens each
        error = call(node, small, max_tokens=8)[1]
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "tokens-per-minute" in error.details()
        assert 1 <= int(dict(error.trailing_metadata())["retry-after"]) <= 15

        assert refusal(node, scorer) == grpc.StatusCode.PERMISSION_DENIED
        score = node.api.inference.ScoreRequest()
        score.token_ids.ids.extend(PROMPT[:8])
        assert list(node.stub.Score(score, timeout=HANG_SECONDS, metadata=[("x-api-key", scorer)]))


def test_tokens_that_were_not_used_come_back(keyed_node, keys):
    """A request reserves its max_tokens; a client that leaves has used what it got."""
    key = keys.add("alice", "--tokens-per-minute", 1000)
    with keyed_node() as node:
        request = node.request(PROMPT[:10], 900, temperature=0.0, ignore_eos=True)
        stream = node.stub.Generate(request, timeout=HANG_SECONDS, metadata=[("x-api-key", key)])
        next(reply for reply in stream if reply.HasField("tokens"))
        assert refusal(node, key, prompt=PROMPT[:10], max_tokens=200) == grpc.StatusCode.RESOURCE_EXHAUSTED
        stream.cancel()
        wait_until(lambda: refusal(node, key, prompt=PROMPT[:10], max_tokens=200) is None, 10, "they came back")


def over_http(node, path, key=None, body=None, header="Authorization"):
    """(status, headers, JSON) of a request over HTTP."""
    value = f"Bearer {key}" if header == "Authorization" else key
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}", headers={header: value} if key else {},
                                     data=json.dumps(body).encode() if body is not None else None)
    try:
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as reply:
            text = reply.read().decode()
            return reply.status, reply.headers, json.loads(text) if text.startswith("{") else text
    except urllib.error.HTTPError as error:
        return error.code, error.headers, json.loads(error.read())


def test_keys_over_http(keyed_node, keys):
    few = keys.add("few", "--requests-per-minute", 2)
    bob, admin = keys.add("bob"), keys.add("admin", "--endpoints", "admin")
    with keyed_node() as node:
        body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}
        status, headers, reply = over_http(node, "/v1/completions", body=body)
        assert status == 401 and headers["WWW-Authenticate"] == "Bearer" and "API key" in reply["error"]["message"]
        assert over_http(node, "/v1/completions", "moe_" + "a" * 32, body)[0] == 401
        cached = []
        for header in ("Authorization", "X-API-Key"):
            status, _, reply = over_http(node, "/v1/completions", few, body, header)
            assert status == 200, reply
            cached.append(reply["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached == [0, 192]
        status, headers, reply = over_http(node, "/v1/completions", few, body)
        assert status == 429 and 20 <= int(headers["Retry-After"]) <= 30 and "requests-per-minute" in str(reply)
        reply = over_http(node, "/v1/completions", bob, body)[2]
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, "those of another key"
        assert over_http(node, "/v1/completions", admin, body)[0] == 403
        assert [over_http(node, "/metrics", key)[0] for key in (None, bob, admin)] == [401, 403, 200]
        assert [over_http(node, path)[0] for path in ("/health", "/v1/models")] == [200, 401]
        assert over_http(node, "/v1/models", bob)[0] == 200


def test_only_its_own_key_cancels_a_request(keyed_node, keys):
    alice, bob = keys.add("alice"), keys.add("bob")
    with keyed_node() as node:
        request = urllib.request.Request(
            f"http://127.0.0.1:{node.http_port}/v1/completions", headers={"Authorization": f"Bearer {alice}"},
            data=json.dumps({"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode())
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as stream:
            path = f"/v1/responses/{json.loads(stream.readline()[6:])['id']}/cancel"
            assert [over_http(node, path, key, {})[0] for key in (None, bob)] == [401, 404]
            status, _, reply = over_http(node, path, alice, {})
            assert status == 200 and reply["status"] == "cancelled"
            assert b"request_id" in stream.read()
        assert over_http(node, path, alice, {})[0] == 404
        node.wait_all_pages_free()


def test_a_running_limit_lets_others_pass(keyed_node, keys):
    """While one key's requests wait for its own limit, another's are served."""
    one, other = keys.add("one", "--running", 1, "--waiting", 2), keys.add("other")
    with keyed_node() as node:
        request = node.request(PROMPT, 1500, temperature=0.0, ignore_eos=True)
        streams = [node.stub.Generate(request, timeout=HANG_SECONDS, metadata=[("x-api-key", one)])]
        def gauge(name):
            return sum(v for k, v in node.metrics("router").items() if k.startswith(name) and 'tenant="one"' in k)
        next(reply for reply in streams[0] if reply.HasField("tokens"))
        os.kill(node.pid("decode"), signal.SIGSTOP)  # so the first request does not end, however slow this process is
        try:
            for _ in range(2):
                streams.append(node.stub.Generate(request, timeout=HANG_SECONDS, metadata=[("x-api-key", one)]))
            wait_until(lambda: gauge("moestro_tenant_requests_running") == 1 and gauge("moestro_tenant_requests_waiting") == 2,
                       10, "one runs and two wait")
            error = call(node, one)[1]
        finally:
            os.kill(node.pid("decode"), signal.SIGCONT)
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "waiting" in error.details()
        assert "retry-after" in dict(error.trailing_metadata())
        assert call(node, other)[0].usage.completion_tokens == 4
        assert gauge("moestro_tenant_requests_running") <= 1
        for stream in streams:
            stream.cancel()


def test_wrong_settings_end_the_start(bin_dir, keys, tmp_path):
    def start(*flags):
        command = [os.path.join(bin_dir, "moestro-router"), "--run-dir", tmp_path / "run", *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=20)

    ended = start("--grpc-address", "0.0.0.0:0")
    assert ended.returncode == 2 and "--keys-file" in ended.stderr and "--allow-anonymous" in ended.stderr
    ended = start("--grpc-address", "127.0.0.1:0", "--keys-file", tmp_path / "absent")
    assert ended.returncode == 2 and "--keys-file" in ended.stderr
    keys.add("alice")
    os.chmod(keys.path, 0o644)
    ended = start("--grpc-address", "127.0.0.1:0", "--keys-file", keys.path)
    assert ended.returncode == 2 and "chmod 600" in ended.stderr
    ended = start("--grpc-address", "127.0.0.1:0", "--tls-cert", keys.path, "--tls-key", keys.path)
    assert ended.returncode == 2 and "--tls-key" in ended.stderr


def test_a_public_address_serves_the_api_only(keyed_node, keys):
    key = keys.add("alice")
    node = keyed_node()
    node.grpc_address = f"0.0.0.0:{node.grpc_port}"
    node.health_address = f"unix:{node.run_dir}/router.sock"
    with node:
        assert call(node, key)[0].usage.completion_tokens == 4
        assert refusal(node, None) == UNAUTHENTICATED
        health = node.api.health_grpc.HealthStub(node.channel)
        with pytest.raises(grpc.RpcError) as error:
            health.Check(node.api.health.HealthCheckRequest(), timeout=5)
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
        reflection = node.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with pytest.raises(grpc.RpcError) as error:
            list(reflection(iter([b""]), timeout=5))
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert "CVE-2023-32731" in node.log("router")


# TLS -----------------------------------------------------------------------------------------------------------------

def tls_channel(node, authority, client=None):
    chain, key = (path.read_bytes() for path in client) if client else (None, None)
    return grpc.secure_channel(f"localhost:{node.grpc_port}", grpc.ssl_channel_credentials(
        authority.certificate.read_bytes(), private_key=key, certificate_chain=chain))


def served_name(node, authority):
    """The name in the certificate that the router shows."""
    shown = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{node.grpc_port}", "-CAfile",
                            str(authority.certificate), "-alpn", "h2"], input="", capture_output=True, text=True,
                           errors="replace", timeout=20).stdout
    found = re.search(r"subject=CN = (\S+)", shown)
    return found and found[1]


def test_tls_and_its_new_certificate(keyed_node, keys, cli, tmp_path):
    key = keys.add("alice")
    (tmp_path / "alice.key").write_text(key)
    authority = Authority(tmp_path / "tls")
    certificate, private = authority.issue("first", to="server")
    node = keyed_node("--tls-cert", str(certificate), "--tls-key", str(private))
    node.health_address = f"unix:{node.run_dir}/router.sock"
    with node:
        with tls_channel(node, authority) as channel:
            assert call(node, key, channel=channel)[0].usage.completion_tokens == 4
            assert refusal(node, None, channel=channel) == UNAUTHENTICATED
        assert refusal(node, key) == grpc.StatusCode.UNAVAILABLE, "a client without TLS"
        cli("generate", "--server", f"localhost:{node.grpc_port}", "--tls-ca", authority.certificate, "--api-key-file",
            tmp_path / "alice.key", "--prompt", "x", "--max-tokens", 1)
        assert served_name(node, authority) == "first"
        authority.issue("second", to="server")
        wait_until(lambda: served_name(node, authority) == "second", 15, "the new certificate is used")
        with tls_channel(node, authority) as channel:
            assert call(node, key, channel=channel)[0].usage.completion_tokens == 4
        for version, accepted in {"-tls1_1": False, "-tls1_2": True, "-tls1_3": True}.items():
            shown = subprocess.run(["openssl", "s_client", version, "-connect", f"127.0.0.1:{node.grpc_port}", "-alpn",
                                    "h2"], input="", capture_output=True, text=True, errors="replace", timeout=20)
            assert ("subject=CN" in shown.stdout) == accepted, version
        time.sleep(6)  # the router looks every five seconds whether clients get answers
        assert node.serving(), "it takes TLS's answer for one"


def test_clients_with_certificates(make_node, absorbed, tmp_path):
    """Others than the authority's get no connection; nobody needs a key."""
    authority, other = Authority(tmp_path / "tls"), Authority(tmp_path / "other")
    certificate, private = authority.issue("server")
    flags = ["--tls-cert", certificate, "--tls-key", private, "--tls-client-ca", authority.certificate]
    node = make_node(dict(absorbed, router=list(map(str, flags))))
    node.health_address = f"unix:{node.run_dir}/router.sock"
    with node:
        with tls_channel(node, authority, authority.issue("client")) as channel:
            assert call(node, None, channel=channel)[0].usage.completion_tokens == 4
        for client in (None, other.issue("client")):
            with tls_channel(node, authority, client) as channel:
                assert refusal(node, None, channel=channel) == grpc.StatusCode.UNAVAILABLE
