"""`moestro batch` against real processes, which are killed under it."""

import json
import os
import signal
import subprocess

import pytest
from node import ROLES, free_port, wait_until

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
    text = line("good", good) + line("bad", good | {"top_p": 9}) + line("model", good | {"model": "none"})
    one = batch(text)
    assert "2 of 3 lines failed; each says why in " + str(one.output) in one.run(1)
    lines = {each["custom_id"]: each for each in one.lines()}
    assert list(lines) == ["good", "bad", "model"]
    assert lines["good"]["response"]["request_id"] == lines["good"]["response"]["body"]["id"]
    assert lines["bad"]["response"]["status_code"] == 400
    assert lines["bad"]["response"]["body"]["error"]["param"] == "top_p"
    assert lines["model"]["response"]["status_code"] == 404
    one.output.unlink()
    errors = one.output.with_name("errors.jsonl")
    apart = batch(text, "--errors", str(errors))
    apart.run(1)
    assert [each["custom_id"] for each in apart.lines()] == ["good"]
    assert [json.loads(each)["custom_id"] for each in errors.read_text().splitlines()] == ["bad", "model"]


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
