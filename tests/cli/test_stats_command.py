"""``zmtpsniff stats`` as its users and their scripts meet it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.examples import sampled
from tests.support.golden import hold
from tests.support.paths import CAPTURES, FIXTURES, PROJECT
from tests.support.runner import run
from tests.world.conversation import CLIENT, SERVER, Conversation, Piece
from tests.world.network import packets, segments
from tests.world.tap import load, save
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.statistics.sorts import SORTS as KNOWN_SORTS
from zmtpsniff.analysis.statistics.stats_records import AnyRecord
from zmtpsniff.cli.stats_command import SORTS
from zmtpsniff.render.json_schema import json_schema

PROGRAM = [sys.executable, "-m", "zmtpsniff"]
GOLDEN = PROJECT / "tests" / "render" / "golden" / "stats"
REQ_REP = FIXTURES / "m31_req_rep.pcap"
# The mixed captures have connections of the others, as if another host had seen them: these would put its clock right.
ALL = [*(path for path in sorted(FIXTURES.glob("*.pcap*"))[::4] if path.name[:3] not in ("m31", "mix"))]
ALL += sorted(CAPTURES.glob("mix_21*.pcap*"))


def told(*arguments: object) -> list[dict[str, Any]]:
    done = run("stats", "-T", "json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


# ------------------------------------------------------------------ what people read

CASES = [
    ("req_rep.table", "m31_req_rep.pcap", ""),
    ("req_rep.ascii.table", "m31_req_rep.pcap", "ascii"),
    ("req_rep.color.table", "m31_req_rep.pcap", "--color always"),
    ("req_rep.json", "m31_req_rep.pcap", "-T json"),
    ("pub_sub.table", "m31_pub_sub.pcap", "--interval 0.1"),
    ("link_types.wide.table", "mix_link_types.pcapng", "wide"),
    ("heartbeat.table", "m31_heartbeat.pcap", ""),
    ("socket_types.table", "sec_types_push_pub.pcap", ""),
    ("curve.table", "sec_curve_ps_435_435.pcap", ""),
    ("http_on_zmq_port.table", "bad_http_on_zmq_port.pcap", ""),
    ("several.table", "m31_req_rep.pcap m31_pub_sub.pcap m31_push_pull.pcap", "--top 2 --sort octets"),
]


@pytest.mark.parametrize(("expected", "captures", "options"), CASES, ids=[case[0] for case in CASES])
def test_output_is_as_expected(expected: str, captures: str, options: str, request: pytest.FixtureRequest) -> None:
    environment = {**os.environ, "PYTHONUTF8": "1", "COLUMNS": "80"}
    if options == "ascii":
        environment |= {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    elif options == "wide":
        environment["COLUMNS"] = "200"
    environment.pop("NO_COLOR", None)
    words = [] if options in ("ascii", "wide") else options.split()
    arguments = ["stats", "--utc", *words, *captures.split()]
    if options == "ascii":  # which Python asks for when it starts
        done = subprocess.run(
            [*PROGRAM, *arguments], cwd=FIXTURES, env=environment, capture_output=True, text=True, check=False
        )
    else:
        done = run(*arguments, cwd=FIXTURES, env=environment)
    is_sealed = expected == "curve.table"
    assert done.returncode == 0
    assert (" CURVE connection are encrypted" in done.stderr) if is_sealed else not done.stderr
    assert options != "ascii" or done.stdout.isascii()
    hold(request, GOLDEN / expected, done.stdout)


def test_no_expected_file_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {case[0] for case in CASES}


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_is_filled_but_never_overrun(columns: int) -> None:
    script = f"stty cols {columns}; {' '.join(PROGRAM)} stats --top 5 {' '.join(map(str, ALL))}"
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    done = subprocess.run(
        ["script", "-qec", script, "/dev/null"],
        capture_output=True,
        text=True,
        env={**environment, "TERM": "xterm-256color", "PYTHONUTF8": "1"},
        check=True,
    )
    assert "\x1b[" in done.stdout
    # Where reading takes long, a line tells how much has been read, and is erased again.
    lines = [re.sub("\x1b\\[[0-9;]*[Km]", "", line) for line in done.stdout.splitlines()]
    longest = max(map(len, lines))
    assert columns * 0.5 < longest <= columns


def test_replies_behind_a_broker_are_those_of_each_leg() -> None:
    for name, title in (("rec_proxy_ok.pcap", "all, each leg "), ("brokers/two_brokers.pcap.gz", "all, each leg ")):
        assert any(line.startswith(title) for line in run("stats", FIXTURES / name).stdout.splitlines())


def test_the_last_column_is_not_cut_off() -> None:
    """Addresses are on two lines, and a mechanism that differs is whole: of its connection and of its socket."""
    done = run("stats", FIXTURES / "shop" / "null.pcap.gz", env={**os.environ, "COLUMNS": "80"})
    assert done.stdout.count(" PLAIN") == 2
    assert max(map(len, done.stdout.splitlines())) <= 80


# ------------------------------------------------------------------ what programs read


def schema() -> dict[str, Any]:
    shown = run("schema", "--stats")
    assert shown.returncode == 0
    made: dict[str, Any] = json.loads(shown.stdout)
    assert made == json_schema(AnyRecord | Finding, made["title"], made["description"])
    return made


def test_every_row_is_valid_by_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    kinds = set()
    for row in [*told(*ALL), *told("--top", 1, *ALL)]:
        validator.validate(row)
        kinds.add(row["type"])
    assert kinds - {"finding"} == set(re.findall(r'"const": "(stats-[a-z]+)"', json.dumps(schema())))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"type": "stats-total", "packets": "many"})


def test_the_page_names_every_field() -> None:
    page = (PROJECT / "docs" / "stats.md").read_text()
    kinds = set()
    for definition in schema()["$defs"].values():
        kind = definition.get("properties", {}).get("type", {}).get("const")
        if kind is None:
            continue
        kinds.add(kind)
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{kind}`")]
        for name in definition["properties"]:
            assert name == "type" or f"`{name}`" in line, (kind, name)
    assert {"stats-total", "stats-connection", "stats-latency"} <= kinds


def test_rows_that_are_cut_are_told() -> None:
    everything = told("--top", 1000, *ALL)
    some = told("--top", 2, *ALL)
    for kind in ("stats-connection", "stats-socket", "stats-topic"):
        count = sum(row["type"] == kind for row in everything)
        assert [row["type"] for row in some].count(kind) == 2
        assert {"type": "stats-cut", "of": kind, "at_least": count - 2} in some
    assert everything[-1] == some[-1]


@pytest.mark.parametrize("sort", sampled(SORTS, 3))
def test_rows_are_sorted(sort: str) -> None:
    rows = told("--top", 1000, "--sort", sort, *ALL)
    keys: dict[str, Callable[[dict[str, Any]], Any]] = {
        "messages": lambda row: -sum(row["messages"].values()),
        "octets": lambda row: -sum(row["octets"].values()),
        "rate": lambda row: -row.get("messages_per_s", 0),
        "duration": lambda row: -row["duration_ns"],
        "start": lambda row: row["start_ns"],
        "address": lambda row: (row["server"]["address"], row["client"]["address"]),
    }
    if sort in keys:
        found = [keys[sort](row) for row in rows if row["type"] == "stats-connection"]
    elif sort == "peers":
        found = [-row["connections"] for row in rows if row["type"] == "stats-socket"]
    else:
        found = [-row[f"{sort}_ns"] for row in rows if row["type"] == "stats-latency" and "service" in row]
        patterns = [row["pattern"] for row in rows if row["type"] == "stats-latency" and "service" in row]
        found = found[: patterns.count("request-reply")]
    assert len(found) > 5
    assert found == sorted(found)


def test_sorts_are_those_there_are() -> None:
    assert tuple(KNOWN_SORTS) == SORTS


def test_intervals() -> None:
    rows = [row for row in told("--interval", 60, *ALL) if row["type"] == "stats-timeline"]
    assert {row["interval_ns"] for row in rows} == {60 * 10**9}
    assert all(row["start_ns"] % (60 * 10**9) == 0 for row in rows)


# ------------------------------------------------------------------ filters and other options


def test_a_filter_chooses_what_is_counted() -> None:
    server = told(REQ_REP)[0]["server"]["address"]
    rows = told("-Y", f'type == "message" && src == "{server}"', REQ_REP)
    (connection,) = [row for row in rows if row["type"] == "stats-connection"]
    assert connection["messages"]["client"] == 0
    assert connection["messages"]["server"] == rows[-1]["messages"] > 0
    assert [row["type"] for row in told("-Y", 'src == "nobody"', REQ_REP)] == ["stats-total"]


def test_options_of_decoding_apply() -> None:
    assert told("-c", 13, REQ_REP)[-1]["packets"] == 13
    assert not any(row["type"] == "stats-latency" for row in told("--no-patterns", REQ_REP))
    assert any(row["type"] == "stats-latency" for row in told(REQ_REP))


def test_output_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for arguments in (["-T", "json"], ["--utc"]):
        done = run("stats", *arguments, "-o", out, REQ_REP)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert out.read_text(encoding="utf-8") == run("stats", *arguments, REQ_REP).stdout
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# ------------------------------------------------------------------ little or nothing to tell


def test_an_empty_capture(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(REQ_REP.read_bytes()[:24])
    done = run("stats", empty)
    assert (done.returncode, done.stdout, done.stderr) == (0, "No packets\n", "")
    assert [row["type"] for row in told(empty)] == ["stats-total"]
    assert told(empty)[0]["packets"] == 0


def test_a_capture_without_zmtp(tmp_path: Path) -> None:
    capture = tmp_path / "http.pcap"
    talk = (Piece(CLIENT, b"GET / HTTP/1.1\r\n\r\n"), Piece(SERVER, b"HTTP/1.1 200 OK\r\n\r\n"))
    save(capture, packets(segments(Conversation("http", talk))))
    done = run("stats", capture)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\d+ packets in [\d.]+ .s, 1 connection, 0 of them ZMTP\n", done.stdout)
    assert [row["type"] for row in told(capture)] == ["stats-total"]


def test_a_capture_that_is_cut_short_says_so(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(REQ_REP.read_bytes()[:-20])
    assert "capture-truncated" in run("stats", cut).stdout


def test_what_nobody_was_seen_to_subscribe_to_says_so(tmp_path: Path) -> None:
    """The capture begins behind the subscriptions."""
    packets = load(FIXTURES / "m31_pub_sub.pcap")
    save(tmp_path / "late.pcap", packets[len(packets) // 2 :])
    shown = run("stats", tmp_path / "late.pcap", env={**os.environ, "COLUMNS": "200"}).stdout
    (line,) = (one for one in shown.splitlines() if one.startswith('"weather"') and "seen" in one)
    assert line.split() == ['"weather"', "(published;", "subscription", "not", "seen)", "1", "13"]
