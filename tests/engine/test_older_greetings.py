"""Rings of files: what lies outside is left out, and the greetings of open connections are found there."""

import os
from pathlib import Path

import pytest

import zmtpsniff
from dissectors.events import Command
from tests.support.examples import sampled
from tests.support.paths import CAPTURES, FIXTURES
from tests.world.tap import load, save
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.engine.older_greetings import OlderGreetings, select
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import FIN, RST
from zmtpsniff.words import link_types

SECOND = 1_000_000_000
REQ_REP = FIXTURES / "m31_req_rep.pcap"
RECORDED = [
    *sorted(FIXTURES.glob("m3*.pcap*")),
    *sorted(FIXTURES.glob("rec_*.pcap")),
    *sorted(CAPTURES.glob("m3*.pcap*")),
]


def _ring(folder: Path, pieces: list[list[Packet]]) -> list[str]:
    names = []
    for number, packets in enumerate(pieces):
        path = folder / f"ring_{number}.pcap"
        save(path, packets)
        os.utime(path, (number, number))
        names.append(str(path))
    return names


def _at(second: int, count: int = 3) -> list[Packet]:
    return [(second * SECOND + number, 1, b"", 0, None) for number in range(count)]


def _ends(packet: Packet) -> bool:
    """Whether it ends a connection."""
    return any(segment[5] & (FIN | RST) for segment in HeaderDecoder().segments([packet], 1))


@pytest.mark.parametrize("path", sampled(RECORDED), ids=lambda path: path.name)
def test_types_are_those_that_dissection_finds(path: Path) -> None:
    greetings = OlderGreetings()
    greetings.take(Block.of([packet for packet in load(path) if not _ends(packet)]))
    told = {
        (event.src, event.dst): event.socket_type
        for event in zmtpsniff.open(path)
        if isinstance(event, Command) and event.name in ("READY", "INITIATE") and event.socket_type is not None
    }
    found = greetings.greeted()
    assert found.items() <= told.items()
    both = {ends for ends in told if ends[::-1] in told and "ws:" not in ends[0]}
    assert found.keys() >= both or "ws" in path.name or "curve" in path.name or "gssapi" in path.name


def test_text_that_looks_like_a_greeting_is_none() -> None:
    packets = load(REQ_REP)
    ready = next(octets for _, _, octets, _, _ in packets if b"\x05READY" in octets)
    at = ready.index(b"\x05READY")
    quoted = [(0, packets[0][1], ready[: at - 2] + b"\0\x40" + ready[at:], len(ready), None)]
    greetings = OlderGreetings()
    for _, link, octets, wire, _ in packets:
        greetings.take(Block.of([(0, link, octets, wire, None)]) if octets != ready else Block.of(quoted))
    assert greetings.greeted() == {}


@pytest.mark.parametrize("flags", [0x02, 0x12, 0x11, 0x14], ids=["SYN", "SYN-ACK", "FIN", "RST"])
def test_a_port_that_is_used_again_has_no_type(flags: int) -> None:
    """The greetings of the next connection may be missing: those of the one before are not its own."""
    packets = load(REQ_REP)
    greetings = OlderGreetings()
    last = max(place for place, packet in enumerate(packets) if b"\x05READY" in packet[2])
    greetings.take(Block.of(packets[: last + 1]))
    assert len(greetings.greeted()) == 2
    time_ns, link, octets, wire, _ = packets[0]
    assert (link, octets[47]) == (link_types.ETHERNET, 0x02)
    greetings.take(Block.of([(time_ns, link, octets[:47] + bytes([flags]) + octets[48:], wire, None)]))
    assert greetings.greeted() == {}


def test_only_packets_before_the_window_are_taken(tmp_path: Path) -> None:
    packets = load(REQ_REP)
    ends = [place for place, packet in enumerate(packets) if packet[2][47] & 0x05]
    assert ends
    (name,) = _ring(tmp_path, [packets])
    begin_ns = packets[ends[0]][0]
    assert len(select([name], begin_ns=begin_ns).greeted) == 2
    assert select([name], begin_ns=packets[-1][0] + (packets[-1][0] == begin_ns)).greeted == {}


def test_only_files_with_packets_inside(tmp_path: Path) -> None:
    names = _ring(tmp_path, [_at(10), _at(20), [*_at(30), *_at(40)], _at(50), [], _at(60)])
    assert select(names, begin_ns=35 * SECOND, end_ns=55 * SECOND).names == names[2:4]
    assert select(names, last_ns=5 * SECOND).names == names[5:]
    assert select(names, last_ns=25 * SECOND, end_ns=45 * SECOND).names == names[1:3]
    assert select(names).names == [name for name in names if name != names[4]]


def test_the_end_may_be_in_a_file_that_begins_earlier(tmp_path: Path) -> None:
    names = _ring(tmp_path, [_at(20), [*_at(10), *_at(70)]])
    assert select(names, last_ns=5 * SECOND).window.begin_ns == 65 * SECOND + 2


def test_nothing_is_inside(tmp_path: Path) -> None:
    names = _ring(tmp_path, [_at(10), _at(20)])
    with pytest.raises(CaptureError, match="no packet"):
        select(names, begin_ns=30 * SECOND)


def test_standard_input_has_no_last_packets() -> None:
    assert select(["-"], begin_ns=SECOND).names == ["-"]
    with pytest.raises(CaptureError, match="--from"):
        select(["-"], last_ns=SECOND)
