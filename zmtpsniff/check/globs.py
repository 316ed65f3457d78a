"""Patterns of addresses, hosts and topics: ``*`` is anything, ``?`` one octet, ``\\`` takes their meaning."""

import re
from collections.abc import Sequence
from fnmatch import translate

from dissectors.address import host_of, port_of

_ADDRESS = re.compile(r"(?P<host>.+):(?P<port>\*|\d{1,5}(-\d{1,5})?)", re.DOTALL)
_MOST_PORT = 65535


class Glob:
    """A pattern of octets. For each ``*`` fnmatch takes the first place that fits, so it takes linear time."""

    def __init__(self, text: str) -> None:
        """Read the pattern; it can be any text."""
        self.text = text
        octets = text.encode("utf-8", "surrogateescape").decode("latin-1")  # a character for each
        # fnmatch has no backslash, but sets in brackets: a sign in a set of its own has no other meaning.
        signs = re.sub(r"\\(.?)|\[", _as_set, octets, flags=re.DOTALL)
        self._pattern = re.compile(translate(signs).encode("latin-1"))

    def matches(self, data: bytes) -> bool:
        """Whether it matches all of ``data``."""
        return self._pattern.fullmatch(data) is not None


def _as_set(match: re.Match[str]) -> str:
    """A sign that stands for itself, as fnmatch takes it."""
    sign = match[0] if match[1] is None else match[1] or "\\"
    return f"[{sign}]" if sign in "*?[" else sign


def literal(octets: bytes) -> str | None:
    """The pattern that matches these octets alone; None if they are no text that people can read."""
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return None
    return escaped(text) if text.isprintable() else None


def escaped(text: str) -> str:
    """Text as a pattern that matches it alone."""
    return re.sub(r"[*?\\]", r"\\\g<0>", text)


class AddressPattern:
    """Which addresses are meant: a host with ``*`` and ``?``, and a port, a range of ports, or ``*``."""

    def __init__(self, text: str) -> None:
        """Read ``HOST:PORT``; raises ValueError, which says what is wrong."""
        self.text = text
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no HOST:PORT; a port may be a range (5550-5560) or *")
        self._host = Glob(match["host"])
        first, _, last = match["port"].partition("-")
        self._ports = range(_MOST_PORT + 1) if first == "*" else range(int(first), int(last or first) + 1)
        if first != "*" and (not self._ports or self._ports[-1] > _MOST_PORT):
            raise ValueError(f"{text!r}: ports go from the lower to the higher, up to {_MOST_PORT}")

    def matches(self, address: str) -> bool:
        """Whether an ``address:port`` is meant."""
        host = host_of(address)
        return (
            host != address
            and port_of(address) in self._ports
            and self._host.matches(host.encode("utf-8", "surrogateescape"))
        )


def any_matches(patterns: Sequence[Glob], data: bytes) -> bool:
    """Whether one of the patterns matches."""
    return any(pattern.matches(data) for pattern in patterns)
