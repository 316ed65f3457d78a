"""Files and packets outside of the times that somebody asks for, and the greetings of open connections in them.

Older packets are not dissected. Their octets are searched for the one text that greetings of ZMTP 3.x have, and only
packets with it are read. So a ring of files is passed over as fast as it comes from the disk.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from dissectors.zmtp.commands import find_property, parse_metadata
from dissectors.zmtp.sockets import PEERS
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.files import expanded, open_captures
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.capture.time_window import LATE_NS, TimeWindow
from zmtpsniff.net.addresses import addresses, reverse
from zmtpsniff.net.packets import HeaderDecoder

MOST_GREETED = 200_000  # directions of connections
_PROPERTY = b"\x0bSocket-Type"
# A segment that begins with READY or, in PLAIN, INITIATE, perhaps behind the greeting or its last 53 or 54 octets.
_ANNOUNCEMENT = re.compile(
    rb"(?:\xff.{8}\x7f\x03.{53}|.{53,54})?(?:\x04(?P<short>.)|\x06(?P<long>.{8}))(?P<command>\x05READY|\x08INITIATE)",
    re.DOTALL,
)

Greeted = dict[tuple[str, str], str]
"""Socket types by the address of the socket and that of its peer."""


class FilesInside(NamedTuple):
    """The files to read, and how."""

    names: list[str]  # the files with packets inside
    window: TimeWindow
    greeted: Greeted  # what sockets said before


class OlderGreetings:
    """Finds the socket types in packets that nobody dissects."""

    def __init__(self) -> None:
        """Start without any."""
        self._headers = HeaderDecoder()
        self._types: dict[bytes, str] = {}  # by key of a direction

    def take(self, block: Block) -> None:
        """Look for greetings in packets."""
        for place in block.holders(_PROPERTY):
            for segment in self._headers.segments_of(block.part(place, place + 1), range(1)):
                kind = _socket_type(segment[6])
                if kind is not None and (segment[2] in self._types or len(self._types) < MOST_GREETED):
                    self._types[segment[2]] = kind

    def greeted(self) -> Greeted:
        """The types of connections of which both sides said theirs."""
        found: Greeted = {}
        for key, kind in self._types.items():
            if reverse(key) in self._types:
                own, peer = addresses(key)
                found[own.text, peer.text] = kind
        return found


def select(
    names: Sequence[str], last_ns: int | None = None, begin_ns: int | None = None, end_ns: int | None = None
) -> FilesInside:
    """The part of files to read for the packets from one time to another, or for the ``last_ns`` before the end.

    Standard input cannot be read twice: it has no last packets, and tells nothing of what was before. Raises
    CaptureError for a file that is no capture, and where no packet is inside.
    """
    files = [str(name) for given in names for name in expanded(given)]
    if "-" in files:
        if last_ns is not None:
            raise CaptureError("--last: not from standard input, whose end nobody knows; use --from")
        return FilesInside(files, TimeWindow(begin_ns, end_ns), {})
    first_ns = {name: time_ns for name in files if (time_ns := _first_ns(name)) is not None}
    latest_ns = None
    if last_ns is not None and first_ns:
        latest_ns = _latest_ns(first_ns)
        begin_ns = (latest_ns if end_ns is None else end_ns) - last_ns
    window = TimeWindow(begin_ns, end_ns)
    greetings = OlderGreetings()
    inside = []
    for name, time_ns in first_ns.items():
        if not window.is_after(time_ns) and (not window.is_before(time_ns) or _goes_on(name, window, greetings)):
            inside.append(name)
    if not inside:
        raise CaptureError("no packet of the captures lies between these times")
    return FilesInside(inside, window, greetings.greeted())


def _goes_on(name: str, window: TimeWindow, greetings: OlderGreetings) -> bool:
    """Whether a file that begins before the window has packets inside; what comes before tells its greetings."""
    reaches = False
    with _blocks(name) as blocks:
        for block in blocks:
            times_ns = block.times_ns
            reaches = reaches or not window.is_before(max(times_ns))
            if not window.is_before(min(times_ns) - LATE_NS):
                break
            greetings.take(block)
    return reaches


def _first_ns(name: str) -> int | None:
    """The time of a file's first packet; None if it has none."""
    with _blocks(name) as blocks:
        return next((min(block.times_ns) for block in blocks), None)


def _latest_ns(first_ns: dict[str, int]) -> int:
    """The time of the last packet: in the file that begins last, or one that was written to later than that one."""
    last = max(first_ns, key=lambda name: first_ns[name])
    latest_ns = first_ns[last]
    for name in first_ns:
        if name == last or _modified_ns(name) >= _modified_ns(last):
            with _blocks(name) as blocks:
                latest_ns = max(latest_ns, *(max(block.times_ns) for block in blocks))
    return latest_ns


def _modified_ns(name: str) -> int:
    return 0 if "://" in name else os.stat(name).st_mtime_ns


@contextmanager
def _blocks(name: str) -> Iterator[Iterator[Block]]:
    """The packets of a file."""
    captures = open_captures([name])
    try:
        yield filter(None, captures.batches())
    finally:
        captures.close()


def _socket_type(payload: bytes) -> str | None:
    """The socket type that a segment announces; None if it is no such segment."""
    found = _ANNOUNCEMENT.match(payload)
    if found is None:
        return None
    size = int.from_bytes(found["short"] or found["long"], "big")
    begin = found.end()
    metadata = payload[begin : begin + size - len(found["command"])]
    kind = find_property(parse_metadata(metadata, whole=False).properties, "Socket-Type")
    text = kind.decode("ascii", "replace") if isinstance(kind, bytes) else ""
    return text if text in PEERS else None
