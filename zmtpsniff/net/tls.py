"""TLS between flows and dissectors: octets become TLS records, and records become the plaintexts that tshark decrypted.

This module decrypts nothing. If the plaintext of a record is unknown, it is a hole in the stream.
"""

import socket
from typing import NamedTuple, Protocol

from dissectors.address import host_of, without_zone
from zmtpsniff.capture.plaintexts import Plaintexts
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.flow_dissection import End, FlowDissection, Side
from zmtpsniff.net.reassembly import UNBOUNDED, Receiver
from zmtpsniff.words.counts import plural, were

_HEADER = 5  # octets: type, version, length (RFC 8446, section 5.1)
_TYPES = range(20, 25)
_APPLICATION_DATA = 23
_MAJOR, _LAST_MINOR = 3, 4
_MOST_LENGTH = (1 << 14) + 2048  # octets of a record (RFC 5246, section 6.2.3)
_MOST_HELD = 1 << 16  # octets of one side that wait for the first octets of the other
_ENOUGH_UNDECRYPTED = 100  # if none of so many records was decrypted, none will be


class StreamReceiver(Receiver, Protocol):
    """Takes the octets of one direction, and learns if an unknown number of them is missing."""

    def lose(self, code: str, detail: str, time_ns: int, packet: int, /) -> None:
        """Learn that an unknown number of octets is missing; the problem is ``code``."""


class StreamDissection(FlowDissection, Protocol):
    """The dissector of a flow that may be TLS."""

    @property
    def client(self) -> StreamReceiver:
        """The receiver of the client's octets."""
        ...

    @property
    def server(self) -> StreamReceiver:
        """The receiver of the server's octets."""
        ...


class _Hole(NamedTuple):
    """Where octets are missing."""

    detail: str
    time_ns: int
    packet: int


class Tls:
    """The TLS connections of a capture."""

    def __init__(self, decrypted: Plaintexts | None) -> None:
        """``decrypted`` has the plaintexts of tshark; None if there are no keys: then octets pass as they are."""
        self.decrypted = decrypted
        self._count = 0  # connections without any decrypted octet
        self._first = ""

    def connect(self, dissection: StreamDissection, client: Address, server: Address) -> "TlsConnection":
        """Stand between a flow and its dissection, in case the flow is TLS."""
        return TlsConnection(self, dissection, client, server)

    def leave(self, name: str) -> None:
        """Count a connection of which nothing was decrypted."""
        self._count += 1
        self._first = self._first or name

    def skipped(self) -> list[tuple[str, str]]:
        """Problem codes for octets that were not decrypted, each with a sentence that says how much."""
        if not self._count:
            return []
        example = self._first if self._count == 1 else f"the first: {self._first}"
        told = f"{were(self._count, 'TLS connection')} not decrypted ({example})"
        if self.decrypted is None:
            return [("tls-no-keys", f"{told}: no keys were given (--tls-keys FILE)")]
        return [("tls-not-decrypted", f"{told}: no key fits, or the handshake is not in the capture")]


class TlsConnection:
    """A flow that is TLS, or not: then its octets pass as they are."""

    def __init__(self, tls: Tls, dissection: StreamDissection, client: Address, server: Address) -> None:
        """Stand before ``dissection``."""
        self._tls = tls
        self._dissection = dissection
        self._name = f"{client.text} to {server.text}"
        self._is_tls = False
        self.decrypted = False  # whether any octets were decrypted
        self.undecrypted = 0  # records
        table = tls.decrypted or Plaintexts()
        self.client = TlsHalf(self, dissection.client, table, _key(client, server))
        self.server = TlsHalf(self, dissection.server, table, _key(server, client))

    @property
    def rejected(self) -> bool:
        """Whether nobody wants the octets inside."""
        return self._dissection.rejected or (not self.decrypted and self.undecrypted > _ENOUGH_UNDECRYPTED)

    def look(self) -> None:
        """Find out whether the flow is TLS: it is if both sides begin so."""
        halves = (self.client, self.server)
        looks = [half.looks_like_tls for half in halves]
        if False not in looks and (None not in looks or any(half.has_much for half in halves)):
            self._is_tls = True
        elif False not in looks:
            return
        pass_on = not self._is_tls or self._tls.decrypted is None
        for half in halves:
            half.begin(pass_on)

    def pass_on(self) -> None:
        """Nothing can tell any more whether the flow is TLS."""
        for half in (self.client, self.server):
            half.begin(passes=True)

    def opened(self) -> None:
        """Octets were decrypted, so records that were not are holes."""
        if not self.decrypted:
            self.decrypted = True
            self.client.tell_hole()
            self.server.tell_hole()

    def finish(self, end: End, start_ns: int, end_ns: int, closed_by: Side | None = None) -> None:
        """The flow is over."""
        for half in (self.client, self.server):
            half.finish()
        self._dissection.finish(end, start_ns, end_ns, closed_by)

    def release(self) -> None:
        """Let go of what refers back to it."""
        if self._is_tls and not self.decrypted:
            self._tls.leave(self._name)
        self._dissection.release()
        self.client.release()
        self.server.release()


class TlsHalf:
    """One side of a flow that is TLS, or not."""

    def __init__(self, connection: TlsConnection, inner: StreamReceiver, decrypted: Plaintexts, key: bytes) -> None:
        """Pass decrypted octets to ``inner``; ``key`` names the direction."""
        self._connection: TlsConnection | None = connection
        self._inner = inner
        self._decrypted = decrypted
        self._key = key
        self.passes: bool | None = None  # whether octets pass as they are; None while that is unknown
        self._held = bytearray()  # the beginning of the stream, or of a record
        self._synchronous = True  # whether a record begins where `_held` begins
        self._damaged = 0  # octets of the record that are missing, besides `_held`
        self._last = (0, 0)  # time and packet of the last octets
        self._begin = 0  # the stream offset of the last octets, which counts TLS's own octets, too
        self._seen = UNBOUNDED  # the sender of the last octets can have seen so much of the other side's stream
        self._hole: _Hole | None = None  # a hole that has not been reported
        self._in_hole = False

    @property
    def looks_like_tls(self) -> bool | None:
        """Whether this side begins as TLS does; None while that is unknown."""
        if not self._held:
            return None
        return None if len(self._held) < 2 and self._held[0] in _TYPES else _begins(self._held)

    @property
    def has_much(self) -> bool:
        """Whether this side has so many octets that it need not wait for the other one."""
        return len(self._held) > _MOST_HELD

    def feed(self, data: bytes, time_ns: int, packet: int, begin: int = 0, seen: int = UNBOUNDED) -> None:
        """Take the next octets."""
        if self.passes:
            self._inner.feed(data, time_ns, packet, begin, seen)
            return
        self._begin, self._seen = begin, seen
        self._last = time_ns, packet
        if self.passes is None:
            self._held += data
            assert self._connection is not None
            self._connection.look()
            return
        if not self._synchronous:
            # After a hole: sooner or later a record begins where a segment does.
            if not _begins(data):
                return
            self._synchronous = True
        self._held += data
        self._read_records(time_ns, packet)

    def begin(self, passes: bool) -> None:
        """Whether the flow is TLS is known now."""
        if self.passes is not None:
            return
        self.passes = passes
        if not passes:
            self._read_records(*self._last)
        elif self._held:
            held = bytes(self._held)
            self._held.clear()
            self._inner.feed(held, *self._last, self._begin, self._seen)

    def _read_records(self, time_ns: int, packet: int) -> None:
        """Take whole records out of `_held`."""
        held = self._held
        position = 0
        while len(held) - position >= _HEADER:
            if not _begins(held, position):
                self._lose("what follows is no record of TLS", time_ns, packet)
                position = len(held)
                self._synchronous = False
                break
            length = int.from_bytes(held[position + 3 : position + 5], "big")
            end = position + _HEADER + length - self._damaged
            if len(held) < end:
                break
            kind = held[position]
            if self._damaged:
                self._damaged = 0
                if kind == _APPLICATION_DATA:
                    self._lose("a record is not whole in the capture", time_ns, packet)
            elif kind == _APPLICATION_DATA:
                self._take(bytes(held[position + _HEADER : end]), time_ns, packet)
            position = end
        del held[:position]

    def _take(self, record: bytes, time_ns: int, packet: int) -> None:
        plaintext = self._decrypted.take(self._key, record)
        if plaintext is None:
            self._lose(f"a record of {plural(len(record), 'octet')} was not decrypted", time_ns, packet)
        elif plaintext:
            assert self._connection is not None
            self._connection.opened()
            self._in_hole = False
            self._inner.feed(plaintext, time_ns, packet, self._begin, self._seen)

    def gap(self, length: int, cut: bool, time_ns: int, packet: int) -> None:
        """Learn that octets are missing."""
        assert self._connection is not None
        if self.passes is None:  # too few octets came to say what they are
            self._connection.pass_on()
        if self.passes:
            self._inner.gap(length, cut, time_ns, packet)
            return
        if self._synchronous and len(self._held) >= _HEADER:
            left = int.from_bytes(self._held[3:5], "big") + _HEADER - self._damaged - len(self._held)
            if length <= left:  # so the next record can be found
                self._damaged += length
                self._read_records(time_ns, packet)
                return
        self._lose(f"{length} octets of TLS are not in the capture", time_ns, packet)
        self._held.clear()
        self._damaged = 0
        self._synchronous = False

    def _lose(self, why: str, time_ns: int, packet: int) -> None:
        """Plaintext is missing. A hole is reported once, and only if plaintext came before it."""
        assert self._connection is not None
        self._connection.undecrypted += 1
        if self._in_hole:
            return
        self._in_hole = True
        self._hole = _Hole(why, time_ns, packet)
        if self._connection.decrypted:
            self.tell_hole()

    def tell_hole(self) -> None:
        """Report the hole, if there is one."""
        if self._hole is not None:
            hole, self._hole = self._hole, None
            self._inner.lose("tls-gap", hole.detail, hole.time_ns, hole.packet)

    def absent(self, time_ns: int, packet: int) -> None:
        """Learn that no packet of this direction is captured."""
        self._inner.absent(time_ns, packet)

    def conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        """Learn that octets came again with other values."""
        self._inner.conflict(offset, length, time_ns, packet)

    def finish(self) -> None:
        """No more octets will come."""
        if self.passes is None:
            self.begin(passes=True)
        elif not self.passes and self._held and self._held[0] == _APPLICATION_DATA:
            self._lose("the last record is not whole in the capture", *self._last)

    def release(self) -> None:
        """Forget the connection."""
        self._connection = None


def _begins(octets: bytes | bytearray, position: int = 0) -> bool:
    """Whether a record may begin with these octets."""
    head = octets[position : position + _HEADER]
    if head[0] not in _TYPES or head[1:2] not in (b"", b"\x03") or (len(head) > 2 and head[2] > _LAST_MINOR):
        return False
    return len(head) < _HEADER or 0 < int.from_bytes(head[3:5], "big") <= _MOST_LENGTH


def _key(source: Address, destination: Address) -> bytes:
    """The key of a direction, as in a segment."""
    hosts = [without_zone(host_of(end.text)) for end in (source, destination)]
    family = socket.AF_INET6 if hosts[0].startswith("[") else socket.AF_INET
    octets = [socket.inet_pton(family, host.strip("[]")) for host in hosts]
    return b"".join(octets) + source.port.to_bytes(2, "big") + destination.port.to_bytes(2, "big")
