"""Shell scripts and the Dockerfile, by the linters of their kind."""

import os
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FOLDERS = (".ci", "deploy", "docker", "loadtest", "tests")


def shell_scripts():
    for folder in FOLDERS:
        for path in sorted((REPO / folder).rglob("*")):
            first = path.read_bytes()[:30].splitlines()[:1] if path.is_file() else []
            if path.suffix == ".sh" or first in ([b"#!/usr/bin/env bash"], [b"#!/bin/sh"], [b"#!/bin/bash"]):
                yield path


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, cwd=REPO)
    assert result.returncode == 0, result.stdout + result.stderr


def test_shell_scripts():
    scripts = list(shell_scripts())
    assert {"run", "up", "supervise", "install-deps", "lib.sh"} <= {script.name for script in scripts}
    run("shellcheck", "--external-sources", "--source-path=SCRIPTDIR", *scripts)


def test_dockerfile(checkers):
    hadolint = checkers / "bin/hadolint"
    os.chmod(hadolint, 0o755)
    run(hadolint, "docker/Dockerfile")
