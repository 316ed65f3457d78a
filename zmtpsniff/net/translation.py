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
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import takewhile

from zmtpsniff.net.addresses import addresses, host_of_end, reverse, split_zone
from zmtpsniff.net.flow import Flow, FlowDirection
from zmtpsniff.words.counts import were

_WITHIN_NS = 100_000_000  # a router, or the kernel, passes a SYN on much sooner
_LEAST_NUMBER = 1 << 16
_MOST = 4096  # SYNs that are remembered
_TRANSLATIONS = 8  # of each; anybody can forge more


class TranslationLog:
    """The latest connections by their initial numbers, and how many are others with translated addresses."""

    def __init__(self) -> None:
        """Start without any."""
        # By the client's number: when each connection began, by its client's key.
        self._begun: OrderedDict[int, dict[bytes, int]] = OrderedDict()
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
            return False
        isn, answered = flow.initial_numbers
        for first in map(find, self.before(flow.client.key, isn)):
            if first is None or first.other.isn != answered or first.flow is flow:
                continue
            if _have_one_port(first.key, flow.client.key) or not _is_round(answered):
                self._count += 1
                (client, server), (theirs, at) = (addresses(one.client.key) for one in (first.flow, flow))
                one, other = (server, at) if server != at else (client, theirs)
                self._example = self._example or (one.text, other.text)
                return True
        return False

    def forget(self) -> None:
        """The capture is over."""
        self._begun.clear()

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
    """Whether somebody may have made a number up."""
    return number < _LEAST_NUMBER or number % 1000 == 0 or number & 0xFFFF in (0, 1, 0xFFFF)
