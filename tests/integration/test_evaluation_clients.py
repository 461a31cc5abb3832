"""lm-evaluation-harness and guidellm, as they come from PyPI, against a node that serves the demo model."""

import json
import os
import subprocess

import pypi
import pytest
from node import Node

QUESTIONS = 60

# The names of the files' fields. A likelihood is that of an answer behind its question, as `echo` and `logprobs` give it.
TASK = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{prompt}}}}"
target_delimiter: ""
"""
CHOICE = """
task: moestro_choice
output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: right
metric_list: [{metric: acc}]
"""
GENERATION = """
task: moestro_generation
output_type: generate_until
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n>>>"], max_gen_toks: 48, do_sample: false}
metric_list: [{metric: exact_match}]
filter_list: [{name: strip, filter: [{function: remove_whitespace}, {function: take_first}]}]
"""


@pytest.fixture(scope="module")
def python():
    return pypi.python("evaluation")


@pytest.fixture(scope="module")
def node(api, bin_dir, repo):
    with Node(api, bin_dir, repo / "deploy/models/demo") as running:
        yield running


def run(tmp_path, *command):
    """Runs a program without the hub of models."""
    environment = os.environ | pypi.OFFLINE | {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1",
                                               "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=tmp_path, env=environment)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_lm_eval(node, python, repo, tmp_path):
    model = repo / "deploy/models/demo"
    lines = [json.loads(line) for line in (model / "questions.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["task"] == "add"][:QUESTIONS]
    assert len(lines) == QUESTIONS
    with open(tmp_path / "data.jsonl", "w") as data:
        for line, other in zip(lines, lines[1:] + lines[:1]):
            wrong = other["answer"] if other["answer"] != line["answer"] else line["answer"] + "0"
            # With its line's end: the beginning of the right number is at least as likely as all of it.
            choices = [wrong + "\n", line["answer"] + "\n"]
            print(json.dumps(line | {"choices": choices, "right": 1}), file=data)
    for name, text in (("choice", CHOICE), ("generation", GENERATION)):
        (tmp_path / f"{name}.yaml").write_text(text + TASK.format(data=tmp_path / "data.jsonl"))
    run(tmp_path, python, "-m", "lm_eval", "--model", "local-completions", "--include_path", tmp_path, "--tasks",
        "moestro_choice,moestro_generation", "--output_path", tmp_path / "out", "--model_args",
        f"model={node.stub.GetModel(node.api.inference.GetModelRequest()).name},tokenizer={model},num_concurrent=4,"
        "max_retries=1,tokenized_requests=False,tokenizer_backend=huggingface,"
        f"base_url=http://127.0.0.1:{node.http_port}/v1/completions")
    results = json.loads(next((tmp_path / "out").rglob("results_*.json")).read_text())["results"]
    assert results["moestro_choice"]["acc,none"] >= 0.95
    assert results["moestro_generation"]["exact_match,strip"] >= 0.95


def test_guidellm(node, python, repo, tmp_path):
    run(tmp_path, python, repo / "tests/integration/clients/guidellm_command.py", "run", "--backend",
        f"kind=openai_http,target=http://127.0.0.1:{node.http_port}",
        "--profile", "kind=concurrent,streams=4", "--constraint", "kind=max_requests,count=40", "--tokenizer",
        f"kind=hf_auto,model={repo / 'deploy/models/demo'}", "--data",
        "kind=synthetic_text,prompt_tokens=128,output_tokens=32", "--output", f"kind=json,path={tmp_path / 'report.json'}")
    report = json.loads((tmp_path / "report.json").read_text())
    totals = report["benchmarks"][0]["metrics"]["request_totals"]
    assert totals["successful"] == 40 and totals["errored"] == 0, totals
