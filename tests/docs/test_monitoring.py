"""The examples for monitoring: a dashboard, a unit, a DaemonSet."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

import zmtpsniff
from tests.support.paths import FIXTURES, PROJECT
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding_watch import FindingWatch
from zmtpsniff.cli.main import cli
from zmtpsniff.export.metrics import Metrics

DOCS = PROJECT / "docs"


class _Nothing:
    packets = dropped = 0

    def open_connections(self) -> list[Any]:
        return []

    def server(self, _: int) -> None:
        return None


@pytest.fixture(scope="module")
def names() -> set[str]:
    """The names of all samples."""
    registry = CollectorRegistry()
    registry.register(Metrics(_Nothing(), Diagnosis(), FindingWatch(list)))
    found = set()
    for family in registry.collect():
        found |= {family.name} if family.type == "gauge" else {f"{family.name}_total"}
        found |= (
            {f"{family.name}_{each}" for each in ("bucket", "count", "sum")} if family.type == "histogram" else set()
        )
    return found


def test_the_dashboard_asks_for_what_there_is(names: set[str]) -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    texts += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    asked = {name for text in texts for name in re.findall(r"\b(?:zmtp|zmtpsniff)_\w+", text)}
    assert asked <= names
    assert {"zmtp_messages_total", "zmtp_reply_seconds_bucket", "zmtpsniff_packets_dropped_total"} <= asked
    for text in texts:
        assert text.count("(") == text.count(")")


def test_the_page_shows_what_prometheus_gets() -> None:
    shown = re.findall(r"^zmtp_.*", (DOCS / "howto" / "monitoring.md").read_text(), re.MULTILINE)
    metrics, registry = Metrics(_Nothing(), Diagnosis(), FindingWatch(list)), CollectorRegistry()
    registry.register(metrics)
    metrics.take(list(zmtpsniff.open(FIXTURES / "m31_req_rep.pcap")))
    assert len(shown) == 3
    assert set(shown) <= set(generate_latest(registry).decode().splitlines())


def _promtool() -> str | None:
    return shutil.which("promtool", path=f"{os.environ['PATH']}:{PROJECT / '.ci/prometheus/usr/bin'}")


def test_the_rules_ask_for_what_there_is(names: set[str]) -> None:
    rules = yaml.safe_load((DOCS / "prometheus-rules.yml").read_text())["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"\b(?:zmtp|zmtpsniff)_\w+", rule["expr"])}
    assert asked <= names
    tried = yaml.safe_load((DOCS / "prometheus-rules-test.yml").read_text())["tests"]
    alerts = {rule["alert"] for rule in rules if "alert" in rule}
    assert {one["alertname"] for test in tried for one in test["alert_rule_test"] if one.get("exp_alerts")} == alerts


@pytest.mark.skipif(_promtool() is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "words", [("check", "rules", "prometheus-rules.yml"), ("test", "rules", "prometheus-rules-test.yml")]
)
def test_the_rules_call(words: tuple[str, ...]) -> None:
    done = subprocess.run([str(_promtool()), *words], cwd=DOCS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_panels_have_places_of_their_own() -> None:
    panels = json.loads((DOCS / "grafana-dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_page_names_all_metrics(names: set[str]) -> None:
    page = (DOCS / "howto" / "monitoring.md").read_text()
    assert names
    for name in names:
        assert f"`{re.sub('_(bucket|count|sum)$', '', name)}`" in page or name == "zmtp_reply_seconds_total"


def _options_are_known(words: list[str]) -> None:
    """Without ``-i`` it is told that an interface is missing, but nothing else."""
    assert words[:2] == ["zmtpsniff", "live"]
    place = words.index("-i")
    done = CliRunner().invoke(cli, words[1:place] + words[place + 2 :])
    assert "-i INTERFACE" in done.output, done.output


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit(tmp_path: Path) -> None:
    text = (DOCS / "zmtpsniff.service").read_text()
    unit = tmp_path / "zmtpsniff.service"
    unit.write_text(text.replace("/opt/zmtpsniff/bin/zmtpsniff", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "zmtpsniff.service" not in done.stderr, done.stderr


def test_the_units_command() -> None:
    import shlex

    text = (DOCS / "zmtpsniff.service").read_text()
    line = re.search(r"^ExecStart=(.*)$", text, re.M)
    assert line
    assert re.search(r"^CPUQuota=\d+%$", text, re.M)
    assert re.search(r"^MemoryMax=\d+[MG]$", text, re.M)
    words = shlex.split(line[1])
    _options_are_known([Path(words[0]).name, *words[1:]])


def test_the_daemonset() -> None:
    workload = yaml.safe_load((DOCS / "daemonset.yml").read_text())
    assert (workload["apiVersion"], workload["kind"]) == ("apps/v1", "DaemonSet")
    template = workload["spec"]["template"]
    labels = workload["spec"]["selector"]["matchLabels"]
    assert labels.items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_RAW"]}
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    port = container["ports"][0]["containerPort"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port)
    assert f"$(NODE_IP):{port}" in container["command"]
    _options_are_known(container["command"])
