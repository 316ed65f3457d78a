"""``--last``, ``--from``, ``--until`` as their users meet them."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.paths import FIXTURES
from tests.support.runner import read_json, run
from tests.world.tap import load, save
from zmtpsniff.cli.window_options import parse_duration, parse_time

REQ_REP = FIXTURES / "m31_req_rep.pcap"


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("10m", 600), ("2h", 7200), ("1d", 86_400)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds * 1e9


@pytest.mark.parametrize("text", ["", "0", "-1", "10 m", "m", "1w"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        parse_duration(text)


def test_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    try:
        utc = datetime(2026, 11, 21, 1, 10, tzinfo=UTC).timestamp() * 1e9
        assert (
            parse_time("2026-11-21T03:10") == parse_time("2026-11-21T01:10Z") == parse_time("2026-11-21 03:10") == utc
        )
        before_ns = time.time_ns() - parse_time("03:10")
        assert 0 <= before_ns <= 86_400e9
        assert (parse_time("03:10:00.5") - parse_time("03:10")) % (86_400 * 10**9) == 5 * 10**8
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(ValueError, match="no time"):
        parse_time("25:00")


def _utc(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{time_ns % 10**9 // 1000:06}Z"


def test_a_connection_that_is_open_keeps_its_types(tmp_path: Path) -> None:
    """The last part of a connection in a ring of files: its requests are paired as if its greeting were inside."""
    packets = load(REQ_REP)
    whole = [record for record in read_json(REQ_REP) if record["type"] == "message"]
    half = whole[len(whole) // 2]
    names = [tmp_path / "one.pcap", tmp_path / "two.pcap"]
    save(names[0], packets[: half["packet"] - 1])
    save(names[1], packets[half["packet"] - 1 :])
    found = read_json("--from", _utc(half["time_ns"]), *names)
    assert not {"greeting", "command"} & {record["type"] for record in found}
    messages = sorted((one["time_ns"], one.get("socket_type")) for one in found if one["type"] == "message")
    kept = whole[len(whole) // 2 :]
    assert [time_ns for time_ns, _ in messages] == [one["time_ns"] for one in kept]
    assert [kind for _, kind in messages][-4:] == ["REQ", "REP", "REQ", "REP"], "once both sides have spoken"
    (summary,) = [one for one in found if one["type"] == "connection"]
    assert not {"lookalike"} & {*summary["client"], *summary["server"]}
    (alone,) = [one for one in read_json(names[1]) if one["type"] == "connection"]
    assert alone["client"]["lookalike"] == "DEALER", "without the older file nobody knows"


def test_a_connection_that_begins_inside_keeps_no_types_of_another(tmp_path: Path) -> None:
    """Its ports were used before; the capture has its SYNs, but not its greetings."""
    packets = load(REQ_REP)
    greeted = max(place for place, packet in enumerate(packets) if b"\x05READY" in packet[2]) + 1
    end = next(place for place, packet in enumerate(packets) if packet[2][47] & 0x05)  # FIN or RST
    names = [tmp_path / "one.pcap", tmp_path / "two.pcap"]
    save(names[0], packets[:end])
    later = [(time_ns + 10**11, *more) for time_ns, *more in packets[:3] + packets[greeted:end]]
    save(names[1], later)  # type: ignore[arg-type]
    found = read_json("--from", _utc(packets[0][0] + 10**11), *names)
    assert found == read_json(names[1])
    assert "message" in {record["type"] for record in found}


@pytest.mark.parametrize("command", ["read", "stats", "diagnose", "trace"])
def test_all_that_read_captures_have_it(command: str) -> None:
    assert run(command, "--last", "1h", REQ_REP).returncode == 0
    assert "no packet" in run(command, "--from", "2100-01-01", REQ_REP).stderr


def test_what_does_not_go_together() -> None:
    for arguments, words in (
        (("read", "--last", "1m", "--from", "03:10", REQ_REP), "--last: not with --from"),
        (("read", "--from", "2026-02-02", "--until", "2026-02-01", REQ_REP), "must be before"),
        (("diagnose", "--live", "-i", "lo", "--last", "1m"), "only with capture files"),
        (("read", "--engine", "tshark", "--last", "100d", REQ_REP), "not with --engine tshark"),
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert words in done.stderr


def test_trace_knows_whose_request_had_no_reply(tmp_path: Path) -> None:
    """A worker that has hung since yesterday: the connection began in an older file."""
    packets = load(REQ_REP)
    messages = [record for record in read_json(REQ_REP) if record["type"] == "message"]
    first, last = (next(one for one in messages[-place:] if one["socket_type"] == "REQ") for place in (16, 2))
    names = [tmp_path / "one.pcap", tmp_path / "two.pcap"]
    save(names[0], packets[: first["packet"] - 1])
    save(names[1], packets[first["packet"] - 1 : last["packet"]])
    done = run("trace", "-T", "json", "--from", _utc(first["time_ns"]), *names)
    ways = [json.loads(line) for line in done.stdout.splitlines()]
    assert [way["answered"] for way in ways][-3:] == [True, True, False]
