"""Connections that a capture has before and after NAT are followed once."""

from collections import Counter
from pathlib import Path

import pytest

from dissectors.events import Capture, Connection, Message, Problem
from tests.support.paths import FIXTURES
from tests.world.tap import load, save_pcapng
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.addresses import reverse
from zmtpsniff.net.flow import Commons, Flow
from zmtpsniff.net.segment import ACK, Segment
from zmtpsniff.net.translation import TranslationLog

NAT = FIXTURES / "nat" / "translated.pcap.gz"
SECOND = 1_000_000_000
NUMBER = 0x8765_4321


def test_each_connection_and_each_refusal_is_told_once() -> None:
    """Two long connections, and six short ones that come whole; then the publisher's port is closed."""
    events = [event for batch in open_files([NAT], Settings()).batches() for event in batch]
    servers = Counter(event.server.address for event in events if isinstance(event, Connection))
    assert servers == {"10.1.0.1:5555": 7, "10.1.0.1:5556": 1}
    assert sum(isinstance(event, Message) for event in events) == 2 * 26 + 20
    problems = {event.code: event.detail for event in events if isinstance(event, Problem)}
    assert problems["addresses-translated"] == (
        "8 connections were captured before and after NAT: 10.1.0.1:5555 is 10.2.0.2:5555"
    )
    assert "10.1.0.1:5556" in problems["connection-refused"]
    assert isinstance(events[-1], Capture)


def test_kubernetes_draws_the_port_at_random(tmp_path: Path) -> None:
    packets = load(NAT)
    begin = 20  # of IP, behind the header of Linux for all interfaces
    masked = bytes((10, 2, 0, 1))
    moved = []
    for time_ns, link, octets, length, comment in packets:
        packet = bytearray(octets)
        for host, port in ((begin + 12, begin + 20), (begin + 16, begin + 22)):
            if packet[host : host + 4] == masked:
                packet[port + 1] ^= 0x55
        moved.append((time_ns, link, bytes(packet), length, comment))
    events = [
        event
        for batch in open_files([save_pcapng(tmp_path / "moved.pcapng", moved)], Settings()).batches()
        for event in batch
    ]
    servers = Counter(event.server.address for event in events if isinstance(event, Connection))
    assert servers == {"10.1.0.1:5555": 7, "10.1.0.1:5556": 1}


@pytest.mark.parametrize("begin", [20, 21, 22, 23])
def test_connections_that_are_older_than_the_capture(begin: int, tmp_path: Path) -> None:
    """Either view may come first. The client's own address is shown."""
    late = save_pcapng(tmp_path / "late.pcapng", load(NAT)[begin:])
    events = [event for batch in open_files([late], Settings()).batches() for event in batch]
    old = [event for event in events if isinstance(event, Connection) and event.handshake == "not-seen"]
    assert {event.client.address.split(":")[0] for event in old} == {"10.1.0.2"}
    ends = {end for event in events if isinstance(event, Message) for end in (event.src, event.dst)}
    assert ends
    assert not [end for end in ends if end.startswith("10.2.")]


def _segment(key: bytes, seq: int, ack: int, time_ns: int) -> Segment:
    return time_ns, 0, key, seq, ack, ACK, b"octets", 0


@pytest.mark.parametrize(
    ("server", "number", "after_ns", "directions", "is_same"),
    [
        ("10.2.0.2", NUMBER, 20_000, 2, True),
        ("10.2.0.2", NUMBER + 1, 20_000, 2, False),
        ("10.2.0.2", NUMBER, SECOND, 2, False),
        ("10.2.0.2", NUMBER, 20_000, 1, False),  # one direction proves too little
    ],
)
def test_a_connection_without_its_beginning_is_known_by_its_first_segments(
    server: str, number: int, after_ns: int, directions: int, is_same: bool
) -> None:
    log = TranslationLog()
    first, other = _key("10.1.0.2", 40000, "10.1.0.1"), _key("10.2.0.1", 41000, server)
    found: dict[bytes, list[Segment]] = {}
    for key, begin, at in ((first, NUMBER, 0), (other, number, after_ns)):
        there = [_segment(key, begin + place, NUMBER - 9 + place, at + place) for place in range(3)]
        back = [_segment(reverse(key), NUMBER - 9 + place, begin + place, at + place) for place in range(3)]
        found[key] = [*there, *back][: 3 * directions]
        for segment in found[key]:
            log.see_first(segment)
    flows = {key: Flow.between(Commons(), place, key, reverse(key), 0) for place, key in enumerate(found)}
    for key, segments in found.items():
        log.begin_late(key, segments)
    assert not log.is_translated(flows[first], lambda key: flows[key].client)
    assert log.is_translated(flows[other], lambda key: flows[key].client) is is_same


def _key(client: str, port: int, server: str) -> bytes:
    return bytes(map(int, f"{client}.{server}".split("."))) + port.to_bytes(2, "big") + b"\x15\xb3"


@pytest.mark.parametrize(
    ("port", "number", "after_ns", "is_same"),
    [
        (40000, NUMBER, 20_000, True),
        (40000, NUMBER, 0, True),  # clocks of microseconds
        (40001, NUMBER, 20_000, True),  # Kubernetes has it drawn at random
        (40001, 7_000_000, 20_000, False),  # such a number is made up
        (40000, 7_000_000, 20_000, True),
        (40000, NUMBER + 1, 20_000, False),
        (40000, NUMBER, SECOND, False),  # nothing takes a SYN so long to pass on
        (40000, 1000, 20_000, False),  # a program that makes up captures gives all connections such a number
    ],
)
def test_a_connection_is_known_by_its_number(port: int, number: int, after_ns: int, is_same: bool) -> None:
    log = TranslationLog()
    first, other = _key("10.1.0.2", 40000, "10.1.0.1"), _key("10.2.0.1", port, "10.2.0.2")
    assert not log.begin(first, NUMBER if number == NUMBER + 1 else number, 0)
    assert log.begin(other, number, after_ns) is is_same
    assert not log.before(first, NUMBER)
    assert log.before(other, number) == [first] * is_same


def test_connections_of_one_client_are_others() -> None:
    """A program made up the capture, with one number for all."""
    log = TranslationLog()
    assert not log.begin(_key("10.1.0.2", 40000, "10.1.0.1"), NUMBER, 0)
    assert not log.begin(_key("10.1.0.2", 40001, "10.1.0.1"), NUMBER, 0)
    assert not log.begin(_key("10.1.0.2", 40002, "10.2.0.1"), NUMBER, 0)


def test_forged_beginnings_with_one_number_are_few() -> None:
    log = TranslationLog()
    keys = [_key(f"10.1.{place >> 8}.{place & 255}", 40000, "10.1.0.1") for place in range(1000)]
    for key in keys:
        log.begin(key, NUMBER, 0)
    assert [len(log.before(key, NUMBER)) for key in keys] == [*range(8), *[0] * 992]


def test_few_beginnings_are_remembered() -> None:
    log = TranslationLog()
    for number in range(100_000):
        log.begin(_key("10.1.0.2", 40000, "10.1.0.1"), NUMBER + number, number)
    assert not log.begin(_key("10.2.0.1", 40000, "10.2.0.2"), NUMBER, 100_000)
    assert log.begin(_key("10.2.0.1", 40000, "10.2.0.2"), NUMBER + 99_999, 100_000)
