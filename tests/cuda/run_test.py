"""tests/cuda/run and tests/cuda/pack with programs that stand for those of a build with CUDA."""

import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "run"
PACK = Path(__file__).parent / "pack"
CHECKS = ("cuda_check", "cuda_stream_check", "cuda_ranks_check", "cuda_decode_check")
# What GoogleTest prints, for tests 1 to 7 that its filter has: some, or all, but those behind the dash.
CHECK = """#!/bin/sh
for flag; do
  case $flag in
    --gtest_output=json:*) json=${flag#*json:} ;;
    --gtest_filter=*) of=${flag#*=}; in=:${of%%-*}:; out=:${of#*-}: ;;
  esac
done
for test in 1 2 3 4 5 6 7; do
  case $in in ':*:' | ':Ptx'* | *Every* | *Takes* | *TheSame* | *:T.$test:*) ;; *) continue ;; esac
  case $out in *:T.$test:*) continue ;; esac
  echo "[ RUN      ] T.$test"
  result='      OK'
  TEST
  echo "[ $result ] T.$test (0 ms)"
done
echo '{"tests": 7, "bits": "BITS"}' >"$json"
"""
BENCH = """#!/bin/sh
[ "$1" = --gpu ] && { echo 'cuda:0 (a model)'; exit; }
echo "timings of NAME" >"$2/FILE.md"
echo '{"seconds": 1}' >"$2/FILE.json"
"""
BENCHES = {"cuda_pin_probe": "pin", "cuda_bench": "bench", "cuda_stream_bench": "stream", "cuda_decode_bench": "decode"}
WRITES = """#!/bin/sh
echo '{text}' >"$2/{file}.json"
"""
NO_GPU = "#!/bin/sh\necho 'cuda:0: no CUDA-capable device' >&2\nexit 1\n"
FAILS = "#!/bin/sh\n[ \"$1\" = --gpu ] && exit\necho 'a kernel | was lost' >&2\nexit 1\n"
HANGS = "#!/bin/sh\nexec sleep 600\n"


def check(of_a_test=":", bits="same"):
    return CHECK.replace("TEST", of_a_test).replace("BITS", bits)


@pytest.fixture
def programs(tmp_path):
    """Writes them; keyword arguments replace some."""
    folder = tmp_path / "gpu"
    folder.mkdir()

    def write(**replaced):
        texts = dict.fromkeys(CHECKS, check())
        texts |= {name: BENCH.replace("NAME", name).replace("FILE", file) for name, file in BENCHES.items()}
        for name, text in (texts | replaced).items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        return folder

    return write


@pytest.fixture
def command(tmp_path):
    def make(bin_dir, *flags):
        return {"args": [RUN, "--bin", bin_dir, "--out", tmp_path / "out", *flags],
                "env": {**os.environ, "PATH": "/usr/bin:/bin"}}  # no compute-sanitizer

    return make


@pytest.fixture
def run(programs, command):
    def call(*flags, **replaced):
        return subprocess.run(**command(programs(**replaced), *flags), capture_output=True, text=True, timeout=60)

    return call


def results(report):
    """{part: result} of the table."""
    return dict(re.findall(r"^\| (\w+) \| (.*) \| \d+ \|$", report, re.M))


SKIPS = check("[ $test != 2 ] || { printf 'peer_check.cc:9: Skipped\\ncuda:1: there are 1 GPUs\\n\\n'; result=' SKIPPED'; }")


def test_what_was_skipped_is_in_the_report_with_the_reason(run):
    done = run(cuda_ranks_check=SKIPS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert results(done.stdout)["ranks_check"] == "7 tests, 0 failures, 1 skipped (cuda:1: there are 1 GPUs)"


def test_a_fault_loses_one_test(run, tmp_path):
    faults = "case $test in 2 | 5) echo an illegal address >&2; exit 9 ;; 3) result=' FAILED ' ;; esac"
    done = run("--only", "check,ranks_check", cuda_check=check(faults))
    assert done.returncode == 1
    assert results(done.stdout) == {
        "check": "7 tests, 1 failures (T.3); lost T.2: failed (9): an illegal address; "
                 "lost T.5: failed (9): an illegal address; "
                 "with MOESTRO_PDL=off 0 of 3 pass; with MOESTRO_WGMMA=off 0 of 3 pass",
        "ranks_check": "7 tests, 0 failures"}
    with tarfile.open(tmp_path / "out/logs.tar.gz") as logs:  # which tests they were
        assert "[       OK ] T.7" in logs.extractfile("logs/check.log").read().decode()


def test_tests_that_fail_are_named(run):
    done = run("--only", "check", cuda_check=check("[ $test != 4 ] || result=' FAILED '").replace(
        '>"$json"', '>"$json"\nexit 1'))
    assert done.returncode == 1
    assert results(done.stdout) == {
        "check": "7 tests, 1 failures (T.4); with MOESTRO_PDL=off 0 of 1 pass; with MOESTRO_WGMMA=off 0 of 1 pass"}


def failing_unless(switch, test):
    return check(f"[ $test != {test} ] || [ \"${switch}\" = off ] || result=' FAILED '").replace(
        '>"$json"', '>"$json"\n[ "$result" != \' FAILED \' ] || exit 1')


def test_what_fails_runs_again_with_what_may_be_at_fault_switched_off(run):
    done = run("--only", "check,ranks_check", cuda_check=failing_unless("MOESTRO_PDL", 7),
               cuda_ranks_check=failing_unless("MOESTRO_WGMMA", 7))
    assert done.returncode == 1
    assert results(done.stdout) == {
        "check": "7 tests, 1 failures (T.7); with MOESTRO_PDL=off 1 of 1 pass",
        "ranks_check": "7 tests, 1 failures (T.7); with MOESTRO_PDL=off 0 of 1 pass; with MOESTRO_WGMMA=off 1 of 1 pass"}


def test_auto_goes_on_with_what_explains_a_failure_switched_off(run):
    switched = BENCH.replace("timings of NAME", "bench with MOESTRO_PDL=$MOESTRO_PDL").replace("FILE", "bench")
    done = run("--auto", cuda_check=failing_unless("MOESTRO_PDL", 7), cuda_bench=switched)
    assert done.returncode == 1
    assert "bench with MOESTRO_PDL=off" in done.stdout
    parts = results(done.stdout)
    assert parts["ptx"].endswith("with MOESTRO_PDL=off 1 of 1 pass; MOESTRO_PDL off from here on")
    assert parts["check"] == "7 tests, 0 failures"
    assert list(parts)[-1] == "profile"


@pytest.mark.parametrize("replaced, last", [
    ({}, "profile"), ({"moestro": "#!/bin/sh\nexit 1\n"}, "node"),
    ({"cuda_check": check("[ $test != 4 ] || exit 9")}, "sanitizer")])
def test_auto_chooses_the_last_part_by_the_results(run, replaced, last):
    assert list(results(run("--auto", **replaced).stdout))[-1] == last


def test_bits_that_depend_on_overlapping_launches_are_told(run):
    parts = results(run("--only", "short", cuda_decode_check=check(bits="'$MOESTRO_PDL'")).stdout)
    assert parts == {"short": "MOESTRO_PDL=off gives other bits"}


def test_a_short_run_says_with_which_launches_it_fails(run):
    fails = check("[ $MOESTRO_PDL != on ] || exit 9")
    parts = results(run("--only", "short", cuda_decode_check=fails).stdout)
    assert parts["short"].startswith("cuda_decode_check with MOESTRO_PDL=on: 7 tests, 0 failures; lost T.1: failed (9)")


# With a process of its own, which writes its id.
FORKS = """#!/bin/sh
sleep 600 &
echo $! >PID.new && mv PID.new PID
wait
"""


def has_ended(pid):
    """Also once it has, but nobody has asked for its status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_stopped_leaves_no_process(run, tmp_path):
    pid = tmp_path / "pid"
    assert run("--only", "decode_bench", "--budget", "6", cuda_decode_bench=FORKS.replace("PID", str(pid))).returncode == 1
    wait_until(lambda: has_ended(int(pid.read_text())))


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all(programs, command, tmp_path, number, status):
    pid = tmp_path / "pid"
    running = subprocess.Popen(**command(programs(cuda_bench=FORKS.replace("PID", str(pid))), "--only", "ptx,bench"), start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(pid.exists)
    running.send_signal(number)
    assert running.wait(timeout=60) == status
    wait_until(lambda: has_ended(int(pid.read_text())))
    assert "| ptx | 7 tests, 0 failures |" in (tmp_path / "out/report.md").read_text()  # the part that was done


def test_the_test_that_hangs_is_named(run):
    done = run("--only", "check", "--budget", "7", cuda_check=check("[ $test != 4 ] || exec sleep 600"))
    assert done.returncode == 1
    assert re.fullmatch(r"4 tests, 0 failures; lost T.4: stopped after \d s", results(done.stdout)["check"])


def test_the_report_has_every_part(run, tmp_path):
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cuda:0 (a model)" in done.stdout
    for name in BENCHES:
        assert f"timings of {name}" in done.stdout
    parts = results(done.stdout)
    assert parts["pin"] == parts["stream_bench"] == "done"
    assert parts["stream_check"] == "7 tests, 0 failures"
    assert list(parts) == ["ptx", "check", "short", "bench", "stream_bench", "decode_bench", "ceilings", "pin", "races",
                           "stream_check", "ranks_check", "decode_check"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["logs.tar.gz", "report.md", "results.json"]
    assert (tmp_path / "out/report.md").read_text() == done.stdout
    assert json.loads((tmp_path / "out/results.json").read_text())["decode"] == {"seconds": 1}
    with tarfile.open(tmp_path / "out/logs.tar.gz") as logs:
        assert "logs/check.log" in logs.getnames()


@pytest.mark.parametrize("switch", ["MOESTRO_PDL", "MOESTRO_WGMMA"])
def test_the_report_says_what_is_switched_off(programs, command, switch):
    call = command(programs(), "--only", "pin")
    call["env"][switch] = "off"
    assert f"\n{switch}=off\n" in subprocess.run(**call, capture_output=True, text=True, timeout=60).stdout


def test_results_of_an_earlier_run_are_not_reported(run, tmp_path):
    assert run().returncode == 0
    done = run(**{name: FAILS for name in [*CHECKS, *BENCHES]})
    assert done.returncode == 1
    assert "timings of" not in done.stdout and "0 failures" not in done.stdout
    assert results(done.stdout)["check"] == r"failed (1): a kernel \| was lost"
    assert "decode" not in json.loads((tmp_path / "out/results.json").read_text())


def test_what_fails_does_not_keep_others_from_running(run):
    done = run(cuda_bench=FAILS, cuda_check=FAILS)
    assert done.returncode == 1
    parts = results(done.stdout)
    assert parts["bench"].startswith("failed") and parts["stream_bench"] == "done"
    assert parts["ranks_check"] == "7 tests, 0 failures"


def test_the_budget_ends_what_hangs(run):
    done = run("--only", "check,decode_bench", "--budget", "6", cuda_check=HANGS)
    assert done.returncode == 1
    parts = results(done.stdout)
    assert re.fullmatch("stopped after [1-6] s", parts["check"]), parts  # of 6 what the start has left
    assert parts["decode_bench"] == "not run: the budget of 6 s is spent"


def test_a_run_that_is_killed_leaves_what_it_has(programs, command, tmp_path):
    report, pid = tmp_path / "out/report.md", tmp_path / "pid"
    hangs = HANGS.replace("exec", f"echo $$ >{pid}.new && mv {pid}.new {pid}; exec")
    running = subprocess.Popen(**command(programs(cuda_decode_bench=hangs), "--only", "bench,decode_bench"), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        wait_until(pid.exists)
    finally:
        running.kill()
        running.wait()
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert results(report.read_text()) == {"bench": "done"}
    assert "timings of cuda_bench" in report.read_text()


@pytest.mark.parametrize("flags, status", [(["--dry-run"], 0), ([], 3)])
def test_without_a_gpu_the_report_says_so(run, tmp_path, flags, status):
    done = run(*flags, cuda_pin_probe=NO_GPU)
    assert done.returncode == status, done.stderr
    assert "No GPU: cuda:0: no CUDA-capable device" in (tmp_path / "out/report.md").read_text()
    assert done.stderr == ""
    assert all(result.startswith("not run") for result in results(done.stdout).values())
    assert json.loads((tmp_path / "out/results.json").read_text()) == {}


def test_a_missing_program_is_named(run, tmp_path):
    assert run().returncode == 0
    (tmp_path / "gpu/cuda_bench").unlink()
    done = subprocess.run([RUN, "--bin", tmp_path / "gpu", "--out", tmp_path / "out", "--only", "bench,decode_bench"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert results(done.stdout) == {"bench": "cuda_bench is missing", "decode_bench": "done"}


def test_parts_that_do_not_exist_are_refused(run):
    done = run("--only", "bench,checks")
    assert done.returncode == 2
    assert "--only checks: there is no such part; use ptx check" in done.stderr


def test_the_limits_of_a_call_fit_into_its_budget():
    parts = re.findall(r"^(\d) (\w+) +(\d+) ", RUN.read_text(), re.M)
    assert len(parts) == 15
    for call in "123":
        assert 0 < sum(int(seconds) for its, _, seconds in parts if its == call) <= 540


def test_the_second_call_profiles_and_looks_for_races(run, programs, command, tmp_path):
    parts = results(run("--second").stdout)
    assert parts == {"profile": "ncu is not on the PATH; nsys is not on the PATH",
                     "sanitizer": "not run: compute-sanitizer is not on the PATH"}
    found = with_tools(command(programs(), "--second"), tmp_path, ncu='echo "of $*"',
                       nsys="echo no counters >&2; exit 1", compute_sanitizer="exit 0")
    done = subprocess.run(**found, capture_output=True, text=True, timeout=60)
    assert results(done.stdout) == {"profile": "ncu: done; nsys: failed (1): no counters", "sanitizer": "nothing found"}
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "out/logs.tar.gz") as logs:
        log = logs.extractfile("logs/profile.ncu.log").read().decode()
    assert "--clock-control none" in log and "cuda_bench --once" in log  # the GPU's clocks are not ours


# Stands for PyTorch that has no attention, and whose FP8 products are refused.
TORCH = """
from unittest.mock import MagicMock
import sys, types
def lost(*of, **also): raise NotImplementedError("no kernel for this")
torch = sys.modules[__name__]
for name in ("randn", "ones", "empty", "empty_like"): setattr(torch, name, MagicMock())
def _scaled_mm(*of, **also): raise ValueError("scales of another shape\\nand more")
bfloat16 = float8_e4m3fn = uint8 = None
__version__ = "0"
cuda = MagicMock()
cuda.get_device_name.return_value = "a model"
cuda.Event.return_value.elapsed_time.return_value = 500.0
nn = types.SimpleNamespace(functional=types.SimpleNamespace(scaled_dot_product_attention=lost))
"""


def test_a_rate_that_libraries_lack_leaves_the_others(programs, command, tmp_path):
    (tmp_path / "torch.py").write_text(TORCH)
    rate = 2 * 8192**3 / 0.5
    bench = {"copy_bytes_per_second": 1e9, "mma_bf16_flops_per_second": rate / 2, "mma_fp8_flops_per_second": 0,
             "kernels": [{"kernel": "o", "shape": "1 x 2", "seconds": 2, "bytes": 1e9, "flops": 0.5 * rate, "fp8": False},
                         {"kernel": "p", "shape": "1 x 2", "seconds": 2, "bytes": 1e9, "flops": rate, "fp8": True}]}
    run = {"tokens": 4096, "seconds": 6, "copy_ceiling_seconds": 1, "product_flops": rate, "attention_flops": 2 * rate}
    stream = {"bf16_flops_per_second": 1, "fp8_flops_per_second": 0, "runs": [run | {"inputs": "bf16"}, run | {"inputs": "fp8"}]}
    call = command(programs(cuda_bench=WRITES.format(file="bench", text=json.dumps(bench)),
                            cuda_stream_bench=WRITES.format(file="stream", text=json.dumps(stream))),
                   "--only", "bench,stream_bench,ceilings")
    call["env"]["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run(**call, capture_output=True, text=True, timeout=60)
    fp8 = "scales of another shape"
    assert results(done.stdout)["ceilings"] == (
        f"measured in part: fp8_flops_per_second: {fp8}; fp8_by_blocks_flops_per_second: {fp8}; "
        "attention_flops_per_second: no kernel for this")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/results.json").read_text())["ceilings"] == {
        "gpu": "a model", "torch": "0", "bf16_flops_per_second": rate, "copy_bytes_per_second": 2 * 2**30 / 0.5}
    # Beside what was measured before, where the libraries have the rate.
    assert "| o | 1 x 2 | 0.50 |" in done.stdout and "| p |" not in done.stdout
    assert "| 4096 | bf16 | 2.00 |" in done.stdout and "| 4096 | fp8 |" not in done.stdout


def with_tools(command, tmp_path, **scripts):
    """The command with programs that stand for tools on the PATH."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in scripts.items():
        tool = tools / name.replace("_", "-")
        tool.write_text(f"#!/bin/sh\n{text}\n")
        tool.chmod(0o755)
    command["env"]["PATH"] = f"{tools}:{command['env']['PATH']}"
    return command


def test_a_finding_does_not_end_the_search(programs, command, tmp_path):
    finds = 'case "$*" in *"memcheck"*cuda_decode_check* | *racecheck*cuda_check*) echo a race; exit 1 ;; esac'
    done = subprocess.run(**with_tools(command(programs(), "--only", "sanitizer"), tmp_path, compute_sanitizer=finds),
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert results(done.stdout) == {"sanitizer": "memcheck of cuda_decode_check: failed (1): a race; "
                                                 "racecheck of cuda_check: failed (1): a race"}
    with tarfile.open(tmp_path / "out/logs.tar.gz") as logs:
        assert len([name for name in logs.getnames() if "sanitizer." in name]) == 8


def test_the_sanitizers_tests_exist():
    """A filter without tests would find nothing."""
    sources = "".join(path.read_text() for path in RUN.parent.glob("*/*_test.cc"))
    names = [f"{suite}.{test}" for suite, test in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", sources, re.M)]
    filters = re.findall(r"'cuda_(?:\w+_)?check (\S+)'", RUN.read_text())
    patterns = [pattern for one in filters for pattern in one.split(":")]
    assert len(filters) == 5 and len(patterns) == 19
    for pattern in patterns:
        assert any(fnmatch.fnmatch(name, pattern) for name in names), pattern


def test_the_node_needs_its_programs_and_says_what_fails(run, programs, command, tmp_path):
    folder = programs()
    (folder / "moestro").write_text("#!/bin/sh\necho no room for a model >&2\nexit 1\n")
    (folder / "moestro").chmod(0o755)
    done = run("--node")
    assert done.returncode == 1
    assert results(done.stdout) == {"node": "failed (1): make-model: no room for a model"}
    steps = json.loads((tmp_path / "out/results.json").read_text())["node"]["steps"]
    assert steps == {"failed": "make-model: no room for a model"}
    assert "- failed: make-model" in done.stdout


def test_a_nodes_programs_also_look_where_the_drivers_libraries_are(programs, command):
    folder = programs(moestro='#!/bin/sh\necho "looks in $LD_LIBRARY_PATH" >&2\nexit 1\n')
    (folder / "lib").mkdir()
    call = command(folder, "--node")
    call["env"]["LD_LIBRARY_PATH"] = "/usr/local/nvidia/lib64"
    parts = results(subprocess.run(**call, capture_output=True, text=True, timeout=60).stdout)
    assert parts == {"node": f"failed (1): make-model: looks in {folder}/lib:/usr/local/nvidia/lib64"}


def test_half_a_file_of_a_part_that_crashed_leaves_the_others(run, tmp_path):
    crashes = '#!/bin/sh\nprintf \'{\n  "kernels": [\n    {\n    }\' >"$2/bench.json"\nkill -SEGV $$\n'
    done = run("--only", "pin,bench", cuda_bench=crashes)
    assert results(done.stdout)["bench"].startswith("failed (139)")
    assert json.loads((tmp_path / "out/results.json").read_text()) == {"pin": {"seconds": 1}}


def test_a_folder_is_named_from_where_one_is(programs, command, tmp_path):
    programs()
    done = subprocess.run(**command("gpu", "--only", "pin"), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and results(done.stdout) == {"pin": "done"}, done.stdout


def test_a_program_carries_no_library_of_the_systems_glibc(tmp_path):
    """They fit the loader of the same glibc alone."""
    shutil.copy("/usr/bin/curl", tmp_path / "program")
    needed = subprocess.run(["ldd", tmp_path / "program"], capture_output=True, text=True).stdout
    if "libresolv.so" not in needed:
        pytest.skip("curl needs no libresolv here")
    subprocess.run([RUN.parent / "gpu/carry_libraries", tmp_path / "program"], check=True)
    carried = [file.name for file in (tmp_path / "lib").iterdir()]
    assert carried and not [name for name in carried if re.match(r"lib(c|m|resolv|pthread|dl|rt)\.so", name)]


def test_the_archive_is_run_as_the_folder_is(programs, command, tmp_path):
    folder = programs()
    packed = subprocess.run([PACK, "--bin", folder], capture_output=True, text=True, timeout=60)
    assert packed.returncode == 0, packed.stderr
    assert "of 64 MiB" in packed.stdout
    archive = command(tmp_path / "gpu.tar.xz", "--only", "pin")
    done = subprocess.run(**archive, capture_output=True, text=True, timeout=60)
    assert results(done.stdout) == {"pin": "done"}, done.stderr


def test_programs_of_a_node_come_with_the_others(programs, tmp_path):
    folder = programs()
    (tmp_path / "bin").mkdir()
    roles = re.search(r"^node_programs=\((.*)\)$", PACK.read_text(), re.M)[1].split()
    for name in roles:
        shutil.copy("/usr/bin/true", tmp_path / "bin" / name)
    packed = subprocess.run([PACK, "--bin", folder, "--node"], capture_output=True, text=True, timeout=60)
    assert packed.returncode == 0, packed.stderr
    with tarfile.open(tmp_path / "gpu.tar.xz") as archive:
        assert {f"gpu/{name}" for name in [*roles, *CHECKS, *BENCHES]} <= set(archive.getnames())


def test_what_is_carried_is_what_is_counted(programs, tmp_path):
    """Also by Git, in a clone as the packer says."""
    packed = subprocess.run([PACK, "--bin", programs()], capture_output=True, text=True, timeout=60)
    said = float(re.search(r"with ([\d.]+) MiB of tracked files", packed.stdout)[1])
    command = re.search(r"carry a clone after: (git .*)", packed.stdout)[1]
    subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", PACK.parents[2], tmp_path / "clone"], check=True)
    subprocess.run(f"{command} && git checkout -q", shell=True, cwd=tmp_path / "clone", check=True)
    carried = subprocess.run("find . -name .git -prune -o -type f -printf '%s\n'", shell=True, cwd=tmp_path / "clone",
                             capture_output=True, text=True).stdout.split()
    assert sum(map(int, carried)) / 2**20 == pytest.approx(said, abs=1)  # of the last commit
    assert not (tmp_path / "clone/deploy/models/demo").exists()


def test_more_than_can_be_carried_is_refused(programs):
    packed = subprocess.run([PACK, "--bin", programs(), "--limit", "1"], capture_output=True, text=True, timeout=60)
    assert packed.returncode == 1
    assert "too much to carry: build for one kind of GPU" in packed.stderr
