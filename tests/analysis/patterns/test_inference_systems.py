"""Real programs that talk when the capture begins: what their sockets are is told, or nothing is."""

from collections import Counter
from itertools import product

import pytest

import zmtpsniff
from dissectors.events import Connection, Message
from tests.support.late_captures import events_of, without_beginnings
from tests.support.paths import FIXTURES
from tests.support.running_systems import SYSTEMS
from tests.support.settings import RELATIONS
from tests.world.tap import load
from zmtpsniff import decode_as

_LEAST = 8  # messages
# What is told of each: the right types, or that these are the lookalikes, or nothing.
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


@pytest.mark.parametrize("name", SYSTEMS)
def test_captures_that_begin_too_late(name: str) -> None:
    """Wherever they begin, and wherever they end."""
    path = FIXTURES / "running" / f"{name}.pcap.gz"
    types = {
        peer.address: peer.socket_type
        for event in zmtpsniff.open(path, payload=False)
        if isinstance(event, Connection)
        for peer in (event.client, event.server)
    }
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
