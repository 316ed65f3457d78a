"""Groups of packets that must be dissected together.

A *group* is the segments between two endpoints of TCP, or the datagrams of UDP or PGM between two hosts, of one series.
Its name there is the lesser of the keys of its two directions, or ``DATAGRAMS`` and two hosts.
"""

from functools import lru_cache

import msgspec

from dissectors.beacon import is_beacon
from zmtpsniff.decode_as import first_match
from zmtpsniff.net.addresses import reverse
from zmtpsniff.net.pgm import parse_pgm
from zmtpsniff.net.segment import UDP
from zmtpsniff.spark.options import Options

DATAGRAMS = b"datagrams"
_DATAGRAM_LEAST = 14
_UNIX_KEY = 20  # octets of a key of Unix domain sockets
_MOST_KNOWN = 1 << 16  # keys whose groups are remembered


def is_unix(key: bytes) -> bool:
    """Whether a direction's key is of a Unix domain socket."""
    return len(key) == _UNIX_KEY


class ShardSpec(msgspec.Struct, frozen=True):
    """Which part of the rows of a series a shard makes: number ``number`` of ``count``, from 0.

    Files are numbered from ``first_file`` on; the last packet before came at ``end_ns``.
    """

    number: int = 0
    count: int = 1
    first_file: int = 1
    end_ns: int = 0

    def has(self, flow: int | None) -> bool:
        """Whether the shard makes the rows of a flow; the first one makes those of none."""
        return (flow or 0) % self.count == self.number


class Groups:
    """The groups of a series, by the ends of their packets."""

    def __init__(self, options: Options) -> None:
        """Leave out ports that ``options`` do not want."""
        self._options = options
        self.of = lru_cache(_MOST_KNOWN)(self._find)

    def _find(self, key: bytes, is_datagram: bool = False) -> bytes | None:
        """The group of a direction's key; None if the group is not wanted."""
        ports = (-1,) if is_unix(key) else (_number(key[-4:-2]), _number(key[-2:]))
        wanted = self._options.ports
        if wanted and -1 not in ports and not any(first <= port <= last for first, last in wanted for port in ports):
            return None
        return DATAGRAMS + key[:-4] if is_datagram else min(key, reverse(key))

    def wants(self, protocol: int, key: bytes, payload: bytes, missing: int) -> bool:
        """Whether a datagram may matter: PGM, or UDP of a port that the user names."""
        if protocol != UDP:
            return True
        ports = _number(key[-4:-2]), _number(key[-2:])
        if is_beacon(payload) or first_match(self._options.rules, "udp", *ports):
            return True
        return len(payload) >= _DATAGRAM_LEAST and (bool(missing) or parse_pgm(payload, True) is not None)


def _number(octets: bytes) -> int:
    return int.from_bytes(octets, "big")
