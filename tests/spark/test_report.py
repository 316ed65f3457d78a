"""A report on tables says the same as `stats` and `report` on the captures they were made of."""

import json
import shutil
from collections import Counter
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

import zmtpsniff
from tests.spark.local_job import take
from tests.spark.spark_tables import later, read_tables
from tests.support.paths import FIXTURES
from tests.support.runner import run
from zmtpsniff.cli.spark_command import spark as command
from zmtpsniff.render.jsonl import JsonlRenderer
from zmtpsniff.report.capture_report import CaptureReport
from zmtpsniff.report.results import Results
from zmtpsniff.spark.report import report
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.store import FORMAT, MARK

NAMES = (
    "app_majordomo_mdp01.pcap",
    "draft_radio_dish_tcp.pcap",
    "m31_pub_sub.pcap",
    "m31_req_rep.pcap",
    "net_zmtp1_gap.pcap",
    "rec_late_reply.pcap",
    "rec_manual_publisher.pcap",
    "rec_multipart_client.pcap",
    "rec_odd_subscriptions.pcap",
    "rec_proxy.pcap",
    "rec_reconnect_storm.pcap",
    "rec_relaxed_request.pcap",
    "rec_unanswered_request.pcap",
    "sec_curve_ps_435_435.pcap",
    "sec_plain_ok_435_435.pcap",
)
TOP = 1000
pytestmark = pytest.mark.xdist_group("report")  # one worker makes the tables
Lines = list[dict[str, Any]]


def lines(records: Any) -> Lines:
    stream = BytesIO()
    JsonlRenderer(stream).write(records)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The captures, a series each, with their secrets."""
    folder = tmp_path_factory.mktemp("report")
    for name in NAMES:
        target = folder / "in" / name.partition(".")[0]
        target.mkdir(parents=True)
        (target / name).write_bytes((FIXTURES / name).read_bytes())
    take([folder / "in"], folder / "out", show_secrets=True)
    return folder / "out"


@pytest.fixture(scope="module")
def told(tables: Path) -> Lines:
    return lines(list(report(str(tables), TOP).records()))


@pytest.fixture(scope="module")
def counted() -> Results:
    """The report of the captures, computed while they are read."""
    made = CaptureReport(TOP)
    for name in NAMES:
        for events in zmtpsniff.open(FIXTURES / name).batches():
            made.take(events)
    return made.results("", len(NAMES))


def of(found: Lines, kind: str) -> Lines:
    return [line for line in found if line["type"] == kind]


def test_storms(told: Lines) -> None:
    (storm,) = of(told, "report-storm")
    (problem,) = [line for line in of(told, "report-problem") if line["code"] == "reconnect-storm"]
    # Told when there were five; here all that came are counted.
    assert problem["detail"].startswith(f"{storm['client']} connected to {storm['server']} 5 times")
    assert storm["connections"] >= 5
    assert storm["handshake"] == "incomplete"


def test_problems(told: Lines, counted: Results) -> None:
    counts: Counter[str] = Counter()
    for line in of(told, "report-problem"):
        counts[line["code"]] += line["count"]
    wanted: Counter[str] = Counter()
    for row in counted.problems:
        wanted[row.code] += row.count
    assert counts == wanted
    assert all(line["packet"] > 0 for line in of(told, "report-problem") if "time_ns" in line)
    by_pair = [line.get("problems", {}) for line in of(told, "report-pair")]
    assert sum(counts.get("error", 0) for counts in by_pair) == counts["capture-gap"]


def test_passwords_are_not_told(told: Lines, tables: Path) -> None:
    rows = read_tables(tables)["commands"]
    passwords = [row["password"]["data"].decode() for row in rows if row["password"] is not None]
    assert passwords
    assert not [word for word in passwords if word in json.dumps(told)]


def test_part_of_the_time_and_of_the_rows(tables: Path, told: Lines, tmp_path: Path) -> None:
    """The command: the busiest row of each kind, from the middle of the connections on, as lines and as a page."""
    (total,) = of(told, "report-total")
    starts = sorted(line["start_ns"] for line in of(told, "report-socket"))
    since = datetime.fromtimestamp(starts[len(starts) // 2] // 1_000_000_000, UTC).isoformat()
    output, page = tmp_path / "report.jsonl", tmp_path / "report.html"
    arguments = [str(tables), "--top", "1", "-T", "json", "-o", str(output)]
    arguments += ["--html", str(page), "--since", since, "--until", "2100-01-01"]
    done = CliRunner().invoke(command, ["report", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in output.read_text().splitlines()]
    (part,) = of(found, "report-total")
    assert 0 < part["connections"] < total["connections"]
    assert 0 < part["messages"] < total["messages"]
    assert len(of(found, "report-pair")) == len(of(found, "report-socket")) == 1
    cut = {line["of"]: line["more"] for line in of(found, "report-cut")}
    assert cut["report-pair"] > 0
    assert of(found, "report-socket")[0]["connections"] <= part["connections"] - cut["report-socket"]
    text = page.read_text()
    assert of(found, "report-socket")[0]["address"] in text
    assert f"{part['messages']:,} messages" in text


def test_no_tables(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="there are no tables; zmtpsniff spark ingest INPUT"):
        report(str(tmp_path))


def test_an_error_is_one_line(tables: Path, tmp_path: Path) -> None:
    shutil.copytree(tables, tmp_path / "damaged")
    for file in (tmp_path / "damaged" / "messages").rglob("*.parquet"):
        file.write_bytes(b"no Parquet")
    for folder, said in (("nowhere", "there are no tables"), ("damaged", "")):
        done = run("spark", "report", tmp_path / folder)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"zmtpsniff: {tmp_path / folder}: {said}")


def test_tables_that_lack_columns(tables: Path, tmp_path: Path) -> None:
    """As an earlier version wrote them."""
    shutil.copytree(tables, tmp_path / "old")
    for table, column in (("connections", "shared_id"), ("captures", "condition")):
        location = str(tmp_path / "old" / table)
        rows = DeltaTable(location).to_pyarrow_dataset().to_table().drop([column])
        shutil.rmtree(location)
        write_deltalake(location, rows, partition_by=["date"], description=f"{MARK}{FORMAT}")
    results = report(str(tmp_path / "old"), TOP)
    assert results.total == report(str(tables), TOP).total


def comparable(results: Results) -> dict[str, Any]:
    """The parts that must be the same: all but problems of no connection, and programs, which tables do not have."""
    unknown: dict[str, Any] = {"problems": {}, "client_program": None, "server_program": None, "server_asks": None}
    results.pairs = [msgspec.structs.replace(pair, **unknown) for pair in results.pairs]
    found = {
        name: getattr(results, name)
        for name in ("versions", "timeline", "latencies", "replies", "topics", "subscriptions", "sockets", "pairs")
    }
    return {name: sorted(map(repr, rows)) for name, rows in found.items()}


def test_it_is_that_of_the_captures(tables: Path, counted: Results) -> None:
    """Computed while they are read, and from their tables."""
    found = report(str(tables), TOP)
    assert comparable(found) == comparable(counted)
    assert found.total == counted.total


def test_a_connection_that_two_hosts_saw_counts_once(tmp_path: Path) -> None:
    for host in ("one", "two"):
        (tmp_path / "in" / host).mkdir(parents=True)
        (tmp_path / "in" / host / "1.pcap").write_bytes((FIXTURES / "m31_req_rep.pcap").read_bytes())
    take([tmp_path / "in"], tmp_path / "out")
    twice = report(str(tmp_path / "out"))
    take([tmp_path / "in" / "one"], tmp_path / "out2")
    once = report(str(tmp_path / "out2"))
    assert comparable(twice) == comparable(once)
    assert (twice.total.messages, twice.total.connections) == (once.total.messages, once.total.connections)
    assert [row.files for row in twice.series] == [1, 1]


def test_a_capture_that_was_replayed_counts_as_often(tmp_path: Path) -> None:
    """Its connections have the same initial sequence numbers, and so the same conn_id, in one series."""
    folder = tmp_path / "in"
    for number, name in enumerate(("m31_req_rep.pcap", "m31_pub_sub.pcap", "bad_http_on_zmq_port.pcap")):
        (folder / str(number)).mkdir(parents=True)
        for again in range(3):
            later(FIXTURES / name, again * 3600 * 10**9, folder / str(number) / f"{again}.pcapng")
    take([folder], tmp_path / "out")
    take([folder / "0" / "0.pcapng", folder / "1" / "0.pcapng", folder / "2" / "0.pcapng"], tmp_path / "one")
    often, once = (report(str(tmp_path / name)) for name in ("out", "one"))
    assert often.latencies[0].count == 3 * once.latencies[0].count > 0
    for found in (often, once):
        assert sum(row.messages for row in found.timeline if row.service is not None) == found.total.messages > 0
    for kind in ("messages_in", "messages_out", "octets_in", "connections"):
        assert [getattr(row, kind) for row in often.pairs] == [3 * getattr(row, kind) for row in once.pairs]
    errors = [
        [row.problems.get("error", 0) for row in found.pairs] for found in (often, once)
    ]  # others depend on these
    assert errors[0] == [3 * count for count in errors[1]]
    assert [row.subscribers for row in often.subscriptions] == [row.subscribers for row in once.subscriptions]
