"""PGM (RFC 3208): reads its packets, and puts the data of one sender in order, with repairs."""

import heapq
import struct
from typing import NamedTuple, Protocol

import msgspec

from zmtpsniff.net.reassembly import distance

# Packet types and options, sections 8 and 9
SPM, ODATA, RDATA = 0x00, 0x04, 0x05
_TYPES = frozenset({SPM, 0x01, 0x02, ODATA, RDATA, 0x08, 0x09, 0x0A, 0x0C, 0x0D})
_OPTIONS_PRESENT = 0x01
_PARITY = 0x80
_OPT_LENGTH = 0x00
_OPT_FRAGMENT = 0x01
_OPT_END = 0x80
_OPT_MASK = 0x7F
_HEADER_SIZE = 16
_DATA_SIZE = 24  # with sequence number and trailing edge

# How long to wait for repairs, in time of the capture, as libzmq's ZMQ_RECOVERY_IVL.
_PATIENCE_NS = 10_000_000_000
_MOST_WAITING = 1 << 16  # packets
_FARTHEST = 1 << 24  # a sequence number may be so many packets ahead; a higher one is nonsense


class Data(NamedTuple):
    """The data of a packet."""

    tsdu: bytes
    begins: bool  # false if it continues the APDU of the packet before
    repair: bool


class Pgm(NamedTuple):
    """A PGM packet."""

    source: bytes  # global source id: with the source port it names the sender
    kind: int
    sequence: int = 0  # of a data packet
    trail: int = 0  # the oldest sequence number that may still be repaired; of SPM and data packets
    lead: int = 0  # the newest one that was sent; of an SPM
    data: Data | None = None  # None if the packet holds none, or none that can be used
    parity: bool = False  # it holds redundancy of other data packets, which is not used

    @property
    def is_spm(self) -> bool:
        """Whether it is a source path message, which says how far the sender has got."""
        return self.kind == SPM


def parse_pgm(packet: bytes, encapsulated: bool) -> Pgm | None:
    """Read a PGM packet; None if it is none, or a wrong one.

    A packet that is ``encapsulated`` in UDP must have a checksum, which tells it from other datagrams.
    """
    if len(packet) < _HEADER_SIZE or packet[4] not in _TYPES:
        return None
    kind, options, checksum, source, tsdu_length = struct.unpack_from("!BBH6sH", packet, 4)
    if _HEADER_SIZE + tsdu_length > len(packet) or (encapsulated and not checksum):
        return None
    if checksum and int.from_bytes(packet + b"\0" if len(packet) % 2 else packet, "big") % 0xFFFF:
        return None
    if kind == SPM:
        if len(packet) < _HEADER_SIZE + 12:
            return None
        _, trail, lead = struct.unpack_from("!III", packet, _HEADER_SIZE)
        return Pgm(source, kind, trail=trail, lead=lead)
    if kind not in (ODATA, RDATA):
        return Pgm(source, kind)
    if len(packet) < _DATA_SIZE:
        return None
    sequence, trail = struct.unpack_from("!II", packet, _HEADER_SIZE)
    if options & _PARITY:  # section 11; libzmq's OpenPGM could send it, but libzmq never asks it to
        return Pgm(source, kind, sequence, trail, parity=True)
    start, begins = _options(packet) if options & _OPTIONS_PRESENT else (_DATA_SIZE, True)
    if start is None or start + tsdu_length > len(packet):
        return None
    return Pgm(source, kind, sequence, trail, data=Data(packet[start : start + tsdu_length], begins, kind == RDATA))


def _options(packet: bytes) -> tuple[int | None, bool]:
    """Where the options of a data packet end (None if that cannot be), and whether it begins an APDU (section 9)."""
    if len(packet) < _DATA_SIZE + 4 or packet[_DATA_SIZE] & _OPT_MASK != _OPT_LENGTH:
        return None, True
    end = _DATA_SIZE + int.from_bytes(packet[_DATA_SIZE + 2 : _DATA_SIZE + 4], "big")
    position = _DATA_SIZE
    begins = True
    while position + 2 <= min(end, len(packet)):
        kind, length = packet[position], packet[position + 1]
        if length < 3:
            return None, True
        if kind & _OPT_MASK == _OPT_FRAGMENT and length >= 16:  # 3 octets, then sequence number, offset, length
            begins = packet[position + 8 : position + 12] == bytes(4)
        if kind & _OPT_END:
            break
        position += length
    return end if _DATA_SIZE + 4 <= end <= len(packet) else None, begins


class Taker(Protocol):
    """The receiver of one sender's data, in order."""

    def feed(self, tsdu: bytes, begins: bool, time_ns: int, packet: int, /) -> None:
        """Take the next packet's data; ``begins`` is false if it continues the APDU of the one before."""

    def lost(self, packets: int, time_ns: int, packet: int, /) -> None:
        """Learn that so many data packets will never come."""


class Order(msgspec.Struct, eq=False):
    """The data packets of one sender, put in order."""

    _taker: Taker  # gets the data
    _next: int | None = None  # sequence number that comes next
    index: int = 0  # its place among all, which unlike it never wraps
    _lead: int = 0  # place after the newest that the sender says it sent
    _waiting: dict[int, Data] = {}  # by place
    _heap: list[int] = []
    _since_ns: int = 0  # when the first hole was seen
    waiting_octets: int = 0
    repaired: int = 0  # packets that came only as repairs
    parity: int = 0  # packets of parity

    def take(self, pgm: Pgm, time_ns: int, packet: int) -> None:
        """Take any packet of the sender."""
        if pgm.kind == SPM:
            if self._next is None:
                self._next = (pgm.lead + 1) & 0xFFFF_FFFF
            self._lead = max(self._lead, self._place(pgm.lead) + 1)
            self._expire(pgm.trail, time_ns, packet)
            return
        self.parity += pgm.parity
        if pgm.data is None:
            return
        if self._next is None:
            self._next = pgm.sequence
        place = self._place(pgm.sequence)
        if place < self.index or place in self._waiting or place - self.index > _FARTHEST:
            return
        self.repaired += pgm.data.repair
        if place == self.index:
            self._deliver(pgm.data, time_ns, packet)
            self._drain(time_ns, packet)
        else:
            if not self._waiting:
                self._since_ns = time_ns
            self._waiting[place] = pgm.data
            heapq.heappush(self._heap, place)
            self.waiting_octets += len(pgm.data.tsdu)
        if distance(pgm.trail, pgm.sequence) <= 0:
            self._expire(pgm.trail, time_ns, packet)
        if self._waiting and (time_ns - self._since_ns > _PATIENCE_NS or len(self._waiting) > _MOST_WAITING):
            self.lose(time_ns, packet)

    def _place(self, sequence: int) -> int:
        assert self._next is not None
        return self.index + distance(sequence, self._next)

    def _deliver(self, data: Data, time_ns: int, packet: int) -> None:
        self._pass(1)
        self._taker.feed(data.tsdu, data.begins, time_ns, packet)

    def _pass(self, packets: int) -> None:
        assert self._next is not None
        self._next = (self._next + packets) & 0xFFFF_FFFF
        self.index += packets

    def _drain(self, time_ns: int, packet: int) -> None:
        """Deliver what waits and has no hole before it any more."""
        while self._heap and self._heap[0] == self.index:
            data = self._waiting.pop(heapq.heappop(self._heap))
            self.waiting_octets -= len(data.tsdu)
            self._deliver(data, time_ns, packet)
        self._since_ns = time_ns

    def _expire(self, trail: int, time_ns: int, packet: int) -> None:
        """Nothing before ``trail`` will be repaired."""
        ahead = self._place(trail) - self.index
        if not 0 < ahead <= _FARTHEST:
            return
        end = self.index + ahead
        while self._heap and self._heap[0] < end:
            self.lose(time_ns, packet)
        if self.index < end:
            self._give_up(end - self.index, time_ns, packet)

    def lose(self, time_ns: int, packet: int) -> None:
        """Give up the first hole."""
        self._give_up(self._heap[0] - self.index, time_ns, packet)

    def _give_up(self, missing: int, time_ns: int, packet: int) -> None:
        """Give up the next ``missing`` packets."""
        self._pass(missing)
        self._taker.lost(missing, time_ns, packet)
        self._drain(time_ns, packet)

    def settle(self, now_ns: int, packet: int) -> None:
        """It is ``now_ns``, though no packet says so."""
        if self._waiting and now_ns - self._since_ns > _PATIENCE_NS:
            self.lose(self._since_ns, packet)

    def finish(self, time_ns: int, packet: int) -> None:
        """No more packets will come."""
        while self._heap:
            self.lose(time_ns, packet)
        missing = self._lead - self.index
        if 0 < missing <= _FARTHEST:
            self._give_up(missing, time_ns, packet)
