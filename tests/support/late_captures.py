"""Captures that begin too late: recorded ones without the beginnings of their connections."""

from pathlib import Path

import zmtpsniff
from dissectors.events import Command, Connection, Greeting
from tests.world.tap import load
from zmtpsniff.capture.block import Packet
from zmtpsniff.net.addresses import addresses
from zmtpsniff.net.packets import HeaderDecoder


def without_beginnings(path: Path, share: float = 0.0) -> list[Packet]:
    """The packets of a capture, of each connection only those behind its handshake.

    Of those it lacks the first ``share``, too.
    """
    ends: dict[int, int] = {}
    connections: list[Connection] = []
    for event in zmtpsniff.open(path, payload=False):
        if isinstance(event, Connection):
            connections.append(event)
        elif isinstance(event, Greeting) or (isinstance(event, Command) and event.socket_type is not None):
            ends[event.flow] = event.packet
    lasts = {frozenset({one.client.address, one.server.address}): ends.get(one.flow, 0) for one in connections}
    packets = load(path)
    behind: dict[frozenset[str], list[int]] = {}
    gone: set[int] = set()
    for segment in HeaderDecoder().segments(packets, 1):
        number = segment[1]
        ends_of = frozenset(address.text for address in addresses(segment[2]))
        if number <= lasts.get(ends_of, 0):
            gone.add(number)
        else:
            behind.setdefault(ends_of, []).append(number)
    for numbers in behind.values():
        gone.update(numbers[: int(len(numbers) * share)])
    return [packet for number, packet in enumerate(packets, 1) if number not in gone]
