"""Options of a request beyond temperature: stop texts, penalties, biases, alternatives, names; over a running node."""

import collections
import concurrent.futures
import json

import grpc
import pytest

from node import HANG_SECONDS, collect, wait_until
from test_generate import error_of

PROMPT = "Once upon a time"
PATHS = {"chunked": [], "prefill": ["--chunked-below-tokens", "0"]}


@pytest.fixture(scope="module", params=PATHS)
def either(request, api, bin_dir, tiny_model, absorbed):
    """A node whose prompts all take one path: the role that samples the first token differs."""
    from node import Node
    with Node(api, bin_dir, tiny_model, dict(absorbed, router=PATHS[request.param])) as running:
        yield running



def test_a_stop_text_ends_the_answer(either):
    ids, whole, _ = either.generate(PROMPT, 40, ignore_eos=True)
    stop = whole[len(whole) // 2:][:5]
    place = whole.index(stop)
    _, text, finished = either.generate(PROMPT, 40, ignore_eos=True, stop=["no such text", stop])
    assert text == whole[:place] and finished.stop_text == stop
    assert finished.reason == either.api.types.FINISH_REASON_STOP
    assert finished.usage.completion_tokens < 40
    either.wait_all_pages_free()
    _, text, finished = either.generate(PROMPT, 40, ignore_eos=True, stop=[whole[-3:] + "and what does not follow"])
    assert text == whole and finished.stop_text == "" and finished.reason == either.api.types.FINISH_REASON_LENGTH


def test_a_bias_decides_from_the_first_token_on(either):
    ids, _, _ = either.generate(PROMPT, 6, ignore_eos=True, logit_bias={77: 100})
    assert ids == [77] * 6
    plain = either.generate(PROMPT, 6, ignore_eos=True)[0]
    banned = either.generate(PROMPT, 6, ignore_eos=True, logit_bias={plain[0]: -100})[0]
    assert plain[0] not in banned


def test_penalties_follow_what_was_generated(either):
    """Every token is the best of the model's own alternatives, less the penalties for the tokens before it."""
    options = dict(ignore_eos=True, temperature=0.0, presence_penalty=0.75, frequency_penalty=1.5)
    call = either.stub.Generate(either.request(PROMPT, 60, top_logprobs=20, **options), timeout=HANG_SECONDS)
    tokens = [token for reply in call if reply.HasField("tokens") for token in reply.tokens.tokens]
    before = collections.Counter()
    penalised = 0
    for token in tokens:
        scores = {a.id: a.logprob - 1.5 * before[a.id] - 0.75 * (before[a.id] > 0) for a in token.top}
        assert token.id == max(scores, key=scores.get) and scores[token.id] >= token.top[-1].logprob
        penalised += token.id != token.top[0].id
        before[token.id] += 1
    assert len(tokens) == 60 and penalised > 0, "none made a difference: take another prompt"


def test_the_options_agree_on_both_paths(node, make_node, absorbed):
    options = dict(temperature=0.9, seed=3, ignore_eos=True, min_p=0.02, presence_penalty=0.4, frequency_penalty=0.3,
                   repetition_penalty=1.2, logit_bias={5: 1.5, 6: -3})
    here = node.generate(PROMPT, 40, **options)[0]
    assert here != node.generate(PROMPT, 40, temperature=0.9, seed=3, ignore_eos=True)[0]
    with make_node(dict(absorbed, router=PATHS["prefill"])) as other:
        assert other.generate(PROMPT, 40, **options)[0] == here


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_penalties_survive_the_death_of_a_role(make_node, absorbed, role):
    options = dict(temperature=0.9, seed=3, ignore_eos=True, presence_penalty=0.4, frequency_penalty=0.3,
                   repetition_penalty=1.2, stop=["a text that never comes"])
    with make_node(dict(absorbed, router=PATHS["prefill"])) as node:
        expected = node.generate(PROMPT, 300, **options)[:2]
        call = node.stub.Generate(node.request(PROMPT, 300, **options), timeout=HANG_SECONDS)
        ids, text, killed, finished = [], "", False, None
        for reply in call:
            if reply.HasField("tokens"):
                ids += [token.id for token in reply.tokens.tokens]
                text += reply.tokens.text
                if not killed and len(ids) > 20:
                    killed = True
                    node.kill("decode")
                    if role == "prefill":
                        node.kill("prefill")
                        node.start("prefill")
                    node.start("decode")
            elif reply.HasField("finished"):
                finished = reply.finished
        assert (ids, text) == expected and finished.resumed >= 1


def test_alternatives_are_the_models_own(either):
    options = dict(ignore_eos=True, temperature=0.0, logit_bias={77: 100})
    call = either.stub.Generate(either.request(PROMPT, 4, top_logprobs=5, **options), timeout=HANG_SECONDS)
    tokens = [token for reply in call if reply.HasField("tokens") for token in reply.tokens.tokens]
    prompt = list(either.stub.Tokenize(either.api.inference.TokenizeRequest(text=PROMPT)).ids)
    scores = either.score(prompt + [token.id for token in tokens], top=5)[len(prompt):]
    for token, score in zip(tokens, scores, strict=True):
        assert token.id == 77 and token.logprob == pytest.approx(score.logprob, abs=1e-5)
        assert [(a.id, pytest.approx(a.logprob, abs=1e-5)) for a in token.top] == [(a.id, a.logprob) for a in score.top]


def test_special_tokens_are_spelled_out_on_request(node):
    special = node.stub.GetModel(node.api.inference.GetModelRequest()).stop_ids[0]
    for keep in (False, True):
        _, text, _ = node.generate(PROMPT, 2, ignore_eos=True, logit_bias={special: 100}, keep_special_tokens=keep)
        spelled = node.stub.Detokenize(node.api.inference.DetokenizeRequest(ids=[special] * 2, keep_special_tokens=keep)).text
        assert text == spelled and bool(text) == keep


def test_a_request_is_aborted_by_its_name(node):
    abort = lambda name: node.stub.Abort(node.api.inference.AbortRequest(request_id=name), timeout=HANG_SECONDS)
    with pytest.raises(grpc.RpcError) as unknown:
        abort("nobody")
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
    call = node.stub.Generate(node.request(PROMPT, 20000, ignore_eos=True, request_id="a-name"), timeout=HANG_SECONDS)
    started = next(call).started
    assert started.request_id == "a-name"
    code, details = error_of(node.stub.Generate(node.request("x", 2, request_id="a-name"), timeout=HANG_SECONDS))
    assert code == grpc.StatusCode.ALREADY_EXISTS and "a-name" in details
    abort("a-name")
    assert error_of(call)[0] == grpc.StatusCode.CANCELLED
    node.wait_all_pages_free()
    wait_until(lambda: node.generate("x", 2, request_id="a-name")[0], 5, "the name is free again")
    assert "[a-name]" in node.log("router") and "[a-name]" in node.log("decode")


def test_the_model_says_what_a_front_needs(node):
    model = node.stub.GetModel(node.api.inference.GetModelRequest())
    assert model.ready and model.default_max_tokens == 0 and model.created_seconds > 1e9
    assert {role.name: role.up for role in model.roles} == {"prefill": True, "decode": True}
    assert "messages" in model.chat_template and model.eos_token and model.bos_token
    assert model.version.count(".") == 2


def test_abort_of_a_request_that_waits(make_node, absorbed):
    with make_node(dict(absorbed, decode=["--kv-tokens", "256"])) as small:
        first = small.stub.Generate(small.request("x", 200, ignore_eos=True, request_id="first"), timeout=HANG_SECONDS)
        next(first)
        waiting = small.stub.Generate(small.request("y", 200, ignore_eos=True, request_id="second"), timeout=HANG_SECONDS)
        wait_until(lambda: small.metric("router", "moestro_requests_waiting") == 1, 5, "it waits for pages")
        small.stub.Abort(small.api.inference.AbortRequest(request_id="second"), timeout=HANG_SECONDS)
        assert error_of(waiting)[0] == grpc.StatusCode.CANCELLED
        assert len(collect(first)[0]) == 200
        small.wait_all_pages_free()


def test_several_answers_to_one_prompt(node):
    """What a front does for n answers: each is that of its own seed, whoever computes the prompt."""
    prompt = "A prompt that fills some pages of the cache, " * 12

    def answer(seed):
        return node.generate(prompt, 20, temperature=1.0, seed=seed, ignore_eos=True)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(answer, range(4)))
    print("cached tokens of four at once:", [finished.usage.cached_tokens for _, _, finished in together])
    assert len({text for _, text, _ in together}) == 4
    for seed, (ids, _, _) in enumerate(together):
        again, _, finished = answer(seed)
        assert again == ids and finished.usage.cached_tokens >= 64


@pytest.mark.parametrize("field, value", [("min_p", 2), ("presence_penalty", 3), ("frequency_penalty", -3),
                                          ("repetition_penalty", 0), ("top_logprobs", 21), ("logit_bias", {1 << 30: 1}),
                                          ("logit_bias", {1: 101}), ("stop", [""]), ("stop", ["x" * 257]),
                                          ("stop", ["x"] * 17), ("request_id", "a b"), ("request_id", "x" * 65)])
def test_what_is_out_of_range_is_refused_by_name(node, field, value):
    code, details = error_of(node.stub.Generate(node.request("x", 2, **{field: value}), timeout=HANG_SECONDS))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and details.startswith(field), details


def test_the_command_line_has_them(node, cli):
    server = f"127.0.0.1:{node.grpc_port}"
    answer = json.loads(cli("generate", "--server", server, "--prompt", PROMPT, "--max-tokens", 5, "--temperature", 0,
                            "--ignore-eos", "--logit-bias", "77=100", "--top-logprobs", 2, "--request-id", "cli-1",
                            "--json").stdout)
    assert answer["token_ids"] == [77] * 5 and answer["request_id"] == "cli-1"
    assert [len(top) for top in answer["top_logprobs"]] == [2] * 5
