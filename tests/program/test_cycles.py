"""Connections that are over leave no cycles: what was made for one never waits for the garbage collector."""

import gc

import pytest

from dissectors.events import Command, Connection, Greeting, Message, Peer, Sides
from zmtpsniff.analysis.patterns import Patterns

KINDS = [
    ("REQ", "REP"),
    ("DEALER", "ROUTER"),
    ("SUB", "PUB"),
    ("PUSH", "PULL"),
    ("CLIENT", "SERVER"),
    ("DISH", "RADIO"),
]


def talk(patterns: Patterns, flow: int, kinds: tuple[str, str]) -> None:
    """One connection from its greetings to its end, with heartbeats."""
    ends = (f"10.0.0.1:{30_000 + flow}", "10.0.0.2:5555")
    ways = (ends, ends[::-1])
    wire = [(1_000 * flow, flow, flow, src, dst) for src, dst in ways]
    patterns.take([Greeting(*where, version="3.1") for where in wire])
    patterns.take(
        [
            Command(*where, name="READY", properties={"Socket-Type": kind.encode()}, socket_type=kind)
            for where, kind in zip(wire, kinds, strict=True)
        ]
    )
    patterns.take([Command(*wire[0], name="PING", ttl_ms=100, context=b""), Command(*wire[1], name="PONG")])
    patterns.take([Message(*where, frames=[b"", b"x"]) for where in wire])
    client, server = (Peer(end, "3.1", kind) for end, kind in zip(ends, kinds, strict=True))
    times = 1_000 * flow, 1_000 * flow + 1
    patterns.take(
        [Connection(flow, "tcp", client, server, Sides(1, 1), Sides(100, 100), *times, "fin", handshake="complete")]
    )


def garbage(connections: int, kinds: tuple[str, str]) -> int:
    """How many objects wait for a search for cycles after so many connections."""
    gc.disable()
    try:
        patterns = Patterns()
        for flow in range(1, connections + 1):
            talk(patterns, flow, kinds)
        return gc.collect()
    finally:
        gc.enable()


@pytest.mark.parametrize("kinds", KINDS)
def test_connections_leave_no_cycles(kinds: tuple[str, str]) -> None:
    garbage(1, kinds)  # what is made once
    assert garbage(50, kinds) <= garbage(5, kinds) + 10
