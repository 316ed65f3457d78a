"""PINGs without an answer: which are told, and how many."""

from typing import Literal

import pytest

from dissectors.events import Command, Connection, Greeting, Message, Peer, Problem, Sides
from tests.support.paths import FIXTURES
from tests.world.events import events_of, problems
from tests.world.tap import load
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.engine.settings import Settings

CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("count", "others"), [(1, ""), (2, ", nor 1 after it"), (3, ", nor 2 after it"), (200, ", nor 199 after it")]
)
def test_a_connection_that_ends_tells_how_many_pings_had_no_pong(count: int, others: str) -> None:
    """The server says something else behind them, so that only the end tells."""
    patterns = Patterns(1.0)
    ways = (CLIENT, SERVER, "PULL"), (SERVER, CLIENT, "PUSH")
    patterns.take([Greeting(1, 1, 1, src, dst, version="3.1", mechanism="NULL") for src, dst, _ in ways])
    patterns.take(
        [Command(1, 1, 1, src, dst, "READY", {"Socket-Type": kind.encode()}, kind) for src, dst, kind in ways]
    )
    patterns.take(
        [Command(2 + number, 2 + number, 1, CLIENT, SERVER, "PING", ttl_ms=0, context=b"") for number in range(count)]
    )
    patterns.take([Message(SECOND, 300, 1, SERVER, CLIENT, [b"x"], "PUSH")])
    end_ns = 60 * SECOND
    totals = Sides(0, 1), Sides(1, 1), 1, end_ns
    events = patterns.take([Connection(1, "tcp", Peer(CLIENT), Peer(SERVER), *totals, "fin", handshake="complete")])
    found = [event for event in [*events, *patterns.finish()] if isinstance(event, Problem)]
    assert [(event.code, event.packet, event.detail) for event in found] == [
        ("ping-unanswered", 2, f"no PONG for this PING{others}, though its receiver says other things")
    ]


@pytest.mark.parametrize("context", [b"same", b"other"])
@pytest.mark.parametrize("count", [1, 10_000])
def test_a_ping_before_the_socket_types_are_known_has_its_pong(context: bytes, count: int) -> None:
    """The capture point is late with the server's READY. Of many PINGs not all are kept, and nobody is accused."""
    patterns = Patterns(1.0)
    ways = (CLIENT, SERVER, "PULL"), (SERVER, CLIENT, "PUSH")
    patterns.take([Greeting(1, 1, 1, src, dst, version="3.1", mechanism="NULL") for src, dst, _ in ways])
    client, server = [
        Command(1, 1, 1, src, dst, "READY", {"Socket-Type": kind.encode()}, kind) for src, dst, kind in ways
    ]
    pings = [Command(2, 2, 1, CLIENT, SERVER, "PING", ttl_ms=0, context=b"same") for _ in range(count)]
    pong = Command(5, 3, 1, SERVER, CLIENT, "PONG", context=context)
    events = patterns.take([client, *pings, server, pong])
    assert [event.code for event in events if isinstance(event, Problem)] == (
        ["pong-without-ping"] if (context, count) == (b"other", 1) else []
    )
    if count == 1:
        assert (pong.request, pong.latency_ns) == ((2, 3) if context == b"same" else (None, None))


@pytest.mark.parametrize("cut", [10, 20, 30, 40, 50, 60, 70])
def test_a_peer_that_freezes_is_told_where_the_capture_began_late(cut: int) -> None:
    """It had answered PINGs before. Of a peer that the capture never shows, nothing is told."""
    packets = load(FIXTURES / "rec_frozen_peer.pcap")
    late = packets[len(packets) * cut // 100 :]
    assert "heartbeat-late" in problems(events_of(late, Settings()))
    one_way = [packet for packet in late if packet[2][34:36] != (5564).to_bytes(2, "big")]  # its source port
    assert len(one_way) < len(late)
    codes = problems(events_of(one_way, Settings()))
    assert not [code for code in codes if code.startswith(("ping", "heartbeat"))]


@pytest.mark.parametrize(("after_s", "is_told"), [(12, True), (0.5, False)])
def test_a_peer_that_froze_before_it_was_heard_is_told_when_it_answers(after_s: float, is_told: bool) -> None:
    """The capture begins late, and has both directions, as the PONG shows in the end."""
    patterns, answered_ns = Patterns(1.0), round(after_s * SECOND)
    patterns.take([Problem("note", "no-greeting", "", 1, 1, 1, *ends) for ends in ((SERVER, CLIENT), (CLIENT, SERVER))])
    ping = Command(2, 2, 1, SERVER, CLIENT, "PING", ttl_ms=0, context=b"")
    pong = Command(answered_ns, 3, 1, CLIENT, SERVER, "PONG", context=b"")
    found = [event.code for event in patterns.take([ping, pong]) if isinstance(event, Problem)]
    assert found == (["ping-unanswered"] if is_told else [])


@pytest.mark.parametrize("closer", ["client", None])
def test_who_has_closed_a_connection_is_not_silent(closer: Literal["client", None]) -> None:
    """Its peer hangs, so that the connection stays half open until the capture ends."""
    patterns = Patterns(1.0)
    ways = (CLIENT, SERVER, "DEALER"), (SERVER, CLIENT, "ROUTER")
    patterns.take([Greeting(1, 1, 1, src, dst, version="3.1", mechanism="NULL") for src, dst, _ in ways])
    patterns.take(
        [Command(1, 1, 1, src, dst, "READY", {"Socket-Type": kind.encode()}, kind) for src, dst, kind in ways]
    )
    patterns.take([Command(2, 2, 1, CLIENT, SERVER, "PING", ttl_ms=1000, context=b"")])
    totals = Sides(0, 0), Sides(1, 1), 1, SECOND // 2
    over = Connection(
        1, "tcp", Peer(CLIENT), Peer(SERVER), *totals, "open", handshake="complete", closed_by=closer
    )  # fmt: skip
    later = Greeting(60 * SECOND, 9, 2, "10.0.0.3:40000", SERVER, version="3.1", mechanism="NULL")
    events = [*patterns.take([later, over]), *patterns.finish()]
    found = {event.code for event in events if isinstance(event, Problem)}
    assert found == {"ping-unanswered", *(() if closer else ("heartbeat-late",))}
