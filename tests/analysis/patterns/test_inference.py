"""Socket types of connections that do not say them."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

import zmtpsniff
from dissectors.events import AnyEvent, Command, Connection, Message, Octets, Peer, Problem, Sides, Subscription
from tests.support.footprint import entries
from tests.support.paths import FIXTURES, PROJECT, fixtures
from tests.support.settings import RELATIONS
from tests.world.events import events_of
from tests.world.link import Link, connect
from tests.world.scripts import converse
from tests.world.tap import Packets, Records, captured, load, watch
from zmtpsniff import decode_as
from zmtpsniff.analysis.dossier import Guess, Guesses
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.patterns.inference import BoundSockets, Inference, Senders, SenderShape, contradicts
from zmtpsniff.engine.sniffer import Sniffer


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


def _told(events: list[AnyEvent]) -> dict[str, set[str | None]]:
    """The types that sockets seem to have, by address."""
    return {
        peer.address: {peer.socket_type, peer.lookalike}
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
        kept = [packet for place, packet in enumerate(load(path), 1) if place > last or port not in packet[2][:64]]
        super().__init__(kept)


def test_zmtp_1_has_no_types_on_the_wire() -> None:
    events = _events(FIXTURES / "x_435_to_220.pcap")
    assert sorted(_types(events).values()) == ["PUB", "PULL", "PUSH", "SUB"]  # its REQ has an identity


def test_what_is_announced_is_not_inferred() -> None:
    for path in fixtures("m31_*.pcap"):
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
        # Their programs answer as fast as they ask. So a REQ that was connected to looks like a REP, but for the last
        # word, which some captures do not have.
        ("REQ", {"REQ", "REP"}, 15, 0.1),
        ("SUB", {"PUB", "SUB"}, 20, 0),
        ("PUSH", {"PUSH", "PULL"}, 15, 0),
    ],
)
def test_late_captures(kind: str, pair: set[str], least: int, share: float) -> None:
    """Whatever is told of a pattern is right: who plays which part."""
    count: Counter[str] = Counter()
    for seed in range(60):
        types, records = _late(kind, seed)
        if set(types.values()) != pair:
            continue
        found = _told(events_of(captured(records), RELATIONS))
        is_right = all(types[address] in kinds for address, kinds in found.items())
        count["silent" if not found else "right" if is_right else "wrong"] += 1
    assert count.total() >= 10
    assert count["wrong"] <= count["right"] * share
    assert count["right"] >= least


CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"


def _turns(
    client: str = CLIENT,
    inference: Inference | None = None,
    head: Sequence[bytes] = (),
    later: int = 0,
    bodies: Callable[[int, bool], bytes] = lambda number, is_request: b"x",
) -> Guesses | None:
    """The guesses from eight requests of ``client`` and their replies, each of which had seen the one before.

    ``head`` are frames behind the empty one. The requests are known only with the reply number ``later``.
    """
    inference = inference or Inference((client, SERVER), Senders())
    time_ns = packet = 0
    requests: list[Message] = []
    messages: list[Message] = []
    for number in range(8):
        for src in (client, SERVER):
            time_ns, packet = time_ns + 1000, packet + 1
            dst = SERVER if src == client else client
            seen = 10 * (number + (src == SERVER))
            frames: list[Octets] = [b"", *head, bodies(number, src == client)]
            event = Message(time_ns, packet, 1, src, dst, frames, offset=10 * number + 5, seen=seen)
            (requests if src == client and number <= later else messages).append(event)
    given = [*messages[:later], *requests, *messages[later:]]
    return next(filter(None, (inference.message(event, blind=True) for event in given)), None)


ASKS = {CLIENT: Guess("REQ", "DEALER"), SERVER: Guess("REP", "ROUTER")}


def test_who_connects_asks() -> None:
    assert _turns() == ASKS
    assert _turns(client="10.0.0.1:4000") is None  # who connected?


def test_who_repeats_what_the_other_one_says_answers() -> None:
    """A REP that connects to a REQ is not taken for one that asks: of what the server says it repeats the number."""
    assert _turns(bodies=lambda number, is_request: b'{"id": %d}' % (number - is_request + 9)) is None
    assert _turns(bodies=lambda number, is_request: b'{"id": %d}' % number) == ASKS
    assert _turns(bodies=lambda number, is_request: b"job %d" % number if is_request else b"0 1 2 3 4 5 6") == ASKS


def test_turns_are_known_though_one_side_was_found_later() -> None:
    assert _turns(later=5) == ASKS


def test_a_client_of_majordomo_asks_a_router() -> None:
    found = _turns(head=[b"MDPC01", b"echo"])
    assert found == {CLIENT: Guess("REQ", "DEALER"), SERVER: Guess("ROUTER", "REP")}
    assert _turns(head=[b"MDPW01", b"\4"]) is None  # heartbeats of a worker, which is a DEALER


def test_of_what_nobody_knows_the_order_nothing_is_told() -> None:
    inference = Inference((CLIENT, SERVER), Senders())
    for src, dst in ((CLIENT, SERVER), (CLIENT, SERVER), (SERVER, CLIENT), (SERVER, CLIENT)):
        found = Message(0, 1, 1, src, dst, [b"", b"x"], seen=-1)
        assert inference.message(found, blind=True) is None
    assert _turns(inference=inference) == ASKS  # from what came after it
    other = Message(0, 1, 1, CLIENT, SERVER, [b"x"], seen=-1)  # no delimiter
    inference = Inference((CLIENT, SERVER), Senders())
    inference.message(other, blind=True)
    assert _turns(inference=inference) is None


def _pushed(src: str, frames: Callable[[int], list[bytes]], count: int = 6) -> Guesses | None:
    """The guesses at the end if one side sends so many messages, and the other one none."""
    inference = Inference((CLIENT, SERVER), Senders())
    dst = SERVER if src == CLIENT else CLIENT
    for number in range(count):
        event = Message(number, number + 1, 1, src, dst, [*frames(number)], offset=10 * number, seen=0)
        assert inference.message(event, blind=True) is None
    return inference.at_end()


def test_who_only_sends() -> None:
    pushes = {CLIENT: Guess("PUSH", "PUB"), SERVER: Guess("PULL", "SUB")}
    assert _pushed(CLIENT, lambda number: [b"x%d" % number]) == pushes
    assert _pushed(SERVER, lambda number: [b"job %d" % number, b"x"]) == {
        SERVER: Guess("PUSH", "PUB"),
        CLIENT: Guess("PULL", "SUB"),
    }
    assert _pushed(SERVER, lambda number: [b"x"]) == {SERVER: Guess("PUB", "PUSH"), CLIENT: Guess("SUB", "PULL")}
    assert _pushed(CLIENT, lambda number: [b"x"], 4) is None  # too few
    assert _pushed(CLIENT, lambda number: [b"", b"x"]) is None  # requests that nobody answers
    assert _pushed(SERVER, lambda number: [b"id", b"", b"%d" % number]) is None  # a broker passed these on


@pytest.mark.parametrize(("envelope", "kind"), [([], "PUSH"), ([b"id"], "PUSH"), ([b"id", b""], None)])
def test_a_dealer_whose_workers_hang_is_no_push(envelope: list[bytes], kind: str | None) -> None:
    """Both deal their messages out in turns, and hear nothing."""
    shape = SenderShape()
    for number in range(20):
        frames = [*envelope, b"job %d" % number]
        shape.take(Message(number, number, 1 + number % 2, SERVER, CLIENT, [*frames]))
    assert shape.kind == kind


def test_a_dealer_that_took_turns_asks_again_before_it_is_answered() -> None:
    """From then on nobody knows which request a reply answers."""
    turns = [(CLIENT, number, number) for number in range(5)]  # sender, its messages and those that it has seen
    turns += [(SERVER, number, number + 1) for number in range(5)]
    turns.sort(key=lambda turn: turn[1] + turn[2])
    turns += [(CLIENT, 5, 5), (SERVER, 5, 6), (CLIENT, 6, 6), (CLIENT, 7, 6), (SERVER, 6, 8), (SERVER, 7, 8)]
    events: list[AnyEvent] = [Problem("note", "no-greeting", "", 0, 1, 1, CLIENT, SERVER)]
    for packet, (src, sent, seen) in enumerate(turns, 1):
        dst = SERVER if src == CLIENT else CLIENT
        events.append(Message(packet, packet, 1, src, dst, [b"", b"x"], offset=10 * sent, seen=10 * seen))
    shown = [event for event in Patterns().take(events) if isinstance(event, Message)]
    requests = [event.request for event in shown if event.src == SERVER]
    assert requests == [None, None, None, 7, 9, 11, None, None]


def _late_push(count: int) -> list[AnyEvent]:
    """The record of a connection that began before the capture, on which one side sends so many messages."""
    found = Problem("note", "no-greeting", "", 0, 1, 1, CLIENT, SERVER)
    return [found, *(Message(n, n, 1, CLIENT, SERVER, [b"x%d" % n], offset=10 * n, seen=0) for n in range(1, count))]


def _connection(client: int) -> Connection:
    return Connection(1, "tcp", Peer(CLIENT), Peer(SERVER), Sides(client, 0), Sides(1, 1), 0, 9_999, "fin")


def _passed_on(copies: int) -> list[AnyEvent]:
    """Messages of a publisher to a proxy, and on to so many subscribers, if the capture began later."""
    proxy, publisher = "10.0.0.2", "10.0.0.1:40000"
    ends = [(publisher, f"{proxy}:5555"), *((f"10.0.0.{flow}:40000", f"{proxy}:5556") for flow in range(3, copies + 3))]
    events: list[AnyEvent] = [
        Problem("note", "no-greeting", "", 0, 1, flow, *pair) for flow, pair in enumerate(ends, 1)
    ]
    for packet in range(1, 10):
        for flow, (client, server) in enumerate(ends, 1):
            src, dst = (client, server) if flow == 1 else (server, client)
            events.append(Message(packet, packet, flow, src, dst, [b"news", b"%d" % packet], offset=packet, seen=0))
    for flow, (client, server) in enumerate(ends, 1):
        sent = Sides(9, 0) if flow == 1 else Sides(0, 9)
        events.append(Connection(flow, "tcp", Peer(client), Peer(server), sent, sent, 0, 9, "open"))
    return events


@pytest.mark.parametrize("copies", [1, 2])
def test_copies_show_that_a_proxy_publishes(copies: int) -> None:
    """It may have a PUB or an XPUB. One subscriber alone may as well be a worker, to which a PUSH passes jobs on."""
    types = {"10.0.0.2:5556": {"PUB", "XPUB"}, "10.0.0.3:40000": {"SUB", "XSUB"}, "10.0.0.4:40000": {"SUB", "XSUB"}}
    assert _told(Patterns().take(_passed_on(copies))) == (types if copies > 1 else {})


def test_of_many_messages_the_first_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are not looked at: that would cost more than all else that is done with them."""
    seen: list[Message] = []
    take = Inference.message

    def watched(inference: Inference, event: Message, blind: bool) -> Guesses | None:
        seen.append(event)
        return take(inference, event, blind)

    monkeypatch.setattr(Inference, "message", watched)
    patterns = Patterns()
    patterns.take(_late_push(3000))
    assert 0 < len(seen) <= 1000
    (connection,) = patterns.take([_connection(3000)])
    assert isinstance(connection, Connection)
    assert (connection.client.socket_type, connection.client.lookalike) == ("PUSH", "PUB")


def test_a_subscription_takes_back_that_it_is_a_pull() -> None:
    patterns = Patterns()
    patterns.take(_late_push(3000))
    patterns.take([Subscription(4000, 4000, 1, SERVER, CLIENT, "subscribe", b"x", "command")])
    (connection,) = patterns.take([_connection(3000)])
    assert isinstance(connection, Connection)
    assert (connection.client.socket_type, connection.client.lookalike) == ("PUB", None)


def test_subscriptions_may_be_found_later_than_what_was_sent_to_them() -> None:
    inference = Inference((CLIENT, SERVER), Senders())
    for number in range(5):
        event = Message(number, number + 2, 1, CLIENT, SERVER, [b"quote/%d" % number], offset=10 * number, seen=9)
        assert inference.message(event, blind=True) is None
    wish = Message(0, 1, 1, SERVER, CLIENT, [b"\1quote/"], seen=0)
    assert inference.message(wish, blind=True) == {SERVER: Guess("SUB"), CLIENT: Guess("PUB")}


def test_heartbeats_are_no_talk() -> None:
    inference = Inference((CLIENT, SERVER), Senders())
    for number in range(6):
        event = Message(number, number, 1, CLIENT, SERVER, [b"x%d" % number], offset=10 * number, seen=7 * number)
        inference.command(Command(0, 1, 1, SERVER, CLIENT, "PING"))
        inference.message(event, blind=True)
    assert inference.at_end() == {CLIENT: Guess("PUSH", "PUB"), SERVER: Guess("PULL", "SUB")}


def test_a_bound_socket_is_the_same_on_all_its_connections() -> None:
    bound = BoundSockets()
    bound.announce(SERVER, "PUSH")
    told = {SERVER: Guess("PUSH"), CLIENT: Guess("PULL")}
    assert bound.guesses(CLIENT, SERVER) == bound.guesses(SERVER, CLIENT) == told
    assert bound.guesses(CLIENT, "10.0.0.2:5556") is None
    bound.announce(SERVER, "PUB")  # another program since then, and nobody knows since when
    assert bound.guesses(CLIENT, SERVER) is None
    bound.announce("10.0.0.2:5556", "REP")
    told = {"10.0.0.2:5556": Guess("REP"), CLIENT: Guess("REQ", "DEALER")}
    assert bound.guesses(CLIENT, "10.0.0.2:5556") == told
    bound.announce("10.0.0.2:5557", "ROUTER")
    assert bound.guesses(CLIENT, "10.0.0.2:5557") is None
    guesses = {CLIENT: Guess("REQ", "DEALER"), "10.0.0.2:5557": Guess("REP", "ROUTER")}
    assert bound.settle(guesses) == guesses | {"10.0.0.2:5557": Guess("ROUTER")}


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
    """A side that connects, sends and hears nothing looks like a PUSH, until the other side answers."""
    connection = Connection(1, "tcp", Peer(CLIENT), Peer(SERVER), Sides(9, 0), Sides(900, 0), 0, 1, "fin")
    guesses = {CLIENT: Guess("PUSH"), SERVER: Guess("PULL")}
    assert not contradicts(guesses, connection)
    connection.messages.server = 1
    assert contradicts(guesses, connection)


def test_nothing_is_wrong_without_beginnings() -> None:
    """The figures of the documentation; the exit status is 1 if any type is wrong."""
    command = [sys.executable, str(PROJECT / "benchmarks" / "inference.py"), str(FIXTURES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stdout + done.stderr
    shares = dict(re.findall(r"^(\S+ +handshake) .*: +([\d.]+)% right", done.stdout, re.MULTILINE))
    for pair in ("PUB-SUB  ", "PUSH-PULL", "REQ-REP  "):
        assert float(shares[f"{pair} handshake"]) >= 90


@pytest.mark.parametrize("rule", ["tcp.port==5557,zmtp/CHAIR", "udp.port==5557,zmtp/REP", "tcp.port==5557,mlm/REP"])
def test_rules_that_say_nothing(rule: str) -> None:
    with pytest.raises(ValueError, match="REP"):
        decode_as.parse(rule)


def _publish(patterns: Patterns, flow: int, number: int) -> None:
    """A publisher whose handshakes the capture lacks sends its message with this number to one of its subscribers."""
    dst = f"10.0.0.9:{20_000 + flow}"
    found = [Problem("note", "no-greeting", "", flow, flow, flow, SERVER, dst)] if not number else []
    patterns.take([*found, Message(flow, flow, flow, SERVER, dst, [b"%d" % number], offset=number, seen=0)])


def _end(patterns: Patterns, flow: int) -> Connection:
    ends = Peer(f"10.0.0.9:{20_000 + flow}"), Peer(SERVER)
    (event,) = patterns.take([Connection(flow, "tcp", *ends, Sides(0, 4), Sides(0, 1), 0, 9_999, "fin")])
    assert isinstance(event, Connection)
    return event


def test_of_all_connections_that_a_sender_had_few_are_remembered() -> None:
    patterns = Patterns()
    sizes = []
    for flow in range(1, 2001):
        _publish(patterns, flow, 0)
        _end(patterns, flow)
        if flow % 1000 == 0:
            sizes.append(entries(patterns))
    assert sizes[1] < sizes[0] + 10


def test_some_of_many_subscribers_show_the_publisher() -> None:
    patterns = Patterns()
    flows = range(1, 301)
    for number in range(4):
        for flow in flows:
            _publish(patterns, flow, number)
    assert {_end(patterns, flow).server.socket_type for flow in flows} == {"PUB"}
