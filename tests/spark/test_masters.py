"""Masters that cannot be used are told at once, in one line."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.paths import PROJECT
from tests.support.runner import run
from zmtpsniff.spark.masters import mistake

NAMED = ("zmtpsniff-spark", "monitoring")  # and its namespace
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port at which nobody answers; no proxy is used."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2, 4]", "local-cluster[1,1,512]"])
def test_known(master: str) -> None:
    assert mistake(master) is None


def test_what_clusters_need(closed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert (mistake("yarn") or "").startswith("set HADOOP_CONF_DIR")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert (mistake("yarn") or "").startswith("set HADOOP_CONF_DIR")
    (tmp_path / "yarn-site.xml").touch()
    assert mistake("yarn") is None
    master = f"k8s://https://127.0.0.1:{closed}"
    assert (mistake(master) or "").startswith("set spark.kubernetes.container.image in spark-defaults.conf to an image")
    (tmp_path / "spark-defaults.conf").write_text("spark.kubernetes.container.image here\n")
    assert (mistake(master) or "").startswith("nobody answers there: ")


def test_the_manifest_for_kubernetes(closed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts name each other, and its command is one that ends only because nobody answers here, with one line."""
    parts = list(yaml.safe_load_all((PROJECT / "docs" / "spark-kubernetes.yml").read_text()))
    known = {part["kind"]: part for part in parts}
    assert len(known) == len(parts)
    assert {(part["metadata"]["name"], part["metadata"]["namespace"]) for part in parts} == {NAMED}
    pod = known["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (account,) = known["RoleBinding"]["subjects"]
    assert (account["name"], account["namespace"]) == (pod["serviceAccountName"], NAMED[1]) == NAMED
    assert known["RoleBinding"]["roleRef"]["name"] == pod["volumes"][0]["configMap"]["name"] == NAMED[0]
    (driver,) = pod["containers"]
    settings = known["ConfigMap"]["data"]["spark-defaults.conf"]
    for port in driver["ports"]:
        assert f"ort {port['containerPort']}\n" in settings
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(settings)
    *command, master = driver["command"]
    here = f"k8s://https://127.0.0.1:{closed}"
    assert master == "k8s://https://kubernetes.default.svc"
    done = run(*command[1:], here)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"zmtpsniff: {here}: nobody answers there: ")


@pytest.mark.parametrize(
    "master",
    [
        *("", "local[", "local[x]", "locale", "spork://here", "spark:", "here:7077"),
        *(f"local[{count}]" for count in ("0", "00", "-1", "9999999999", "2,0", "2,x")),
    ],
)
def test_unknown(master: str) -> None:
    assert (mistake(master) or "").startswith("Spark knows local, ")


@pytest.mark.parametrize("scheme", ["spark", "sc"])
@pytest.mark.parametrize(
    ("place", "said"), [("127.0.0.1:{}", "nobody answers there: "), ("a:b", "Port "), ("a:99999", "Port ")]
)
def test_out_of_reach(closed: int, scheme: str, place: str, said: str) -> None:
    assert (mistake(f"{scheme}://{place.format(closed)}") or "").startswith(said)


def test_one_of_several_is_enough(closed: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert mistake(f"spark://127.0.0.1:{closed},127.0.0.1:{port}") is None
        assert mistake(f"sc://127.0.0.1:{port}/;user_id=me") is None


@pytest.mark.parametrize("name", PROXIES)
def test_what_a_proxy_reaches_is_not_known(closed: int, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert mistake(f"sc://127.0.0.1:{closed}") is None
