"""Messages that are shown together because they differ in their frame only."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Body, Comment, Envelope, Message, Payload, Place
from dissectors.records import record_fields
from zmtpsniff.render import Format, make_renderer
from zmtpsniff.render.runs import Run, runs
from zmtpsniff.render.wording import has_relations

PLACE = (1_700_000_000_000_000_000, 1_000, 1, "10.0.0.1:43210", "10.0.0.2:5555")


def message(
    body: bytes, place: tuple[int, int, int, str, str] = PLACE, socket_type: str = "PUSH", **more: Any
) -> Message:
    return Message(*place, [body], socket_type, **more)


def test_messages_of_one_packet_are_a_run() -> None:
    first, second = message(b"a"), message(b"b")
    assert list(runs([first, second])) == [Run(first, [b"a", b"b"])]


def test_another_packet_sender_or_record_ends_a_run() -> None:
    time_ns, packet, flow, src, dst = PLACE
    first = message(b"a")
    for other in (
        message(b"b", (time_ns, packet + 1, flow, src, dst)),
        message(b"b", (time_ns, packet, flow + 1, src, dst)),
        message(b"b", (time_ns, packet, flow, dst, src)),
    ):
        assert list(runs([first, other, first])) == [Run(first, [b"a"]), Run(other, [b"b"]), Run(first, [b"a"])]
    comment = Comment("between")
    assert list(runs([first, comment, first])) == [Run(first, [b"a"]), comment, Run(first, [b"a"])]


def test_what_is_known_of_a_message_is_in_no_run() -> None:
    known: list[AnyEvent] = [
        message(b"a", incomplete=True),
        message(b"a", envelope=Envelope(0, True)),
        message(b"a", matched=b""),
        message(b"a", request=1),
        message(b"a", forwards=Place(1, 1)),
        Message(*PLACE, [b"a", b"b"]),
        Message(*PLACE, []),
    ]
    assert list(runs(known)) == known


RELATIONS: dict[str, dict[str, Any]] = {  # each with what a message that has it has beside it
    "envelope": {"envelope": Envelope(0, True)},
    "matched": {"matched": b""},
    "latency_ns": {"request": 1, "latency_ns": 2},
    "request": {"request": 1},
    "request_part": {"request": 1, "request_part": 2},
    "paired": {"request": 1, "paired": "order"},
    "forwards": {"forwards": Place(1, 1)},
    "payload": {"payload": Payload("p", "s")},
    "bodies": {"bodies": [Body(0, "msgpack", [])]},
}


OF_SENDER: dict[str, dict[str, Any]] = {
    "inferred": {"socket_type": "PUB", "inferred": True},
    "lookalike": {"socket_type": "PUB", "inferred": True, "lookalike": "RADIO"},
}


def test_all_relations_of_a_message_are_known_here() -> None:
    relations = {field.name for field in record_fields(Message) if field.kind == "relation"}
    assert relations == RELATIONS.keys() | OF_SENDER.keys()


def test_a_type_that_is_inferred_is_in_a_run_of_its_own() -> None:
    announced = message(b"a", socket_type="PUB")
    alike, sure = (message(b"b", **OF_SENDER[name]) for name in ("lookalike", "inferred"))
    assert list(runs([announced, alike, alike, sure])) == [
        Run(announced, [b"a"]),
        Run(alike, [b"b", b"b"]),
        Run(sure, [b"b"]),
    ]
    marks: tuple[tuple[Format, str], ...] = (("json", '"PUB","inferred":true'), ("summary", "PUB? "), ("tree", "PUB? "))
    for output, mark in marks:
        lines = [line for line in shown(output, [announced, alike]).decode().splitlines() if "PUB" in line]
        assert [mark in line for line in lines] == [False, True]


@pytest.mark.parametrize("name", RELATIONS)
def test_a_relation_is_shown_wherever_it_is(name: str) -> None:
    """The loops over messages each ask for relations themselves; here they are held against what there is."""
    related = [message(b"a", **RELATIONS[name]), message(b"a", **RELATIONS[name])]
    assert list(runs(related)) == related
    told_by_words = name not in ("envelope", "payload", "bodies")
    assert has_relations(related[0]) == told_by_words
    for output in ("json", "summary", "tree"):
        plain = shown(output, [message(b"a")] * 2)
        if name != "bodies" or output != "summary":
            assert (name == "envelope" and output != "json") or shown(output, related) != plain


def shown(output: Format, events: Sequence[AnyEvent]) -> bytes:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "utf-8")
    renderer = make_renderer(output, stream, utc=True)
    renderer.write(events)
    renderer.finish()
    stream.flush()
    return raw.getvalue()


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.lists(st.binary(max_size=2), max_size=2))))
def test_nothing_is_lost_and_nothing_changes_its_place(sent: list[tuple[int, int, list[bytes]]]) -> None:
    events = [Message(1, packet, flow, "a:2", "b:1", [*frames]) for packet, flow, frames in sent]
    again: list[AnyEvent] = []
    for event in runs(events):
        if isinstance(event, Run):
            first = event.first
            again += [
                Message(first.time_ns, first.packet, first.flow, first.src, first.dst, [frame])
                for frame in event.frames
            ]
        else:
            again.append(event)
    assert again == events
