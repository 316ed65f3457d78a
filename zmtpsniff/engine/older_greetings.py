"""Files and packets outside of the times that somebody asks for, and the greetings of open connections in them.

Older packets are not dissected: flows and frames are not followed. A segment that begins with READY or INITIATE tells
a type, and one that begins or ends a connection of the same addresses ends what was told. So a ring of files is passed
over nearly as fast as it comes from the disk.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from dissectors.zmtp import frame_headers, greeting, wire
from dissectors.zmtp.commands import parse_command
from dissectors.zmtp.sockets import PEERS
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.files import expanded, open_captures
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.capture.time_window import LATE_NS, TimeWindow
from zmtpsniff.net.addresses import addresses, reverse
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import FIN, RST, SYN

MOST_GREETED = 200_000  # directions of connections
_PROPERTY = b"\x0bSocket-Type"

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
        """Look for greetings in packets, and for connections that begin or end."""
        has_greetings = _PROPERTY in block.octets
        if not has_greetings and not self._types:
            return
        for segment in self._headers.segments_of(block, range(len(block))):
            key = segment[2]
            if has_greetings and _PROPERTY in segment[6]:
                kind = _socket_type(segment[6])
                if kind is not None and (key in self._types or len(self._types) < MOST_GREETED):
                    self._types[key] = kind
            if segment[5] & (SYN | FIN | RST):
                self._types.pop(key, None)
                self._types.pop(reverse(key), None)

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
    older = TimeWindow(end_ns=(window.begin_ns or 0) - 1)
    reaches = False
    with _blocks(name) as blocks:
        for block in blocks:
            times_ns = block.times_ns
            reaches = reaches or not window.is_before(max(times_ns))
            if not window.is_before(min(times_ns) - LATE_NS):
                break
            for part in older.cut(iter((block,))):
                greetings.take(part)
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
    """The socket type that a segment announces at its beginning, or behind a greeting; None if it announces none."""
    rest = greeting.find_rest(payload[: 2 * wire.GREETING_SIZE])
    begin = rest.size if isinstance(rest, greeting.Rest) else 0
    header = frame_headers.read_v2(payload, begin) if begin < len(payload) else 0
    if isinstance(header, int) or header[0] & ~wire.LONG != wire.COMMAND:
        return None
    _, begin, size = header
    command = parse_command(payload[begin : begin + size], None, whole=begin + size <= len(payload))
    kind = command.fields.get("socket_type")
    return kind if isinstance(kind, str) and kind in PEERS else None
