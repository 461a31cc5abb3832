"""compose.yaml and the systemd units against the real binaries: every flag and setting that they use exists."""

import os
import subprocess

import pytest
import yaml

from node import ROLES, Node, wait_until

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("role", ROLES)
def test_flags_of_compose_exist(repo, bin_dir, role):
    name = role.replace("_", "-")
    command = yaml.safe_load((repo / "deploy/compose.yaml").read_text())["services"][name]["command"]
    text = subprocess.check_output([os.path.join(bin_dir, command[0]), "--help"], text=True)
    for flag in command[1:]:
        assert f"{flag.split('=')[0]} " in text


def test_a_node_runs_with_the_settings_for_systemd_and_its_weights_outlive_a_restart(repo, api, bin_dir, tiny_model):
    settings = (repo / "deploy/systemd/node.toml").read_text().replace("/srv/models/DeepSeek-V3", str(tiny_model))

    class ConfiguredNode(Node):
        """As moestro@.service starts it: all settings except the run directory (and, in a test, the ports) come from
        the file."""

        def command(self, role):
            file = os.path.join(self.run_dir, "node.toml")
            if not os.path.exists(file):
                self.write(file)
            return [os.path.join(self.bin, "moestro-" + role.replace("_", "-")), "--run-dir", self.run_dir,
                    "--config", file, "--instance", self.instance]

        def write(self, file):
            text = settings.replace("127.0.0.1:50051", f"127.0.0.1:{self.grpc_port}")
            text = text.replace("127.0.0.1:8080", f"127.0.0.1:{self.http_port}")
            for port, owner in ((9400, "router"), (9401, "weight_store"), (9402, "prefill"), (9403, "decode")):
                text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{self.metrics_port[owner]}")
            with open(file, "w") as out:
                out.write(text)

    with ConfiguredNode(api, bin_dir, tiny_model) as node:
        segment = [name for name in node.shared_memory() if ".weights." in name]
        node.processes["weight_store"].terminate()
        node.processes["weight_store"].wait(timeout=30)
        assert [name for name in node.shared_memory() if ".weights." in name] == segment
        node.start("weight_store")
        wait_until(lambda: node.serving("weight_store"), 10, "the weight store serves again")
        assert "adopted" in node.log("weight_store")
        assert node.metric("weight_store", "moestro_weights_load_seconds") == 0
        assert node.generate("Hello", 4)[2]
    subprocess.run([os.path.join(bin_dir, "moestro"), "segments", "prune", "--instance", node.instance], check=True)
    assert not node.shared_memory()
