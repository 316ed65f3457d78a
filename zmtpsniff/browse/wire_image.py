"""The octets of a record, piece by piece, and their places in the capture.

A record has the contents of its frames, but not the packets that held them. So this module encodes the record again as
the protocol does (23/ZMTP, "Framing", and the commands of each mechanism). Then it looks for these octets in the
packets around the one that completed the record. Octets that are not found there are not shown as if they were on the
wire: then only bodies are known.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from dissectors.address import without_zone
from dissectors.events import AnyEvent, Greeting, Message, Subscription, WireEvent, at_hand
from dissectors.zmtp import wire
from dissectors.zmtp.encoder import Name, WirePiece, encodings
from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.packet_store import PacketLog
from zmtpsniff.net.addresses import addresses
from zmtpsniff.net.packets import HeaderDecoder

_BACK = 2048  # packets that are looked through for the beginning of a record
_MOST = 1 << 20  # octets of a stream that are put together for that


class WireImage(NamedTuple):
    """The octets of a record with what each of them belongs to."""

    pieces: list[WirePiece]
    is_whole: bool  # as on the wire; else only what the record says, without headers

    @property
    def octets(self) -> bytes:
        """All of them."""
        return b"".join([piece.octets for piece in self.pieces])

    def spans(self) -> dict[Name, tuple[int, int]]:
        """Where the pieces are, and what they are parts of: begin and end."""
        found: dict[Name, tuple[int, int]] = {}
        start = 0
        for name, octets in self.pieces:
            stop = start + len(octets)
            for depth in range(1, len(name) + 1):
                first, _ = found.get(name[:depth], (start, stop))
                found[name[:depth]] = (first, stop)
            start = stop
        return found


class WireFinder:
    """Finds the octets of records in the packets of a capture."""

    def __init__(self, index: RecordIndex, packets: PacketLog) -> None:
        """Look in these packets for those records."""
        self._index = index
        self._packets = packets

    def image(self, row: int) -> WireImage:
        """The octets of a record: those on the wire if they are found, else those of its frames."""
        event = self._index.event(row)
        known = WireImage(_bodies(event), False)
        if not isinstance(event, WireEvent):
            return known
        candidates = [(pieces, b"".join([piece.octets for piece in pieces])) for pieces in encodings(event)]
        is_greeting = isinstance(event, Greeting)
        if not candidates and not is_greeting:
            return known
        longest = max([len(octets) for _, octets in candidates], default=wire.GREETING_SIZE)
        for stream in self._streams(event, longest):
            if is_greeting and (pieces := _greeting(stream)):
                return WireImage(pieces, True)
            for pieces, octets in candidates:
                if octets in stream:
                    return WireImage(pieces, True)
        return known

    def _streams(self, event: WireEvent, least: int) -> Iterator[bytes]:
        """The last octets that the record's sender sent, more of them each time."""
        anchor = self._segment(event, event.packet)
        if anchor is None:
            return
        sequence, payload = anchor
        yield payload
        segments = {sequence: payload}
        have, due = len(payload), least
        first = max(event.packet - _BACK, 0)
        for number in range(event.packet - 1, first, -1):
            found = self._segment(event, number)
            if found is None or not found[1]:
                continue
            segments.setdefault(*found)
            have += len(found[1])
            if have >= due:
                yield _around(segments, sequence)
                due = have * 2
                if have > _MOST:
                    return
        yield _around(segments, sequence)

    def _segment(self, event: WireEvent, number: int) -> tuple[int, bytes] | None:
        """The place of a packet's payload in its stream, and the payload, if the record's sender sent it."""
        packet = self._packets.packet(number)
        if packet is None or (number == event.packet and packet[0] != event.time_ns):
            return None
        decoder = HeaderDecoder()
        for _, _, key, sequence, _, _, payload, _ in decoder.segments([packet], number):
            if self._is_from(key, event):
                return sequence, payload
        for _, _, _, key, payload, _ in decoder.datagrams:
            if self._is_from(key, event):
                return 0, payload
        return None

    def _is_from(self, key: bytes, event: WireEvent) -> bool:
        source, destination = addresses(key)
        return (source.text, destination.text) == (without_zone(event.src), without_zone(event.dst))


def _around(segments: dict[int, bytes], anchor: int) -> bytes:
    """The octets without a hole that the segment at ``anchor`` is in; sequence numbers wrap (RFC 9293, section 3.4)."""
    placed = sorted(
        ((sequence - anchor + 0x8000_0000) % 0x1_0000_0000, octets) for sequence, octets in segments.items()
    )
    run = b""
    end = -1
    for start, octets in placed:
        if start > end >= 0:
            if start > 0x8000_0000:
                break
            run = b""
            end = start
        end = start if end < 0 else end
        if start + len(octets) > end:
            run += octets[end - start :]
            end = start + len(octets)
    return run


def _bodies(event: AnyEvent) -> list[WirePiece]:
    """The octets of a record that are known without its packets."""
    if isinstance(event, Message):
        return [WirePiece((f"frames[{place}]",), at_hand(frame)) for place, frame in enumerate(event.frames)]
    if isinstance(event, Subscription):
        return [WirePiece(("topic",), at_hand(event.topic))]
    return []


_GREETING = re.compile(rb"(\xff.{8}\x7f)(\x03)(.)(.{20})([\x00\x01])(.{31})", re.DOTALL)
_GREETING_V2 = re.compile(rb"(\xff.{8}\x7f)([\x00\x01])(.)(\x00.)", re.DOTALL)


def _greeting(stream: bytes) -> list[WirePiece]:
    """The greeting that a stream has, empty if it has none (23/ZMTP and 15/ZMTP, "Greeting")."""
    if found := _GREETING.search(stream):
        names, octets = "signature version.major minor mechanism as_server filler", found.groups()
    elif found := _GREETING_V2.search(stream):
        names = "signature version socket_type identity.header identity.body"
        octets = (*found.groups(), stream[found.end() : found.end() + found[4][1]])
    else:
        return []
    return [WirePiece(tuple(name.split(".")), part) for name, part in zip(names.split(), octets, strict=True)]
