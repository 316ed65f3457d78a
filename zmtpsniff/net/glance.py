"""Finds packets that nobody wants by a glance at their headers, many packets at once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zmtpsniff.capture.skim import Numbers, structures
from zmtpsniff.net.packets import SHAPES

_MOST_KEYS = 1 << 16
_KEY = 12  # octets of a direction's key in IPv4


class KeyGlance:
    """Finds packets of TCP directions that nobody wants.

    It finds only packets of which :meth:`HeaderDecoder.segments` makes a segment in the simplest way: IPv4 without
    options, no fragments, with the whole TCP header. All other packets may hold anything, so they are wanted.

    It is the :class:`~zmtpsniff.capture.skim.Glance` of a skim.
    """

    def __init__(self, is_wanted: Callable[[bytes], bool]) -> None:
        """Ask ``is_wanted`` about the key of each direction, sometimes more than once."""
        self._is_unwanted = _Answers(is_wanted).__getitem__

    def unwanted(self, link: int, data: bytes, starts: Numbers, sizes: Numbers) -> "NDArray[np.bool_]":
        """Whether nobody wants a packet, for each packet of a link type.

        The octets of packet n are in ``data`` from ``starts[n]`` on, ``sizes[n]`` of them.
        """
        shape = SHAPES.get(link)
        if shape is None:
            return np.zeros(len(starts), bool)
        found = np.asarray(sizes >= shape.least)
        heads = structures(data, starts[found], _layout(link))
        headers = (heads["offset"] & 0xF0) >> 2
        plain = heads["version"] == 0x45
        plain &= heads["transport"] == 6
        plain &= heads["fragment"] & 0xBFFF == 0
        plain &= headers >= 20
        plain &= heads["total"] >= headers.astype(np.int64) + 20
        if shape.ipv4:
            plain &= heads["protocol"] == int.from_bytes(shape.ipv4, "big")
        plain[plain] = list(map(self._is_unwanted, heads["key"][plain].tolist()))
        found[found] = plain
        return found


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


@lru_cache
def _layout(link: int) -> "np.dtype[Any]":
    """Those fields of a packet's headers that tell."""
    shape = SHAPES[link]
    ip = shape.ip
    fields = {
        "version": ("u1", ip),
        "total": (">u2", ip + 2),
        "fragment": (">u2", ip + 6),
        "transport": ("u1", ip + 9),
        "key": (f"V{_KEY}", ip + 12),
        "offset": ("u1", ip + 32),
    }
    if shape.ipv4:
        fields["protocol"] = (f">u{len(shape.ipv4)}", shape.protocol)
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype({"names": [*fields], "formats": formats, "offsets": offsets, "itemsize": shape.least})
