"""Libraries and programs that people use, as they come from PyPI, against a node that serves the demo model. Each session is
a program of its own (clients/with_*.py): their libraries do not fit together. Coding agents run with the settings that
deploy/examples shows."""

import json
import os
import re
import shutil
import subprocess

import pypi
import pytest
from node import HANG_SECONDS, Node, free_port

CONTEXT = 8192  # Claude Code's request for a summary alone has 4,700 tokens of the demo's tokenizer
# It shows the names of tools only, and no system prompt, as the demo's own: so prompts of agents have some 500 tokens. The
# mark is that of a syntax of calls, in which forced calls are written.
TEMPLATE = """{#- <｜tool▁call▁begin｜> -#}
{%- for tool in tools or [] -%}{{- tool.function.name + ' ' -}}{%- endfor -%}
{%- for message in messages -%}
{%- for call in message.tool_calls or [] -%}{{- call.function.name + (call.function.arguments | tojson) -}}{%- endfor -%}
{%- if message.role == 'tool' -%}{{- message.content -}}{%- endif -%}
{%- endfor -%}"""
LINE_END = 203  # the token; an answer ends with its line, or the demo would write more until its context is full


@pytest.fixture(scope="module")
def model(repo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "demo"
    shutil.copytree(repo / "deploy/models/demo", folder, ignore=shutil.ignore_patterns("retrained"))

    def edit(name, **fields):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    demos = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    edit("tokenizer_config.json", chat_template=TEMPLATE + demos)
    edit("config.json", max_position_embeddings=CONTEXT)
    edit("generation_config.json", eos_token_id=[1, LINE_END])
    return folder


@pytest.fixture(scope="module")
def node(api, bin_dir, model):
    with Node(api, bin_dir, model) as running:
        yield running


@pytest.fixture
def environment(node, model, tmp_path):
    """Of a program: nothing of this machine's settings, and nothing to ask on the internet."""
    return pypi.OFFLINE | {
        "PATH": os.defpath, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8",
        "MOESTRO_URL": f"http://127.0.0.1:{node.http_port}", "MOESTRO_MODEL": model.name, "MOESTRO_PORT": str(free_port()),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}


def run(command, environment, folder, **options):
    """What the program writes to its standard output."""
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS,
                          stdin=subprocess.DEVNULL, **options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("group, session", [
    ("libraries", "openai"), ("libraries", "anthropic"), ("libraries", "litellm"), ("libraries", "litellm_proxy"),
    ("libraries", "langchain"), ("libraries", "pydantic_ai"), ("libraries", "outlines"), ("libraries", "guidance"),
    ("libraries", "ollama"), ("instructor", "instructor"), ("agents", "agent_sdk")])
def test_session(group, session, environment, repo, tmp_path):
    """Slow: the first of each group installs it. Most of these libraries take seconds to load."""
    run([pypi.python(group), repo / f"tests/integration/clients/with_{session}.py"], environment, tmp_path)


# Coding agents --------------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(repo, environment):
    """The settings that the page shows for a program, for this node."""
    page = (repo / "deploy/examples/README.md").read_text()

    def find(program):
        block = re.search(rf"^### {program}\n.*?^```\w+\n(.*?)^```", page, re.M | re.S)[1]
        assert "http://127.0.0.1:8080" in block
        return block.replace("http://127.0.0.1:8080", environment["MOESTRO_URL"]).replace(
            "NAME", environment["MOESTRO_MODEL"])

    return find


@pytest.fixture
def packages():
    return next((pypi.python("agents").parents[1]).glob("lib/python*/site-packages"))


@pytest.fixture
def claude(packages, settings, environment, tmp_path):
    environment["PATH"] = f"{packages / 'claude_agent_sdk/_bundled'}:{environment['PATH']}"
    script = settings("Claude Code").rstrip() + ' "$@"'

    def ask(prompt, *flags):
        """The messages of one run."""
        said = run(["sh", "-c", script, "sh", "-p", prompt, "--output-format", "stream-json", "--verbose", *flags],
                   environment, tmp_path)
        messages = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        assert messages[-1]["type"] == "result" and not messages[-1]["is_error"], messages[-1]
        return messages

    return ask


def test_claude_code_answers(claude):
    assert claude("Sort [5, 2, 9].")[-1]["num_turns"] == 1


def test_claude_code_goes_on_when_its_conversation_outgrows_the_context(claude, node):
    """Slow: five prompts of thousands of tokens."""
    prompt = "1 + 2 + " * 600  # 2,400 tokens
    kinds = [[message.get("subtype") for message in claude(prompt, *flags)] for flags in [[], *[["--continue"]] * 3]]
    compacted = ["compact_boundary" in each for each in kinds]
    assert compacted == [False, False, False, True], kinds


@pytest.fixture
def codex(packages, settings, environment, tmp_path):
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text(settings("Codex"))
    program = packages / "codex_cli_bin/bin/codex"
    quiet = ["-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false"]

    def ask(*arguments):
        """The items of one run."""
        said = run([program, *quiet, "exec", "--json", "--skip-git-repo-check", *arguments], environment, tmp_path)
        events = [json.loads(line) for line in said.splitlines()]
        assert events[-1]["type"] == "turn.completed", events
        return [event["item"] for event in events if event["type"] == "item.completed"]

    return ask


def test_codex_answers_and_goes_on(codex, tmp_path):
    for arguments in (["Sort [5, 2, 9]."], ["resume", "--last", "Now reverse it."]):
        assert codex(*arguments)[-1]["type"] == "agent_message"
    schema = {"type": "object", "properties": {"to": {"enum": ["left", "right"]}}, "required": ["to"],
              "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    answer = codex("--output-schema", "schema.json", "Sort [5, 2, 9].")[-1]
    assert json.loads(answer["text"])["to"] in ("left", "right")
