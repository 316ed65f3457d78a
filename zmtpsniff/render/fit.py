"""Lines that fit a terminal: they break between words, and the rest is indented."""

import re

_SGR = re.compile(r"\x1b\[[0-9;]*m")
_BLANKS = re.compile("( +)")
_DEEPER = 4  # columns by which the rest of a line is indented more than the line
_FEW = 2  # hosts that their ports tell apart


class Hosts:
    """The first hosts of a capture. As long as there are two at most, the ports of peers tell them apart."""

    def __init__(self) -> None:
        """Begin without a host."""
        self._names: set[str] = set()

    @property
    def are_many(self) -> bool:
        """Whether a port says too little."""
        return len(self._names) > _FEW

    def add(self, *addresses: str) -> bool:
        """Add the hosts of addresses with ports; returns whether these are the ones that made them many."""
        if self.are_many:
            return False
        self._names.update(address.rpartition(":")[0] for address in addresses)
        return self.are_many


def port(address: str) -> str:
    """The port of an address."""
    return address.rpartition(":")[2]


def columns(line: str) -> int:
    """How many columns a line takes, which may have colours."""
    return len(_SGR.sub("", line))


def fitted(line: str, width: int | None) -> str:
    """A line as one or more of ``width`` columns at most; None: as it is. A word that is longer stays whole."""
    if width is None or len(line) <= width or columns(line) <= width:
        return line
    depth = len(line) - len(line.lstrip(" ")) + _DEEPER
    lines: list[str] = []
    current, used = "", 0
    for part in _BLANKS.split(line):
        length = columns(part)
        if used + length > width and used > depth and part.strip(" "):
            lines.append(current.rstrip(" "))
            current, used = " " * depth, depth
        elif used + length > width and not part.strip(" "):
            continue  # blanks at the end of a line
        current += part
        used += length
    return "\n".join([*lines, current])
