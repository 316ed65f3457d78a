"""Application protocols inside messages, held against what the applications really sent."""

import json
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import zmtpsniff
from dissectors.batches import BatchSide, MessageBatch, single_messages
from dissectors.events import AnyEvent, Cut, Hidden, Message, Octets, Payload, Problem
from dissectors.payloads import PayloadConnection, fields_of, has_signature
from dissectors.payloads.registry import built_in
from tests.support.examples import crossed, sampled
from tests.support.paths import CAPTURES
from tests.world.columns import batch_of
from zmtpsniff.analysis.payloads import Payloads
from zmtpsniff.cli.main import cli
from zmtpsniff.decode_as import parse
from zmtpsniff.render import FORMATS

FOR_PEOPLE = tuple(form for form in FORMATS if form != "json")

KNOWN = {  # captures with known contents, and the protocols in them
    "app_jupyter.pcap": {"jupyter"},
    "app_majordomo_mdp01.pcap": {"mdp"},
    "app_malamute.pcap": {"mlm"},
    "mix_21_cases_interleaved.pcap": {"mlm", "mdp", "zap"},
    "zap_over_tcp.pcap": {"zap"},
}
needs_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures at {CAPTURES} (set ZMTPSNIFF_CAPTURES)")
PLACE = (1_700_000_000_000_000_000, 17, 1, "10.0.0.1:43210", "10.0.0.2:5555")


def read(path: Path, *options: str) -> list[dict[str, Any]]:
    """The records that the command gives."""
    done = CliRunner().invoke(cli, ["read", "-T", "json", *options, str(path)])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout_bytes.splitlines()]


def payloads_of(path: Path, *options: str) -> list[dict[str, Any]]:
    return [record["payload"] for record in read(path, *options) if "payload" in record]


def octets(shown: dict[str, Any]) -> bytes:
    return shown["text"].encode() if "text" in shown else bytes.fromhex(shown["hex"])


def truth(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CAPTURES / f"{name}.truth.json").read_text())
    return found


def given(dissectors: Sequence[Any], frames: list[Any], rules: Sequence[str] = ()) -> list[AnyEvent]:
    """The result for one message."""
    return Payloads(dissectors, [parse(rule) for rule in rules]).take([Message(*PLACE, frames)])


def captures() -> Iterator[str]:
    yield from sorted(path.name for path in CAPTURES.glob("*.pcap*"))


@needs_captures
@pytest.mark.parametrize("name", sampled(captures()) or ["none"])
def test_nothing_else_is_recognised(name: str) -> None:
    events = list(zmtpsniff.open(CAPTURES / name, patterns=False))
    found = {event.payload.protocol for event in events if isinstance(event, Message) and event.payload is not None}
    assert found == KNOWN.get(name, set())
    assert not [event for event in events if isinstance(event, Problem) and event.code == "payload-dissector-failed"]


# ---------------------------------------------------------------------- ZAP


@needs_captures
def test_zap_fields_are_what_was_sent() -> None:
    (connection,) = truth("zap_over_tcp")["connections"]
    found = payloads_of(CAPTURES / "zap_over_tcp.pcap", "--show-secrets")
    requests = [payload for payload in found if payload["kind"] == "request"]
    replies = [payload for payload in found if payload["kind"] == "reply"]
    names = ["request_id", "domain", "address", "identity", "mechanism"]
    for payload, frames in zip(requests, connection["messages"]["client_to_server"], strict=True):
        shown = [payload[name] for name in [*names, *list(payload)[3 + len(names) :]]]
        values = [value.encode() if isinstance(value, str) else octets(value) for value in shown]
        assert values == [bytes.fromhex(frame) for frame in frames[2:]]
    for payload, frames in zip(replies, connection["messages"]["server_to_client"], strict=True):
        _, _, request_id, status, reason, user_id, _ = map(bytes.fromhex, frames)
        assert octets(payload["request_id"]) == request_id
        assert [str(payload["status"]), payload["reason"], payload["user_id"]] == [
            status.decode(), reason.decode(), user_id.decode(),
        ]  # fmt: skip
    assert {name: octets(value) for name, value in replies[2]["metadata"].items()} == {"Group": b"staff"}
    assert [reply["request"] for reply in replies] == [12, 14, 16, 18]


# ---------------------------------------------------------------------- the stage


class Raises:
    name = "raises"

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        return message.frames[0] == b"x"

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload:
        raise ValueError("no such thing")


class Counts:
    """Counts how often it is asked."""

    name = "counts"

    def __init__(self) -> None:
        self.asked = 0
        self.dissected = 0

    def match(self, message: Message, connection: PayloadConnection) -> float:
        self.asked += 1
        return 0.5 if message.frames[0] == b"mine" else 0.4

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload:
        self.dissected += 1
        connection.state["number"] = connection.state.get("number", 0) + 1
        return Payload(self.name, str(connection.state["number"]))


def test_dissector_that_fails_costs_payloads_only() -> None:
    stage = Payloads([Raises()])
    events = stage.take([Message(*PLACE, [b"x"]), Message(*PLACE, [b"y"]), Message(*PLACE, [b"x"])])
    assert [type(event) for event in events] == [Message, Problem, Message, Message]
    problem = events[1]
    assert isinstance(problem, Problem)
    assert (problem.severity, problem.code) == ("warning", "payload-dissector-failed")
    assert "'raises'" in problem.detail
    assert "no such thing" in problem.detail
    assert re.search(r"\(test_payloads\.py, line \d+\)$", problem.detail)


def test_connection_that_nobody_knows_is_asked_rarely() -> None:
    counts = Counts()
    stage = Payloads([counts])
    for _ in range(100):
        stage.take([Message(*PLACE, [b"other"]) for _ in range(100)])
    assert 32 <= counts.asked < 50
    for _ in range(50):
        events = stage.take([Message(*PLACE, [b"mine"]) for _ in range(100)])
    assert 3000 < counts.dissected < 5000  # it was looked at again, and from then on all were known
    last = events[-1]
    assert isinstance(last, Message)
    assert last.payload == Payload("counts", str(counts.dissected))


@pytest.mark.parametrize("late", [b"mine", b"x", b"other"])
def test_messages_in_columns_are_asked_about_like_objects(late: bytes) -> None:
    """A protocol, or a failure, that begins late shows at the same message. Until then the columns stay whole."""
    side = [BatchSide(1, "10.0.0.1:43210", "10.0.0.2:5555", None, True, True, True)]
    bodies = [b"other"] * 2500 + [late] * 2500
    messages = [(0, [body], 0, (0, 1, 0), 0, (0, 1, 0), 1) for body in bodies]
    batches = [batch_of(messages[at : at + 700], side) for at in range(0, len(messages), 700)]
    in_columns, as_objects = Payloads([Raises(), Counts()]), Payloads([Raises(), Counts()])
    parts = [in_columns.take([batch]) for batch in batches]  # type: ignore[list-item]  # as a Sniffer gives them
    found: list[AnyEvent] = []
    for each in chain.from_iterable(parts):
        found += each.messages() if isinstance(each, MessageBatch) else [each]
    assert found == [event for batch in batches for event in as_objects.take([*batch.messages()])]
    assert [len(part) for part in parts[1:3]] == [1, 1]
    told = [event for event in found if isinstance(event, Problem) or (isinstance(event, Message) and event.payload)]
    assert bool(told) == (late != b"other")


@pytest.mark.parametrize(("late", "together"), crossed([b"mine", b"x", b"other"], [1, 50, 10_000]))
def test_columns_between_other_events_are_asked_about_like_objects(late: bytes, together: int) -> None:
    """Other messages cut a batch into parts: of its own connection, or of one that may have a protocol, too."""
    side = [BatchSide(1, "10.0.0.1:43210", "10.0.0.2:5555", None, True, True, True)]
    bodies = [b"other"] * 2800 + [late] * 2200  # the first that is asked about is an object
    whole = batch_of([(0, [body], 0, (0, 1, 0), 0, (0, 1, 0), 1) for body in bodies], side)
    events: list[Any] = []
    for at in range(0, len(bodies), 2):
        place = PLACE if at % 4 else (0, 1, 2, "10.0.0.3:4", "10.0.0.2:5555")
        events += [whole.part(at, at + 2), Message(*place, [bodies[at]])]
    in_columns, as_objects = Payloads([Raises(), Counts()]), Payloads([Raises(), Counts()])
    parts = [in_columns.take(events[at : at + together]) for at in range(0, len(events), together)]
    expected = as_objects.take(single_messages(deepcopy(events)))
    assert single_messages([*chain.from_iterable(parts)]) == expected
    assert sum(isinstance(event, MessageBatch) for event in chain.from_iterable(parts)) > 100


def test_port_forces_a_dissector() -> None:
    (event,) = given([Counts()], [b"other"], ["tcp.port==5555,counts"])
    assert isinstance(event, Message)
    assert event.payload == Payload("counts", "1")
    with pytest.raises(ValueError, match=r"'nobody' is none of zmtp, counts$"):
        given([Counts()], [b"other"], ["tcp.port==5555,nobody"])


@needs_captures
def test_payloads_can_be_switched_off() -> None:
    assert payloads_of(CAPTURES / "zap_over_tcp.pcap", "--no-payload") == []


@pytest.mark.parametrize("dissector", built_in(), ids=lambda dissector: dissector.name)
def test_every_dissector_takes_what_is_cut_or_empty(dissector: Any) -> None:
    several: list[list[Octets]]
    several = [[], [b""], [b"", b""], [Cut(b"\xaa\xa8", 9)], [Hidden(3)], [b"", Hidden(3), Cut(b"", 4)]]
    for frames in several:
        stage = Payloads([dissector])
        (event,) = stage.take([Message(*PLACE, list(frames))])
        assert isinstance(event, Message)
        assert event.payload is None


# ---------------------------------------------------------------------- types of fields


def _kinds(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The names and types of a field and of those in it."""
    if isinstance(value, list | tuple):
        yield from (
            (f"{name}", f"list of {kind}") for each in value for inner, kind in _kinds(name, each) if inner == name
        )
        yield from ((inner, kind) for each in value for inner, kind in _kinds(name, each) if inner != name)
        return
    kinds = {str: "text", bool: "boolean", int: "number", float: "number", dict: "object", type(None): "value"}
    yield name, kinds.get(type(value), "octets")
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _kinds(f"{name}.{key}", each)


@needs_captures
@pytest.mark.parametrize("name", sorted(KNOWN))
def test_fields_have_the_types_that_their_dissector_declares(name: str) -> None:
    declared = {dissector.name: fields_of(dissector) for dissector in built_in()}
    seen = 0
    for event in zmtpsniff.open(CAPTURES / name):
        if not isinstance(event, Message) or event.payload is None:
            continue
        fields = declared[event.payload.protocol]
        assert event.payload.fields.keys() <= fields.keys()
        for field, value in event.payload.fields.items():
            for inner, kind in _kinds(field, value):
                known = fields.get(inner)
                seen += known is not None
                assert known in (None, "value", "list of values", kind, f"{kind}s"), (inner, kind)
    assert seen > 50


# ---------------------------------------------------------------------- filters


@needs_captures
@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("app_malamute", 'payload.protocol == "mlm"', 47),
        ("app_malamute", 'payload.command == "OK"', 11),
        ("app_malamute", 'payload.status_code == "200"', 11),
        ("app_malamute", "payload.status_code == 200", 11),
        ("app_malamute", "100 < payload.status_code < 300", 11),
        ("app_malamute", 'payload.status_code < "3"', 0),
        ("app_malamute", 'payload.content contains "page"', 2),
        ("app_malamute", "payload.answers", 17),
        ("app_malamute", "payload.nothing_of_that_name", 0),
        ("app_jupyter", 'payload.header.msg_type == "execute_request" && payload.content.code contains "1"', 2),
        ("app_jupyter", "payload.header.date.length == 27", 26),
        ("zap_over_tcp", "payload.password.length == 6", 1),
        ("zap_over_tcp", 'payload.password == "secret"', 0),
    ],
)
def test_fields_in_filters(name: str, text: str, count: int) -> None:
    shown = [record for record in read(CAPTURES / f"{name}.pcap", "-Y", text) if record["type"] == "message"]
    assert len(shown) == count


def test_a_signature_leaves_out_no_message_of_its_protocol() -> None:
    found = 0
    for dissector in built_in():
        signature = getattr(dissector, "signature", None)
        if signature is None:
            continue
        octets = [signature + bytes(rest) for number in range(256) for rest in ((number,), (number, 1), (number, 2))]
        for frame in octets:
            number = frame[2:3]
            for frames in ([frame], [frame, b"more"], [number, frame], [b"", frame], [*[b"id"] * 7, b"", frame]):
                message = Message(*PLACE, list(frames))
                if dissector.match(message, PayloadConnection(1, *PLACE[-2:])):
                    found += 1
                    assert has_signature(message.frames, (signature,)), (dissector.name, frames)
    assert found > 100


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("zap", [b"1.0", b"1", b"200", b"OK", b"me", b""]),
        ("zap", [b"1.0", b"1", b"domain", b"10.0.0.1", b"", b"NULL"]),
        *(("mdp", [header, b"more"]) for header in (b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02")),
    ],
)
def test_a_signature_is_found_wherever_the_body_begins(name: str, body: list[bytes]) -> None:
    (dissector,) = [dissector for dissector in built_in() if dissector.name == name]
    signature: bytes = getattr(dissector, "signature")  # noqa: B009 (not every dissector has one)
    for identities in range(8):
        message = Message(*PLACE, [*[b"id"] * identities, b"", *body])
        assert dissector.match(message, PayloadConnection(1, *PLACE[-2:]))
        assert has_signature(message.frames, (signature,))


def test_a_dissector_is_asked_about_messages_with_enough_frames_only() -> None:
    asked: list[int] = []

    class PatientDissector:
        name = "patient"

        def __init__(self, least_frames: int) -> None:
            self.least_frames = least_frames

        def match(self, message: Message, connection: PayloadConnection) -> bool:
            asked.append(len(message.frames))
            return False

        def dissect(self, message: Message, connection: PayloadConnection) -> None: ...

    messages: list[AnyEvent] = [Message(*PLACE, [b"frame"] * number) for number in range(20)]
    for least in (0, 1, 3, 16, 1 << 40, -1):
        asked.clear()
        Payloads([PatientDissector(2), PatientDissector(least)]).take(messages)
        assert asked == sorted([*range(2, 20), *range(min(max(least, 0), 16), 20)])


def test_a_dissector_with_a_signature_is_asked_about_messages_with_it_only() -> None:
    asked: list[list[Any]] = []

    class SignedDissector:
        name = "signed"
        signature = b"\x17\x18"

        def match(self, message: Message, connection: PayloadConnection) -> bool:
            asked.append(message.frames)
            return True

        def dissect(self, message: Message, connection: PayloadConnection) -> Payload:
            return Payload(self.name, "", {})

    wanted: list[list[Octets]] = [[b"\x17\x18"], [b"", b"\x17\x18 and more"], [*[b"id"] * 8, b"\x17\x18"]]
    others: list[list[Octets]] = [[], [b"\x17"], [b"x\x17\x18"], [*[b"id"] * 9, b"\x17\x18"], [Cut(b"\x17\x18", 100)]]
    for frames in [*wanted, *others]:
        message = Message(*PLACE, list(frames))
        Payloads([SignedDissector()]).take([message])
        assert (message.payload is not None) == (frames in wanted)
    assert asked == wanted
