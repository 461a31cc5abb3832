"""compose.yaml, the image and the systemd units: they agree with each other, with Prometheus and with .env.example."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
TEXT = (DEPLOY / "compose.yaml").read_text()
SERVICES = yaml.safe_load(TEXT)["services"]
GPU_TEXT = (DEPLOY / "compose.gpu.yaml").read_text()
GPU_SERVICES = yaml.safe_load(GPU_TEXT)["services"]
RIGHTS = yaml.safe_load((DEPLOY / "compose.rights.yaml").read_text())["services"]
VOLUMES = yaml.safe_load(TEXT)["volumes"]
DOCKERFILE = (DEPLOY.parent / "docker/Dockerfile").read_text()
ROLES = ("weight-store", "prefill", "decode", "router")
DRAIN_SECONDS = 30  # default of --drain-seconds


def flags(role, services=SERVICES):
    return dict(flag.lstrip("-").split("=", 1) for flag in services[role]["command"][1:] if "=" in flag)


@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"],
                                   ["compose.yaml", "compose.gpu.yaml", "compose.rights.yaml"]], ids=" ".join)
def test_compose_understands_the_files(files):
    tool = DEPLOY.parent / "tests/compose/next-release"
    unpacked = subprocess.run([tool, "compose", "docker-compose"], capture_output=True, text=True)
    assert unpacked.returncode == 0, unpacked.stderr
    compose = Path(unpacked.stdout.strip()) / "usr/libexec/docker/cli-plugins/docker-compose"
    arguments = [part for file in files for part in ("--file", DEPLOY / file)]
    checked = subprocess.run([compose, *arguments, "config", "--quiet"], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_prometheus_scrapes_what_the_roles_serve():
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    scraped = {target["labels"]["role"].replace("_", "-"): target["targets"]
               for target in config["scrape_configs"][0]["static_configs"]}
    assert scraped == {role: [flags(role)["metrics-address"].replace("0.0.0.0", role)] for role in ROLES}


def test_roles_share_sockets_and_memory_and_only_the_weight_store_sees_the_checkpoint():
    for role in ROLES:
        mounts = SERVICES[role]["volumes"]
        assert "run:/run/moestro" in mounts and "shm:/dev/shm" in mounts
        checkpoints = [mount for mount in mounts if isinstance(mount, dict)]
        assert [mount["target"] for mount in checkpoints] == (["/model"] if role == "weight-store" else [])
        assert all(mount["read_only"] for mount in checkpoints)
        assert SERVICES[role]["command"][0] == "moestro-" + role
        assert flags(role)["run-dir"] == "/run/moestro"
        if role != "router":
            assert SERVICES[role]["environment"] == {
                "MOESTRO_SERVER": f"unix:/run/moestro/{role.replace('-', '_')}.sock"}
    uid = re.search(r"useradd --uid (\d+)", DOCKERFILE)[1]
    for name in ("run", "shm"):
        assert f"uid={uid},gid={uid}" in VOLUMES[name]["driver_opts"]["o"]


def test_every_container_has_no_more_rights_than_it_needs():
    for name, service in SERVICES.items():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"] and service["restart"] == "unless-stopped", name
        assert set(service.get("cap_add", ())) <= {"SYS_NICE"}, name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    uid = re.search(r"useradd --uid (\d+)", DOCKERFILE)[1]
    assert re.search(rf"^USER {uid}:{uid}$", DOCKERFILE, re.M)


def test_a_role_that_hangs_is_killed():
    unit = (DEPLOY / "systemd/moestro@.service").read_text()
    assert "\nType=notify\n" in unit and "\nWatchdogSec=30\n" in unit and "\nRestart=always\n" in unit
    watch = "/usr/local/lib/moestro/"
    assert f"COPY deploy/watch deploy/watch.sh {watch}\n" in DOCKERFILE
    for role in ROLES:
        assert SERVICES[role]["entrypoint"] == [f"{watch}watch", f"/run/moestro/{role.replace('-', '_')}"]


def test_the_out_of_memory_killer_takes_the_router_first():
    unit, router = DEPLOY / "systemd/moestro@.service", DEPLOY / "systemd/moestro@router.service.d/memory.conf"
    scores = {role: {**SERVICES[role], **RIGHTS[role]}["oom_score_adj"] for role in ROLES}
    assert scores == {"weight-store": -900, "prefill": -900, "decode": -900, "router": 300}
    assert [re.findall(r"^OOMScoreAdjust=(.*)$", path.read_text(), re.M) for path in (unit, router)] == [["-900"], ["300"]]


def test_the_router_may_go_before_the_roles_that_compute():
    """The limit permits it; the router takes the priority itself (--real-time auto)."""
    folder = DEPLOY / "systemd/moestro@router.service.d"
    assert re.findall(r"^(\w+)=(.*)$", (folder / "priority.conf").read_text(), re.M) == [("LimitRTPRIO", "1")]
    assert RIGHTS["router"]["ulimits"] == {"rtprio": 1}
    assert "moestro@router.service.d/{memory,priority,state}.conf" in (DEPLOY / "README.md").read_text()


def test_without_the_file_of_rights_no_engine_refuses_a_container():
    for name, service in {**SERVICES, **GPU_SERVICES}.items():
        assert "ulimits" not in service and service.get("oom_score_adj", 0) >= 0, name


def test_the_router_may_write_where_batches_are_kept():
    """The rest of the system is read-only to it."""
    folder = re.search(r"^StateDirectory=(.*)$", (DEPLOY / "systemd/moestro@router.service.d/state.conf").read_text(), re.M)[1]
    assert f'# batch-dir = "/var/lib/{folder}"' in (DEPLOY / "systemd/node.toml").read_text()


def test_logs_are_bounded():
    for name, service in SERVICES.items():
        assert service["logging"]["options"] == {"max-size": "16m", "max-file": "2"}, name


def test_a_role_starts_after_what_it_needs_and_may_drain():
    order = {"prefill": ["weight-store"], "decode": ["weight-store"], "router": ["prefill", "decode"]}
    for role, needs in order.items():
        assert SERVICES[role]["depends_on"] == {need: {"condition": "service_healthy"} for need in needs}
    for role in ROLES:
        assert int(SERVICES[role]["stop_grace_period"].rstrip("s")) > DRAIN_SECONDS
        assert SERVICES[role]["healthcheck"]["test"] == ["CMD", "moestro", "health"]
    unit = (DEPLOY / "systemd/moestro@.service").read_text()
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M)[1]) > DRAIN_SECONDS


def test_every_variable_is_documented_with_its_default():
    documented = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", (DEPLOY / ".env.example").read_text(), re.M))
    used = dict(re.findall(r"\$\{([A-Z_]+)(?::[-?]([^}]*))?\}", TEXT + GPU_TEXT))
    assert documented.pop("COMPOSE_FILE") == "compose.yaml:compose.gpu.yaml"  # compose's own
    assert used == documented


def test_gpus_change_the_image_of_every_role_and_the_devices_of_those_that_compute():
    assert set(GPU_SERVICES) == set(ROLES)
    assert len({service["image"] for service in GPU_SERVICES.values()}) == 1
    for role, service in GPU_SERVICES.items():
        computes = role in ("prefill", "decode")
        if computes:  # with the flags of the profiles of deploy/up
            own = SERVICES[role]["command"]
            names = [flag.split("=")[0] for flag in service["command"][len(own):]]
            profile = re.search(rf"^{role} (.*)$", (DEPLOY / "profiles/two-gpu").read_text(), re.M)[1].split()
            assert service["command"][:len(own)] == own and names == [flag for flag in profile if flag.startswith("--")]
            assert service["command"][-1] == "--cpus=auto-gpu"
            assert RIGHTS[role]["ulimits"] == {"memlock": -1}
        assert ("deploy" in service) == computes
    for target in (SERVICES["weight-store"]["build"]["target"], GPU_SERVICES["weight-store"]["build"]["target"]):
        assert re.search(rf"^FROM runtime AS {target}$", DOCKERFILE, re.M)
    assert f"ARG CUDA_BASE={re.search(r'CUDA_BASE:-([^}]*)', GPU_TEXT)[1]}\n" in DOCKERFILE


def test_images_have_a_fixed_version_and_no_registry():
    for name, service in SERVICES.items():
        if name in ROLES:
            assert service["image"] == "${MOESTRO_IMAGE:-moestro:local}"
        else:
            assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_systemd_starts_every_role():
    target = (DEPLOY / "systemd/moestro.target").read_text()
    assert re.findall(r"moestro@([\w-]+)\.service", target) == list(ROLES)
