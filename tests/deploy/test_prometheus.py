"""Prometheus' configuration and rules: valid, and every alert and alias has a unit test."""

import subprocess
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]
PROMETHEUS = REPO / "deploy/prometheus"
TESTS = Path(__file__).parent / "prometheus"
RULES = [rule for file in sorted((PROMETHEUS / "rules").glob("*.yml"))
         for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def promtool():
    path = subprocess.run([TESTS / "tool", "promtool"], capture_output=True, text=True)
    assert path.returncode == 0, path.stderr
    return path.stdout.strip()


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_configuration_and_rules_are_valid(promtool):
    run(promtool, "check", "config", PROMETHEUS / "prometheus.yml")


@pytest.mark.parametrize("file", sorted(TESTS.glob("*_test.yml")), ids=lambda path: path.stem)
def test_rules_do_what_their_tests_say(promtool, file):
    run(promtool, "test", "rules", file)


def test_every_rule_has_a_test():
    fired, queried = set(), ""
    for file in TESTS.glob("*_test.yml"):
        for group in yaml.safe_load(file.read_text())["tests"]:
            fired |= {test["alertname"] for test in group.get("alert_rule_test", ()) if test.get("exp_alerts")}
            queried += "".join(test["expr"] + "\n" for test in group.get("promql_expr_test", ()))
    assert {rule["alert"] for rule in RULES if "alert" in rule} == fired
    assert [] == [rule["record"] for rule in RULES if "record" in rule and rule["record"] not in queried]


def test_every_alert_says_how_bad_it_is_and_what_to_do():
    for rule in RULES:
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert set(rule["annotations"]) == {"summary", "runbook"}
