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


@pytest.mark.parametrize("path", sampled(RECORDED), ids=lambda path: path.name)
def test_types_are_those_that_dissection_finds(path: Path) -> None:
    greetings = OlderGreetings()
    greetings.take(Block.of(load(path)))
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
