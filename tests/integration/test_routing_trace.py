"""decode --routing-trace records what moestro routing reads."""

import json

from node import HANG_SECONDS


def test_every_token_that_decode_computes_is_recorded(make_node, cli, tmp_path):
    path = tmp_path / "trace"
    with make_node({"decode": ["--routing-trace", str(path)]}) as node:
        fingerprint = json.loads(cli("model", "--server", f"127.0.0.1:{node.grpc_port}", "--json").stdout)
        list(node.stub.Generate(node.request([20, 21, 22, 23, 24], 8, temperature=0.0, ignore_eos=True), timeout=HANG_SECONDS))
    summary = json.loads(cli("routing", path, "--json").stdout)
    assert summary["prompt_tokens"] == 5
    assert summary["generated_tokens"] == 7, "the last one is not computed"
    assert summary["passes"] >= 8
    assert summary["fingerprint"] == fingerprint["fingerprint"]
    assert summary["scores_per_token"] > 0
    assert 0 < summary["foreseen_1_layers_before"] < 1


def test_a_device_records_what_the_cpu_records(make_node, tmp_path):
    traces = []
    for device in ("none", "host"):
        path = tmp_path / device
        with make_node({"decode": ["--routing-trace", str(path), "--device", device]}) as node:
            node.generate([20, 21, 22, 23, 24], 8, ignore_eos=True)
        traces.append(path.read_bytes())
    assert traces[0] == traces[1]


def test_a_path_that_cannot_be_written_is_an_error_of_the_start(make_node, tmp_path):
    node = make_node({"decode": ["--routing-trace", str(tmp_path / "none" / "trace")]})
    try:
        for role in ("weight_store", "decode"):
            node.start(role)
        assert node.processes["decode"].wait(timeout=60) == 2
        assert "none/trace: cannot be written" in node.log("decode")
    finally:
        node.stop()
