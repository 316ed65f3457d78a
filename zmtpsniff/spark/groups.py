"""What must be dissected together, and the task that gets it.

A *group* is the segments between two endpoints of TCP, or the datagrams of UDP or PGM between two hosts, of one series.
A *part* is the number of the task that gets a group. A group is named by four octets for its series, and its name
there: a tuple's key, the lesser of those of its two directions; or ``DATAGRAMS`` and two hosts.
"""

from collections.abc import Set
from hashlib import blake2b

from dissectors.beacon import is_beacon
from zmtpsniff.pgm import parse_pgm
from zmtpsniff.segment import UDP
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.watch import reverse

DATAGRAMS = b"datagrams"
_DATAGRAM_LEAST = 14
_UNIX_KEY = 20  # octets of a key of Unix domain sockets
_MOST_KNOWN = 1 << 16  # keys of which it is remembered, for some time


def name_of(series_no: int, name: bytes) -> bytes:
    """A group by the number of its series and its name there."""
    return series_no.to_bytes(4, "big") + name


def part_of(group: bytes, parts: int) -> int:
    """The part of a group."""
    return int.from_bytes(blake2b(group, digest_size=8).digest(), "big") % parts


class Groups:
    """Which group and part what is sent between two ends belongs to."""

    def __init__(self, series_no: int, options: Options, parts: int, wanted: Set[bytes] | None = None) -> None:
        """Sort what is of the series ``series_no`` into ``parts``; only the groups ``wanted``, if they are given."""
        self._series_no = series_no
        self._options = options
        self._wanted = wanted
        self._parts = parts
        self._known: dict[tuple[bytes, bool], tuple[int, bytes]] = {}

    def of(self, key: bytes, is_datagram: bool = False) -> tuple[int, bytes]:
        """Part and group of a direction's key; the part is -1 if nobody wants it."""
        found = self._known.get((key, is_datagram))
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key, is_datagram] = self._find(key, is_datagram)
        return found

    def _find(self, key: bytes, is_datagram: bool) -> tuple[int, bytes]:
        ports = (-1,) if len(key) == _UNIX_KEY else (_number(key[-4:-2]), _number(key[-2:]))
        if not self.has_port(*ports):
            return -1, b""
        return self._named(DATAGRAMS + key[:-4] if is_datagram else min(key, reverse(key)))

    def of_tuple(self, key: bytes) -> tuple[int, bytes]:
        """Part and group of a tuple's key; the part is -1 if nobody wants it."""
        return self.of(key)

    def _named(self, name: bytes) -> tuple[int, bytes]:
        group = name_of(self._series_no, name)
        if self._wanted is not None and group not in self._wanted:
            return -1, b""
        return part_of(group, self._parts), group

    def has_port(self, *ports: int) -> bool:
        """Whether one of the ports of two ends is wanted; those that have none (-1) are."""
        wanted = self._options.ports
        return not wanted or -1 in ports or any(first <= port <= last for first, last in wanted for port in ports)

    def wants(self, protocol: int, key: bytes, payload: bytes, missing: int) -> bool:
        """Whether a datagram may be one that says something: PGM, or of a UDP port that was named."""
        if protocol != UDP:
            return True
        ports = _number(key[-4:-2]), _number(key[-2:])
        if is_beacon(payload) or any(rule.matches("udp", *ports) for rule in self._options.rules):
            return True
        return len(payload) >= _DATAGRAM_LEAST and (bool(missing) or parse_pgm(payload, True) is not None)


def _number(octets: bytes) -> int:
    return int.from_bytes(octets, "big")
