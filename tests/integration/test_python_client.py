"""The wheel of deploy/python: built, installed into an environment of its own, and used against a running node."""

import subprocess
import sys

import pytest

from node import REPO

SCRIPT = """
import asyncio, sys
import grpc
import moestro
from moestro import Client

async def main(address):
    async with Client(address, timeout=60) as client:
        model = await client.model()
        assert model.ready and model.name, model
        options = dict(max_tokens=20, temperature=0, ignore_eos=True)
        pieces = []
        answer = client.generate("Once upon a time", top_logprobs=2, **options)
        assert await answer.wait_started() == answer.started.request_id != ""
        async for piece in answer:
            pieces.append(piece)
        assert len(pieces) > 1 and "".join(pieces) == answer.text
        assert answer.finished.usage.completion_tokens == len(answer.tokens) == 20
        assert all(len(token.top) == 2 for token in answer.tokens)

        ids = await client.tokenize("Once upon a time")
        assert await client.detokenize(ids) == "Once upon a time"
        same = await client.generate(ids, **options)
        assert same.text == answer.text
        stop = answer.text[-4:]
        stopped = await client.generate(ids, stop=[stop], **options)
        assert stopped.finished.stop_text == stop and stopped.text == answer.text[:answer.text.index(stop)]
        scores = await client.score(ids + [token.id for token in answer.tokens], top=1)
        assert abs(scores[-1].logprob - answer.tokens[-1].logprob) < 1e-5

        chat = [{"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Again"}]
        assert (await client.chat(chat, **options)).started.prompt_tokens == len(await client.tokenize_chat(chat))

        several = await asyncio.gather(*(client.generate(ids, **{**options, "temperature": 1, "seed": seed})
                                         for seed in range(4)))
        assert len({answer.text for answer in several}) == 4

        endless = client.generate(ids, request_id="by-name", **{**options, "max_tokens": 3000})
        assert await endless.wait_started() == "by-name"
        await client.abort("by-name")
        for call, code in ((endless, grpc.StatusCode.CANCELLED), (client.abort("nobody"), grpc.StatusCode.NOT_FOUND),
                           (client.generate(ids, min_p=2), grpc.StatusCode.INVALID_ARGUMENT)):
            try:
                await call
                raise SystemExit(f"no {code}")
            except grpc.aio.AioRpcError as error:
                assert error.code() == code, error

        left = client.generate(ids, **{**options, "max_tokens": 3000})
        async for _ in left:
            left.cancel()
            break
    print(moestro.__file__)

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A Python with the wheel, and Debian's grpcio and protobuf."""
    folder = tmp_path_factory.mktemp("python")
    wheel = subprocess.run([REPO / "deploy/python/build", folder / "dist"], check=True, capture_output=True,
                           text=True).stdout.strip()
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps",
                    wheel], check=True)
    return python


def test_the_installed_client_streams_from_a_node(environment, node):
    ran = subprocess.run([environment, "-I", "-c", SCRIPT, f"127.0.0.1:{node.grpc_port}"], capture_output=True, text=True,
                         timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert str(environment.parent.parent) in ran.stdout, "it must be the installed one"
    node.wait_all_pages_free()


def test_its_options_are_those_of_the_api(environment):
    """And it is typed: messages come with their stubs."""
    files = subprocess.run([environment, "-m", "pip", "show", "--files", "moestro-client"], check=True, capture_output=True,
                           text=True).stdout
    for name in ("moestro/py.typed", "moestro/v1/inference_pb2.pyi", "moestro/client.py"):
        assert name in files
    assert "Requires: grpcio, protobuf" in files
