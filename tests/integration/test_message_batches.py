"""Anthropic's Message Batches, by Anthropic's own client."""

import pytest
from node import wait_until
from pypi import load

anthropic = load("anthropic")

TURN = [{"role": "user", "content": "Sort [5, 2, 9]."}]


def request(name, **params):
    return {"custom_id": name, "params": {"model": "tiny", "max_tokens": 4, "messages": TURN} | params}


@pytest.fixture
def node(make_node, absorbed, tmp_path):
    flags = ["--batch-dir", str(tmp_path / "batches"), "--batch-in-flight", "4"]
    with make_node(dict(absorbed, router=flags)) as running:
        yield running


@pytest.fixture
def client(node):
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{node.http_port}", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def batches(client):
    return client.messages.batches


def end(batches, batch):
    wait_until(lambda: batches.retrieve(batch.id).processing_status == "ended", 120, "the batch ends")
    return batches.retrieve(batch.id)


def counts(batch):
    return {name: count for name, count in batch.request_counts.to_dict().items() if count}


def test_a_batch_from_its_creation_to_its_end(node, client, batches):
    batch = batches.create(requests=[request("good"), request("bad", temperature=-1), request("long", max_tokens=500)])
    assert batch.type == "message_batch" and batch.id.startswith("msgbatch_") and batch.results_url is None
    assert batch.processing_status == "in_progress" and counts(batch) == {"processing": 3}
    assert batch.expires_at > batch.created_at and batch.ended_at is None
    ended = end(batches, batch)
    assert counts(ended) == {"succeeded": 2, "errored": 1} and ended.ended_at >= ended.created_at
    results = {each.custom_id: each.result for each in batches.results(batch.id)}
    assert set(results) == {"good", "bad", "long"}
    assert results["good"].type == "succeeded" and results["good"].message.usage.output_tokens > 0
    assert results["bad"].type == "errored" and results["bad"].error.error.type == "invalid_request_error"
    assert "temperature" in results["bad"].error.error.message
    assert [each.id for each in client.beta.messages.batches.list()] == [batch.id]
    assert node.metric("router", "moestro_batch_files_bytes") > 0
    deleted = batches.delete(batch.id)
    assert deleted.id == batch.id and deleted.type == "message_batch_deleted"
    assert node.metric("router", "moestro_batch_files_bytes") == 0
    with pytest.raises(anthropic.NotFoundError):
        batches.retrieve(batch.id)


def test_what_a_cancelled_batch_has_done_stays(node, batches):
    running = batches.create(requests=[request(f"request {i}", max_tokens=500, ignore_eos=True) for i in range(300)])
    waiting = batches.create(requests=[request("a"), request("b")])
    cancelled = batches.cancel(waiting.id)
    assert cancelled.processing_status == "ended" and counts(cancelled) == {"canceled": 2}
    assert {each.custom_id: each.result.type for each in batches.results(waiting.id)} == {"a": "canceled", "b": "canceled"}
    with pytest.raises(anthropic.BadRequestError, match="has not ended"):
        batches.delete(running.id)
    wait_until(lambda: node.metric("router", "moestro_batch_requests_total") > 0, 60, "a request is done")
    cancelled = batches.cancel(running.id)
    assert cancelled.cancel_initiated_at and cancelled.processing_status == "canceling"
    ended = end(batches, running)
    assert sum(counts(ended).values()) == 300 and ended.request_counts.canceled > 0
    kinds = [each.result.type for each in batches.results(running.id)]
    assert len(kinds) == 300 and kinds.count("canceled") == ended.request_counts.canceled
    assert kinds.count("succeeded") == ended.request_counts.succeeded > 0
    assert [each.id for each in batches.list(limit=1)] == [waiting.id, running.id]  # the client turns the pages
    assert [each.id for each in batches.list(before_id=running.id)] == [waiting.id]
    node.wait_all_pages_free()


def test_errors_have_anthropics_form(node, batches):
    for wrong, field in (([], "requests"), ([request("a"), request("a")], "requests.1..custom_id"),
                         ([request("a", stream=True)], "requests.0..params.stream")):
        with pytest.raises(anthropic.BadRequestError, match=field) as error:
            batches.create(requests=wrong)
        assert error.value.body["error"].keys() == {"type", "message"}
    with pytest.raises(anthropic.NotFoundError, match="there is no message batch"):
        batches.retrieve("msgbatch_1")
    batch = batches.create(requests=[request("a")])
    end(batches, batch)
    for call in (batches.retrieve, batches.cancel, batches.delete):
        with pytest.raises(anthropic.NotFoundError):
            call(batch.id.removeprefix("msg"))


def test_without_a_folder_the_answer_names_the_flag(make_node, absorbed):
    with make_node(absorbed) as node:
        client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{node.http_port}", api_key="none", max_retries=0)
        with pytest.raises(anthropic.NotFoundError, match="--batch-dir"):
            client.messages.batches.create(requests=[request("a")])
