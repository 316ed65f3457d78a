"""Where the record of each packet begins in its file, as the readers tell those who ask for it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.capture.test_files import COMPRESSIONS, PCAP, PCAPNG, SOME, Ng, pcap
from tests.support import records
from tests.support.paths import CAPTURES, FIXTURES
from tests.world.tap import Packets
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.files import open_stream
from zmtpsniff.capture.source import CaptureError

ALEXEYS = pcap(SOME, magic=0xA1B2CD34)  # whose records have longer headers


def chunks(octets: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(octets), size):
        yield octets[at : at + size]


def read(octets: bytes, size: int = 1 << 16) -> list[tuple[Packet, int]]:
    """The packets of a file that comes in chunks of ``size`` octets, each with its offset."""
    found: list[tuple[Packet, int]] = []
    for block in open_stream("capture", chunks(octets, size), Packets(())):
        found += zip(block, block.offsets(), strict=True)
    return found


def sections() -> bytes:
    """A capture of several sections of both byte orders, with blocks of all kinds, options and padding in between."""
    out = b""
    for number, order in enumerate("<><>>"):
        ng = Ng(order)
        out += ng.section(ng.option(1, b"x" * number))
        out += ng.block(4, "I", 0) + ng.interface(options=ng.option(9, b"\x09")) + ng.block(0x0BAD, "I", 7, data=b"any")
        for length in range(9):
            octets = bytes([number]) * length
            out += ng.packet(0, length, octets, 60)
            out += ng.packet(0, length, octets, 60, ng.option(1, b"a comment" + octets))
            out += ng.block(5, "III", 0, 0, 0) * (length % 3)
        out += ng.block(3, "I", 4, data=b"simp") + ng.block(2, "HHIIII", 0, 5, 0, 3, 3, 9, data=b"old")
        out += ng.interface(113) + ng.packet(1, 1, b"on another one", 60)
    return out


FORMS = {
    "pcap": PCAP,
    "big-endian": pcap(SOME, ">"),
    "longer headers": ALEXEYS,
    "over snaplen": pcap(SOME, snaplen=4),
    "pcapng": PCAPNG,
    "sections": sections(),
}


@pytest.mark.parametrize("form", FORMS)
@given(size=st.integers(1, 5000))
@example(size=1)
def test_offsets_in_chunks_of_any_size(form: str, size: int) -> None:
    octets = FORMS[form]
    found = read(octets, size)
    assert [offset for _, offset in found] == records.offsets(octets) != []


def test_octets_of_the_packet_are_in_its_record() -> None:
    octets = sections()
    found = read(octets, 100)
    assert found
    for (_, _, data, _, _), offset in found:
        kind = max(octets[offset : offset + 4])
        begin = offset + (12 if kind == 3 else 28)
        assert octets[begin : begin + len(data)] == data


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_offsets_are_those_of_what_is_compressed(form: str, compression: str) -> None:
    octets = FORMS[form]
    assert [offset for _, offset in read(COMPRESSIONS[compression](octets), 50)] == records.offsets(octets)


@pytest.mark.parametrize("form", FORMS)
@given(cut=st.integers(0, 400))
def test_offsets_in_a_file_cut_short(form: str, cut: int) -> None:
    octets = FORMS[form][:-cut] if cut else FORMS[form]
    with contextlib.suppress(CaptureError):
        assert [offset for _, offset in read(octets, 64)] == records.offsets(octets)


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_offsets_in_a_damaged_file(form: str, data: st.DataObject) -> None:
    octets = bytearray(FORMS[form])
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CaptureError):
        found = [offset for _, offset in read(bytes(octets), data.draw(st.integers(1, 500)))]
        assert found == (records.offsets(bytes(octets)) or [])[: len(found)]


def captures() -> list[Path]:
    folders = [FIXTURES, *([CAPTURES] if CAPTURES.is_dir() else [])]
    return [path for folder in folders for path in sorted(folder.iterdir()) if ".pcap" in path.name]


def test_offsets_in_every_capture() -> None:
    wrong = []
    for path in captures():
        found = [offset for _, offset in read(path.read_bytes(), 777)]
        if found != records.offsets(records.content(path)):
            wrong.append(path.name)
    assert not wrong
    assert len(captures()) > 50


def test_a_log_of_strace_has_no_records() -> None:
    octets = b'7 1.5 sendto(9<UNIX-STREAM:[1->2]>, "\\xff\\x00", 2, MSG_NOSIGNAL, NULL, 0) = 2\n' * 3
    blocks = open_stream("log", chunks(octets, 50), Packets(()))
    assert [offset for block in blocks for offset in block.offsets()] == [0, 0, 0]
