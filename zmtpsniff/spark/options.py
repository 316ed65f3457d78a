"""The options of a run, as executors get them."""

import re
from hashlib import sha256
from typing import NamedTuple

import msgspec

from dissectors.zmtp.curve_keys import Key
from dissectors.zmtp.limits import Limits
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.limits import FlowLimits

Ports = tuple[tuple[int, int], ...]
"""Ranges of ports, first and last; none for all ports."""

MOST_FILES = 1000
"""The most files that a run that follows reads at a time, and that a micro-batch has."""

_UNIX_KEY = 20  # octets of a key of Unix domain sockets, which have no ports
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class Options(NamedTuple):
    """Which packets to read, and how much of them to keep."""

    ports: Ports = ()
    max_bytes: int = 256  # of each body; 0 keeps all
    rules: tuple[DecodeAs, ...] = ()
    show_secrets: bool = False
    idle_seconds: float = FlowLimits().idle_seconds
    bodies: bool = True  # without, of the frames of messages their lengths alone
    # connections that are open when the files of a run end have rows, which the next run replaces
    tells_open: bool = True
    curve_keys: tuple[Key, ...] = ()  # keys that open boxes of CURVE, beside those in the captures
    ways: bool = False  # follow each message over brokers and services, which takes longer than all else

    def wants(self, key: bytes) -> bool:
        """Whether packets are wanted whose ends have this key."""
        if not self.ports or len(key) == _UNIX_KEY:
            return True
        ends = int.from_bytes(key[-4:-2], "big"), int.from_bytes(key[-2:], "big")
        return any(first <= port <= last for first, last in self.ports for port in ends)

    @property
    def settings(self) -> Settings:
        """The settings of a dissection."""
        return Settings(
            decode_as=self.rules,
            limits=Limits(self.max_bytes, self.show_secrets, sha256 if self.bodies else None),
            flow_limits=FlowLimits(idle_seconds=self.idle_seconds),
            curve_keys=self.curve_keys,
        )


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


def parse_ports(text: str) -> Ports:
    """Read ``5555,6000-6010``; ValueError says what is wrong with it."""
    ranges = []
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        first = int(match[1]) if match else -1
        last = int(match[2] or first) if match else -1
        if not 0 <= first <= last <= 65_535:
            raise ValueError(f"{part!r} is no port or range of ports (0 to 65535)")
        ranges.append((first, last))
    return tuple(ranges)


def check_series(rule: str) -> str:
    """A rule that says which files are one series, as it is; ValueError says what is wrong with one that is none."""
    if rule in ("folder", "file"):
        return rule
    try:
        groups = re.compile(rule).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{rule!r} is no regular expression: {error}") from None
    if not groups:
        raise ValueError(f"{rule!r} is not folder or file, and has no group (...) that names the series")
    return rule
