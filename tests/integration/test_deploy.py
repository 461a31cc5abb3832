"""deploy/up, status and down as a user runs them (with binaries that are already built)."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest

from node import free_port, wait_until

pytestmark = pytest.mark.no_sanitizer(reason="deploy/up runs build/release")


def consecutive_free_ports(count=8):
    """The first of `count` consecutive free ports."""
    while True:
        ports = [free_port() for _ in range(count)]
        if ports[-1] - ports[0] == count - 1:
            return ports[0]


@pytest.fixture(scope="module")
def deployed(repo, bin_dir, tmp_path_factory):
    """A newcomer's node: it serves the demo model. The repository is reached through a link, which must work."""
    assert Path(bin_dir) == repo / "build/release/bin", "deploy/up uses build/release"
    run_dir = tmp_path_factory.mktemp("deploy") / "node"
    ports = [consecutive_free_ports(), consecutive_free_ports()]
    link = run_dir.with_name("moestro")
    link.symlink_to(repo)
    up = subprocess.run([link / "deploy/up", "--no-build", "--detach", "--run-dir", run_dir,
                         "--grpc-port", str(ports[0]), "--http-port", str(free_port()), "--metrics-port", str(ports[1])],
                        capture_output=True, text=True, timeout=120)
    assert up.returncode == 0, up.stdout + up.stderr
    yield {"up": up, "run_dir": run_dir, "server": f"127.0.0.1:{ports[0]}"}
    subprocess.run([repo / "deploy/down", "--run-dir", run_dir], timeout=120)


def pid_of(deployed, role):
    return int((deployed["run_dir"] / f"{role}.pid").read_text())


def is_serving(cli, deployed):
    return cli("health", "--server", deployed["server"], check=False).returncode == 0


def moestro_shared_memory(deployed):
    instance = [line for line in (deployed["run_dir"] / "node.env").read_text().splitlines()
                if line.startswith("instance=")][0].split("=")[1]
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"moestro.{instance}.")]


def users_of(run_dir):
    """Processes with an open file in the run directory: the roles, their starters, and the processes started by
    those."""
    pids = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link).startswith(f"{run_dir}/"):
                pids.add(int(link.parts[2]))
        except OSError:
            continue  # it ended meanwhile
    return pids


@pytest.mark.smoke
def test_up_prints_an_answer_and_where_things_are(deployed):
    assert f"ready grpc={deployed['server']}" in deployed["up"].stdout
    assert "\n>>> sorted([5, 2, 9])\n[2, 5, 9]\n" in deployed["up"].stdout
    assert "logs" in deployed["up"].stdout and "metrics" in deployed["up"].stdout
    assert "No such file" not in deployed["up"].stderr


def test_nobody_else_may_look_into_the_run_directory(deployed):
    assert deployed["run_dir"].stat().st_mode & 0o777 == 0o700


@pytest.mark.smoke
def test_generate_and_status(deployed, cli, repo):
    answer = json.loads(cli("generate", "--server", deployed["server"], "--prompt", "Hello", "--max-tokens", 32,
                            "--ignore-eos", "--json").stdout)
    assert answer["usage"]["completion_tokens"] == 32
    status = subprocess.run([repo / "deploy/status", "--run-dir", deployed["run_dir"]], capture_output=True, text=True)
    assert status.returncode == 0 and all(role in status.stdout for role in ("router", "prefill", "decode", "weight_store"))


def test_status_of_the_node(deployed, cli, repo):
    seen = json.loads(cli("status", "--run-dir", deployed["run_dir"], "--json").stdout)
    assert seen["serving"] and all(role["up"] and role["serving"] and role["metrics"] for role in seen["roles"].values())
    assert seen["model"]["segment_bytes"] > 0 and seen["load_progress_ratio"] == 1
    pages = seen["kv_pages"]
    assert pages["leased"] + pages["cached"] + pages["free"] == pages["total"] > 0
    assert seen["time_to_first_token"]["since_start"]["count"] >= 1  # deploy/up's sample
    assert seen["tokens_per_second"] == 0 and seen["requests_running"] == 0
    text = subprocess.run([repo / "deploy/status", "--run-dir", deployed["run_dir"]], capture_output=True, text=True).stdout
    assert "TTFT" in text and "KV pages" in text


@pytest.mark.smoke
def test_second_up_is_refused(deployed, repo):
    again = subprocess.run([repo / "deploy/up", "--no-build", "--detach", "--run-dir", deployed["run_dir"]],
                           capture_output=True, text=True, timeout=60)
    assert again.returncode != 0 and "already runs" in again.stderr


@pytest.mark.smoke
@pytest.mark.parametrize("role", ["decode", "prefill", "weight_store", "router"])
def test_a_killed_role_is_started_again(deployed, cli, role):
    old = pid_of(deployed, role)
    os.kill(old, signal.SIGKILL)

    def new_process_serves():
        try:
            return pid_of(deployed, role) != old and is_serving(cli, deployed)
        except (FileNotFoundError, ValueError):
            return False

    # The second kill of a role within seconds is followed by a pause; the first is not.
    wait_until(new_process_serves, 15, f"{role} is back")
    assert cli("generate", "--server", deployed["server"], "--prompt", "Hi", "--max-tokens", 3).returncode == 0


@pytest.mark.smoke
def test_down_leaves_nothing(deployed, repo):
    names = moestro_shared_memory(deployed)
    assert names
    pids = [pid_of(deployed, role) for role in ("weight_store", "prefill", "decode", "router")]
    assert users_of(deployed["run_dir"]).issuperset(pids)
    down = subprocess.run([repo / "deploy/down", "--run-dir", deployed["run_dir"]], capture_output=True, text=True, timeout=120)
    assert down.returncode == 0, down.stderr
    assert not [name for name in os.listdir("/dev/shm") if name in names]
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    wait_until(lambda: not users_of(deployed["run_dir"]), 5, "nothing writes logs")
    assert not list(deployed["run_dir"].glob("*.sock")) and not list(deployed["run_dir"].glob("*.pid"))
    again = subprocess.run([repo / "deploy/down", "--run-dir", deployed["run_dir"]], capture_output=True, text=True, timeout=60)
    assert again.returncode == 0


@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["alone", "with all roles"])
def test_down_cleans_up_after_a_killed_supervisor(repo, bin_dir, tiny_model, tmp_path, kill):
    """Slow: deploy/up and deploy/down of a whole node."""
    run_dir = tmp_path / "node"
    run_dir.mkdir()
    run_dir.chmod(0o755)  # as earlier versions made it
    subprocess.run([repo / "deploy/up", "--no-build", "--detach", "--model", tiny_model, "--run-dir", run_dir,
                    "--grpc-port", str(consecutive_free_ports()), "--http-port", str(free_port()),
                    "--metrics-port", str(consecutive_free_ports())],
                   check=True, capture_output=True, timeout=120)
    deployed = {"run_dir": run_dir}
    names = moestro_shared_memory(deployed)
    kill(pid_of(deployed, "supervise"), signal.SIGKILL)
    if kill is os.kill:
        up = subprocess.run([repo / "deploy/up", "--no-build", "--run-dir", run_dir], capture_output=True, text=True,
                            timeout=60)
        assert up.returncode != 0 and "already runs" in up.stderr
    down = subprocess.run([repo / "deploy/down", "--run-dir", run_dir], capture_output=True, text=True, timeout=120)
    assert down.returncode == 0, down.stderr
    assert not [name for name in os.listdir("/dev/shm") if name in names]
    wait_until(lambda: not users_of(run_dir), 5, "nothing is started again")
    assert not list(run_dir.glob("*.pid")) and not list(run_dir.glob("*.sock*"))


def test_addresses_are_those_of_the_settings(repo, bin_dir, tiny_model, tmp_path):
    """Started by a relative path while CDPATH names folders with the same names."""
    ports = {key: free_port() for key in ("grpc", "http", "decode")}
    rest = consecutive_free_ports()
    config, run_dir = tmp_path / "moestro.toml", tmp_path / "node"
    config.write_text(f"""[weight_store]
metrics-address = "127.0.0.1:{rest}"  # a comment
[ router ]
grpc-address = '127.0.0.1:{ports["grpc"]}'
http-address = "localhost:{ports["http"]}"
metrics-address="127.0.0.1:{rest + 1}"
[prefill]
metrics-address = "127.0.0.1:{rest + 2}"
[decode]
# metrics-address = "127.0.0.1:1"
metrics-address = "127.0.0.1:{ports["decode"]}"
""")
    up = subprocess.run(["deploy/up", "--no-build", "--detach", "--model", tiny_model, "--run-dir", run_dir, "--config", config],
                        cwd=repo, env=os.environ | {"CDPATH": f"{repo}:/"}, capture_output=True, text=True, timeout=120)
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        assert f"ready grpc=127.0.0.1:{ports['grpc']} http=http://localhost:{ports['http']} " in up.stdout
        seen = json.loads(subprocess.run([Path(bin_dir) / "moestro", "status", "--run-dir", run_dir, "--json"], check=True,
                                         capture_output=True, text=True).stdout)
        assert all(role["metrics"] for role in seen["roles"].values())
        socket.create_connection(("localhost", ports["http"])).close()
    finally:
        subprocess.run([repo / "deploy/down", "--run-dir", run_dir], timeout=120)


@pytest.mark.smoke
@pytest.mark.parametrize("flag,key", [("--grpc-port", "grpc-address"), ("--http-port", "http-address"),
                                      ("--metrics-port", "metrics-address")])
def test_a_port_that_contradicts_the_settings_is_refused(repo, bin_dir, tmp_path, flag, key):
    config = tmp_path / "moestro.toml"
    config.write_text(f'[router]\n{key} = "0.0.0.0:7000"\n')
    up = subprocess.run([repo / "deploy/up", "--no-build", "--run-dir", tmp_path / "node", "--config", config, flag, "7001"],
                        capture_output=True, text=True, timeout=60)
    assert up.returncode == 1 and flag in up.stderr and f'{key} = "0.0.0.0:7000" for router' in up.stderr


@pytest.mark.smoke
@pytest.mark.parametrize("script", ["up", "down", "status"])
def test_scripts_find_their_folder_through_a_link(repo, tmp_path, script):
    (tmp_path / "again").symlink_to(repo / "deploy" / script)
    (tmp_path / script).symlink_to("again")
    shown = subprocess.run([tmp_path / script, "--help"], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and f"usage: deploy/{script}" in shown.stdout, shown.stderr


@pytest.mark.parametrize("taken_port", ["--grpc-port", "--http-port"])
def test_up_says_which_port_is_taken(repo, bin_dir, tiny_model, tmp_path, taken_port):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"--grpc-port": consecutive_free_ports(), "--http-port": free_port(), taken_port: port,
                 "--metrics-port": consecutive_free_ports()}
        up = subprocess.run([repo / "deploy/up", "--no-build", "--detach", "--model", tiny_model, "--run-dir",
                             tmp_path / "node", *(str(word) for option in ports.items() for word in option)],
                            capture_output=True, text=True, timeout=60)
    assert up.returncode == 1 and "router cannot start" in up.stderr and str(port) in up.stderr
    assert not list((tmp_path / "node").glob("*.pid")), "nothing goes on"


@pytest.mark.smoke
def test_up_says_why_a_model_cannot_be_served(repo, bin_dir, tiny_model, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    config = model / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "mimo_v2_flash"}))
    up = subprocess.run([repo / "deploy/up", "--no-build", "--detach", "--model", model, "--run-dir", tmp_path / "node",
                         "--grpc-port", str(consecutive_free_ports()), "--http-port", str(free_port()),
                         "--metrics-port", str(consecutive_free_ports())],
                        capture_output=True, text=True, timeout=60)
    assert up.returncode == 1 and "weight_store cannot start: " in up.stderr and '"mimo_v2_flash" is not supp' in up.stderr


def wait_for_start(up):
    while "starting" not in (line := up.stdout.readline()):
        assert line, "deploy/up has ended"


def test_up_gives_up_on_a_router_that_cannot_serve(repo, bin_dir, tiny_model, tmp_path):
    """As one of another version than the weight store may say."""
    run_dir = tmp_path / "node"
    run_dir.mkdir(mode=0o700)
    up = subprocess.Popen([repo / "deploy/up", "--no-build", "--detach", "--model", tiny_model, "--run-dir", run_dir,
                           "--grpc-port", str(consecutive_free_ports()),
                           "--http-port", str(free_port()),
                           "--metrics-port", str(consecutive_free_ports())],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_start(up)
    with open(run_dir / "logs/router.log", "a") as log:
        log.write("cannot serve model tiny: tokenizer.json: field 'x'\n")
    _, errors = up.communicate(timeout=60)
    assert up.returncode == 1 and "the router cannot serve model tiny: tokenizer.json: field 'x'" in errors, errors
    assert not users_of(run_dir)


def test_up_gives_up_on_a_role_that_keeps_dying(repo, bin_dir, tiny_model, tmp_path):
    run_dir, ended = tmp_path / "node", threading.Event()

    def keep_killing():
        while not ended.wait(0.01):
            try:
                os.kill(pid_of({"run_dir": run_dir}, "router"), signal.SIGKILL)
            except (OSError, ValueError):
                continue  # not there yet, or not again

    killer = threading.Thread(target=keep_killing)
    killer.start()
    try:
        up = subprocess.run([repo / "deploy/up", "--no-build", "--detach", "--model", tiny_model, "--run-dir", run_dir,
                             "--grpc-port", str(consecutive_free_ports()),
                             "--http-port", str(free_port()),
                             "--metrics-port", str(consecutive_free_ports())], capture_output=True, text=True, timeout=60)
    finally:
        ended.set()
        killer.join()
    assert up.returncode == 1 and "router cannot start" in up.stderr, up.stdout + up.stderr
    assert not users_of(run_dir)


def test_interrupted_up_leaves_nothing(repo, bin_dir, tiny_model, tmp_path):
    run_dir = tmp_path / "node"
    up = subprocess.Popen([repo / "deploy/up", "--no-build", "--detach", "--model", tiny_model, "--run-dir", run_dir,
                           "--grpc-port", str(consecutive_free_ports()), "--http-port", str(free_port()),
                           "--metrics-port", str(consecutive_free_ports())],
                          stdout=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    wait_for_start(up)
    up.send_signal(signal.SIGINT)
    output, _ = up.communicate(timeout=120)
    assert up.returncode == 130 and "ready" not in output
    wait_until(lambda: not users_of(run_dir), 5, "the node has gone")


@pytest.mark.parametrize("script", ["up", "down", "status", "supervise"])
def test_run_directories_of_others_are_refused(repo, tmp_path, script):
    """node.env in it would name the programs to run."""
    run_dir, marker = tmp_path / "node", tmp_path / "has run"
    run_dir.mkdir()
    (run_dir / "node.env").write_text(f"bin={run_dir}\n")
    (run_dir / "moestro").write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    (run_dir / "moestro").chmod(0o755)
    link = tmp_path / "link"
    link.symlink_to(run_dir)
    refused = [(link, "symbolic link"), (f"{link}/", "symbolic link")]
    if os.getuid() == 0:
        os.chown(run_dir, 65534, -1)
        refused.append((run_dir, "belongs to"))
    else:
        refused.append(("/usr", "belongs to root"))
    for path, word in refused:
        flags = {"supervise": [path], "up": ["--no-build", "--run-dir", path]}.get(script, ["--run-dir", path])
        result = subprocess.run([repo / "deploy" / script, *flags], capture_output=True, text=True, timeout=30)
        assert result.returncode != 0 and word in result.stderr, result.stderr
    assert not marker.exists()


@pytest.mark.parametrize("script", ["up", "down", "status", "supervise"])
def test_run_directories_that_others_may_write_to_are_refused(repo, tmp_path, script):
    run_dir = tmp_path / "node"
    run_dir.mkdir()
    run_dir.chmod(0o777)
    flags = {"supervise": [run_dir], "up": ["--no-build", "--run-dir", run_dir]}.get(script, ["--run-dir", run_dir])
    result = subprocess.run([repo / "deploy" / script, *flags], capture_output=True, text=True, timeout=30)
    assert result.returncode != 0 and "is writable by others" in result.stderr, result.stderr


@pytest.mark.smoke
def test_up_says_what_is_wrong(repo, tmp_path):
    for arguments, word in [(["--model", tmp_path], "config.json"), (["--grpc-port", "x"], "port"),
                            (["--fast"], "--fast"), (["--run-dir"], "--run-dir")]:
        result = subprocess.run([repo / "deploy/up", "--no-build", *arguments], capture_output=True, text=True, timeout=30)
        assert result.returncode != 0 and word in result.stderr


def up_with(repo, run_dir, *arguments, **options):
    ports = [consecutive_free_ports(), free_port()]
    flags = ["--no-build", "--detach", "--run-dir", run_dir, "--grpc-port", str(free_port()), "--http-port", str(ports[1]),
             "--metrics-port", str(ports[0])]
    up = subprocess.run([repo / "deploy/up", *flags, *arguments], capture_output=True, text=True, timeout=120, **options)
    return up, ports[0]


def metric(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        return sum(float(line.rsplit(" ", 1)[1]) for line in reply.read().decode().splitlines()
                   if line.split("{")[0] == name)


@pytest.mark.parametrize("gpus, profile", [("none", "cpu"), ("host", "one-gpu"), ("host,host", "two-gpu")])
def test_a_profile_for_each_number_of_devices(repo, cli, tiny_model, tmp_path, gpus, profile):
    """Slow: deploy/up and deploy/down of a whole node."""
    run_dir, config = tmp_path / "node", tmp_path / "settings.toml"
    config.write_text('[prefill]\nstream-from-tokens = 64\ndevice-memory = "64MB"\ndevice-dense-bytes = "8MB"\n'
                      '[router]\npath-policy = "paper"\nchunked-below-tokens = 64\ndecode-idle-window-seconds = 0\n')
    try:
        up, port = up_with(repo, run_dir, "--gpu", gpus, "--model", tiny_model, "--config", config)
        assert up.returncode == 0 and f"profile {profile}: --gpu {gpus}\n" in up.stdout, up.stdout + up.stderr
        status = subprocess.run([repo / "deploy/status", "--run-dir", run_dir], capture_output=True, text=True)
        assert status.stdout.startswith(f"profile {profile}: --gpu {gpus}\n")
        answer = json.loads(cli("generate", "--server", f"unix:{run_dir}/router.sock", "--prompt", "many words " * 40,
                                "--max-tokens", 4, "--ignore-eos", "--json").stdout)
        assert answer["path"] == "whole_machine", answer
        devices = 0 if gpus == "none" else len(gpus.split(","))
        assert metric(port + 2, "moestro_prefill_devices") == devices  # decode had no work: its device helped
        on_device = "--device host" in (run_dir / "logs/decode.log").read_text()
        assert on_device == (devices == 2)
    finally:
        subprocess.run([repo / "deploy/down", "--run-dir", run_dir], capture_output=True, timeout=120)


def test_up_finds_gpus_and_says_why_it_does_not_use_them(repo, tiny_model, tmp_path):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, NVIDIA GeForce RTX 5090'\necho '1, NVIDIA GeForce RTX 5090'\n")
    smi.chmod(0o755)
    found = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    config = tmp_path / "settings.toml"
    config.write_text('[prefill]\ndevice = "none"\n')
    # --model is wrong, so nothing starts.
    wrong = ["--model", tmp_path / "absent"]
    up, _ = up_with(repo, tmp_path / "node", *wrong, "--config", config, env=found)
    assert "profile cpu: " in up.stdout and "names devices" in up.stdout, up.stdout + up.stderr
    config.write_text('[prefill]\ndevice = "host"\n')
    for gpus in ["none", "0", "host"]:
        up, _ = up_with(repo, tmp_path / "node", *wrong, "--config", config, "--gpu", gpus)
        assert up.returncode != 0 and f'--gpu {gpus}, but {config} has device = "host": remove that line' in up.stderr
    config.write_text('[decode]\ndevice = "cuda:1"\n')
    no_compiler = {**os.environ, "PATH": "/usr/bin:/bin"}
    up, _ = up_with(repo, tmp_path / "node", *wrong, "--config", config, env=no_compiler)
    # Either there is no nvcc, or the build for GPUs is the one that is started.
    assert f"{config} names a GPU: no nvcc" in up.stderr or f"no binaries in {repo}/build/cuda/bin" in up.stderr or \
        "profile cpu: " in up.stdout and (repo / "build/cuda/bin/moestro").exists(), up.stdout + up.stderr
    up, _ = up_with(repo, tmp_path / "node", *wrong, env=found)
    assert "profile cpu: 2 GPU(s) found, but " in up.stdout or "profile two-gpu: found GPU 0" in up.stdout
    smi.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    up, _ = up_with(repo, tmp_path / "node", *wrong, env=found)
    assert "profile cpu: no GPU found\n" in up.stdout, up.stdout + up.stderr
    up, _ = up_with(repo, tmp_path / "node", *wrong, "--gpu", "0;1")
    assert up.returncode != 0 and "--gpu 0;1: must be" in up.stderr


def test_up_prints_how_to_download_a_model(repo, tmp_path):
    result = subprocess.run([repo / "deploy/up", "--no-build", "--model", "org/absent", "--run-dir", tmp_path / "run"],
                            capture_output=True, text=True, timeout=30, env={**os.environ, "HF_HUB_CACHE": str(tmp_path)})
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1, result.stderr
    assert f"org/absent: not in {tmp_path}" in result.stderr and "hf download org/absent" in result.stderr
    assert not (tmp_path / "run").exists()
