"""The dashboards: as generated, well formed, and every metric that they query is one that a role has."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]
GRAFANA = REPO / "deploy/grafana"
DASHBOARDS = {file.name: json.loads(file.read_text()) for file in sorted((GRAFANA / "dashboards").glob("*.json"))}
PANELS = [(dashboard["title"], panel) for dashboard in DASHBOARDS.values() for panel in dashboard["panels"]]


def metrics_of_the_code():
    """name -> Counter, Gauge or Histogram."""
    sources = "".join(file.read_text() for folder in ("services", "common") for pattern in ("*.h", "*.cc")
                      for file in (REPO / folder).rglob(pattern))
    return {name: kind for kind, name in re.findall(r'Add(Counter|Gauge|Histogram)\(\s*"(moestro_\w+)"', sources)}


def test_committed_files_are_what_the_generator_writes(checkers, monkeypatch):
    monkeypatch.syspath_prepend(str(checkers))  # Grafana's builders
    spec = importlib.util.spec_from_file_location("generate", GRAFANA / "generate.py")
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    texts = {file.name: file.read_text() for file in (GRAFANA / "dashboards").iterdir()}
    assert texts == generator.generate(), "run deploy/grafana/generate.py"


def test_every_metric_exists_and_is_used_as_what_it_is():
    metrics = metrics_of_the_code()
    assert len(metrics) > 50
    for title, panel in PANELS:
        for target in panel["targets"]:
            where = f"{title}, {panel['title']}: {target['expr']}"
            for match in re.finditer(r"moestro_\w+", target["expr"]):
                name = match[0]
                base = re.sub(r"_(bucket|sum|count)$", "", name) if name not in metrics else name
                assert base in metrics, where
                assert (metrics[base] == "Histogram") == (base != name), where
                cumulative = re.search(r"(rate|increase)\($", target["expr"][:match.start()]) is not None
                assert cumulative == (metrics[base] != "Gauge"), where
                assert target["expr"][match.end():].startswith('{job="$job"'), where
            for interval in re.findall(r"\[(.*?)\]", re.sub(r'"[^"]*"', "", target["expr"])):
                assert interval in ("$__rate_interval", "$__range"), where


def test_every_metric_is_on_a_dashboard():
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for _, panel in PANELS for target in panel["targets"]
             for name in re.findall(r"moestro_\w+", target["expr"])}
    unseen = set(metrics_of_the_code()) - shown
    # The whole request's time is the sum of the three that are shown.
    assert unseen == {"moestro_request_seconds"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_are_well_formed(name):
    dashboard = DASHBOARDS[name]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in dashboard["panels"]:
        position = panel["gridPos"]
        cells = {(x, y) for x in range(position["x"], position["x"] + position["w"])
                 for y in range(position["y"], position["y"] + position["h"])}
        assert not cells & taken and position["x"] + position["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert refs and len(set(refs)) == len(refs), panel["title"]
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "model", "job"}


def test_dashboards_have_addresses_of_their_own():
    assert len({dashboard["uid"] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS) == 4


def test_provisioning_agrees_with_prometheus_and_compose():
    source, = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    config = yaml.safe_load((REPO / "deploy/prometheus/prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    provider, = yaml.safe_load((GRAFANA / "provisioning/dashboards/moestro.yaml").read_text())["providers"]
    services = yaml.safe_load((REPO / "deploy/compose.yaml").read_text())["services"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in services


def test_the_builders_are_of_the_grafana_of_compose():
    image = yaml.safe_load((REPO / "deploy/compose.yaml").read_text())["services"]["grafana"]["image"]
    library = re.search(r"grafana-foundation-sdk==\d+!(\S+)", (Path(__file__).parent / "requirements.txt").read_text())[1]
    assert image.split(":")[1] == library
