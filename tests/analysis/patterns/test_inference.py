"""Socket types of connections that do not say them."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

import zmtpsniff
from dissectors.events import AnyEvent, Connection, Message
from tests.capture_point.conversations import converse
from tests.capture_point.network import Link, connect
from tests.capture_point.tap import Packets, Records, packets, watch
from tests.support.paths import FIXTURES
from tests.support.settings import RELATIONS
from zmtpsniff import decode_as
from zmtpsniff.analysis.patterns.inference import Inference, Senders
from zmtpsniff.settings import Settings
from zmtpsniff.sniffer import Sniffer


def _events(path: Path) -> list[AnyEvent]:
    return list(zmtpsniff.open(path, payload=False))


def _types(events: list[AnyEvent]) -> dict[str, str]:
    """Socket types by address, of those that were found out."""
    return {
        peer.address: str(peer.socket_type)
        for event in events
        if isinstance(event, Connection)
        for peer in (event.client, event.server)
        if peer.inferred
    }


def test_zmtp_1_has_no_types_on_the_wire() -> None:
    events = _events(FIXTURES / "x_435_to_220.pcap")
    assert sorted(_types(events).values()) == ["PUB", "PULL", "PUSH", "SUB"]  # its REQ has an identity


def test_what_is_announced_is_not_inferred() -> None:
    for path in FIXTURES.glob("m31_*.pcap"):
        assert _types(_events(path)) == {}


def _late(kind: str, seed: int) -> tuple[dict[str, str], Records]:
    """The socket types of a long conversation, and its packets but the first quarter."""
    random = Random(seed)
    session = connect(converse(random, frozenset({kind}), count=40), random, Link(jitter_ns=1))
    records = watch(0.5, session)
    types = {session.address(side): session.talk.types[side] for side in (0, 1)}
    return types, records[len(records) // 4 :]


@pytest.mark.parametrize(
    ("kind", "pair", "least", "share"),
    [
        ("REQ", {"REQ", "REP"}, 0, 0),  # their programs answer as fast as they ask: nobody can tell who does which
        ("SUB", {"PUB", "SUB"}, 10, 0),
        ("PUSH", {"PUSH", "PULL"}, 10, 0.25),  # a PUB that connects looks like a PUSH
    ],
)
def test_late_captures(kind: str, pair: set[str], least: int, share: float) -> None:
    """Whatever is told of a pattern is right: who plays which part."""
    count: Counter[str] = Counter()
    for seed in range(60):
        types, records = _late(kind, seed)
        if set(types.values()) != pair:
            continue
        source = Packets([packets(records)])
        found = _types([event for batch in Sniffer(source, RELATIONS).events() for event in batch])
        count["right" if found == types else "wrong" if found else "silent"] += 1
    assert count.total() >= 10
    assert count["wrong"] <= count["right"] * share
    assert count["right"] >= least


CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"


def _turns(service_ns: int, pause_ns: int, client: str = CLIENT) -> dict[str, str] | None:
    """What is inferred of eight requests of ``client`` and their replies, each of which had seen the one before."""
    inference = Inference(client, SERVER, Senders())
    time_ns = packet = 0
    found = None
    for number in range(8):
        for src, wait in ((client, pause_ns), (SERVER, service_ns)):
            time_ns, packet = time_ns + wait, packet + 1
            dst = SERVER if src == client else client
            seen = 10 * (number + (src == SERVER))
            event = Message(time_ns, packet, 1, src, dst, [b"", b"x"], offset=10 * number + 5, seen=seen)
            found = found or inference.message(event, blind=True)
    return found


def test_who_asks_waits_less_for_an_answer_than_it_thinks() -> None:
    assert _turns(service_ns=1_000, pause_ns=10_000) == {CLIENT: "REQ", SERVER: "REP"}


def test_who_asks_is_not_told_where_it_may_be_either() -> None:
    assert _turns(service_ns=10_000, pause_ns=1_000) is None  # the server may ask
    assert _turns(service_ns=1_000, pause_ns=1_000) is None
    assert _turns(service_ns=1_000, pause_ns=10_000, client="10.0.0.1:4000") is None  # who connected?


def test_a_type_that_the_user_declares() -> None:
    for seed in range(30):
        types, records = _late("REQ", seed)
        address = next((address for address, kind in types.items() if kind == "REP"), None)
        if address is None:
            continue
        rule = decode_as.parse(f"tcp.port=={address.rpartition(':')[2]},zmtp/REP")
        sniffer = Sniffer(Packets([packets(records)]), Settings(decode_as=(rule,), payload=False))
        events = [event for batch in sniffer.events() for event in batch]
        if not any(isinstance(event, Connection) and event.handshake == "not-seen" for event in events):
            continue
        assert _types(events)[address] == "REP"
        replies = [event for event in events if isinstance(event, Message) and event.src == address]
        assert any(event.latency_ns is not None for event in replies)
        return
    pytest.fail("no late capture of a REP")


@pytest.mark.parametrize("rule", ["tcp.port==5557,zmtp/CHAIR", "udp.port==5557,zmtp/REP", "tcp.port==5557,mlm/REP"])
def test_rules_that_say_nothing(rule: str) -> None:
    with pytest.raises(ValueError, match="REP"):
        decode_as.parse(rule)
