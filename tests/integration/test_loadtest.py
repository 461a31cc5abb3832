"""The load generator against a running node."""

import json
import os
import signal
import subprocess
import time

import pytest


@pytest.fixture
def loadtest(bin_dir, node):
    def run(workload, *arguments, check=True):
        command = [os.path.join(bin_dir, "moestro-loadtest"), workload, "--server", f"127.0.0.1:{node.grpc_port}",
                   "--json", "-", *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert not check or result.returncode == 0, f"{workload}: {result.returncode}\n{result.stdout}\n{result.stderr}"
        return json.loads(result.stdout) if result.returncode == 0 else result
    return run


def test_poisson_reports_every_request_and_the_metrics(loadtest, node, tmp_path):
    metrics = [f"127.0.0.1:{node.metrics_port[role]}" for role in ("router", "decode")]
    report = loadtest("poisson", "--rate", 10, "--duration", 2, "--prompt-tokens", "5-60", "--output-tokens", "2-12",
                      "--out", tmp_path, "--requests", "--metrics", metrics[0], "--metrics", metrics[1],
                      "--metrics-interval", 0.2)
    everything = report["all"]
    assert everything["completed"] == everything["requests"] == len(report["requests"]) > 5
    assert everything["failed"] == 0 and everything["goodput"] > 0
    assert everything["ttft_seconds"]["count"] == everything["completed"]
    assert 0 < everything["ttft_seconds"]["p50"] <= everything["e2e_seconds"]["p99"]
    assert everything["output_tokens"] == sum(request["output_tokens"] for request in report["requests"])
    values = {(m["metric"], m["endpoint"]): m for m in report["metrics"]}
    assert values["moestro_kv_leases", metrics[1]]["last"] == 0
    assert values["moestro_process_private_bytes", metrics[1]]["max"] > 0
    assert values["moestro_requests_total", metrics[0]]["last"] > values["moestro_requests_total", metrics[0]]["first"]
    page = (tmp_path / "poisson.html").read_text()
    assert page.count("<svg") >= 6 and "http" not in page.replace("http://www.w3.org", "")
    assert "moestro-loadtest poisson" in (tmp_path / "poisson.md").read_text()
    assert json.loads((tmp_path / "poisson.json").read_text()) == report


def test_verify_finds_the_same_tokens_alone(loadtest):
    report = loadtest("verify", "--count", 24, "--concurrency", 8, "--prompt-tokens", "1-300", "--output-tokens",
                      "1-30")
    verdict = report["verify"]
    assert verdict["mismatches"] == 0 and verdict["failed"] == 0 and verdict["not_compared"] == 0
    assert verdict["compared"] > 10 and verdict["prefixes_compared"] + verdict["compared"] <= 24
    assert 0 < verdict["longest_wait_seconds"] < 60
    assert {"greedy", "sampled", "cancelled"} == {group["name"] for group in report["groups"]}


def test_paper_loads_side_by_side(loadtest, node):
    report = loadtest("paper", "--rounds", 2, "--prefill-tokens", 300, "--decode-tokens", 24, "--pause", 0,
                      "--compare-server", f"localhost:{node.grpc_port}", "--name", "one", "--compare-name", "two")
    results = {(r["server"], r["load"]): r for r in report["paper"]}
    assert set(results) == {(s, l) for s in ("one", "two") for l in ("1P", "1D", "1P+1D", "2D", "1P+2D")}
    for (_, load), result in results.items():
        assert result["rounds"] == 2
        assert (result["ttft_seconds"] is not None) == ("P" in load)
        assert (result["tpot_seconds"] is not None) == ("D" in load)
    assert results["one", "1P"]["ttft_seconds"]["ratio"] == 1 and results["two", "1D"]["tpot_seconds"]["ratio"] == 1
    assert results["one", "2D"]["decode_ttft_seconds"]["median"] > 0
    assert sum("1P+1D / 1D" in finding for finding in report["findings"]) == 2


def test_chat_replay_and_ramp(loadtest, repo):
    chat = loadtest("chat", "--users", 2, "--turns", 3, "--system-tokens", 40, "--message-tokens", 10,
                    "--answer-tokens", 6)
    assert [turn["prompt_tokens"] for turn in chat["turns"]] == [50, 66, 82]
    replay = loadtest("replay", "--trace", repo / "loadtest/traces/example.jsonl", "--speed", 10)
    assert replay["all"]["completed"] == 6
    ramp = loadtest("ramp", "--from", 1, "--to", 2, "--step-seconds", 0.5, "--prompt-tokens", 8, "--output-tokens", 4)
    assert [step["level"] for step in ramp["steps"]] == [1, 2] and ramp["knee"] in (1, None)


def test_interrupt_reports_what_was_measured(bin_dir, node):
    process = subprocess.Popen(
        [os.path.join(bin_dir, "moestro-loadtest"), "--server", f"127.0.0.1:{node.grpc_port}", "--json", "-", "poisson",
         "--rate", "5", "--duration", "600", "--prompt-tokens", "8", "--output-tokens", "4"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    report = json.loads(output)
    assert report["interrupted"] and report["all"]["completed"] > 0


def test_errors_say_what_to_do(bin_dir, loadtest, tmp_path):
    binary = os.path.join(bin_dir, "moestro-loadtest")
    nobody = subprocess.run([binary, "--server", "127.0.0.1:1", "poisson"], capture_output=True, text=True, timeout=60)
    assert nobody.returncode == 3 and "cannot reach 127.0.0.1:1" in nobody.stderr
    trace = tmp_path / "bad.jsonl"
    trace.write_text('{"arrival": 0, "prompt_tokens": 5, "output_tokens": 5}\n{"arrival": 1}\n')
    bad = loadtest("replay", "--trace", trace, check=False)
    assert bad.returncode == 2 and "line 2" in bad.stderr
    bad = loadtest("replay", "--trace", tmp_path, check=False)
    assert bad.returncode == 2 and f"--trace: {tmp_path}: cannot be read: Is a directory" in bad.stderr
    bad = loadtest("poisson", "--prompt-tokens", "many", check=False)
    assert bad.returncode == 2 and "--prompt-tokens" in bad.stderr
    bad = loadtest("paper", "--prefill-tokens", 1000000, check=False)
    assert bad.returncode == 2 and "context" in bad.stderr
    bad = loadtest("poisson", "--metrics", "127.0.0.1:1", "--duration", 1, check=False)
    assert bad.returncode == 3 and "--metrics" in bad.stderr
    long = tmp_path / "long.txt"
    long.write_text("to be or not to be " * 100000 + "\n")
    refused = loadtest("poisson", "--prompt-file", long, "--duration", 1, check=False)
    assert refused.returncode == 1 and "no request completed" in refused.stderr, refused.stderr
