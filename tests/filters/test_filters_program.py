"""-Y and zmtpsniff fields on real captures: what passes is what plain Python finds in the JSON output."""

import io
import ipaddress
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import zmtpsniff
from dissectors.events import AnyEvent, Capture
from dissectors.payloads.registry import built_in
from tests.support.conversation import converse
from tests.support.examples import sampled
from tests.support.late_captures import without_beginnings
from tests.support.live_program import engines, live
from tests.support.namespaces import joined_namespaces, needs_namespaces
from tests.support.paths import CAPTURES, FIXTURES, PROJECT
from tests.support.runner import read_json, run
from tests.support.saved_files import read as packets_of
from tests.support.saved_files import save
from tests.world import tap
from zmtpsniff.filters import compile_filter
from zmtpsniff.filters.aliases import ALIASES, DERIVED
from zmtpsniff.filters.filter_fields import list_fields, payload_fields
from zmtpsniff.render.jsonl import JsonlRenderer

Record = dict[str, Any]
FILES = sorted(FIXTURES.glob("*.pcap*")) + sorted(CAPTURES.glob("*.pcap*"))
REQ_REP = FIXTURES / "m31_req_rep.pcap"
GUIDE = PROJECT / "docs" / "filters.md"


on_everything = pytest.mark.xdist_group("everything")  # one worker reads it


@lru_cache(1)
def everything() -> list[tuple[AnyEvent, Record]]:
    """All events of all captures at hand, each with its record in the JSON output."""
    pairs: list[tuple[AnyEvent, Record]] = []
    for path in FILES:
        events = list(zmtpsniff.open(path, payload=False))
        stream = io.BytesIO()
        JsonlRenderer(stream, 0).write(events)
        pairs += zip(events, map(json.loads, stream.getvalue().splitlines()), strict=True)
    return pairs


def _octets(shown: Record) -> bytes:
    return shown["text"].encode() if "text" in shown else bytes.fromhex(shown.get("hex", ""))


def _frames(record: Record) -> list[bytes]:
    return [_octets(frame) for frame in record.get("frames", [])]


def _topic(record: Record) -> bytes | None:
    """The topic of a subscription, or of a message of a publisher."""
    if record["type"] == "message":
        return _frames(record)[0] if record.get("socket_type") in ("PUB", "XPUB", "RADIO") and _frames(record) else None
    return _octets(record["topic"]) if "topic" in record else None


def _text(record: Record, *path: str | int) -> Any:
    """The value at a path of a record, None if there is none."""
    value: Any = record
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError):
            return None
    return value


def _ends(record: Record) -> list[tuple[Any, int]]:
    if record["type"] == "connection":
        shown = [record["client"]["address"], record["server"]["address"]]
    else:
        shown = [record[end] for end in ("src", "dst") if end in record]
    split = [end.rpartition(":") for end in shown]
    return [(ipaddress.ip_address(host.strip("[]")), int(port)) for host, _, port in split]


# A filter, and the same question in Python.
QUESTIONS: list[tuple[str, Callable[[Record], Any]]] = [
    ('socket_type == "REQ"', lambda r: r.get("socket_type") == "REQ"),
    ('socket_type != "REQ"', lambda r: "socket_type" in r and r["socket_type"] != "REQ"),
    ("identity", lambda r: "identity" in r),
    ("latency_ns", lambda r: "latency_ns" in r),
    ("incomplete", lambda r: "incomplete" in r),
    ("frames.truncated", lambda r: any("truncated" in frame for frame in r.get("frames", []))),
    ('frames[0].text == "orders" || frames[0].text == ""', lambda r: _text(r, "frames", 0, "text") in ("orders", "")),
    ('frames[-1] != ""', lambda r: any(frame != b"" for frame in _frames(r)[-1:])),
    ('frames[0].hex >= "80"', lambda r: (_text(r, "frames", 0, "hex") or "") >= "80"),
    ('frames[1:].text contains "e"', lambda r: any("e" in frame.get("text", "") for frame in r.get("frames", [])[1:])),
    ('any frames matches "^[a-m]+ ?[0-9]$"', lambda r: any(re.search(b"(?i)^[a-m]+ ?[0-9]$", f) for f in _frames(r))),
    (r'frames ~ r"\x00.\x01"', lambda r: any(re.search(b"\x00.\x01", frame) for frame in _frames(r))),
    ('frames.text matches r"REQUEST \\d"', lambda r: any(re.search(rb"(?i)request \d", f) for f in _frames(r))),
    ('detail matches "of the (client|server)"', lambda r: re.search("(?i)of the (client|server)", r.get("detail", ""))),
    ("len(topic) < 3", lambda r: (topic := _topic(r)) is not None and len(topic) < 3),
    ('frames && topic contains "sport"', lambda r: r["type"] == "message" and b"sport" in (_topic(r) or b"")),
    ('topic[0:1] == "w" || topic[0] == 41', lambda r: "topic" in r and _octets(r["topic"])[:1] in (b"w", b"A")),
    ('properties.Socket-Type == "SUB"', lambda r: _text(r, "properties", "Socket-Type", "text") == "SUB"),
    ('properties["Identity"].length > 0', lambda r: (_text(r, "properties", "Identity", "length") or 0) > 0),
    ('zmtp.metadata.key contains "Prop"', lambda r: any("Prop" in key for key in r.get("properties", {}))),
    ("messages.client > messages.server",
     lambda r: r["type"] == "connection" and r["messages"]["client"] > r["messages"]["server"]),
    ("subscriptions", lambda r: bool(r.get("subscriptions"))),
    ("envelope.identities >= 1", lambda r: (_text(r, "envelope", "identities") or 0) >= 1),
    ("envelope.delimiter == true", lambda r: _text(r, "envelope", "delimiter") is True),
    ("matched", lambda r: "matched" in r),
    ("matched == frames[0]", lambda r: "matched" in r and _octets(r["matched"]) == _frames(r)[0]),
    ('code contains "socket"', lambda r: "socket" in r.get("code", "")),
    ("password.length > 0 && !password.text", lambda r: (_text(r, "password", "length") or 0) > 0),
    ("zmtp", lambda r: "src" in r),
    ("ip.addr != 127.0.0.0/8",
     lambda r: any(h.version == 4 for h, _ in _ends(r)) and not any(h.is_loopback for h, _ in _ends(r))),
    ('zmtp.command-name == "PING" && zmtp.ping.ttl > 5', lambda r: r.get("ttl_ms", 0) >= 600),
    ("zmtp.version.major == 3", lambda r: r["type"] == "greeting" and r.get("version", "")[:1] == "3"),
    ('mechanism == "PLAIN" && type == "command"', lambda r: r["type"] == "command" and "username" in r),
]  # fmt: skip


@on_everything
@pytest.mark.parametrize(("text", "question"), QUESTIONS, ids=[text for text, _ in QUESTIONS])
def test_what_passes_is_what_python_finds(text: str, question: Callable[[Record], Any]) -> None:
    passes = compile_filter(text)
    found = [record for event, record in everything() if passes(event)]
    assert found == [record for _, record in everything() if question(record)]
    assert found or not CAPTURES.exists(), "no capture has it, so nothing is tested"


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all that a record shows."""
    if isinstance(value, dict):
        for name, inner in value.items():
            here = name if not path else f'properties["{name}"]' if path == "properties" else f"{path}.{name}"
            yield here
            yield from _paths(inner, here)
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item, path)


@on_everything
def test_all_that_json_shows_can_be_asked_for() -> None:
    filters: dict[str, Callable[[AnyEvent], bool]] = {}
    for event, record in everything():
        for path in _paths(record):
            if path not in filters:
                filters[path] = compile_filter(path)
            assert filters[path](event), (path, record)
    assert len(filters) > 80


def test_every_field_has_a_meaning_and_records() -> None:
    listed = {info.name: info for info in list_fields()}
    assert [name for name, info in listed.items() if not info.meaning] == []
    assert (ALIASES.keys() | DERIVED.keys()) <= listed.keys()
    assert [info.name for info in listed.values() if not info.records] == []


@on_everything
def test_every_listed_field_is_in_the_records_that_it_is_listed_for() -> None:
    for info in list_fields():
        passes = compile_filter(info.name)
        kinds = {record["type"] for event, record in everything() if passes(event)}
        assert kinds <= set(info.records), info.name


def test_read_shows_what_passes_and_the_totals() -> None:
    path = str(REQ_REP)
    whole = read_json(path)
    wanted = [r for r in whole if (r["type"] == "message" and r.get("socket_type") == "REP") or r["type"] == "capture"]
    assert read_json("-Y", 'type == "message" && socket_type == "REP"', path) == wanted
    assert read_json(path, "-Y", 'name == "NOSUCH"') == whole[-1:]
    summary = run("read", "-T", "summary", "-Y", "frames", path).stdout.splitlines()
    assert len(summary) == sum(r["type"] == "message" for r in whole) + 1
    assert run("read", "-T", "dump", "-Y", "packet == 0", path).stdout == ""
    tree = run("read", "-Y", 'frames[1] == "reply 0"', path).stdout
    assert "reply 0" in tree
    assert "reply 1" not in tree
    assert "READY" not in tree


def test_totals_are_left_out_on_demand() -> None:
    path = str(REQ_REP)
    whole = read_json(path)
    assert read_json(path, "--no-capture-record") == whole[:-1]
    messages = [record for record in whole if record["type"] == "message"]
    assert read_json(path, "-Y", 'type == "message"', "--no-capture-record") == messages
    assert read_json(path, "-Y", 'type == "message"', "--capture-record") == [*messages, whole[-1]]
    assert read_json(path, "-Y", 'type == "capture"', "--no-capture-record") == []
    assert len(run("read", "-T", "summary", "--no-capture-record", path).stdout.splitlines()) == len(whole) - 1


def test_what_is_shown_of_a_body_does_not_change_what_passes() -> None:
    records = read_json("--max-bytes", "3", "-Y", 'frames == "request 1" && !frames.truncated', str(REQ_REP))
    assert [_text(record, "frames", 1) for record in records[:-1]] == [{"length": 9, "text": "req", "truncated": True}]


def test_a_mistake_is_one_line_and_ends_with_2() -> None:
    done = run("read", str(REQ_REP), "-Y", 'packet && soket_type == "REQ"')
    assert done.returncode == 2
    assert done.stdout == ""
    expected = '-Y: column 11: there is no field "soket_type"; did you mean "socket_type"?'
    assert done.stderr == f"zmtpsniff: {expected} (see zmtpsniff read --help)\n"


def test_fields_lists_them_for_people_and_for_programs() -> None:
    done = run("fields", "-T", "json")
    listed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["name"], each["kind"], each["records"]) for each in listed] == [
        (info.name, info.kind, list(info.records)) for info in (*list_fields(), *payload_fields(built_in()))
    ]
    table = run("fields").stdout.splitlines()
    assert [line.split()[0] for line in table[1 : len(listed) + 1]] == [each["name"] for each in listed]
    assert all(each["meaning"] in line for each, line in zip(listed, table[1:], strict=False))
    assert [json.loads(line)["name"] for line in run("fields", "LATENCY", "-T", "json").stdout.splitlines()] == [
        "latency_ns"
    ]
    wrong = run("fields", "nothing-like-this")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_fields_lists_those_that_a_plug_in_declares(tmp_path: Path) -> None:
    plugin = tmp_path / "orders.py"
    plugin.write_text(
        "class Orders:\n"
        "    name = 'orders'\n"
        "    fields = {'qty': 'number', 'header.name': 'text'}\n"
        "    def match(self, message, connection): return False\n"
        "    def dissect(self, message, connection): return None\n"
    )
    listed = [
        json.loads(line)
        for line in run("fields", "--plugin", str(plugin), "orders", "-T", "json").stdout.split("\n")[:-1]
    ]
    assert [(each["name"], each["kind"]) for each in listed] == [
        ("payload.header.name", "text"),
        ("payload.qty", "number"),
    ]
    plugin.write_text(plugin.read_text().replace("'number'", "'int'"))
    wrong = run("fields", "--plugin", str(plugin))
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "qty is 'int', which is none of text, number" in wrong.stderr


@pytest.fixture(scope="module")
def of_several(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A capture of what several have, since a tshark takes long to start."""
    names = ("m31_req_rep", "m31_ipv6", "rec_dealer_dealer_ipv6", "m31_pub_sub", "sec_types_push_pub")
    batches = [packets_of(FIXTURES / f"{name}.pcap")[0] for name in names]
    path = tmp_path_factory.mktemp("several") / "all.pcapng"
    save(path, batches)
    return str(path)


NAMES = [
    "tcp.stream == 1", "tcp.port == 5555 || tcp.srcport < 20210", "ip.addr == 127.0.0.1", "ip.src == 127.0.0.0/8",
    "ip.addr != 127.0.0.1", "!(ip.addr == 127.0.0.1)", "ipv6.addr == ::1", "tcp.port in {20000 .. 20250}",
    "frame.number > 20 && frame.number <= 30", "any tcp.port > 40000", "all tcp.port > 20100", "tcp.port != 20205",
    "frame.time_epoch > 1795263457.61", "tcp.dstport lt tcp.srcport",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("text", sampled(NAMES, 2))
def test_names_of_wireshark_mean_what_they_mean_there(text: str, of_several: str) -> None:
    passes = compile_filter(text)
    command = ["tshark", "-r", of_several, "-Y", text, "-T", "fields", "-e", "frame.number"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode and ("any " in text or "all " in text):
        pytest.skip("this tshark does not know any and all")
    assert done.returncode == 0, done.stderr
    frames = {int(number) for number in done.stdout.split()}
    asked = 0
    for event in zmtpsniff.open(of_several, patterns=False, payload=False):
        packet = getattr(event, "packet", None)
        if packet is not None:
            assert passes(event) == (packet in frames), event
            asked += 1
    assert asked > 50


@needs_namespaces
@engines(only=["tcpdump", "dumpcap"], slow=["dumpcap"])
def test_live_saves_the_connections_that_pass(engine: str, tmp_path: Path) -> None:
    text = 'type == "message" && socket_type == "REP"'
    saved = tmp_path / "saved.pcapng"
    with joined_namespaces() as (here, there):
        options = ("--engine", engine, "-i", here.interface, "-f", "tcp", "-Y", text, "-w", str(saved))
        with live(*options, prefix=here.command()) as program:
            converse(here, there, here.ipv4, ("req_rep", "pub_sub"))
            program.read_until(lambda records: any(record["type"] == "message" for record in records))
            *shown, last = program.interrupt()
    assert ({record["type"] for record in shown}, last["type"]) == ({"message"}, "capture")
    *again, totals = read_json("-Y", text, str(saved))
    assert [_frames(record) for record in again] == [_frames(record) for record in shown]
    assert totals["flows"] == len({record["flow"] for record in shown})


@lru_cache(1)
def _examples() -> list[tuple[str, str, str]]:
    """The filters of the guide, with the capture that each is tried on."""
    return re.findall(r"^zmtpsniff read (\S+) .*?-Y '([^']+)' +# (\d+)$", GUIDE.read_text(), re.MULTILINE)


def test_examples_of_the_guide_find_what_it_says() -> None:
    """A number behind each says how many records pass; without that of the totals, which always come."""
    assert len(_examples()) > 10
    for capture, text, count in _examples():
        passes = compile_filter(text)
        events = [event for event in zmtpsniff.open(PROJECT / capture) if not isinstance(event, Capture)]
        assert sum(map(passes, events)) == int(count) > 0, text


def test_a_regular_expression_has_its_own_backslashes() -> None:
    """Whatever else is done with the text of a filter."""
    for text in (r'frames matches "^weather\.\d$"', r'type == "message" and frames ~ "^weather\.\d$"'):
        done = run("read", "-T", "json", "-Y", text, FIXTURES / "m31_pub_sub.pcap")
        assert done.stderr == ""
        topics = [json.loads(line)["frames"][0]["text"] for line in done.stdout.splitlines()[:-1]]
        assert topics
        assert set(topics) <= {f"weather.{number}" for number in range(10)}


def test_tables_of_the_guide_are_filters() -> None:
    for text in re.findall(r"^\| `([^`]+)` \|", GUIDE.read_text(), re.MULTILINE):
        compile_filter(text.replace("\\|", "|"))


def test_a_number_in_quotes_gets_a_hint_if_nothing_passed() -> None:
    prices = FIXTURES / "m31_pub_sub.pcap"
    done = run("read", "-T", "json", "-Y", 'body.bid > "100"', str(prices))
    assert done.stderr == 'zmtpsniff: nothing passed: "100" is a text; a number stands without quotes: body.bid > 100\n'
    for text in ("body.bid > 100", 'body.bid > "100" || packet == 16', 'body.venue > "X"'):
        done = run("read", "-T", "json", "-Y", text, str(prices))
        assert (done.stderr, len(done.stdout.splitlines()) > 1) == ("", True)


def test_messages_without_a_type_get_the_declared_one_and_a_hint(tmp_path: Path) -> None:
    """The capture begins after the handshake, and nothing tells before its end what the sockets are."""
    late, text = tmp_path / "late.pcap", 'socket_type == "PUSH"'
    tap.save(late, without_beginnings(FIXTURES / "running" / "jobs_for_one.pcap.gz"))
    done = run("read", "-T", "json", "-Y", text, str(late))
    (totals,) = map(json.loads, done.stdout.splitlines())
    assert totals["messages"] > 10
    said = re.fullmatch(
        r"zmtpsniff: nothing passed: (\d+) messages have no socket_type, .*; (-d) (\S+) .*\n", done.stderr
    )
    assert said
    assert int(said[1]) == totals["messages"]
    *messages, _ = read_json(said[2], said[3], "-Y", text, str(late))
    assert len(messages) == totals["messages"]
    assert {message["socket_type"] for message in messages if message["type"] == "message"} == {"PUSH"}
    assert run("read", "-T", "json", "-Y", 'mechanism == "PLAIN"', str(late)).stderr == ""


def test_a_type_that_is_inferred_passes(tmp_path: Path) -> None:
    late = tmp_path / "late.pcap"
    tap.save(late, tap.load(FIXTURES / "m31_pub_sub.pcap")[14:])
    *messages, _ = read_json("-Y", 'type == "message" && socket_type == "PUB"', str(late))
    assert len(messages) > 3
    assert {(message["socket_type"], message["inferred"]) for message in messages} == {("PUB", True)}
    *rest, _ = read_json("-Y", 'type == "message" && !inferred', str(late))
    assert not any("socket_type" in message for message in rest)
    done = run("read", "-T", "json", "-Y", 'socket_type == "REQ"', str(late))
    assert re.search(rf"nothing passed: {len(rest)} messages? (has|have) no socket_type", done.stderr)
