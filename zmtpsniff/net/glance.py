"""Which packets nobody wants, found by a glance at their headers, many packets at once."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zmtpsniff.capture.skim import Numbers, structures
from zmtpsniff.net.packets import SHAPES

_MOST_KEYS = 1 << 16
_KEY = 12  # octets of a direction's key in IPv4


class Glance:
    """Finds packets of TCP directions that nobody wants.

    It finds those alone that :meth:`HeaderDecoder.segments` makes a segment of without further ado: IPv4 without
    options, not in fragments, with all of its TCP header. All others may hold anything, and are wanted. It is the
    :class:`~zmtpsniff.capture.skim.Glance` of a skim.
    """

    def __init__(self) -> None:
        """Begin with all packets wanted."""
        self._keys: set[bytes] = set()

    def dismiss(self, keys: Iterable[bytes]) -> None:
        """Take note that no segment of these directions is wanted; that may be forgotten again."""
        if len(self._keys) >= _MOST_KEYS:
            self._keys.clear()
        self._keys.update(key for key in keys if len(key) == _KEY)

    @property
    def is_idle(self) -> bool:
        """Whether all packets are wanted so far."""
        return not self._keys

    def unwanted(self, link: int, data: bytes, starts: Numbers, sizes: Numbers) -> "NDArray[np.bool_]":
        """For packets of a link type, whether each is not wanted.

        Of each ``sizes`` octets are in ``data``, from ``starts`` on.
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
        known = self._keys
        plain &= [key in known for key in heads["key"].tolist()]
        found[found] = plain
        return found


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
