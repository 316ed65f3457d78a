"""Whatever peers put into names and octets: no terminal acts on it, no format breaks, no password is shown."""

import io
import json
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Capture, Command, Connection, Message, Peer, Sides
from tests.support.examples import examples
from tests.support.paths import FIXTURES
from tests.world.events import dissect
from tests.world.octets import command, frame, greeting, peers, prop, ready
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.payloads import Payloads
from zmtpsniff.analysis.plugins import load_dissectors
from zmtpsniff.analysis.statistics.record_maker import report
from zmtpsniff.analysis.statistics.statistics import Statistics
from zmtpsniff.check.check_report import Report
from zmtpsniff.check.formats import FORMATS, make_report
from zmtpsniff.check.policy import parse_policy
from zmtpsniff.check.rules import Check
from zmtpsniff.cli.main import cli
from zmtpsniff.render import FORMATS as OUTPUTS
from zmtpsniff.render import make_renderer
from zmtpsniff.render.statistics_tables import draw
from zmtpsniff.words.text import CONTROL_OR_UNSEEN, escape

FOR_PEOPLE = tuple(form for form in OUTPUTS if form != "json")

NASTY = {
    "colour": b"\x1b[31mred",
    "clears the screen": b"\x1b[2J\x1b[H",
    "title": b"\x1b]0;owned\x07",
    "eight bit": b"\xc2\x9b31m",
    "right to left": "abc\u202egpj.exe".encode(),
    "isolates": "\u2066a\u2069\u200f".encode(),
    "unseen": "a\u200bb\ufeffc\U000e0041".encode(),
    "no UTF-8": b"\xff\xfe\x80abc",
    "overlong": b"\xc0\xaf\xe0\x80\xaf",
    "NUL": b"a\0b",
    "surrogate": b"\xed\xa0\x80\xed\xbf\xbf",
    "lines": b"a\r\nb\nc\x0bd\x85e",
    "line separators": "a\u2028b\u2029c".encode(),
    "markup": b"]]><script>alert(1)</script>&amp;\"'[bold]x[/]::error::%0A",
    "not a character": "\ufffe\uffff\U0010ffff".encode(),
}
RULES = """
include = ['protocol', 'secure', 'complete', 'modern']
[[rule]]
name = "\\u001b[2J\\u202e<&"
forbid = 'flow'
"""


def conversation(nasty: bytes) -> list[tuple[int, bytes]]:
    """Everything that a peer can choose the octets of, chosen so."""
    short = nasty[:100]
    sent = [(0, greeting()), (1, greeting())]
    sent += [(0, ready(b"DEALER", prop(b"Identity", short), prop(short[:50], short)))]
    sent += [(1, ready(b"ROUTER", prop(b"X-" + short[:50], short)))]
    sent += [(0, frame(short, 1) + frame(b"", 1) + frame(nasty)), (1, frame(nasty))]
    sent += [(0, command(b"PING", b"\0\1" + short[:16])), (1, command(short[:40], short))]
    sent += [(1, command(b"ERROR", bytes([len(short)]) + short)), (0, command(b"SUBSCRIBE", short))]
    return sent


def conversations(nasty: bytes) -> list[AnyEvent]:
    short = nasty[:20]
    events = dissect(conversation(nasty))
    events += dissect(
        [*peers(b"SUB", b"PUB"), (0, frame(b"\1" + nasty)), (1, frame(nasty[:100] + b"x", 1) + frame(b""))]
    )
    events += dissect([(0, greeting(short)), (1, greeting(short))])  # mechanisms
    events += dissect([(0, greeting()), (1, greeting()), (0, ready(short)), (1, ready(short))])  # socket types
    upgrade = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: ZWS2.0/" + short + b"\r\n\r\n"
    events += dissect([(0, upgrade), (1, b"HTTP/1.1 500 " + short + b"\r\n\r\n")])
    address = short.decode("utf-8", "replace") + ":1"  # of a socket in the file system
    events.append(Message(1, 1, 99, address, address, [b"x"], "PUB", latency_ns=5, request=1))
    sides = Sides(1, 1), Sides(1, 1)
    events.append(Connection(99, "ipc", Peer(address), Peer(address), *sides, 1, 2, "fin"))
    return [*events, Capture(10, 0, 5, 5, 5, 5, 1)]


def shown(events: Sequence[AnyEvent], output: str, verbosity: int = 0) -> str:
    if output == "json":
        octets = io.BytesIO()
        make_renderer("json", octets, max_bytes=0).write(events)
        return octets.getvalue().decode()
    stream = io.StringIO()
    renderer = make_renderer(output, stream, verbosity=verbosity, color="never", utc=True)  # type: ignore[arg-type]
    renderer.write(events)
    renderer.finish()
    return stream.getvalue()


def reports(events: Sequence[AnyEvent], rules: str = RULES) -> dict[str, str]:
    check = Check(parse_policy(rules, "a\x1bb.toml"))
    check.take(events)
    outcome = Report(check.finish(), ["a\x1b\u202e.pcap"], "a\x1b\u202e.pcap", "1", check.totals)
    return {output: make_report(output)(outcome) for output in FORMATS}


def statistics(events: Sequence[AnyEvent], color: Any = "never") -> tuple[str, str]:
    counted = Statistics()
    counted.take(events)
    records = report(counted)
    table = io.StringIO()
    draw(records, table, utc=True, color=color)
    return table.getvalue(), shown(records, "json")  # type: ignore[arg-type]


def is_safe(text: str) -> bool:
    """Whether a terminal shows the whole text; names that peers choose go through escape() of zmtpsniff.words.text."""
    text.encode()  # no lone surrogate
    unsafe = [found[0] for line in text.split("\n") for found in CONTROL_OR_UNSEEN.finditer(line)]
    assert not unsafe, f"escape these by zmtpsniff.words.text: {unsafe[:5]}"
    return True


def everything_is_safe(events: list[AnyEvent]) -> None:
    for output in FOR_PEOPLE:
        for verbosity in (0, 2):
            assert is_safe(shown(events, output, verbosity)), output
    lines = shown(events, "json")
    assert is_safe(lines)
    assert len([json.loads(line) for line in lines.splitlines()]) == len(events)
    table, rows = statistics(events)
    assert is_safe(table)
    assert is_safe(rows)
    assert all(json.loads(line) for line in rows.splitlines())
    written = reports(events)
    for form, text in written.items():
        assert is_safe(text), form
    json.loads(written["json"])
    json.loads(written["sarif"])
    ElementTree.fromstring(written["junit"])
    assert all(line.startswith("::") for line in written["github"].splitlines())


@pytest.mark.parametrize("name", NASTY)
def test_nothing_nasty_gets_out(name: str) -> None:
    events = conversations(NASTY[name])
    assert any(NASTY[name] in event.frames for event in events if isinstance(event, Message))
    everything_is_safe(events)


strings = st.text(min_size=1, max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass"))


@settings(max_examples=examples(40))
@given(st.one_of(st.binary(min_size=1, max_size=120), strings))
def test_nothing_gets_out(octets: bytes) -> None:
    everything_is_safe(conversations(octets))


def test_what_json_escapes_is_what_was_sent() -> None:
    """Escapes change how a string is written, not what it says."""
    text = "a\u202eb\u200b\U000e0041"
    events = dissect([*peers(), (0, frame(text.encode()))])
    lines = [json.loads(line) for line in shown(events, "json").splitlines()]
    (message,) = [line for line in lines if line["type"] == "message"]
    assert message["frames"] == [{"length": len(text.encode()), "text": text}]


# ---------------------------------------------------------------------- credentials

USER, PASSWORD = b"some user", b"hunter2 and more"
_FIELDS = bytes([len(USER)]) + USER + bytes([len(PASSWORD)]) + PASSWORD
HELLO = command(b"HELLO", _FIELDS)
ZAP = [b"", b"1.0", b"1", b"global", b"10.0.0.1", b"", b"PLAIN", USER, PASSWORD]


def _frames(bodies: list[bytes]) -> bytes:
    return b"".join(frame(body, number < len(bodies)) for number, body in enumerate(bodies, 1))


PLAIN = [(0, greeting(b"PLAIN")), (1, greeting(b"PLAIN", as_server=1))]
HELLOS: dict[str, list[tuple[int, bytes]]] = {
    "right": [*PLAIN, (0, HELLO)],
    "user name too long": [*PLAIN, (0, command(b"HELLO", b"\xc8" + _FIELDS[1:]))],
    "password too long": [*PLAIN, (0, command(b"HELLO", _FIELDS + b"x"))],
    "password too short": [*PLAIN, (0, command(b"HELLO", _FIELDS[:-3]))],
    "twice": [*PLAIN, (0, HELLO + HELLO)],
    "of both": [*PLAIN, (0, HELLO), (1, HELLO)],
    "mechanisms differ": [(0, greeting(b"PLAIN")), (1, greeting()), (0, HELLO)],
    "mechanism NULL": [(0, greeting()), (1, greeting()), (0, HELLO)],
    "mechanism unknown": [(0, greeting(b"OWN")), (1, greeting(b"OWN")), (0, HELLO)],
    "mechanism CURVE": [(0, greeting(b"CURVE")), (1, greeting(b"CURVE")), (0, HELLO)],
    "mechanism GSSAPI": [(0, greeting(b"GSSAPI")), (1, greeting(b"GSSAPI")), (0, HELLO)],
}
ZAPS: dict[str, list[tuple[int, bytes]]] = {
    "recognised": [*peers(b"REQ", b"REP"), (0, _frames(ZAP))],
    "after others": [*peers(b"REQ", b"REP"), (0, _frames([b"", b"x"]) * 50 + _frames(ZAP))],
    "with an envelope": [*peers(b"DEALER", b"ROUTER"), (0, _frames([b"id", *ZAP]))],
}


def _is_hidden(text: str) -> bool:
    return all(form not in text for form in (PASSWORD.decode(), PASSWORD.hex(), PASSWORD.hex().upper(), "hunter2"))


def _for_people(events: list[AnyEvent]) -> dict[str, str]:
    out = {f"{output} {verbosity}": shown(events, output, verbosity) for output in FOR_PEOPLE
           for verbosity in (0, 2)}  # fmt: skip
    out["statistics"], out["statistics in JSON"] = statistics(events)
    forbids_all = "".join(f"[[rule]]\nname = '{field}'\nforbid = '{field}'\n" for field in ("flow", "frames", "name"))
    return out | reports(events, forbids_all)


@pytest.mark.parametrize("name", HELLOS)
def test_password_of_plain_is_hidden(name: str) -> None:
    events = dissect(HELLOS[name])
    assert any(isinstance(event, Command) and event.name == "HELLO" for event in events)
    events = Patterns().take([*events, Capture(1, 0, 1, 1, 0, 0, 1)])
    for output, text in {**_for_people(events), "json": shown(events, "json")}.items():
        assert _is_hidden(text), output


@pytest.mark.parametrize("name", ZAPS)
@pytest.mark.parametrize("recognise", [True, False])
def test_password_of_zap_is_hidden(name: str, recognise: bool) -> None:
    """Also where payloads are not looked for; in JSON only `frames` has it, which are what was sent."""
    events = [*dissect(ZAPS[name]), Capture(1, 0, 1, 1, 1, 0, 1)]
    if recognise:
        events = Payloads(load_dissectors()).take(events)
    for output, text in _for_people(events).items():
        assert _is_hidden(text), output
    lines = shown(events, "json").splitlines()
    assert len(lines) == len(events)
    for line in lines:
        record = json.loads(line)
        record.pop("frames", None)
        assert _is_hidden(json.dumps(record))


def test_a_part_of_zap_is_hidden() -> None:
    """The beginning of the request is not in the capture."""
    event = Message(1, 1, 1, "10.0.0.1:1", "10.0.0.2:2", [b"PLAIN", USER, PASSWORD], incomplete=True)
    assert _is_hidden(shown([event], "tree", 2) + shown([event], "summary", 2) + shown([event], "dump"))
    event.incomplete = False
    assert not _is_hidden(shown([event], "tree", 2)), "three frames that are whole are no request of ZAP"


@pytest.mark.parametrize("arguments", [[], ["--no-payload"], ["-vv"], ["--no-patterns"]], ids=" ".join)
def test_the_program_hides_and_shows(arguments: list[str]) -> None:
    """--show-secrets works: else nothing that is hidden above would prove anything."""
    from click.testing import CliRunner

    def run(*more: str) -> str:
        command = ["read", "-T", "tree", "-v", *arguments, *more, str(FIXTURES / "zap_over_tcp.pcap")]
        result = CliRunner().invoke(cli, command)
        assert result.exit_code == 0
        return result.output

    assert '"secret"' not in run()
    assert '"secret"' in run("--show-secrets")


def test_noncharacters_are_escaped() -> None:
    """All 66 that Unicode has; terminals do with them what they like."""
    last = [plane | low for plane in range(0, 0x110000, 1 << 16) for low in (0xFFFE, 0xFFFF)]
    all_of_them = [*range(0xFDD0, 0xFDF0), *last]
    assert len(all_of_them) == 66
    for point in all_of_them:
        shown = escape(f"a{chr(point)}b")
        assert shown.isascii(), hex(point)
        assert f"{point:x}" in shown.lower()
