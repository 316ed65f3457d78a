"""How the octets of a fuzz input stand for what two sides do: turns, each with a mark, a length and octets.

A turn is an octet that says what it is (the target's business), one with the length of what follows, and that. The
last one may be shorter than it says, so that every input means something.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import astuple

from dissectors.events import AnyEvent, Capture, Comment, Connection, Problem, Work

_LONG = 255  # then two octets of length follow


def turns(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The turns in an input: mark and octets of each."""
    place = 0
    while place + 2 <= len(data):
        mark, length = data[place], data[place + 1]
        place += 2
        if length == _LONG:
            length = int.from_bytes(data[place : place + 2], "big")
            place += 2
        yield mark, data[place : place + length]
        place += length


def packed(sent: Iterable[tuple[int, bytes]]) -> bytes:
    """The input whose turns are these."""
    out = []
    for mark, octets in sent:
        for start in range(0, max(len(octets), 1), 0xFFFF):
            part = octets[start : start + 0xFFFF]
            length = bytes([len(part)]) if len(part) < _LONG else bytes([_LONG]) + len(part).to_bytes(2, "big")
            out += [bytes([mark]), length, part]
    return b"".join(out)


def pieces(octets: bytes, seed: int) -> Iterator[bytes]:
    """Octets cut into pieces whose lengths follow from ``seed``; of seed 0 in one piece."""
    place = 0
    while place < len(octets):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        length = (seed >> 16) % (1, 3, 20, 300)[seed >> 8 & 3] + 1
        yield octets[place : place + length]
        place += length


def told(events: Iterable[AnyEvent], problems: bool = True) -> dict[str, list[str]]:
    """The events of each sender, and the problems, without times and packets."""
    out: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, Connection):
            event.start_ns = event.end_ns = 0
            out.setdefault("", []).append(f"{type(event).__name__} {astuple(event)}")
        elif not isinstance(event, Capture | Comment | Work) and (problems or not isinstance(event, Problem)):
            event.time_ns = event.packet = 0
            if isinstance(event, Problem):
                event.detail = ""  # it may show the first octets that were there
            out.setdefault(event.src or "", []).append(f"{type(event).__name__} {astuple(event)}")
    return out
