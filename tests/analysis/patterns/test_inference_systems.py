"""Real programs that talk when the capture begins: what their sockets are is told, or nothing is."""

from collections import Counter
from itertools import product
from pathlib import Path

import pytest

import zmtpsniff
from dissectors.events import Connection, Message
from tests.support.late_captures import without_beginnings
from tests.support.paths import FIXTURES
from tests.support.running_systems import SYSTEMS
from tests.support.settings import RELATIONS
from tests.world.events import events_of
from tests.world.tap import load
from zmtpsniff import decode_as
from zmtpsniff.filters import compile_filter

_LEAST = 8  # messages
# The result for each: the right types, or that these are the lookalikes, or nothing.
TOLD = {
    "requests_fast": "right",
    "requests_of_three": "right",
    "requests_slow": "right",
    "requests_to_clients": "silent",
    "topics": "right",
    "one_topic": "right",
    "topics_for_each": "right",
    "jobs_for_one": "right",
    "jobs_of_two": "right",
    "jobs_for_three": "right",
    "jobs_fetched": "lookalike",  # as one who publishes to a single peer does
    "dealer_takes_turns": "lookalike",
}


def _result(connection: Connection, types: dict[str, str | None]) -> str:
    peers = [peer for peer in (connection.client, connection.server) if peer.inferred]
    if not peers:
        return "silent"
    if all(peer.socket_type == types[peer.address] for peer in peers):
        return "right"
    return "lookalike" if all(types[peer.address] in (peer.socket_type, peer.lookalike) for peer in peers) else "wrong"


def announced(path: Path) -> dict[str, str | None]:
    """The types that the sockets of a whole capture announce, by their addresses."""
    connections = [event for event in zmtpsniff.open(path, payload=False) if isinstance(event, Connection)]
    return {peer.address: peer.socket_type for one in connections for peer in (one.client, one.server)}


@pytest.mark.parametrize("name", SYSTEMS)
def test_captures_that_begin_too_late(name: str) -> None:
    """Wherever they begin, and wherever they end."""
    path = FIXTURES / "running" / f"{name}.pcap.gz"
    types = announced(path)
    packets = load(path)
    count: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for begin, end in product((0.3, 0.41, 0.55), (1.0, 0.93, 0.86)):
        events = events_of(packets[int(begin * len(packets)) : int(end * len(packets))], RELATIONS)
        replies = {event.flow for event in events if isinstance(event, Message) and event.request is not None}
        for event in events:
            if isinstance(event, Connection) and event.messages.client + event.messages.server >= _LEAST:
                assert event.handshake == "not-seen"
                result = _result(event, types)
                count[result] += 1
                answered[result] += event.flow in replies
    assert count["wrong"] == 0
    told = count.total() - count["silent"]
    assert count.total() > 0
    assert count["silent"] == count.total() if TOLD[name] == "silent" else told >= 0.9 * count.total(), count
    assert count[TOLD[name]] >= 0.6 * count.total(), count  # others of few messages
    if {"REQ", "DEALER"} & set(types.values()) and TOLD[name] != "silent":
        assert answered.total() >= 0.9 * count.total()


@pytest.mark.parametrize("name", ["requests_fast", "topics_for_each", "dealer_takes_turns"])
def test_messages_have_the_type_from_there_on(name: str) -> None:
    """Those before it are out, and keep none; no message has a type that its sender cannot have."""
    path = FIXTURES / "running" / f"{name}.pcap.gz"
    types = announced(path)
    events = events_of(without_beginnings(path), RELATIONS)
    for connection in (event for event in events if isinstance(event, Connection)):
        messages = [one for one in events if isinstance(one, Message) and one.flow == connection.flow]
        told = [one.socket_type is not None for one in messages]
        assert told == sorted(told)
        assert any(told)
        peers = {peer.address: peer for peer in (connection.client, connection.server)}
        for message in messages:
            peer, truth = peers[message.src], types[message.src]
            if message.socket_type is None:
                assert (message.inferred, message.lookalike) == (False, None)
            else:
                assert (message.socket_type, message.lookalike) == (peer.socket_type, peer.lookalike)
                assert message.inferred
                assert truth in (message.socket_type, message.lookalike)
    passes = compile_filter("socket_type && inferred")
    assert any(map(passes, events))
    assert all(isinstance(event, Message) and event.inferred for event in events if passes(event))


def test_a_declared_type_is_not_inferred() -> None:
    settings = RELATIONS._replace(decode_as=(decode_as.parse("tcp.port==5581,zmtp/PULL"),))
    events = events_of(without_beginnings(FIXTURES / "running" / "jobs_for_one.pcap.gz"), settings)
    told = {(one.socket_type, one.inferred, one.lookalike) for one in events if isinstance(one, Message)}
    assert told == {("PUSH", False, None)}


@pytest.mark.parametrize("name", ["requests_fast", "requests_slow"])
def test_the_first_replies_have_no_requests_and_all_others_do(name: str) -> None:
    """They are out before the types are known; but what came before helps to pair the next one."""
    packets = without_beginnings(FIXTURES / "running" / f"{name}.pcap.gz")
    paired = {}
    for way, rules in (("inferred", ()), ("declared", (decode_as.parse("tcp.port==5581,zmtp/REP"),))):
        settings = RELATIONS._replace(decode_as=rules)
        messages = [event for event in events_of(packets, settings) if isinstance(event, Message)]
        by_offset = sorted((one for one in messages if one.src.endswith(":5581")), key=lambda one: one.offset)
        paired[way] = [reply.request is not None for reply in by_offset]
    for replies in paired.values():
        assert replies == sorted(replies)  # once one is paired, all are
    unpaired = {way: replies.count(False) for way, replies in paired.items()}
    assert unpaired == {"inferred": 3, "declared": 1}
