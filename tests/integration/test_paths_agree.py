"""With the absorbed form everywhere, the chunk size, the number of threads and the split over processes change no bit;
the un-absorbed form gives the same greedy tokens."""

import json
import shutil
import struct

import grpc
import pytest

from node import CLEAR_LEAD, HANG_SECONDS

PROMPT_LENGTHS = (1, 2, 63, 64, 65, 300)


def prompts(token_count):
    """Token ids that look random but are the same everywhere."""
    state, result = 12345, []
    for length in PROMPT_LENGTHS:
        ids = []
        for _ in range(length):
            state = (1103515245 * state + 12345) % 2**31
            ids.append(10 + (state >> 8) % (token_count - 20))
        result.append(ids)
    return result


def fingerprint(node):
    """Greedy tokens and the exact log-probability of every prompt position."""
    result = []
    token_count = node.stub.GetModel(node.api.inference.GetModelRequest()).vocab_size
    for ids in prompts(token_count):
        tokens = node.generate(ids, 16, ignore_eos=True)[0]
        scores = node.score(ids + tokens, top=4)
        result.append((tokens, [s.logprob for s in scores], [[(t.id, t.logprob) for t in s.top] for s in scores]))
    return result


@pytest.fixture(scope="module")
def reference(node):
    return fingerprint(node)


# The router's flags that send every prompt to the prefill role, however short: beside decode, and with all CPUs.
SPLIT = ["--chunked-below-tokens", "0"]
WHOLE_MACHINE = [*SPLIT, "--decode-idle-window-seconds", "0"]

CUDA = ["--device", "cuda:0", "--device-dense-bytes", "8MB", "--stream-from-tokens", "1"]
STREAMED = ["--device", "host", "--device-dense-bytes", "8MB", "--device-memory", "256MB", "--stream-from-tokens", "1"]


@pytest.mark.parametrize("chunk, threads", [(1, 1), (7, 2), (64, 1), (64, 2)])
def test_absorbed_form_is_bit_identical(make_node, reference, chunk, threads):
    flags = {"prefill": ["--mla-form", "absorbed", "--chunk-tokens", str(chunk), "--threads", str(threads)],
             "decode": ["--threads", str(threads)], "router": SPLIT}
    with make_node(flags) as other:
        assert fingerprint(other) == reference
        assert other.metric("prefill", "moestro_prefill_requests_total") == 2 * len(PROMPT_LENGTHS)


@pytest.mark.parametrize("slots, router", [(0, SPLIT), (2, WHOLE_MACHINE)])
def test_streamed_prompts_are_bit_identical(make_node, reference, tmp_path, slots, router):
    """Weights stream through a few slots of a bounded memory: the same kernels, so the same bits."""
    trace = tmp_path / "trace.json"
    flags = {"prefill": ["--mla-form", "absorbed", *STREAMED, "--ring-slots", str(slots), "--trace-file", str(trace)],
             "router": router}
    with make_node(flags) as other:
        streamed = 0
        token_count = other.stub.GetModel(other.api.inference.GetModelRequest()).vocab_size
        for ids, (tokens, _, _) in zip(prompts(token_count), reference):
            for _ in range(2):  # the second time after a prefix from the cache
                assert other.generate(ids, 16, ignore_eos=True)[0] == tokens
                before, streamed = streamed, other.metric("prefill", "moestro_prefill_streamed_bytes_total")
                assert streamed > before
        # Before its first request, the router assumes that decode is idle.
        assert (other.metric("prefill", "moestro_prefill_whole_machine_total") > 1) == (router == WHOLE_MACHINE)
        assert fingerprint(other) == reference
    lanes = {e["args"]["name"] for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "M"}
    assert {"loader: copies", "model: kernels", "unloader"} <= lanes


MEMORY = ["--device-dense-bytes", "8MB", "--device-memory", "256MB"]


def test_scores_and_answers_of_every_way(make_node, reference):
    """A client asks for the way. On one device each has the same bits."""
    with make_node({"prefill": ["--device", "host", "--mla-form", "absorbed", *MEMORY]}) as other:
        types = other.api.types
        streamed = lambda: other.metric("prefill", "moestro_prefill_streamed_bytes_total")
        token_count = other.stub.GetModel(other.api.inference.GetModelRequest()).vocab_size
        for ids, (tokens, logprobs, alternatives) in zip(prompts(token_count), reference):
            for way in (types.PROMPT_WAY_CHUNKED, types.PROMPT_WAY_IN_PLACE, types.PROMPT_WAY_STREAMED):
                before = streamed()
                scope = f"{way}".encode()  # nothing that came another way
                assert other.generate(ids, 16, ignore_eos=True, way=way, cache_scope=scope)[0] == tokens
                assert (streamed() > before) == (way == types.PROMPT_WAY_STREAMED)
                if way == types.PROMPT_WAY_CHUNKED:
                    continue
                before, scores = streamed(), other.score(ids + tokens, top=4, way=way)
                assert (streamed() > before) == (way == types.PROMPT_WAY_STREAMED)
                assert [s.logprob for s in scores] == logprobs
                assert [[(t.id, t.logprob) for t in s.top] for s in scores] == alternatives


@pytest.fixture(scope="module")
def decisive_model(tiny_model, tmp_path_factory):
    """The tiny model with biases that alone choose experts: four, of two groups, two on each of two ranks."""
    path = tmp_path_factory.mktemp("models") / "decisive"
    shutil.copytree(tiny_model, path)
    config = json.loads((path / "config.json").read_text())
    assert (config["n_routed_experts"], config["num_experts_per_tok"], config["n_group"]) == (16, 4, 4)
    biases = struct.pack("<16f", *(8.0 if expert in (1, 2, 13, 14) else 0.0 for expert in range(16)))  # scores: 0 to 1
    for file in path.glob("*.safetensors"):
        data = bytearray(file.read_bytes())
        header = 8 + struct.unpack_from("<Q", data)[0]
        for name, tensor in json.loads(data[8:header]).items():
            if name.endswith("e_score_correction_bias"):
                begin, end = (header + offset for offset in tensor["data_offsets"])
                data[begin:end] = biases
        file.write_bytes(data)
    return path


def test_scores_of_several_devices(make_node, decisive_model):
    """Two devices round differently than one, and a row whose experts score nearly the same may choose others: then it
    is another row. Here no row has that choice, so all log-probabilities move by less than two logits may: their own,
    and the sum of all."""
    with make_node({"prefill": ["--devices", "host,host", *MEMORY]}, model=decisive_model) as other:
        types = other.api.types
        token_count = other.stub.GetModel(other.api.inference.GetModelRequest()).vocab_size
        rounded = 0
        for ids in prompts(token_count):
            tokens = other.generate(ids, 16, ignore_eos=True, way=types.PROMPT_WAY_IN_PLACE, cache_scope=b"1")[0]
            expected = other.score(ids + tokens, top=2, way=types.PROMPT_WAY_IN_PLACE)
            before = other.metric("prefill", "moestro_prefill_streamed_bytes_total")
            scores = other.score(ids + tokens, top=2, way=types.PROMPT_WAY_STREAMED)
            assert other.metric("prefill", "moestro_prefill_streamed_bytes_total") > before
            assert other.metric("prefill", "moestro_prefill_devices") == 2
            moved = [abs(s.logprob - e.logprob) for s, e in zip(scores[1:], expected[1:], strict=True)]
            assert max(moved) < CLEAR_LEAD
            rounded += sum(m > 0 for m in moved)
            if all(e.top[0].logprob - e.top[1].logprob > CLEAR_LEAD for e in expected[len(ids):]):
                assert other.generate(ids, 16, ignore_eos=True, way=types.PROMPT_WAY_STREAMED,
                                      cache_scope=b"2")[0] == tokens
        assert rounded > 0  # they were computed by other sums


def test_a_way_that_cannot_be_had_is_an_error(node):
    types = node.api.types
    for call in (lambda way: node.score([20, 30, 40], way=way), lambda way: node.generate([20, 30, 40], 1, way=way)):
        with pytest.raises(grpc.RpcError) as error:
            call(types.PROMPT_WAY_STREAMED)
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "cannot be streamed: prefill has no device" in error.value.details()
        assert call(types.PROMPT_WAY_IN_PLACE)
    for call in (lambda: node.score([20, 30], way=types.PROMPT_WAY_CHUNKED), lambda: node.score([20, 30], way=9),
                 lambda: node.generate([20, 30], 1, way=9)):
        with pytest.raises(grpc.RpcError) as error:
            call()
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "way: " in error.value.details()
    node.wait_all_pages_free()


def run_in_decode(node, ids, max_tokens):
    """A prompt that decode computes itself: (tokens, progress)."""
    decode = node.api.decode
    reserve = decode.SessionRequest(reserve=decode.SessionRequest.Reserve(token_ids=ids, max_tokens=max_tokens,
                                                                          ignore_cache=True))
    prompt = decode.SessionRequest(prompt=decode.SessionRequest.Prompt(max_tokens=max_tokens))
    with grpc.insecure_channel(f"unix:{node.run_dir}/decode.sock") as channel:
        replies = list(node.api.decode_grpc.DecodeServiceStub(channel).Session(iter([reserve, prompt]), timeout=HANG_SECONDS))
    assert replies[0].HasField("reserved") and replies[-1].HasField("finished")
    return ([r.token.id for r in replies if r.HasField("token")],
            [r.progress.done_tokens for r in replies if r.HasField("progress")])


def test_prompts_inside_decode_give_the_same_tokens(node, make_node, absorbed):
    ids = prompts(node.stub.GetModel(node.api.inference.GetModelRequest()).vocab_size)
    expected = [node.generate(prompt, 16, ignore_eos=True)[0] for prompt in ids]
    with make_node(dict(absorbed, decode=["--max-chunk-tokens", "33"])) as other:
        for prompt, tokens in zip(ids, expected):
            assert run_in_decode(other, prompt, 16) == (
                tokens, [min(done, len(prompt)) for done in range(33, len(prompt) + 33, 33)])


@pytest.mark.parametrize("device", [[], STREAMED, CUDA], ids=["resident", "streamed", "cuda"])
def test_unabsorbed_form_gives_the_same_greedy_tokens(make_node, node, repo, device):
    """The golden prompts, chosen so that no step is a near tie. Without a GPU, or in a build without CUDA, the role
    reports that in one line and computes prompts in host memory."""
    golden = sorted((repo / "tests/golden/deepseek_v3_tiny").glob("prompt_*.json"))
    assert len(golden) == len(PROMPT_LENGTHS)
    with make_node({"prefill": ["--mla-form", "unabsorbed", *device], "router": SPLIT}) as other:
        for path in golden:
            prompt = json.loads(path.read_text())["prompt"]
            assert other.generate(prompt, 32, ignore_eos=True)[0] == node.generate(prompt, 32, ignore_eos=True)[0], path
        assert other.metric("prefill", "moestro_prefill_requests_total") == len(golden)
        log = other.log("prefill")
        assert log.count("prompts of 1 tokens and more stream through") + log.count("is not used") == bool(device)
        streams = other.metric("prefill", "moestro_prefill_streamed_bytes_total") > 0
        assert streams == ("stream through" in log) and (streams or device != STREAMED)
