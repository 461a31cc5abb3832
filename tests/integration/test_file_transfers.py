"""Files of batches that come or go slowly: whoever moves them must not keep others from the HTTP API."""

import json
import socket
import urllib.error
import urllib.request

import pytest

from node import HANG_SECONDS

MIB = 1 << 20


def post(node, path, body, content_type="application/json"):
    request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}{path}", body, {"Content-Type": content_type})
    try:
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def complete(node):
    return post(node, "/v1/completions", json.dumps({"prompt": [20] * 200, "max_tokens": 1}).encode())


@pytest.fixture
def files_node(make_node, tmp_path):
    with make_node({"router": ["--batch-dir", str(tmp_path / "batches"), "--queue-limit", "1"]}) as node:
        yield node


def test_downloads_that_nobody_reads_leave_others_their_turn(files_node):
    form = (b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: '
            b'form-data; name="file"; filename="a"\r\n\r\n' + b"x" * (32 * MIB) + b"\r\n--b--")
    status, file = post(files_node, "/v1/files", form, "multipart/form-data; boundary=b")
    assert status == 200
    readers = []
    for _ in range(300):
        reader = socket.create_connection(("127.0.0.1", files_node.http_port))
        reader.sendall(f"GET /v1/files/{file['id']}/content HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        reader.recv(1)  # it has begun, or was refused
        readers.append(reader)
    assert complete(files_node)[0] == 200


def test_uploads_under_way_leave_others_their_turn(files_node):
    uploads = []
    for _ in range(2):
        upload = socket.create_connection(("127.0.0.1", files_node.http_port))
        upload.sendall(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
                       b"Content-Length: %d\r\n\r\n" % (128 * MIB))
        upload.sendall(b"x" * (128 * MIB - 256))
        uploads.append(upload)
    assert complete(files_node)[0] == 200
