"""Captures as others would have them, and which octets of TCP streams they lack, told by nothing but TCP's numbers.

Packets are those of Ethernet, IPv4 and TCP.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from random import Random
from typing import NamedTuple

from zmtpsniff.capture.block import Packet

_FIN, _SYN, _ACK = 0x01, 0x02, 0x10
_MODULO = 1 << 32
_IP = 14  # where the header begins, behind that of Ethernet
Sender = tuple[str, str]  # its address and that of its peer, each with the port


def sent_by(packets: Iterable[Packet], address: str) -> list[Packet]:
    """The packets that a host sent: what ``src host ADDRESS`` leaves of a capture."""
    octets = bytes(map(int, address.split(".")))
    return [packet for packet in packets if packet[2][_IP + 12 : _IP + 16] == octets]


def later(packets: Iterable[Packet], seconds: float) -> list[Packet]:
    """The packets as a capture has them whose clock is fast by so many seconds."""
    return [(packet[0] + int(seconds * 1e9), *packet[1:]) for packet in packets]


def thinned(packets: Iterable[Packet], share: float, random: Random) -> list[Packet]:
    """The packets as a capture has them that lost this share of them."""
    return [packet for packet in packets if random.random() >= share]


class Capture(NamedTuple):
    """The packets of a capture among those that passed where it was made."""

    passed: Sequence[Packet]
    kept: Sequence[Packet]  # the same objects, without those that were lost


class Hole(NamedTuple):
    """How many octets of a sender captures lack."""

    # No packet holds them, and one shows that the receiver got them. Those in front of all that a capture without a SYN
    # holds are not counted: nobody knows where the stream began.
    certain: int
    possible: (
        int  # no packet holds them, or only one that repeats them, perhaps long after others show that they are lost
    )
    in_greeting: int  # possibly missing ones of the first 64


class _Segment(NamedTuple):
    """The numbers of a TCP segment."""

    packet: int  # id() of its packet
    sender: Sender
    flags: int
    seq: int
    ack: int
    length: int


def holes(captures: Sequence[Capture]) -> dict[Sender, Hole]:
    """The octets of each sender that captures of the same connections lack together."""
    passed = list(chain.from_iterable(capture.passed for capture in captures))
    first = {segment.sender: segment.seq + 1 for segment in _segments(passed) if segment.flags & _SYN}
    # Who refuses a connection sends no SYN.
    first = {(sender, peer): seq for (sender, peer), seq in first.items() if (peer, sender) in first}
    lengths = dict.fromkeys(first, 0)
    for segment, _, end in _placed(passed, first):
        if segment.length:  # what comes after a FIN has a number that is none of an octet
            lengths[segment.sender] = max(lengths[segment.sender], end)
    held, in_time = ({sender: bytearray(length) for sender, length in lengths.items()} for _ in range(2))
    acknowledged = dict.fromkeys(first, 0)
    with_syn = set()
    for capture in captures:
        kept = set(map(id, capture.kept))
        with_syn |= {segment.sender for segment in _segments(capture.kept) if segment.flags & _SYN}
        shown = {sender: bytearray(length) for sender, length in lengths.items()}
        for segment, begin, end in _placed(capture.passed, first):
            sender, peer = segment.sender
            new = [at for at in range(begin, end) if not shown[sender, peer][at]]
            shown[sender, peer][begin:end] = b"\1" * (end - begin)
            if segment.packet not in kept:
                continue
            held[sender, peer][begin:end] = b"\1" * (end - begin)
            for at in new:
                in_time[sender, peer][at] = 1
            if segment.flags & _ACK:
                # A FIN is acknowledged as if it were an octet.
                ack = min((segment.ack - first[peer, sender]) % _MODULO, lengths[peer, sender])
                acknowledged[peer, sender] = max(acknowledged[peer, sender], ack)
    begins = {sender: 0 if sender in with_syn else (held[sender] + b"\1").find(1) for sender in first}
    return {
        sender: Hole(
            held[sender][begins[sender] : acknowledged[sender]].count(0),
            in_time[sender].count(0),
            in_time[sender][:64].count(0),
        )
        for sender in first
    }


def _placed(packets: Iterable[Packet], first: dict[Sender, int]) -> Iterator[tuple[_Segment, int, int]]:
    """Segments with the places in the stream of their sender where they begin and end."""
    for segment in _segments(packets):
        if segment.sender not in first:
            continue
        begin = (segment.seq - first[segment.sender]) % _MODULO
        if begin >= _MODULO // 2:
            begin -= _MODULO  # a SYN
        yield segment, max(begin, 0), max(begin + segment.length, 0)


def _segments(packets: Iterable[Packet]) -> Iterator[_Segment]:
    for packet in packets:
        octets = packet[2]
        if octets[12:14] != b"\x08\0" or octets[_IP + 9] != 6:
            continue
        tcp = _IP + (octets[_IP] & 15) * 4
        source_port, destination_port, seq, ack, offset, flags = struct.unpack_from("!HHIIBB", octets, tcp)
        length = int.from_bytes(octets[_IP + 2 : _IP + 4], "big") - (tcp - _IP) - (offset >> 4) * 4
        hosts = (".".join(map(str, octets[at : at + 4])) for at in (_IP + 12, _IP + 16))
        source, destination = (
            f"{host}:{port}" for host, port in zip(hosts, (source_port, destination_port), strict=True)
        )
        yield _Segment(id(packet), (source, destination), flags, seq, ack, length)
