"""The words that the formats for people have in common."""

import io
from collections.abc import Sequence
from typing import Any

import pytest

from dissectors.events import AnyEvent, Body, Envelope, Message, Payload, Place
from dissectors.records import record_fields
from zmtpsniff.render import Format, make_renderer
from zmtpsniff.render.wording import has_relations

PLACE = (1_700_000_000_000_000_000, 1_000, 1, "10.0.0.1:43210", "10.0.0.2:5555")


def message(body: bytes, socket_type: str = "PUSH", **more: Any) -> Message:
    return Message(*PLACE, [body], socket_type, **more)


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


def test_a_type_that_is_inferred_is_told_from_others() -> None:
    announced = message(b"a", socket_type="PUB")
    alike = message(b"b", **OF_SENDER["lookalike"])
    marks: tuple[tuple[Format, str], ...] = (("json", '"PUB","inferred":true'), ("summary", "PUB? "), ("tree", "PUB? "))
    for output, mark in marks:
        lines = [line for line in shown(output, [announced, alike]).decode().splitlines() if "PUB" in line]
        assert [mark in line for line in lines] == [False, True]


@pytest.mark.parametrize("name", RELATIONS)
def test_a_relation_is_shown_wherever_it_is(name: str) -> None:
    """The loop over messages asks for relations itself; here it is held against what there is."""
    related = [message(b"a", **RELATIONS[name]), message(b"a", **RELATIONS[name])]
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
