"""Connections that were captured twice, before and after NAT.

Theory
------

NAT changes addresses and keeps TCP's numbers. Both ends draw their first numbers at random (RFC 6528). So two
connections that begin with the same two numbers at nearly the same time are one: a capture of all interfaces of a
router, or of a host with containers, has each packet before and after its addresses are translated. The connection
whose SYN was captured first has the addresses that the client used, and is the only one that is followed.

A program that makes up a capture may give all connections the same small numbers, which prove nothing. Round ones prove
nothing either, and neither do those of one client, unless the client's port is the same, too. NAT keeps it where it
can, but Kubernetes has another one drawn at random, for another address of the client.

A connection that is older than the capture has no SYN in it. Its first segments are compared instead, since their
sequence and acknowledgment numbers count from the two numbers that the ends drew. Some of each direction must be equal.
The view that has the client's segments first has the client's own addresses.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from zmtpsniff.net.addresses import addresses, are_of_other_hosts, host_of_end, reverse, split_zone
from zmtpsniff.net.flow import Flow, FlowDirection
from zmtpsniff.net.segment import Segment
from zmtpsniff.words.counts import were

_WITHIN_NS = 100_000_000  # a router, or the kernel, passes a SYN on much sooner
_LEAST_NUMBER = 1 << 16
_MOST = 4096  # SYNs that are remembered
_TRANSLATIONS = 8  # of each; anybody can forge more
_FIRST = 32  # segments of a connection without a SYN that are compared
_MOST_FIRST = 8192  # pairs of numbers of such segments that are remembered
_MOST_OLD = 4096  # directions of connections without a SYN that are remembered
_LEAST = 2  # such segments of each direction that are equal


class TranslationLog:
    """The latest connections by their initial numbers, and how many are others with translated addresses."""

    def __init__(self) -> None:
        """Start without any."""
        # By the client's number: when each connection began, by its client's key.
        self._begun: OrderedDict[int, dict[bytes, int]] = OrderedDict()
        # Of connections without a SYN, by sequence and acknowledgment number: when segments came, by their direction.
        self._first: OrderedDict[tuple[int, int], dict[bytes, int]] = OrderedDict()
        self._old: OrderedDict[bytes, bytes] = OrderedDict()  # directions of those, and what they are translated from
        self._followed: OrderedDict[bytes, None] = OrderedDict()  # directions of those that have begun
        self._count = 0
        self._example: tuple[str, str] | None = None  # an address of a connection, and what it was translated to

    def begin(self, key: bytes, isn: int, time_ns: int) -> bool:
        """A client sends a SYN; returns whether another connection has begun so."""
        if isn < _LEAST_NUMBER:
            return False
        begun = self._begun.get(isn)
        if begun is None:
            if len(self._begun) >= _MOST:
                self._begun.popitem(last=False)
            self._begun[isn] = {key: time_ns}
            return False
        if len(begun) < _TRANSLATIONS:
            begun.setdefault(key, time_ns)
        return any(self._others(begun, key, isn))

    def before(self, key: bytes, isn: int) -> list[bytes]:
        """The clients' keys of connections that began with the same number, shortly before the one with this key."""
        begun = self._begun.get(isn, {})
        earlier = set(takewhile(lambda other: other != key, begun))  # in the order of the capture: times may be equal
        return [other for other in self._others(begun, key, isn) if other in earlier]

    @staticmethod
    def _others(begun: dict[bytes, int], key: bytes, isn: int) -> Iterator[bytes]:
        time_ns = begun.get(key)
        if time_ns is None:
            return
        for other, at in begun.items():
            if (
                other != key
                and abs(at - time_ns) <= _WITHIN_NS
                and (_have_one_port(key, other) or not (_is_round(isn) or _have_one_client(key, other)))
            ):
                yield other

    def is_translated(self, flow: Flow, find: Callable[[bytes], FlowDirection | None]) -> bool:
        """Whether a connection was captured before NAT translated its addresses, too; then it counts as another one.

        ``find`` gives the direction with a key.
        """
        if flow.initial_numbers is None:
            self._old.pop(flow.server.key, None)
            key = self._old.pop(flow.client.key, None)
            first = None if key is None else find(key)
            if first is None or first.flow is flow:
                return False
            self._tell(first, flow.client)
            return True
        isn, answered = flow.initial_numbers
        for first in map(find, self.before(flow.client.key, isn)):
            if first is None or first.other.isn != answered or first.flow is flow:
                continue
            if _have_one_port(first.key, flow.client.key) or not _is_round(answered):
                self._tell(first, flow.client)
                return True
        return False

    def _tell(self, first: FlowDirection, same: FlowDirection) -> None:
        """A direction of a connection is that of another one, which came first."""
        self._count += 1
        (client, server), (theirs, at) = (addresses(one.key) for one in (first, same))
        one, other = (server, at) if server != at else (client, theirs)
        self._example = self._example or (one.text, other.text)

    def see_first(self, segment: Segment) -> None:
        """A segment came of a connection whose SYN has not come."""
        time_ns, _, key, seq, ack, _, _, _ = segment
        if seq < _LEAST_NUMBER or ack < _LEAST_NUMBER:
            return
        came = self._first.setdefault((seq, ack), {})
        if len(came) < _TRANSLATIONS:
            came.setdefault(key, time_ns)
        _bound(self._first, _MOST_FIRST)

    def begin_late(self, client: bytes, segments: Sequence[Segment]) -> None:
        """A connection without a SYN begins with these segments; ``client`` is the key of its client's direction."""
        # By another key of the client's direction, and whether that sends.
        equal: Counter[tuple[bytes, bool]] = Counter()
        ahead: Counter[bytes] = Counter()  # how often what the client sends comes there first, or what it gets last
        for _, _, key, seq, ack, _, _, _ in segments[:_FIRST]:
            came = self._first.get((seq, ack), {})
            if key not in came:
                continue
            is_first = True
            for other, at in came.items():
                if other == key:
                    is_first = False
                elif abs(at - came[key]) <= _WITHIN_NS and are_of_other_hosts(key, other):
                    same = other if key == client else reverse(other)
                    equal[same, key == client] += 1
                    ahead[same] += 1 if is_first == (key == client) else -1
        for same in ahead:
            if min(equal[same, True], equal[same, False]) >= _LEAST:
                if same not in self._followed and ahead[same] <= 0:
                    self._note_old(same, client)
                elif client not in self._old:
                    self._note_old(client, same)
                    return
        self._followed |= {client: None, reverse(client): None}
        _bound(self._followed, _MOST_OLD)

    def _note_old(self, key: bytes, first: bytes) -> None:
        self._old |= {key: first, reverse(key): reverse(first)}
        _bound(self._old, _MOST_OLD)

    def forget(self) -> None:
        """The capture is over."""
        self._begun.clear()
        self._first.clear()
        self._old.clear()
        self._followed.clear()

    def problems(self) -> list[tuple[str, str]]:
        """The problem to tell at the end of the capture."""
        if self._example is None:
            return []
        one, other = self._example
        detail = f"{were(self._count, 'connection')} captured before and after NAT: {one} is {other}"
        return [("addresses-translated", detail)]


def _have_one_port(key: bytes, other: bytes) -> bool:
    """Whether the clients of two connections have the same port."""
    return key[-4:-2] == other[-4:-2]


def _have_one_client(key: bytes, other: bytes) -> bool:
    """Whether the clients of two connections have the same address."""
    one, same = (host_of_end(reverse(split_zone(client)[1])) for client in (key, other))
    return one == same


def _is_round(number: int) -> bool:
    """Whether a number looks made up."""
    return number < _LEAST_NUMBER or number % 1000 == 0 or number & 0xFFFF in (0, 1, 0xFFFF)


def _bound(table: OrderedDict[Any, Any], most: int) -> None:
    """Drop what is oldest in a table that has more than so many entries."""
    while len(table) > most:
        table.popitem(last=False)
