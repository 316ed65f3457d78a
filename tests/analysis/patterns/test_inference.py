"""Socket types of connections that do not say them."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

import zmtpsniff
from dissectors.events import UNBOUNDED, AnyEvent, Command, Connection, Message, Peer, Sides
from tests.capture_point.conversations import converse
from tests.capture_point.network import Link, connect
from tests.capture_point.tap import Packets, Records, packets, watch
from tests.support.paths import FIXTURES, PROJECT
from tests.support.settings import RELATIONS
from zmtpsniff import decode_as
from zmtpsniff.analysis.patterns.inference import BoundSockets, Inference, Senders, contradicts
from zmtpsniff.capture.files import open_captures
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


class _Late(Packets):
    """A capture without the first packets of one client: all until both have said what they are."""

    def __init__(self, path: Path, client: str) -> None:
        events = _events(path)
        (flow,) = [event.flow for event in events if isinstance(event, Connection) and event.client.address == client]
        last = max(event.packet for event in events if isinstance(event, Command) and event.flow == flow)
        port = int(client.rpartition(":")[2]).to_bytes(2, "big")
        given = [packet for batch in open_captures([str(path)]).batches() for packet in batch]
        kept = [packet for place, packet in enumerate(given, 1) if place > last or port not in packet[2][:64]]
        super().__init__([kept])


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


def _turns(
    service_ns: int, pause_ns: int, client: str = CLIENT, inference: Inference | None = None
) -> dict[str, str] | None:
    """What is inferred of eight requests of ``client`` and their replies, each of which had seen the one before."""
    inference = inference or Inference(client, SERVER, Senders())
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


def test_what_was_found_late_does_not_hide_the_turns_behind_it() -> None:
    inference = Inference(CLIENT, SERVER, Senders())
    for src, dst in ((CLIENT, SERVER), (CLIENT, SERVER), (SERVER, CLIENT), (SERVER, CLIENT)):
        found = Message(0, 1, 1, src, dst, [b"", b"x"], offset=UNBOUNDED, seen=-1)
        assert inference.message(found, blind=True) is None
    assert _turns(service_ns=1_000, pause_ns=10_000, inference=inference) == {CLIENT: "REQ", SERVER: "REP"}
    assert inference.is_late  # so that a DEALER and a ROUTER may do the same
    other = Message(0, 1, 1, CLIENT, SERVER, [b"x"], offset=UNBOUNDED, seen=-1)  # no delimiter
    inference = Inference(CLIENT, SERVER, Senders())
    inference.message(other, blind=True)
    assert _turns(service_ns=1_000, pause_ns=10_000, inference=inference) is None


def test_a_bound_socket_is_the_same_on_all_its_connections() -> None:
    bound = BoundSockets()
    bound.announce(SERVER, "PUSH")
    assert bound.types(CLIENT, SERVER) == bound.types(SERVER, CLIENT) == {SERVER: "PUSH", CLIENT: "PULL"}
    assert bound.types(CLIENT, "10.0.0.2:5556") is None
    bound.announce(SERVER, "PUB")  # another program since then, and nobody knows since when
    assert bound.types(CLIENT, SERVER) is None
    bound.announce("10.0.0.2:5556", "REP")
    assert bound.types(CLIENT, "10.0.0.2:5556") == {"10.0.0.2:5556": "REP"}  # of a REQ or a DEALER
    bound.announce("10.0.0.2:5557", "ROUTER")
    assert bound.types(CLIENT, "10.0.0.2:5557") is None


def test_a_bound_socket_tells_what_late_connections_are() -> None:
    """An XPUB looks like a PUB, but it said on another connection what it is."""
    path = FIXTURES / "rec_forwarder.pcap"
    connections = [event for event in _events(path) if isinstance(event, Connection)]
    xpubs = [one for one in connections if one.server.socket_type == "XPUB"]
    assert len(xpubs) == 2
    late = xpubs[0]
    found = [
        event
        for batch in Sniffer(_Late(path, late.client.address), RELATIONS).events()
        for event in batch
        if isinstance(event, Connection) and event.client.address == late.client.address
    ]
    assert [(one.handshake, one.server.socket_type, one.server.inferred) for one in found] == [
        ("not-seen", "XPUB", True)
    ]


def test_what_comes_later_may_contradict() -> None:
    """Who connects, sends and hears nothing looks like a PUSH, until somebody answers."""
    connection = Connection(1, "tcp", Peer(CLIENT), Peer(SERVER), Sides(9, 0), Sides(900, 0), 0, 1, "fin")
    types = {CLIENT: "PUSH", SERVER: "PULL"}
    assert not contradicts(types, connection)
    connection.messages.server = 1
    assert contradicts(types, connection)


def test_nothing_is_wrong_without_beginnings() -> None:
    """The figures of the documentation; the exit status is 1 if any type is wrong."""
    command = [sys.executable, str(PROJECT / "benchmarks" / "inference.py"), str(FIXTURES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stdout + done.stderr
    shares = dict(re.findall(r"^(\S+ +handshake) .*: +([\d.]+)% right", done.stdout, re.MULTILINE))
    assert float(shares["PUB-SUB   handshake"]) > 80


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
