"""IP fragments put together, version 4 (RFC 791) and 6 (RFC 8200, section 4.5)."""

from bisect import bisect_right
from collections.abc import Hashable
from typing import NamedTuple

LARGEST = 65_535  # octets of a datagram's payload
_LIFETIME_NS = 30_000_000_000  # as in Linux (net.ipv4.ipfrag_time); later the same identification is another datagram's
PIECE_COST = 120  # octets that holding a piece costs beside its own


class Fragment(NamedTuple):
    """A fragment of a datagram."""

    key: Hashable  # tells datagrams apart
    time_ns: int
    protocol: int
    start: int  # its offset in octets
    octets: bytes  # what was captured of it
    length: int  # how long it was on the wire
    more: bool


class _Datagram:
    """The pieces of a datagram so far: sorted, without overlap, each (start, stop, captured octets)."""

    def __init__(self, time_ns: int) -> None:
        self.time_ns = time_ns
        self.pieces: list[tuple[int, int, bytes]] = []
        self.covered = 0
        self.length = -1  # not known before the last fragment came
        self.protocol = -1  # stands in the first fragment
        self.cost = 0

    def add(self, start: int, stop: int, octets: bytes) -> None:
        """Take what no earlier fragment covered: the first one wins."""
        pieces = self.pieces
        index = bisect_right(pieces, (start, LARGEST + 1))
        origin = start
        if index and pieces[index - 1][1] > start:
            start = pieces[index - 1][1]
        while start < stop:
            following = pieces[index][0] if index < len(pieces) else stop
            upto = min(following, stop)
            if upto > start:
                piece = octets[start - origin : upto - origin]
                pieces.insert(index, (start, upto, piece))
                index += 1
                self.covered += upto - start
                self.cost += len(piece) + PIECE_COST
            if index >= len(pieces):
                break
            start = max(upto, pieces[index][1])
            index += 1

    def payload(self) -> bytes:
        """The octets up to the first that was not captured."""
        parts = []
        for start, stop, octets in self.pieces:
            parts.append(octets)
            if len(octets) < stop - start:
                break
        return b"".join(parts)


class Fragments:
    """Fragments whose datagrams are not complete, bounded in number and octets. The oldest datagram gives way first.

    ``dropped`` counts the datagrams that were given up.
    """

    def __init__(self, most_datagrams: int = 1024, most_octets: int = 16 << 20) -> None:
        """Hold no more than this."""
        self.dropped = 0
        self._most_datagrams = most_datagrams
        self._most_octets = most_octets
        self._pending: dict[Hashable, _Datagram] = {}
        self.octets = 0  # what is held, with the cost of each datagram

    @property
    def count(self) -> int:
        """How many datagrams are held."""
        return len(self._pending)

    def add(self, fragment: Fragment) -> tuple[int, bytes, int] | None:
        """Add a fragment; return protocol, captured payload and its length on the wire if it completes the datagram.

        The payload ends at the first octet that was not captured.
        """
        key, time_ns, protocol, start, octets, length, more = fragment
        datagram = self._pending.get(key)
        if datagram is not None and not 0 <= time_ns - datagram.time_ns <= _LIFETIME_NS:
            self._drop(key)
            datagram = None
        if datagram is None:
            datagram = self._pending[key] = _Datagram(time_ns)
        stop = start + length
        if not start:
            datagram.protocol = protocol
        if not more and datagram.length < 0:
            datagram.length = stop
        if stop > LARGEST or (datagram.length >= 0 and stop > datagram.length):
            # It breaks the protocol, and hides octets from one reader that another one sees.
            self._drop(key)
            return None
        before = datagram.cost
        datagram.add(start, stop, octets)
        self.octets += datagram.cost - before
        if datagram.covered == datagram.length:
            self._forget(key)
            return datagram.protocol, datagram.payload(), datagram.length
        while len(self._pending) > self._most_datagrams or self.octets > self._most_octets:
            self._drop(next(iter(self._pending)))
        return None

    def _drop(self, key: Hashable) -> None:
        """Give a datagram up."""
        self._forget(key)
        self.dropped += 1

    def _forget(self, key: Hashable) -> None:
        datagram = self._pending.pop(key)
        self.octets -= datagram.cost
