"""moestro config: every flag of every role, its value in effect, and where that comes from."""

import json
import re
import subprocess

import grpc
import pytest

from node import ROLES

NOT_SETTINGS = {"help", "version"}


@pytest.fixture(scope="module")
def settings(node, cli):
    told = cli("config", "--run-dir", node.run_dir, "--json")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def flags_of(bin_dir, role):
    text = subprocess.run([f"{bin_dir}/moestro-{role.replace('_', '-')}", "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"^ +(?:-h,)?--([a-z0-9-]+)", text, re.M)) - NOT_SETTINGS


@pytest.mark.smoke
@pytest.mark.parametrize("role", ROLES)
def test_every_flag_has_a_value_and_an_origin(settings, bin_dir, role):
    told = settings[role]
    assert {setting["name"] for setting in told} == flags_of(bin_dir, role)
    assert len({setting["name"] for setting in told}) == len(told)
    without = [setting["name"] for setting in told if not setting["detail"]]
    assert not without, "say why beside the flag: Flag::Because"
    assert {setting["origin"] for setting in told} <= {"set", "measured", "derived", "constant"}


def test_what_is_set_says_where(settings, node):
    run_dir = next(setting for setting in settings["decode"] if setting["name"] == "run-dir")
    assert (run_dir["value"], run_dir["origin"], run_dir["detail"]) == (str(node.run_dir), "set", "command line")


def test_text_is_a_line_for_each_setting(settings, node, cli):
    told = cli("config", "--run-dir", node.run_dir, "--role", "decode")
    lines = told.stdout.splitlines()
    assert told.returncode == 0 and lines[0] == "[decode]"
    assert [line.split()[0] for line in lines[1:]] == [setting["name"] for setting in settings["decode"]]


def test_a_node_that_is_not_there_is_an_error(cli, tmp_path):
    told = cli("config", "--run-dir", tmp_path, check=False)
    assert told.returncode == 3 and "router.sock" in told.stderr and "deploy/status" in told.stderr


def test_others_are_not_told(node):
    """They name files, and every user of the machine can reach the address."""
    with grpc.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
        call = channel.unary_unary("/moestro.v1.SettingsService/ListSettings", lambda message: message, lambda reply: reply)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=10)
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
