"""A real Prometheus for the tests."""

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import yaml

from node import REPO, free_port


def in_a_hurry(rules, factor):
    """Rules in which every range and every `for` is shorter by a factor."""
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}

    def shorter(match):
        return f"{match[1]}{max(1, int(match[2]) * seconds[match[3]] // factor)}s"
    return re.sub(r"(\[|\bfor: )(\d+)([smhd])\b", shorter, rules)


def program(name):
    """Path of prometheus or promtool."""
    found = subprocess.run([REPO / "tests/deploy/prometheus/tool", name], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


class Prometheus:
    """deploy/prometheus/prometheus.yml with the addresses of a test's node, on a separate port. With `hurry`, all times
    in the rules are shorter by that factor: windows, and the delay before an alert fires."""

    def __init__(self, node, folder, hurry=1):
        config = yaml.safe_load((REPO / "deploy/prometheus/prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(folder / "rules-*.yml")]
        for file in (REPO / "deploy/prometheus/rules").glob("*.yml"):
            (folder / f"rules-{file.name}").write_text(in_a_hurry(file.read_text(), hurry))
        for target in config["scrape_configs"][0]["static_configs"]:
            target["targets"] = [f"127.0.0.1:{node.metrics_port[target['labels']['role']]}"]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = open(folder / "log", "w+")
        self.process = subprocess.Popen(
            [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.url[7:]}", "--web.console.templates=/nonexistent"],
            stdout=self.log, stderr=self.log)

    def get(self, path, **query):
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None  # not ready yet
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        except OSError:
            assert self.process.poll() is None, open(self.log.name).read()
            return None  # not up yet

    def query(self, expr):
        """Values, without those that are not numbers."""
        found = self.get("query", query=expr)
        return [float(s["value"][1]) for s in found["result"] if s["value"][1] != "NaN"] if found else []

    def labels(self, expr, label):
        """The values of one label in the result of an expression."""
        found = self.get("query", query=expr)
        return [series["metric"][label] for series in found["result"]] if found else []

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()
