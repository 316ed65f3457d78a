"""The usual beginning of a connection, read without the machines that read any beginning.

Most connections begin alike: libzmq's greetings of 64 octets in pieces, each sent when the piece before it has come;
mechanism NULL; a READY of each side; then messages of short frames, whole ones in each segment. Where connections are
short, that is all there is of them. A :class:`UsualConnection` reads just this, and keeps the octets.

    usual ── octets or a hole that are not so, an end before both READYs, too much to keep ──▶ opened

At the first thing that is not so it is *opened*: a :class:`~dissectors.zmtp.connection.ZmtpConnection` reads the kept
octets again, whose events have been given out, and takes everything from there on. So that connection remains the one
place which says what octets mean. Here stands only which events the usual ones have; a test of any connections holds
that they are the same.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from dissectors.events import (
    UNBOUNDED,
    AnyEvent,
    Command,
    Connection,
    End,
    Greeting,
    Message,
    Octets,
    Peer,
    Side,
    Sides,
)
from dissectors.zmtp import commands, greeting, sockets, wire
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.half import Half

_ALIKE = 256  # greetings and READYs to remember: most are like others before them
MOST_PIECES = 16
"""Pieces to keep, of both sides; a connection with more of them is opened."""
_LONGEST_PIECE = 1024  # so a message in it has no more frames than need no look
_MECHANISM, _READY = "NULL", "READY"
_BEHIND_REVISION = wire.SIGNATURE_SIZE + 1
_OTHER = False, None  # a piece that is not usual

Make = Callable[[list[AnyEvent], int, str, str], ZmtpConnection]
"""Makes a ZmtpConnection with these first arguments."""


class _Announced(NamedTuple):
    """The greeting of a side."""

    revision: tuple[int, int]  # with the minor one
    version: str
    as_server: bool


class _Ready(NamedTuple):
    """The READY of a side: the fields of its Command."""

    properties: dict[str, Octets]
    socket_type: str
    identity: Octets | None


class UsualSide:
    """One side of such a connection; it takes octets as a :class:`~dissectors.zmtp.half.Half` does."""

    __slots__ = (
        "_connection", "_counted", "_part", "_receiver", "address", "announced", "feed", "messages", "octets", "other",
        "ready",
    )  # fmt: skip

    def __init__(self, connection: "UsualConnection", address: str, receiver: str) -> None:
        """Begin without octets of the side at this address, which sends to ``receiver``."""
        self._connection = connection
        self.other = self  # as soon as there is one
        self.address = address
        self._receiver = receiver
        self.octets = 0
        self.announced: _Announced | None = None
        self.ready: _Ready | None = None
        self.messages = 0
        self._counted = 0  # so many messages end in this packet
        self._part = 0
        self.feed: Callable[..., None] = self._feed
        """Take the next octets of the stream, as Half.feed()."""

    def _feed(self, data: bytes, time_ns: int, packet: int, begin: int = 0, seen: int = UNBOUNDED) -> None:
        connection = self._connection
        pieces = connection.pieces
        is_usual = False
        if len(pieces) < MOST_PIECES and len(data) <= _LONGEST_PIECE:
            if self.announced is None:
                have, theirs = self.octets, self.other.octets
                is_usual, announced = _greets(data, have, theirs if theirs < _BEHIND_REVISION else _BEHIND_REVISION)
                if announced is not None:
                    self.announced = announced
                    _, version, as_server = announced
                    place = time_ns, packet, connection.flow, self.address, self._receiver
                    connection.out.append(Greeting(*place, version, _MECHANISM, as_server))
            elif self.other.announced is not None:
                is_usual = self._take_frames(data, time_ns, packet, begin, seen)
        if is_usual:
            self.octets += len(data)
            pieces.append((self, data, time_ns, packet, begin, seen))
        else:
            self._half.feed(data, time_ns, packet, begin, seen)

    def _take_frames(self, data: bytes, time_ns: int, packet: int, begin: int, seen: int) -> bool:
        """Take READY, or messages, or both. False: something else is among them; then nothing is given out."""
        flow, src, dst = self._connection.flow, self.address, self._receiver
        found: list[AnyEvent] = []
        position, end = 0, len(data)
        ready = self.ready
        if ready is None:
            if end < 2 or data[0] != wire.COMMAND or (position := 2 + data[1]) > end:
                return False
            ready = self.ready = _ready(data[2:position])
            theirs = self.other.ready
            if ready is None or (theirs is not None and not sockets.may_talk(ready.socket_type, theirs.socket_type)):
                return False
            properties, kind, identity = ready
            found.append(  # which takes a third as long as with a * in front of these
                Command(time_ns, packet, flow, src, dst, _READY, properties, kind, identity, offset=begin, seen=seen)
            )
        elif packet != self._counted:
            self._part = 0
        self._counted = packet
        socket_type = ready.socket_type
        frames: list[Octets] = []
        while position < end:
            if end - position < 2 or data[position] > wire.MORE or socket_type in sockets.SUBSCRIBERS:
                return False
            start = position + 2
            position = start + data[position + 1]
            frames.append(data[start:position])
            if not data[start - 2]:
                self._part += 1
                self.messages += 1
                found.append(
                    Message(time_ns, packet, flow, src, dst, frames, socket_type, False, None, begin, seen, self._part)
                )
                frames = []
        if frames or position > end:
            return False
        self._connection.out += found
        return True

    @property
    def _half(self) -> Half:
        """The half that takes everything from now on."""
        whole = self._connection.open()
        return whole.client if self is self._connection.client else whole.server

    def open(self) -> None:
        """The connection has been opened."""
        self.feed = self._half.feed

    def close(self) -> None:
        """Break the references back to this side. Feed it nothing more."""
        self.feed = _ignore
        del self.other, self._connection

    # Whatever is not usual:

    def gap(self, length: int, cut: bool, time_ns: int, packet: int) -> None:
        """Octets are missing, as for Half.gap()."""
        self._half.gap(length, cut, time_ns, packet)

    def absent(self, time_ns: int, packet: int) -> None:
        """The capture has no packet of this side so far, as for Half.absent()."""
        self._half.absent(time_ns, packet)

    def conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        """Octets came again with another value, as for Half.conflict()."""
        self._half.conflict(offset, length, time_ns, packet)

    def go_on_from(self, *facts: Any) -> None:
        """Others have read octets, as for Half.go_on_from()."""
        self._half.go_on_from(*facts)


class UsualConnection:
    """A connection as long as it goes as most do, and what stands in front of the one that is opened after that."""

    __slots__ = ("_make", "client", "flow", "out", "pieces", "server", "whole")

    def __init__(self, out: list[AnyEvent], flow: int, client: str, server: str, make: Make) -> None:
        """Append the events of a connection between these addresses, captured from its start, to ``out``."""
        self.out = out
        self.flow = flow
        self._make = make
        self.pieces: list[tuple[UsualSide, bytes, int, int, int, int]] = []  # what came, with what Half.feed() gets
        self.whole: ZmtpConnection | None = None
        """The connection that takes everything once this has been opened."""
        self.client = one = UsualSide(self, client, server)
        self.server = other = UsualSide(self, server, client)
        one.other, other.other = other, one

    def open(self) -> ZmtpConnection:
        """The connection that takes everything from now on; it knows what came so far."""
        if self.whole is None:
            known: list[AnyEvent] = []
            whole = self.whole = self._make(known, self.flow, self.client.address, self.server.address)
            for side, data, time_ns, packet, begin, seen in self.pieces:
                half = whole.client if side is self.client else whole.server
                half.feed(data, time_ns, packet, begin, seen)
            whole.write_to(self.out)
            self.pieces = []
            self.client.open()
            self.server.open()
        return self.whole

    @property
    def rejected(self) -> bool:
        """Whether this is not ZMTP."""
        return self.whole is not None and self.whole.rejected

    def finish(self, end: End, start_ns: int, end_ns: int, closed_by: Side | None = None) -> None:
        """The connection or the capture is over, as for ZmtpConnection.finish()."""
        one, other = self.client, self.server
        if self.whole is not None or one.ready is None or other.ready is None:
            self.open().finish(end, start_ns, end_ns, closed_by)
            return
        assert one.announced is not None
        assert other.announced is not None
        self.out.append(
            Connection(
                self.flow, "tcp", _peer(one), _peer(other), Sides(one.messages, other.messages),
                Sides(one.octets, other.octets), start_ns, max(start_ns, end_ns), end,
                greeting.negotiated_v3(one.announced.revision, other.announced.revision), _MECHANISM, "complete",
                closed_by=closed_by,
            )
        )  # fmt: skip

    def release(self) -> None:
        """Break the references between the connection and its sides."""
        if self.whole is not None:
            self.whole.release()
        self.client.close()
        self.server.close()


def _ignore(*_: Any) -> None:
    """Take octets of a side that is over."""


def _peer(side: UsualSide) -> Peer:
    assert side.announced is not None
    assert side.ready is not None
    return Peer(side.address, side.announced.version, side.ready.socket_type, side.ready.identity)


@lru_cache(_ALIKE)
def _greets(data: bytes, have: int, theirs: int) -> tuple[bool, _Announced | None]:
    """Whether a piece is one of a greeting that libzmq sends now, and what the greeting says if that is its end.

    So many octets of the greeting came before, and so many of the other side's, its revision at most. A side that
    speaks 3.x sends its revision once the other side's signature has come, and the rest of its greeting once the other
    side's revision has (23/ZMTP, "Backwards Interoperability").
    """
    end = have + len(data)
    if end not in (wire.SIGNATURE_SIZE, _BEHIND_REVISION, wire.GREETING_SIZE):
        return _OTHER
    if have not in (0, wire.SIGNATURE_SIZE, _BEHIND_REVISION) or (not have and not _begins(data)):
        return _OTHER
    if end > wire.SIGNATURE_SIZE and theirs < wire.SIGNATURE_SIZE:
        return _OTHER
    if have <= wire.SIGNATURE_SIZE < end and data[wire.SIGNATURE_SIZE - have] != wire.REVISION_3:
        return _OTHER
    if end < wire.GREETING_SIZE:
        return True, None
    octets = data[max(_BEHIND_REVISION - have, 0) :]
    minor, mechanism, _, as_server = greeting.parse_after_revision(octets)
    is_whole = theirs == _BEHIND_REVISION and greeting.is_greeting_v3(octets) and mechanism == _MECHANISM
    if not is_whole or minor is None or as_server is None:
        return _OTHER
    return True, _Announced((wire.REVISION_3, minor), f"{wire.REVISION_3}.{minor}", as_server)


def _begins(data: bytes) -> bool:
    """Whether octets begin with a signature that nothing else begins with."""
    return data[0] == wire.SIGNATURE_START and greeting.parse_signature(data[: wire.SIGNATURE_SIZE]).is_certain


@lru_cache(_ALIKE)
def _ready(body: bytes) -> _Ready | None:
    """The READY in the body of a command; None if it is none, or not a usual one."""
    name, fields, faults = commands.parse_command(body, _MECHANISM)
    if name != _READY or faults or fields["socket_type"] not in sockets.PEERS:
        return None
    return _Ready(**fields)  # type: ignore[arg-type]
