"""A bench's results become rates beside the estimates, and what a simulation takes."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HARDWARE = HERE.parents[2] / "deploy/hardware/h200.json"
BENCH = HERE.parent / "gpu/bench.cc"
# Of an H200: 989 and 1979 TFLOP/s, 4.8 TB/s. Products of many rows reach half of the former and a quarter of the other.
MANY = [("o F8_E4M3", "7168 x 16384 x 4096", 989e12 / 2), ("o F8_E4M3", "7168 x 16384 x 128", 989e12 / 9),
        ("grouped gate and up F8_E4M3, 16 experts", "4096 x 7168 x 512", 989e12 / 1.5),
        ("o F8_E4M3, inputs in FP8", "7168 x 16384 x 4096", 1979e12),
        ("grouped gate and up F8_E4M3, 16 experts, inputs in FP8", "4096 x 7168 x 512", 1979e12 / 4),
        ("attention, un-absorbed MLA", "16 x 16384", 0.7 * 989e12)]
FEW = [("kv_a F8_E4M3", "576 x 7168 x 1"), ("q_a F8_E4M3", "1536 x 7168 x 1"), ("q_b F8_E4M3", "24576 x 1536 x 1"),
       ("products of single heads F8_E4M3", "128 x 512 x 128 x 1"),
       ("products of single heads F8_E4M3", "128 x 128 x 512 x 1"), ("o F8_E4M3", "7168 x 16384 x 1"),
       ("router logits", "1 x 256 x 7168"), ("gate and up F8_E4M3", "4096 x 7168 x 1"),
       ("shared down F8_E4M3", "7168 x 2048 x 1")]
LAYER_BYTES = (576 + 1536) * 7168 + 24576 * 1536 + 2 * 128 * 512 * 128 + 7168 * 16384 + 256 * 7168 * 4 + 3 * 7168 * 2048


def results(folder, few=tuple(FEW), gpu="NVIDIA H200"):
    rows = [{"kernel": name, "shape": shape, "seconds": 1.0, "flops": rate} for name, shape, rate in MANY]
    rows += [{"kernel": name, "shape": shape, "seconds": 10e-6, "flops": 0} for name, shape in few]
    rows.append({"kernel": "decode attention, absorbed MLA", "shape": "128 x 1 x 32768", "seconds": 20e-6,
                 "flops": 2 * 128 * 32768 * (576 + 512)})
    file = folder / "results.json"
    file.write_text(json.dumps({"bench": {"gpu": gpu, "kernels": rows}}))
    return file


def measured(file, *flags):
    return subprocess.run([HERE / "measured", file, *flags], capture_output=True, text=True, timeout=60)


@pytest.fixture
def estimates(tmp_path):
    rates = {"origin": "estimated", "fp8_flops_per_second": 1979e12, "fp8_linear_fraction": 0.465,
             "bf16_linear_fraction": 0.5, "attention_fraction": 0.8, "decode_memory_fraction": 0.5,
             "decode_attention_fraction": 0.4}
    file = tmp_path / "kernels.json"
    file.write_text(json.dumps({"sm_90a": {"rates": rates, "readings": [{"kernel": "q_b", "microseconds": 16.0}],
                                           "attentions": []}}))
    return file


def test_rates_stand_beside_their_estimates(tmp_path, estimates):
    done = measured(results(tmp_path), "--estimates", estimates)
    assert done.returncode == 0, done.stderr
    rows = dict(re.findall(r"^\| (.+?) \| (.*) \|$", done.stdout, re.M))
    assert rows["`fp8_linear_fraction`"] == "0.233 | 0.465 | -49.9 %"  # 0.93 / 4: tiles of experts are not full
    assert rows["`bf16_linear_fraction`"] == "0.465 | 0.500 | -7.0 %"  # the slower of both, where it is best
    assert rows["`attention_fraction`"] == "0.700 | 0.800 | -12.5 %"
    share = LAYER_BYTES / 4.8e12 / (9 * 10e-6)
    assert rows["`decode_memory_fraction`"].startswith(f"{share:.3f} | 0.500")
    assert rows["`decode_attention_fraction`"].startswith(f"{9126805504 / 989e12 / 20e-6:.3f} | 0.400")
    assert rows["q_b"] == "10.0 | 16.0 | -37.5 %"


def test_a_bench_that_ended_early_gives_what_it_has(tmp_path, estimates):
    done = measured(results(tmp_path, FEW[:-1]), "--estimates", estimates)
    assert done.returncode == 0, done.stderr
    assert "attention_fraction" in done.stdout and "decode_memory_fraction" not in done.stdout


def test_rates_are_written_into_the_machines_file(tmp_path):
    shutil.copy(HARDWARE, tmp_path / "h200.json")
    for _ in range(2):  # the second time in place of the first
        done = measured(results(tmp_path), "--write", "--hardware", tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(re.findall(r"^\| .* %", done.stdout, re.M)) == 5 + 9  # rates, and times but of 1024 tokens
    before, after = json.loads(HARDWARE.read_text()), json.loads((tmp_path / "h200.json").read_text())
    assert after.pop("measured")["attention_fraction"] == 0.7
    before.pop("measured", None)
    assert after == before
    assert (tmp_path / "h200.json").read_text().count('"measured"') == 1


def test_other_gpus_and_other_files_are_refused(tmp_path, estimates):
    done = measured(results(tmp_path, gpu="NVIDIA H20"), "--estimates", estimates)
    assert done.returncode == 1 and "there are no estimates for it" in done.stderr
    (tmp_path / "results.json").write_text("{}")
    assert "there is no bench" in measured(tmp_path / "results.json").stderr


def test_the_bench_has_these_kernels():
    """Under the names that are looked up."""
    source = BENCH.read_text()
    for name, *_ in MANY + FEW:
        stem = name.removesuffix(", inputs in FP8").removesuffix(", 16 experts").removesuffix(" F8_E4M3")
        assert f'"{stem}' in source, name
