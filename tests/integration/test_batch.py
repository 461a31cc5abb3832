"""`moestro batch` against real processes, which are killed under it."""

import json
import os
import signal
import subprocess

import pytest
from node import ROLES, free_port, wait_until
from pypi import load

COUNT = 60
TOKENS = 160  # long enough that a kill finds work under way


def line(name, body, url="/v1/completions"):
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body}) + "\n"


def requests(count=COUNT, tokens=TOKENS):
    """Greedy ones, and ones that draw with a seed."""
    return "".join(
        line(f"request-{i}", {"prompt": [20 + (i * 37 + j) % 900 for j in range(3 + i % 40)], "max_tokens": tokens,
                              "ignore_eos": True, "temperature": i % 2, "seed": i, "logprobs": 1})
        for i in range(count))


class Batch:
    """One file of requests, its output, and the command."""

    def __init__(self, bin_dir, folder, http_port, text, *flags):
        self.input, self.output = folder / "requests.jsonl", folder / "answers.jsonl"
        self.journal = folder / "answers.jsonl.journal"
        self.input.write_text(text)
        self.command = [os.path.join(bin_dir, "moestro"), "batch", str(self.input), "--out", str(self.output), "--url",
                        f"http://127.0.0.1:{http_port}", "--in-flight", "4", *flags]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return self

    def run(self, returncode=0):
        """To its end; what it said."""
        return self.start().end(returncode)

    def end(self, returncode=0):
        out, err = self.process.communicate(timeout=240)
        assert self.process.returncode == returncode, err
        assert out == ""
        return err

    def done(self):
        return self.journal.read_bytes().count(b"\n") - 1 if self.journal.exists() else 0

    def wait_for(self, lines):
        wait_until(lambda: self.done() >= lines or self.process.poll() is not None, 60, f"{lines} lines are done")
        assert self.process.poll() is None, "the batch is over before the kill: it has too little to do"

    def lines(self):
        return [json.loads(text) for text in self.output.read_text().splitlines()]

    def answers(self):
        """(custom_id, choices) in the order of the output."""
        assert all(each["response"]["status_code"] == 200 and each["error"] is None for each in self.lines())
        return [(each["custom_id"], each["response"]["body"]["choices"]) for each in self.lines()]


@pytest.fixture
def batch(bin_dir, node, tmp_path):
    return lambda text, *flags: Batch(bin_dir, tmp_path, node.http_port, text, *flags)


def test_survives_the_death_of_everyone(batch, node, tmp_path_factory, bin_dir):
    """Slow: the batch runs twice, and all roles start again."""
    calm = Batch(bin_dir, tmp_path_factory.mktemp("calm"), node.http_port, requests())
    assert f"{COUNT} lines in" in calm.run()
    expected = calm.answers()
    assert [name for name, _ in expected] == [f"request-{i}" for i in range(COUNT)]
    killed = batch(requests()).start()
    for role in [*ROLES, "batch", "batch"]:
        killed.wait_for(killed.done() + 3)
        if role == "batch":
            killed.process.kill()
            killed.process.communicate()
            assert not killed.output.exists()
            killed.start()
        else:
            node.kill(role)
            node.start(role)
            wait_until(lambda: node.serving(role), 30, f"{role} serves again")
    said = killed.end()
    assert "goes on: " in said and not killed.journal.exists()
    assert killed.answers() == expected
    node.wait_all_pages_free()


def test_ctrl_c_saves_and_says_how_to_go_on(batch):
    """Slow: a batch is long enough to be stopped, and runs to its end."""
    stopped = batch(requests()).start()
    stopped.wait_for(2)
    stopped.process.send_signal(signal.SIGINT)
    said = stopped.end(1)
    assert f"of {COUNT} lines are saved in {stopped.journal}; the same command goes on from there" in said
    assert stopped.done() < COUNT and not stopped.output.exists()
    # Another file would give answers to other questions.
    text = stopped.input.read_text()
    stopped.input.write_text(text.replace("request-7", "request-x"))
    assert f"{stopped.input}: has changed since this batch began" in stopped.run(2)
    stopped.input.write_text(text)
    assert "goes on: " in stopped.run()
    assert len(stopped.lines()) == COUNT
    assert f"{stopped.output}: exists" in stopped.run(2)


def test_failed_lines_say_why(batch):
    good = {"prompt": [30, 40], "max_tokens": 2, "temperature": 0}
    text = line("good", good) + line("bad", good | {"top_p": 9})
    one = batch(text)
    assert "1 of 2 lines failed; each says why in " + str(one.output) in one.run(1)
    lines = {each["custom_id"]: each for each in one.lines()}
    assert list(lines) == ["good", "bad"]
    assert lines["good"]["response"]["request_id"] == lines["good"]["response"]["body"]["id"]
    assert lines["bad"]["response"]["status_code"] == 400
    assert lines["bad"]["response"]["body"]["error"]["param"] == "top_p"
    one.output.unlink()
    errors = one.output.with_name("errors.jsonl")
    apart = batch(text, "--errors", str(errors))
    apart.run(1)
    assert [each["custom_id"] for each in apart.lines()] == ["good"]
    assert [json.loads(each)["custom_id"] for each in errors.read_text().splitlines()] == ["bad"]


def test_every_endpoint(batch):
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    every = batch(line("chat", chat, "/v1/chat/completions") + line("text", {"prompt": "a", "max_tokens": 2})
                  + line("responses", {"input": "a", "max_output_tokens": 2}, "/v1/responses"))
    every.run()
    assert [each["response"]["body"]["object"] for each in every.lines()] == \
        ["chat.completion", "text_completion", "response"]


def test_a_wrong_file_is_refused_before_anything_is_sent(batch):
    wrong = batch(line("a", {}) + line("a", {}) + "{\n" + line("b", {}, "/v1/embeddings"))
    said = wrong.run(2)
    assert f"{wrong.input}: 3 lines are wrong\n  line 2: custom_id: 'a' is that of line 1, too\n  line 3: " in said
    assert "line 4: url: must be one of /v1/chat/completions" in said
    assert not wrong.journal.exists()


def test_gives_up_when_told_to(bin_dir, tmp_path):
    away = Batch(bin_dir, tmp_path, free_port(), requests(2), "--give-up-after", "1")
    said = away.run(3)
    assert "nothing was answered for 1 s: http://127.0.0.1:" in said and "goes on from there" in said


# /v1/files and /v1/batches ---------------------------------------------------------------------------------------------


def batch_router(folder, *flags):
    return ["--batch-dir", str(folder), "--batch-in-flight", "4", *flags]


def wait_for_end(client, batch):
    wait_until(lambda: client.batches.retrieve(batch.id).status in ("completed", "failed", "cancelled"), 120,
               "the batch ends")
    return client.batches.retrieve(batch.id)


def upload(client, text):
    return client.files.create(file=("requests.jsonl", text.encode()), purpose="batch")


def start(client, text, **fields):
    return client.batches.create(input_file_id=upload(client, text).id, endpoint="/v1/completions",
                                 completion_window="24h", **fields)


def results(client, file_id):
    return {each["custom_id"]: each for each in map(json.loads, client.files.content(file_id).text.splitlines())}


@pytest.fixture(scope="module")
def openai():
    return load("openai")


@pytest.fixture
def client_of(openai):
    clients = []

    def make(node, key="none"):
        clients.append(openai.OpenAI(base_url=f"http://127.0.0.1:{node.http_port}/v1", api_key=key, max_retries=0))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def test_openais_client_runs_a_batch(make_node, absorbed, client_of, openai, tmp_path):
    with make_node(dict(absorbed, router=batch_router(tmp_path / "batches"))) as node:
        client = client_of(node)
        good = {"prompt": [30, 40], "max_tokens": 2, "temperature": 0}
        batch = start(client, line("good", good) + line("bad", good | {"top_p": 9}), metadata={"for": "a test"})
        assert batch.object == "batch" and batch.metadata == {"for": "a test"} and batch.endpoint == "/v1/completions"
        ended = wait_for_end(client, batch)
        assert ended.status == "completed" and ended.completed_at >= ended.in_progress_at >= ended.created_at
        counts = ended.request_counts
        assert (counts.total, counts.completed, counts.failed) == (2, 1, 1)
        assert results(client, ended.output_file_id)["good"]["response"]["body"]["usage"]["completion_tokens"] == 2
        assert results(client, ended.error_file_id)["bad"]["response"]["body"]["error"]["param"] == "top_p"
        output = client.files.retrieve(ended.output_file_id)
        assert output.purpose == "batch_output" and output.bytes == len(client.files.content(output.id).content)
        wrong = wait_for_end(client, start(client, line("a", {}) + line("a", {})))
        assert wrong.status == "failed" and wrong.errors.data[0].line == 2
        assert wrong.errors.data[0].code == "duplicate_custom_id"
        assert [each.id for each in client.batches.list(limit=1)] == [wrong.id, batch.id]  # the client turns the pages
        assert {each.purpose for each in client.files.list()} == {"batch", "batch_output"}
        assert client.files.delete(output.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.files.content(output.id)
        for refused in (lambda: client.files.create(file=b"x", purpose="fine-tune"),
                        lambda: client.batches.create(input_file_id="file-1", endpoint="/v1/embeddings",
                                                      completion_window="24h")):
            with pytest.raises(openai.BadRequestError):
                refused()


def test_a_batch_survives_the_router_and_can_be_cancelled(make_node, absorbed, client_of, tmp_path):
    """Slow: decode generates more than 6,400 tokens, and the router starts again twice."""
    with make_node(dict(absorbed, router=batch_router(tmp_path / "batches"))) as node:
        client = client_of(node)
        calm = wait_for_end(client, start(client, requests(20)))
        expected = results(client, calm.output_file_id)
        batch = start(client, requests(20))
        for _ in range(2):
            before = client.batches.retrieve(batch.id).request_counts.completed
            wait_until(lambda: client.batches.retrieve(batch.id).request_counts.completed > before, 60, "a line is done")
            assert client.batches.retrieve(batch.id).status == "in_progress", "it has too little to do"
            node.kill("router")
            node.start("router")
            node.wait_serving()
        ended = wait_for_end(client, batch)
        got = results(client, ended.output_file_id)
        assert list(got) == list(expected) and ended.request_counts.completed == 20
        for name, each in got.items():
            assert each["response"]["body"]["choices"] == expected[name]["response"]["body"]["choices"]
        long = start(client, requests(COUNT))
        waits = start(client, requests(1))
        wait_until(lambda: client.batches.retrieve(long.id).request_counts.completed > 0, 60, "a line is done")
        assert client.batches.cancel(waits.id).status == "cancelled"
        assert client.batches.cancel(long.id).status == "cancelling"
        cancelled = wait_for_end(client, long)
        assert cancelled.status == "cancelled" and 0 < cancelled.request_counts.completed < COUNT
        assert len(results(client, cancelled.output_file_id)) == cancelled.request_counts.completed
        assert node.metric("router", "moestro_batches_total") == 3  # since the router began
        node.wait_all_pages_free()


def test_a_request_that_kills_the_router_fails_and_the_others_do_not(make_node, absorbed, client_of, tmp_path):
    with make_node(dict(absorbed, router=batch_router(tmp_path / "batches"))) as node:
        client = client_of(node)
        lines = requests(6, tokens=2).splitlines(keepends=True)
        pill = line("pill", {"prompt": [20, 30], "max_tokens": 4000, "ignore_eos": True})
        batch = start(client, "".join([*lines[:2], pill, *lines[2:]]))
        journal = tmp_path / "batches/batches" / f"{batch.id}.journal"

        def is_under_way(word):
            """Not only tried: a router that has just begun has no answer yet, and the request is tried again."""
            runs = node.metric("router", "moestro_requests_running") > 0
            marks = [text.split()[2] for text in journal.read_text().splitlines()[1:] if text.split()[1] == "2"]
            return runs and marks[-1:] == [word]

        # The router dies whenever the pill is under way: first beside others, then alone.
        for word in ("begun", "begun-alone", "begun-alone"):
            wait_until(lambda: journal.exists() and is_under_way(word), 60, f"the pill is under way: {word}")
            node.kill("router")
            node.start("router")
            node.wait_serving()
        ended = wait_for_end(client, batch)
        assert ended.status == "completed"
        assert (ended.request_counts.completed, ended.request_counts.failed) == (6, 1)
        failed = results(client, ended.error_file_id)
        assert list(failed) == ["pill"] and failed["pill"]["response"]["body"]["error"]["code"] == "process_ended"
        assert not journal.exists()
        node.wait_all_pages_free()


def test_a_key_sees_its_own_batches_only(make_node, absorbed, client_of, openai, cli, tmp_path):
    keys = tmp_path / "keys.toml"
    alice, bob = (cli("keys", "add", "--file", keys, "--name", name).stdout.strip() for name in ("alice", "bob"))
    with make_node(dict(absorbed, router=batch_router(tmp_path / "batches", "--keys-file", str(keys)))) as node:
        hers, his = client_of(node, alice), client_of(node, bob)
        batch = wait_for_end(hers, start(hers, requests(2, tokens=2)))
        assert batch.status == "completed"
        assert not list(his.batches.list()) and not list(his.files.list())
        for call in (lambda: his.batches.retrieve(batch.id), lambda: his.batches.cancel(batch.id),
                     lambda: his.files.content(batch.output_file_id), lambda: his.files.delete(batch.input_file_id)):
            with pytest.raises(openai.NotFoundError):
                call()
        with pytest.raises(openai.AuthenticationError):
            client_of(node).files.list()


def test_without_a_folder_the_answer_names_the_flag(node, client_of, openai):
    for call in (lambda client: upload(client, "x"), lambda client: client.batches.list(),
                 lambda client: client.batches.retrieve("batch_1")):
        with pytest.raises(openai.NotFoundError, match="--batch-dir"):
            call(client_of(node))
