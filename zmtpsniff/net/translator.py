"""Gives the segments of a connection that files have with different addresses the same addresses everywhere."""

from collections import OrderedDict

from zmtpsniff.net.addresses import Address, addresses, are_of_other_hosts, end_of, reverse
from zmtpsniff.net.notices import CaptureProblem
from zmtpsniff.net.reassembly import distance
from zmtpsniff.net.segment import ACK, RST, SYN, Segment
from zmtpsniff.net.views import LEAST_NUMBER, Translations
from zmtpsniff.words.counts import were

_NEAR = 1 << 28  # octets that a segment may be ahead of the last one of its connection, or behind
_MOST_SYNS = 4096  # that are remembered
_MOST_KEYS = 1 << 16  # directions of connections that began while others were translated
_MOST_CONNECTIONS = 8  # with the same key


class _Direction:
    """A direction of a connection under one of its keys, and how far it is."""

    __slots__ = ("ack", "isn", "key", "seq")

    def __init__(self, key: bytes, seq: int | None, ack: int | None, isn: int | None) -> None:
        self.key = key  # everywhere
        self.seq, self.ack, self.isn = seq, ack, isn

    def goes_on(self, segment: Segment) -> bool:
        """Whether a segment has numbers of this connection; they are its last ones then."""
        _, _, _, seq, ack, flags, _, _ = segment
        if self.seq is not None and abs(distance(seq, self.seq)) > _NEAR:
            return False
        if flags & ACK:
            if self.ack is not None and abs(distance(ack, self.ack)) > _NEAR:
                return False
            self.ack = ack
        if not flags & RST:  # that may have any number
            self.seq = seq
        return True


class Translator:
    """Translates the addresses of segments, so that all views of a connection have the same ones.

    The translations of files say which connections have several views. A connection that begins later is another view
    of one with the same initial number if the ends of their servers are known to be the same.
    """

    def __init__(self, translations: Translations) -> None:
        """Begin with what the beginnings of files show."""
        self._ends = translations.ends
        self._known = {
            key: [_Direction(*alias) for alias in aliases] for key, aliases in translations.aliases.items()
        }  # by the keys of directions
        self._begun: OrderedDict[int, bytes] = OrderedDict()  # by the client's first number: its key in the first view
        self._entered: OrderedDict[bytes, None] = OrderedDict()  # the keys of clients that came later
        self._told: set[bytes] = set()
        self._example: tuple[Address, Address] | None = None  # an address, and what it is elsewhere

    def translated(self, segments: list[Segment]) -> list[Segment]:
        """The same segments, with the addresses that their connections have everywhere."""
        known = self._known
        found = segments
        for place, segment in enumerate(segments):
            key, flags = segment[2], segment[5]
            if flags & SYN and not flags & ACK:
                other = self._begin(segment)
            elif key in known:
                other = next((one.key for one in known[key] if one.goes_on(segment)), key)
            else:
                continue
            if other != key:
                if found is segments:
                    found = segments.copy()
                found[place] = (*segment[:2], other, *segment[3:])
                self._note(key, other)
        return found

    def _begin(self, segment: Segment) -> bytes:
        """A client sends a SYN; returns the key that its direction has everywhere."""
        key, isn = segment[2], segment[3]
        for one in self._known.get(key, ()):
            if one.isn == isn:
                one.seq = isn
                self._begun[isn] = one.key
                return one.key
        first = self._begun.get(isn, key) if isn >= LEAST_NUMBER else key
        if not (are_of_other_hosts(key, first) and self._is_same(end_of(key), end_of(first))):
            first = key
            self._begun[isn] = key
        if len(self._begun) > _MOST_SYNS:
            self._begun.popitem(last=False)
        if first != key or key in self._known:
            self._enter(key, first, isn)
        return first

    def _is_same(self, one: bytes, other: bytes) -> bool:
        return one == other or (one, other) in self._ends

    def _enter(self, key: bytes, first: bytes, isn: int) -> None:
        """A connection begins under a key; ``first`` is the key that its client's direction has everywhere."""
        there = _Direction(first, isn, None, isn)
        back = _Direction(reverse(first), None, (isn + 1) & 0xFFFF_FFFF, None)
        for direction, one in ((key, there), (reverse(key), back)):
            connections = self._known.setdefault(direction, [])
            connections.insert(0, one)
            del connections[_MOST_CONNECTIONS:]
        self._entered[key] = None
        if len(self._entered) > _MOST_KEYS:
            oldest, _ = self._entered.popitem(last=False)
            for direction in (oldest, reverse(oldest)):
                self._known.pop(direction, None)

    def _note(self, key: bytes, other: bytes) -> None:
        if other in self._told:
            return
        if len(self._told) < 2 * _MOST_KEYS:
            self._told |= {other, reverse(other)}
        for one, same in zip(addresses(key), addresses(other), strict=True):
            if one != same and (self._example is None or same.port < self._example[1].port):
                self._example = one, same

    def problems(self) -> list[CaptureProblem]:
        """The problem to tell at the end of the capture."""
        if self._example is None:
            return []
        one, same = self._example
        connections = were(len(self._told) // 2, "connection")
        return [
            CaptureProblem(
                "addresses-translated", f"{connections} captured before and after NAT: {one.text} is {same.text}"
            )
        ]
