"""The HTTP front of a running node, over raw sockets and http.client: framing, limits, streams, and clients that leave."""

import asyncio
import http.client
import json
import socket
import time
from random import Random

import pytest

import disconnects
from node import HANG_SECONDS, wait_until

pytestmark = pytest.mark.smoke

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"


class Http:
    def __init__(self, node):
        self.address = ("127.0.0.1", node.http_port)

    def connect(self, timeout=HANG_SECONDS):
        return socket.create_connection(self.address, timeout=timeout)

    def connection(self, timeout=HANG_SECONDS):
        return http.client.HTTPConnection(*self.address, timeout=timeout)

    def call(self, method, path, body=None, **headers):
        """(status, headers, body) of one request on a connection of its own."""
        connection = self.connection()
        try:
            text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
            connection.request(method, path, text, headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def post(self, path, body):
        status, _, text = self.call("POST", path, body)
        return status, json.loads(text)

    def raw(self, data, timeout=HANG_SECONDS):
        """Everything that the server answers until it closes the connection."""
        with self.connect(timeout) as client:
            client.sendall(data)
            return read_all(client)

    def stream(self, path, body):
        """The frames of a stream, without "data: "."""
        status, headers, text = self.call("POST", path, body | {"stream": True})
        assert status == 200, text
        assert headers["Content-Type"].startswith("text/event-stream")
        return frames_of(text.decode())


def frames_of(text):
    return [line[6:] for line in text.split("\n\n") if line.startswith("data: ")]


def read_all(client):
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data


@pytest.fixture(scope="module")
def web(node):
    return Http(node)


def request(method, path, body=b"", **headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_models_health_and_version(web, node, cli):
    status, _, body = web.call("GET", "/v1/models")
    models = json.loads(body)
    assert status == 200 and models["object"] == "list" and len(models["data"]) == 1
    name = models["data"][0]["id"]
    assert models["data"][0]["max_model_len"] == node.stub.GetModel(node.api.inference.GetModelRequest()).max_context_tokens
    assert json.loads(web.call("GET", f"/v1/models/{name}")[2])["id"] == name
    assert web.call("GET", "/health")[0] == 200
    assert json.loads(web.call("GET", "/version")[2])["version"] in cli("--version").stdout


def test_completions_are_those_of_grpc(web, node):
    ids, text, finished = node.generate("To be or not", 12, ignore_eos=True)
    status, reply = web.post(PLAIN, {"prompt": "To be or not", "max_tokens": 12, "temperature": 0, "ignore_eos": True})
    assert status == 200 and reply["choices"][0]["text"] == text
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == len(ids)
    assert reply["usage"]["prompt_tokens"] == finished.usage.prompt_tokens
    frames = web.stream(PLAIN, {"prompt": "To be or not", "max_tokens": 12, "temperature": 0, "ignore_eos": True})
    assert frames[-1] == "[DONE]"
    assert "".join(json.loads(f)["choices"][0]["text"] for f in frames[:-1]) == text


def test_prompts_in_every_form(web, node):
    body = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}
    ids = list(node.stub.Tokenize(node.api.inference.TokenizeRequest(text="abc")).ids)
    one = web.post(PLAIN, body | {"prompt": "abc"})[1]["choices"][0]["text"]
    for prompt in (ids, ["abc", "abc"], [ids, ids]):
        status, reply = web.post(PLAIN, body | {"prompt": prompt})
        assert status == 200, reply
        assert [c["text"] for c in reply["choices"]] == [one] * (2 if prompt is not ids else 1)
        assert [c["index"] for c in reply["choices"]] == list(range(len(reply["choices"])))


def test_choices_have_seeds_of_their_own(web):
    body = {"prompt": "abc", "max_tokens": 8, "temperature": 2, "seed": 5, "ignore_eos": True}
    texts = [c["text"] for c in web.post(PLAIN, body | {"n": 3})[1]["choices"]]
    assert len(set(texts)) > 1
    assert texts == [web.post(PLAIN, body | {"seed": 5 + i})[1]["choices"][0]["text"] for i in range(3)]


def test_the_stop_text_stays_where_it_is_wanted(web):
    body = {"prompt": "To be or not", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    text = web.post(PLAIN, body)[1]["choices"][0]["text"]
    stop = text[3:5]
    before = text[:text.index(stop)]
    for field, answer in (("include_stop_str_in_output", before + stop), ("no_stop_trim", before + stop), ("user", before)):
        more = {"stop": stop, field: "me" if field == "user" else True}
        assert web.post(PLAIN, body | more)[1]["choices"][0]["text"] == answer
        frames = [json.loads(frame) for frame in web.stream(PLAIN, body | more)[:-1]]
        assert "".join(frame["choices"][0]["text"] for frame in frames) == answer


def test_a_salt_keeps_prompts_apart(web):
    body = {"prompt": list(range(10, 210)), "max_tokens": 1}
    cached = [web.post(PLAIN, body | {"cache_salt": salt})[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
              for salt in ("mine", "mine", "yours")]
    assert cached == [0, 192, 0]


ERRORS = [
    ({"prompt": 5}, 400, "prompt"),
    ({"prompt": "a", "temperature": "hot"}, 400, "temperature"),
    ({"prompt": "a", "temperature": 3}, 400, "temperature"),
    ({"prompt": "a", "n": 1000000}, 400, "n"),
    ({"prompt": "a", "n": 1e300}, 400, "n"),
    ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
    ({"prompt": "a", "max_tokens": "5"}, 400, "max_tokens"),
    ({"prompt": [-1]}, 400, "prompt"),
    ({"prompt": ["a"] * 1000}, 400, "prompt"),
    ({"prompt": "a", "stream": "yes"}, 400, "stream"),
    ({"prompt": "a", "stream_options": []}, 400, "stream_options"),
    ({"prompt": "a", "suffix": "b"}, 400, "suffix"),
    ({"prompt": "a", "best_of": 2}, 400, "best_of"),
    ({"prompt": "a", "n": 2, "best_of": 1}, 400, "best_of"),
    ({}, 400, "prompt"),
]


@pytest.mark.parametrize("body, status, param", ERRORS)
def test_errors_name_the_field(web, body, status, param):
    got, reply = web.post(PLAIN, body)
    assert got == status, reply
    error = reply["error"]
    assert error["message"] and error["type"] and "code" in error
    if param:
        assert error["param"] == param


@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_first_byte_are_status_codes(web, stream):
    status, reply = web.post(PLAIN, {"prompt": "a", "top_p": 9, "stream": stream})
    assert status == 400 and reply["error"]["param"] == "top_p"


BAD_JSON = [b"", b"{", b"[]", b"nul", b'{"a":1}x', b'{"prompt":"\xff"}', b'{"prompt":"a","prompt":"b"}', b'{"a":1e999}',
            b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}", b'{"prompt":"a\x00b"}',
            b'{"a":[' + b"1," * 500000 + b"1]}"]


@pytest.mark.parametrize("body", BAD_JSON, ids=range(len(BAD_JSON)))
def test_bad_json_is_refused(web, body):
    status, reply = web.post(PLAIN, body)
    assert status == 400, reply
    assert web.call("GET", "/health")[0] == 200


BAD_HTTP = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS
    (b"GET /health\r\n\r\n", 400),
    (b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", 400),
    (b"GET health HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2, 2\r\n\r\n{}", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n", 501),
    (b"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 2\r\n\r\n{}", 417),
]


@pytest.mark.parametrize("data, status", BAD_HTTP, ids=range(len(BAD_HTTP)))
def test_bad_http_is_refused(web, data, status):
    with web.connect() as client:
        client.sendall(data)
        reply = client.recv(65536)
    assert reply.startswith(f"HTTP/1.1 {status} ".encode()), reply
    assert json.loads(reply.split(b"\r\n\r\n", 1)[1])["error"]["message"]


def test_a_huge_body_is_refused_while_it_arrives(web, node):
    before = node.metric("router", "moestro_process_private_bytes")
    piece = b"100000\r\n" + b"a" * 0x100000 + b"\r\n"
    with web.connect() as client:
        client.sendall(request("POST", PLAIN, Transfer_Encoding="chunked"))
        try:
            for _ in range(100):
                client.sendall(piece)
        except OSError:
            pass  # the server has closed
        assert client.recv(12).startswith(b"HTTP/1.1 413")
    assert node.metric("router", "moestro_process_private_bytes") - before < 64 << 20


def test_methods(web):
    status, headers, body = web.call("HEAD", "/v1/models")
    assert status == 200 and body == b"" and int(headers["Content-Length"]) > 0
    status, headers, _ = web.call("GET", PLAIN)
    assert status == 405 and headers["Allow"] == "POST, OPTIONS"
    status, headers, _ = web.call("OPTIONS", PLAIN)
    assert status == 204 and "POST" in headers["Allow"] and not [h for h in headers if "Access-Control" in h]
    assert web.call("GET", "/nothing")[0] == 404
    assert web.call("DELETE", "/health")[0] == 405


def test_pages_of_others_may_call_only_if_they_are_named(web, make_node):
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization,anthropic-version,x-stainless-os"}
    for method, path, body in (("OPTIONS", CHAT, None), ("POST", PLAIN, {"prompt": "a", "max_tokens": 1})):
        status, headers, refused = web.call(method, path, body, **asked)
        assert status == 403 and not any(name.startswith("Access-Control") for name in headers)
        assert "--cors-origin" in json.loads(refused)["error"]["message"]
    with make_node({"router": ["--cors-origin", "https://example.org"]}) as node:
        other = Http(node)
        status, headers, _ = other.call("OPTIONS", CHAT, **asked)
        assert status == 204 and headers["Access-Control-Allow-Origin"] == "https://example.org"
        assert headers["Access-Control-Allow-Headers"] == "*, Authorization" and "POST" in headers["Access-Control-Allow-Methods"]
        status, headers, _ = other.call("POST", PLAIN, {"prompt": "a", "max_tokens": 1}, **asked)
        assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://example.org"
        assert other.call("POST", PLAIN, {"prompt": 1})[1]["Access-Control-Allow-Origin"] == "https://example.org"


def test_a_name_that_its_owner_points_here_is_refused(web, make_node):
    """A browser would let its page read the answers (DNS rebinding)."""
    for path in ("/v1/models", "/metrics", "/slots", "/nothing"):
        assert b" 403 " in web.raw(f"GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".encode()).split(b"\r\n")[0]
    with make_node({"router": ["--http-host", "ai.example.org,b.example"]}) as node:
        for name, status in (("ai.example.org", b"200"), ("b.example:80", b"200"), ("evil.example", b"403")):
            reply = Http(node).raw(f"GET /health HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            assert reply.startswith(b"HTTP/1.1 " + status), reply


def test_keep_alive_and_close(web):
    connection = web.connection()
    for _ in range(3):
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.request("POST", PLAIN, json.dumps({"prompt": "a", "max_tokens": 1}))
    assert connection.getresponse().read()
    connection.close()
    assert web.raw(request("GET", "/health", Connection="close")).count(b"HTTP/1.1 200") == 1
    assert web.raw(request("GET", "http://x/health", Connection="close")).startswith(b"HTTP/1.1 200")
    assert b"Connection: close" in web.raw(b"GET /health HTTP/1.0\r\n\r\n")


def test_pipelined_requests_are_answered_in_order(web):
    data = request("GET", "/version") + request("POST", PLAIN, b'{"prompt":"a","max_tokens":2}') + \
        request("GET", "/nothing") + request("GET", "/health", Connection="close")
    reply = web.raw(data)
    assert [part[:3] for part in reply.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404", b"200"]


def test_chunked_bodies_and_expect(web):
    body = json.dumps({"prompt": "a", "max_tokens": 2}).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (1, body[i:i + 1]) for i in range(len(body))) + b"0\r\n\r\n"
    reply = web.raw(request("POST", PLAIN, Transfer_Encoding="chunked", Connection="close") + chunks)
    assert reply.startswith(b"HTTP/1.1 200")
    with web.connect() as client:
        head = request("POST", PLAIN, Content_Length=len(body), Expect="100-continue", Connection="close")
        client.sendall(head)
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert read_all(client).startswith(b"HTTP/1.1 200")
    with web.connect() as client:  # refused by its header alone: the client need not send the body
        client.sendall(request("POST", "/nothing", Content_Length=len(body), Expect="100-continue"))
        assert client.recv(100).startswith(b"HTTP/1.1 404")


def test_byte_by_byte(web):
    with web.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request("POST", PLAIN, b'{"prompt":"a","max_tokens":1}', Connection="close"):
            client.sendall(bytes([byte]))
        assert read_all(client).startswith(b"HTTP/1.1 200")


def test_stream_frames(web):
    frames = web.stream(PLAIN, {"prompt": "abc", "max_tokens": 5, "temperature": 0, "ignore_eos": True, "n": 2,
                                "stream_options": {"include_usage": True}})
    assert frames[-1] == "[DONE]"
    parsed = [json.loads(frame) for frame in frames[:-1]]
    assert len({frame["id"] for frame in parsed}) == 1
    usage = parsed.pop()
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 10
    assert all(frame["usage"] is None for frame in parsed)
    for index in (0, 1):
        own = [f["choices"][0] for f in parsed if f["choices"][0]["index"] == index]
        assert [c["finish_reason"] for c in own] == [None] * (len(own) - 1) + ["length"]


def test_usage_and_progress_come_when_they_are_asked_for(web):
    body = {"prompt": "To be or not to be " * 40, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    plain = [json.loads(frame) for frame in web.stream(PLAIN, body)[:-1]]
    assert not any("prompt_progress" in frame or frame.get("usage") for frame in plain)
    asked = {"return_progress": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    frames = [json.loads(frame) for frame in web.stream(PLAIN, body | {"prompt": "Or " + body["prompt"]} | asked)[:-1]]
    progress = [frame["prompt_progress"] for frame in frames if "prompt_progress" in frame]
    assert progress and progress[-1]["processed"] <= progress[-1]["total"] and progress[-1]["total"] > 100
    counts = [frame["usage"]["completion_tokens"] for frame in frames if "prompt_progress" not in frame]
    assert counts == sorted(counts) and counts[-1] == 4


def test_a_silent_stream_has_comments(make_node):
    """Decode is dead, so nothing comes but what the router says by itself."""
    with make_node({"router": ["--http-keep-alive-seconds", "1", "--recovery-seconds", "60"]}) as node:
        with Http(node).connect() as client:
            body = {"prompt": "abc", "max_tokens": 2000, "ignore_eos": True, "stream": True}
            client.sendall(request("POST", PLAIN, json.dumps(body).encode()))
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            node.kill("decode")
            said = b""
            while b": keep-alive\n\n" not in said:
                said += client.recv(65536)
        node.start("decode")
        node.wait_serving()


def test_a_client_that_leaves_frees_its_pages(web, node):
    node.wait_all_pages_free()
    body = {"prompt": "abc", "max_tokens": 4000, "ignore_eos": True, "stream": True, "n": 4}
    for _ in range(5):
        with web.connect() as client:
            client.sendall(request("POST", PLAIN, json.dumps(body).encode()))
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
            wait_until(lambda: node.metric("router", "moestro_requests_running") > 0, 5, "it runs")
        node.wait_all_pages_free()
    wait_until(lambda: node.metric("router", "moestro_requests_running") == 0, 5, "nothing runs")


def test_a_client_that_does_not_wait_for_a_document_frees_its_pages(web, node):
    with web.connect() as client:
        client.sendall(request("POST", PLAIN, json.dumps({"prompt": "abc", "max_tokens": 4000,
                                                          "ignore_eos": True}).encode()))
        wait_until(lambda: node.metric("router", "moestro_requests_running") > 0, 5, "it runs")
    node.wait_all_pages_free()


def test_a_storm_of_clients_that_leave(web, node):
    port = web.address[1]
    alone = disconnects.ask(port)
    asyncio.run(disconnects.storm(port, 40, 5))  # warms up
    before = node.metric("router", "moestro_process_private_bytes")
    answers = asyncio.run(disconnects.beside(port, disconnects.storm(port, 40, 40)))
    assert set(answers) == {alone}
    node.wait_all_pages_free()
    grown = (node.metric("router", "moestro_process_private_bytes") - before) / (1 << 20)
    print(f"1,600 clients left beside {len(answers)} answers; the router grew by {grown:.1f} MiB")
    assert grown < 16


def test_a_deadline_ends_a_request_everywhere(web, node):
    body = {"prompt": "abc", "max_tokens": 4000, "ignore_eos": True}
    status, _, text = web.call("POST", PLAIN, body, **{"X-Request-Timeout": "0.1"})
    assert status == 504, text
    node.wait_all_pages_free()
    assert web.call("GET", "/health", **{"X-Request-Timeout": "soon"})[0] == 400


def test_slots_are_the_requests_that_run(web):
    wait_until(lambda: json.loads(web.call("GET", "/slots")[2]) == [], 5, "none is left of the tests before")


def test_a_prompt_that_is_too_long_has_openais_code(web):
    error = web.post(PLAIN, {"prompt": [5] * 200000, "max_tokens": 10 ** 8})[1]["error"]
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 163840 tokens. However, your messages resulted in 200000 tokens" in error["message"]


def test_broken_requests_harm_nobody(web, node):
    """Random changes of a right request."""
    whole = request("POST", CHAT, json.dumps({
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 2, "n": 2,
        "stop": ["a"], "logit_bias": {"5": 1}, "tools": [{"type": "function", "function": {"name": "f"}}],
        "response_format": {"type": "text"}, "stream_options": {"include_usage": True}}).encode())
    before = node.metric("router", "moestro_process_private_bytes")
    random = Random(1)
    statuses = set()
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(random.randrange(1, 6)):
            at = random.randrange(len(data))
            change = random.randrange(4)
            if change == 0:
                data[at] = random.randrange(256)
            elif change == 1:
                del data[at:at + random.randrange(1, 20)]
            elif change == 2:
                data[at:at] = data[at // 2:at // 2 + random.randrange(1, 40)]
            else:
                data[at:at] = random.choice([b"{", b"[", b'"', b"\\u0000", b"1e999", b"\xff", b"null", b"-1", b"\r\n"])
        with web.connect() as client:
            client.sendall(data)
            client.settimeout(0.05)
            try:
                statuses.add(client.recv(65536)[9:12])
            except (TimeoutError, ConnectionError):
                pass  # the server waits for the rest
    assert b"400" in statuses and b"500" not in statuses, statuses
    node.wait_all_pages_free()
    assert web.call("GET", "/health")[0] == 200
    assert node.metric("router", "moestro_process_private_bytes") - before < 64 << 20


def test_slow_senders_are_cut_off(web):
    """Ten seconds for a header, however often a byte of it comes."""
    with web.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\n")
        begin = time.monotonic()
        client.settimeout(1)
        reply = b""
        while not reply and time.monotonic() < begin + 60:
            try:
                client.sendall(b"X")
                reply = client.recv(100)
            except TimeoutError:
                pass
        assert reply.startswith(b"HTTP/1.1 408")
        assert time.monotonic() - begin > 9


def test_drain_lets_streams_end(make_node):
    with make_node() as node:
        web = Http(node)
        idle = web.connect()
        with web.connect() as client:
            body = {"prompt": "abc", "max_tokens": 200, "ignore_eos": True, "stream": True}
            client.sendall(request("POST", PLAIN, json.dumps(body).encode()))
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            node.processes["router"].terminate()
            rest = read_all(client)
            assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert idle.recv(10) == b""
        assert node.processes["router"].wait(20) == 0


def test_loading_is_told_with_its_progress(make_node):
    node = make_node()
    try:
        node.start("router")
        web = Http(node)

        def answers():
            try:
                return web.call("GET", "/health")[0] == 503
            except OSError:
                return False
        wait_until(answers, 20, "the router listens")
        health = json.loads(web.call("GET", "/health")[2])
        assert health["status"] == "loading model" and health["progress"] == 0
        status, headers, body = web.call("POST", PLAIN, {"prompt": "a"})
        assert status == 503 and "Retry-After" in headers
        assert "loading" in json.loads(body)["error"]["message"]
    finally:
        node.kill_all()


def test_a_taken_address_is_named(make_node, web):
    node = make_node()
    node.http_port = web.address[1]
    node.start("router")
    try:
        assert node.processes["router"].wait(20) == 3
        assert "--http-address" in node.log("router")
    finally:
        node.kill_all()
