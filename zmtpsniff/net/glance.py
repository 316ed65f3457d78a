"""Finds packets that nobody wants by a glance at their headers, many packets at once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zmtpsniff.capture.skim import Numbers, structures
from zmtpsniff.net.packets import SHAPES, TCP, Shape

_MOST_KEYS = 1 << 16


class KeyGlance:
    """Finds packets of TCP directions that nobody wants.

    It finds only packets of which :meth:`HeaderDecoder.segments` makes a segment in the simplest way: IPv4 without
    options, no fragments, or IPv6 without extension headers, with the whole TCP header. All other packets may hold
    anything, so they are wanted.

    It is the :class:`~zmtpsniff.capture.skim.Glance` of a skim.
    """

    def __init__(self, is_wanted: Callable[[bytes], bool]) -> None:
        """Ask ``is_wanted`` about the key of each direction, sometimes more than once."""
        self._is_unwanted = _Answers(is_wanted).__getitem__

    def unwanted(self, link: int, data: bytes, starts: Numbers, sizes: Numbers) -> "NDArray[np.bool_]":
        """Whether nobody wants a packet, for each packet of a link type.

        The octets of packet n are in ``data`` from ``starts[n]`` on, ``sizes[n]`` of them.
        """
        found = np.zeros(len(starts), bool)
        shape = SHAPES.get(link)
        if shape is None:
            return found
        (whole,) = np.nonzero(sizes >= shape.least)
        heads = structures(data, starts[whole], _ipv4(link))
        plain = _has_tcp(heads, 20, shape.ipv4)
        plain &= heads["version"] == 0x45
        plain &= heads["fragment"] & 0xBFFF == 0
        found[whole[plain]] = self._answers(heads["key"][plain])

        whole = whole[(heads["version"] >> 4 == 6) & (sizes[whole] >= shape.least + 20)]
        if len(whole):
            heads = structures(data, starts[whole], _ipv6(link))
            plain = _has_tcp(heads, 0, shape.ipv6)
            found[whole[plain]] = self._answers(heads["key"][plain])
        return found

    def _answers(self, keys: "NDArray[np.void]") -> list[bool]:
        return list(map(self._is_unwanted, keys.tolist()))


class _Answers(dict[bytes, bool]):
    """Whether each direction is unwanted, by its key."""

    def __init__(self, is_wanted: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._is_wanted = is_wanted

    def __missing__(self, key: bytes) -> bool:
        if len(self) >= _MOST_KEYS:
            self.clear()
        answer = self[key] = not self._is_wanted(key)
        return answer


def _has_tcp(heads: "NDArray[np.void]", others: int, protocol: bytes) -> "NDArray[np.bool_]":
    """Whether a link header names ``protocol``, IP's names TCP, and the packet has room for the whole TCP header.

    IP's length counts ``others`` octets before the TCP header.
    """
    headers = (heads["offset"] & 0xF0) >> 2
    has = np.asarray(heads["transport"] == TCP)
    has &= headers >= 20
    has &= heads["total"] >= headers + others
    if protocol:
        has &= heads["protocol"] == int.from_bytes(protocol, "big")
    return has


@lru_cache
def _ipv4(link: int) -> "np.dtype[Any]":
    """Those fields of a packet's headers that tell."""
    shape = SHAPES[link]
    fields = {"version": ("u1", 0), "total": (">u2", 2), "fragment": (">u2", 6), "transport": ("u1", 9)}
    return _layout(shape, shape.ipv4, fields | {"key": ("V12", 12), "offset": ("u1", 32)}, shape.least)


@lru_cache
def _ipv6(link: int) -> "np.dtype[Any]":
    shape = SHAPES[link]
    fields = {"total": (">u2", 4), "transport": ("u1", 6), "key": ("V36", 8), "offset": ("u1", 52)}
    return _layout(shape, shape.ipv6, fields, shape.least + 20)


def _layout(shape: Shape, protocol: bytes, fields: dict[str, tuple[str, int]], size: int) -> "np.dtype[Any]":
    """Fields of IP and TCP, from the header of IP on, and that of the link header which says what follows it."""
    placed = {name: (kind, shape.ip + at) for name, (kind, at) in fields.items()}
    if protocol:
        placed["protocol"] = (f">u{len(protocol)}", shape.protocol)
    formats, offsets = zip(*placed.values(), strict=True)
    return np.dtype({"names": [*placed], "formats": formats, "offsets": offsets, "itemsize": size})
