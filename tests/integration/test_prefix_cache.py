"""Conversations: a turn computes only new tokens, and the prefix cache does not change the tokens."""

import json

import grpc
import pytest

from node import HANG_SECONDS
from test_recovery import Request

SYSTEM = [20 + i * 43 % 900 for i in range(3700)]


def talk(node, turns=8):
    """Returns (answers, cached tokens, prompt tokens) of each turn; every turn sends all previous ones again."""
    history, answers, cached, prompts = list(SYSTEM), [], [], []
    for turn in range(turns):
        history += [20 + (turn * 131 + i * 17) % 900 for i in range(40)]
        replies = list(node.stub.Generate(node.request(history, 20, temperature=0.0, ignore_eos=True), timeout=HANG_SECONDS))
        answer = [token.id for reply in replies if reply.HasField("tokens") for token in reply.tokens.tokens]
        answers.append(answer)
        cached.append(replies[-1].finished.usage.cached_tokens)
        prompts.append(len(history))
        history += answer
    return answers, cached, prompts


def test_a_turn_computes_only_what_is_new(make_node, absorbed):
    """Slow: without the cache each of eight turns computes 3,700 tokens and more."""
    with make_node(dict(absorbed, decode=["--prefix-cache", "false"])) as node:
        expected, cached, _ = talk(node)
        assert cached == [0] * len(cached)
    with make_node(absorbed) as node:
        answers, cached, prompts = talk(node)
        assert answers == expected
        # All but the new message, the last answer's last token, and the tokens of a partly filled page of 64.
        assert all(prompt - hit <= 40 + 1 + 64 for prompt, hit in zip(prompts[1:], cached[1:]))
        again, cached, _ = talk(node)
        assert again == expected
        assert cached[0] >= len(SYSTEM) - 64


def test_a_scope_learns_nothing_of_another(make_node, absorbed):
    """Neither that another scope sent the same text, nor a beginning of it, nor its tokens."""
    with make_node(absorbed) as node:
        secret = [100 + i % 700 for i in range(200)]

        def ask(prompt, scope):
            ids, _, finished = node.generate(prompt, 8, ignore_eos=True, cache_scope=scope)
            return finished.usage.cached_tokens, ids

        cached, expected = ask(secret, b"a")
        assert cached == 0
        assert ask(secret, b"a") == (192, expected)
        for other in (b"b", b"", b"a\0"):
            assert ask(secret, other) == (0, expected), other
            assert ask(secret, other) == (192, expected), "what it has computed itself it finds"
        for other, (start, length) in {b"c": (0, 129), b"d": (0, 65), b"e": (64, 129)}.items():
            assert ask(secret[start:start + length], other)[0] == 0
        assert ask([7] + secret[1:129], b"c")[0] == 0

        scored = [300 + i % 500 for i in range(200)]
        node.score(scored)
        assert ask(scored, b"")[0] == 0, "Score leaves nothing in any scope"


def test_a_scope_is_kept_when_decode_dies(make_node, absorbed):
    with make_node(absorbed) as node:
        prompt = [100 + i % 700 for i in range(200)]
        request = Request(node, prompt, 1500, cache_scope=b"a")
        request.progressed.wait(HANG_SECONDS)
        node.kill("decode")
        node.start("decode")
        request.join(timeout=HANG_SECONDS)
        assert request.error is None and request.finished.resumed == 1
        cached = {scope: node.generate(prompt, 1, cache_scope=scope)[2].usage.cached_tokens for scope in (b"", b"a")}
        assert cached == {b"": 0, b"a": 192}


def test_a_scope_that_is_too_long_is_refused(node):
    node.generate("x", 1, cache_scope=b"s" * 64)
    with pytest.raises(grpc.RpcError) as refused:
        node.generate("x", 1, cache_scope=b"s" * 65)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "cache_scope" in refused.value.details() and "64" in refused.value.details()


def test_the_command_line_has_scopes(node, cli):
    prompt = ",".join(str(100 + i % 700) for i in range(200))

    def cached(scope):
        result = cli("generate", "--server", f"127.0.0.1:{node.grpc_port}", "--token-ids", prompt, "--max-tokens", 2, "--json",
                     *(["--cache-scope", scope] if scope else []))
        return json.loads(result.stdout)["usage"]["cached_tokens"]

    assert [cached("team-a"), cached("team-a"), cached("team-b"), cached("")] == [0, 192, 0, 0]
