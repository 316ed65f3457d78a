import io
import json
import os
import tracemalloc
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dissectors.events import (
    AnyEvent,
    Command,
    Comment,
    Connection,
    Cut,
    Greeting,
    Hidden,
    Message,
    Octets,
    Peer,
    Problem,
    Sides,
)
from tests.support.made_up_events import made_up
from zmtpsniff.render.json_form import octets_object
from zmtpsniff.render.jsonl import JsonlRenderer

CLIENT, SERVER = "10.0.0.1:43210", "10.0.0.2:5555"
T = 1_700_000_000_123_456_789


def lines(events: list[AnyEvent], max_bytes: int = 65_536) -> list[str]:
    stream = io.BytesIO()
    renderer = JsonlRenderer(stream, max_bytes)
    renderer.write(events)
    renderer.finish()
    return stream.getvalue().decode().split("\n")[:-1]


def message(*frames: Any, socket_type: str | None = None, incomplete: bool = False) -> Message:
    return Message(T, 7, 1, CLIENT, SERVER, list(frames), socket_type, incomplete=incomplete)


def _consistent(one: Message) -> Message:
    """A message whose fields fit each other, and which nothing in it makes one of the rare ones."""
    one.payload, one.bodies = None, []
    if one.request is None:
        one.latency_ns, one.request_part, one.paired = None, 1, None
    return one


messages = made_up(Message).map(_consistent)
limits = st.sampled_from([0, 1, 2, 3, 5, 65_536])


def test_incomplete_messages_hold_little_memory() -> None:
    batch: list[AnyEvent] = [message(*[b"0123456789"] * 100_000, socket_type="PUSH", incomplete=True)]
    tracemalloc.start()
    with open(os.devnull, "wb") as nowhere:
        JsonlRenderer(nowhere).write(batch)
    assert tracemalloc.get_traced_memory()[1] < 30_000_000
    tracemalloc.stop()


def test_all_fields_of_a_message_are_known_to_the_fast_path() -> None:
    # Whoever adds a field to Message teaches JsonlRenderer.write to take the general way for messages that have it.
    assert Message.__struct_fields__ == (
        *("time_ns", "packet", "flow", "src", "dst"),
        *("frames", "socket_type", "inferred", "lookalike", "offset", "seen", "part", "incomplete", "encrypted"),
        *("envelope", "matched", "latency_ns", "request", "request_part", "paired", "forwards"),
        *("payload", "bodies", "begun_ns", "digest", "expects_reply"),
    )


@given(messages, messages, limits)
def test_fast_and_general_path_agree_on_messages(one: Message, other: Message, max_bytes: int) -> None:
    """A message keeps text of the one before. So each field differs from that in turn, and is as before again."""
    batch = [one]
    for field in Message.__struct_fields__[:16]:  # up to the relations, which depend on each other
        batch += [replace(one, **{field: getattr(other, field)}), one]
    renderer = JsonlRenderer(io.BytesIO(), max_bytes)
    fast = [json.loads(line) for line in lines(list(batch), max_bytes)]
    general = [json.loads(renderer.line(event)) for event in batch]
    assert fast == general
    assert [list(record) for record in fast] == [list(record) for record in general]


@pytest.mark.parametrize("max_bytes", [0, 2])
def test_a_record_is_the_same_whatever_came_before_it(max_bytes: int) -> None:
    values: list[Octets] = [b"REQ", Cut(b"REQ", 9), Hidden(3), b"\xff", b"REQ", b"RE"]
    sides = Sides(1, 2)
    batch: list[AnyEvent] = []
    others: list[dict[str, Any]] = [
        {"time_ns": T + 1, "packet": 3, "flow": 2, "src": SERVER, "dst": CLIENT}, {"incomplete": True},
        {"encrypted": True}, {"request": 5}, {"latency_ns": 5}, {"version": "1.0"}, {"offset": 5},
    ]  # fmt: skip
    for value in values:
        batch += [replace(Command(T, 2, 1, CLIENT, SERVER, "READY", {"Identity": value}), **other) for other in others]
        batch += [
            Greeting(T, 1, 1, CLIENT, SERVER, identity=value),
            Command(T, 2, 1, CLIENT, SERVER, "READY", {"Identity": value}, identity=value),
            Connection(1, "tcp", Peer(CLIENT, identity=value), Peer(SERVER), sides, sides, T, T, "fin",
                       subscriptions=[value]),
        ]  # fmt: skip
    assert len(set(lines(batch))) == len(batch) // len(values) * (len(values) - 1)  # two values are the same
    assert lines(batch, max_bytes) == [line for event in batch for line in lines([event], max_bytes)]


@given(made_up(Octets), limits)
def test_octets_follow_the_contract(value: Any, max_bytes: int) -> None:
    shown = json.loads(json.dumps(octets_object(value, max_bytes)))
    if isinstance(value, Hidden):
        assert shown == {"length": value.length}
        return
    data, length = (value, len(value)) if isinstance(value, bytes) else (value.data, value.length)
    limit = max_bytes or len(data)
    assert shown["length"] == length
    assert ("text" in shown) != ("hex" in shown)
    assert shown.get("truncated", False) == (min(len(data), limit) < length)
    if "text" in shown:
        kept = shown["text"].encode()
        assert all(unicodedata.category(char) != "Cc" or char in "\t\n\r" for char in shown["text"])
        assert min(len(data), limit) - len(kept) in ((0,) if "truncated" not in shown else range(4))
    else:
        kept = bytes.fromhex(shown["hex"])
        assert len(kept) == min(len(data), limit)
    assert data.startswith(kept)


def test_limit_keeps_characters_whole() -> None:
    text = "aé€😀".encode()
    assert [octets_object(text, limit).get("text") for limit in range(1, 11)] == [
        *("a", "a", "aé", "aé", "aé", "aé€", "aé€", "aé€", "aé€", "aé€😀"),
    ]
    assert octets_object(text, 0) == {"length": 10, "text": "aé€😀"}
    assert octets_object(Cut(text[:4], 10)) == {"length": 10, "text": "aé", "truncated": True}


def test_octets_that_are_no_text() -> None:
    for data in (b"\x00", b"\x1b[31m", b"\x7f", b"\xc2\x80", b"\xff", b"\xed\xa0\x80", b"a\x08"):
        assert octets_object(data) == {"length": len(data), "hex": data.hex()}
    for data in (b"", b"\t\r\n", "\u2028\u202e".encode(), "\xa0".encode()):
        assert octets_object(data) == {"length": len(data), "text": data.decode()}


def test_fields_that_do_not_apply_are_left_out() -> None:
    """Zero and nothing are values of fields that apply."""
    events: list[AnyEvent] = [
        Command(T, 4, 1, CLIENT, SERVER, "PING", ttl_ms=0, context=b""),
        Problem("note", "some-code", "A sentence."),
        Comment("hello"),
    ]
    common = {"time_ns": T, "packet": 4, "flow": 1, "src": CLIENT, "dst": SERVER}
    assert [json.loads(line) for line in lines(events)] == [
        {"type": "command", **common, "name": "PING", "ttl_ms": 0, "context": {"length": 0, "text": ""}},
        {"type": "problem", "severity": "note", "code": "some-code", "detail": "A sentence."},
        {"type": "comment", "text": "hello"},
    ]
