"""The columns of a list with a line for every record: their widths, and which of them fit a terminal."""

import unicodedata
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from zmtpsniff.render.fit import Hosts, port
from zmtpsniff.render.palette import Palette
from zmtpsniff.words.text import escape

_BETWEEN = len(" > ") + 6  # between addresses, and a blank behind every column
_PORT = 5
_TEXT = 40  # what text is to have before others give way to it
_LEAST = 24  # of a text, before remarks on it give way
_SOME = 8  # of a text, however much is remarked on it
_KEPT = 512  # senders, sizes of messages
_INDENT = " " * 4  # of a text below its columns
_MORE = "..."


class Widths(NamedTuple):
    """The widths of columns. Nearly all values fit; a wider value pushes the rest of its line to the right."""

    time: int
    packet: int = len("#12345")
    flow: int = len("connection 12")
    address: int = 47  # at most: IPv6 with a port
    kind: int = len("message ROUTER")
    frames: int = len("12")
    octets: int = len("123456")
    noun: int = len("frames")

    @property
    def sizes(self) -> int:
        """The columns of the sizes of a message."""
        return self.frames + self.octets + 2 * self.noun + 3


COMPACT = Widths(0, 0, 0, 0, 0, 0, 0, 0)  # for a line that has none above it


class Columns:
    """Lays out the columns in front of the text: time, packet, connection, sender and receiver, kind, sizes.

    Later records are unknown, so the columns of addresses grow and never shrink. On a narrow terminal some columns
    give way to the text: first the connection, then hosts beside their ports, then the sizes of messages. The hosts
    stay where there are more than two, and a text that has no room beside them stands below.
    """

    def __init__(self, palette: Palette, widths: Widths, width: int | None = None) -> None:
        """Lay out columns of these widths in lines of ``width`` columns; None for lines of any length."""
        self._palette = palette
        self._widths = widths
        self._width = width
        self._address = 0
        self._hosts = Hosts()
        # The same peers send all the time, and most messages are of a few sizes.
        self._sender = lru_cache(_KEPT)(self._make_sender)
        self.message = lru_cache(_KEPT)(self._make_message)
        self._fit()

    def _fit(self) -> None:
        """Choose what there is room for."""
        self._sender.cache_clear()
        self.message.cache_clear()
        self._with_flow = self._with_hosts = self._with_sizes = True
        self._is_below = False
        if self._width is None:
            return
        widths = self._widths
        room = self._width - _BETWEEN - 2 * self._address
        room -= widths.time + widths.packet + widths.flow + widths.kind + widths.sizes
        self._with_flow = room >= _TEXT
        room += 0 if self._with_flow else widths.flow + 1
        without_sizes = room + widths.sizes + 1
        if self._hosts.are_many and without_sizes > 0:
            self._with_sizes = room >= _TEXT
            room = room if self._with_sizes else without_sizes
            self._is_below = room < _LEAST
        else:
            self._with_hosts = room >= _TEXT
            room += 0 if self._with_hosts else 2 * max(self._address - _PORT, 0)
            self._with_sizes = room >= _TEXT
            room += 0 if self._with_sizes else widths.sizes + 1
        self._room = max(room, 1)

    def start(
        self,
        time: str,
        packet: int | None,
        flow: int | None = None,
        src: str | None = None,
        dst: str | None = None,
    ) -> str:
        """The columns in front of the kind of a record. A value of None leaves its column empty.

        A record of the whole capture has no time, and begins with its kind.
        """
        sender = self._sender(flow, src, dst)
        if not time and packet is None and not sender:
            return ""
        palette, widths = self._palette, self._widths
        number = "" if packet is None else f"#{packet}"
        blank = " " if number or widths.packet else ""
        return f"{palette.place}{time.rjust(widths.time)} {number.rjust(widths.packet)}{blank}{palette.reset}{sender}"

    def begin(self, time: str, fraction: int) -> str:
        """The first columns, as start() has them, up to a fraction of a second with so many digits."""
        return f"{self._palette.place}{time.rjust(self._widths.time - fraction)}"

    def side(self, flow: int, src: str, dst: str, socket_type: str | None) -> str | None:
        """The columns between the number of a packet and those of the sizes of a message.

        None if these addresses would make columns wider.
        """
        if self._widest(escape(src), escape(dst)) > self._address:
            return None
        return f" {self._palette.reset}{self._sender(flow, src, dst)}{self._message_kind(socket_type)}"

    def kind(self, word: str, color: str) -> str:
        """The kind of a record, in its colour."""
        return f"{self._palette.paint(color, word)}{' ' * (self._widths.kind - len(word))} "

    def text(self, text: str, remarks: str = "", beside_sizes: bool = False, short: str | None = None) -> str:
        """The part of a text that fits beside remarks on it, and perhaps beside the sizes of a message.

        ``short`` are the remarks that matter most: these stand there if all of them would leave little of the text.
        """
        if self._width is None:
            return text + remarks
        room = self._room if beside_sizes or not self._with_sizes else self._room + self._widths.sizes + 1
        rest = columns_of(remarks)
        below = ""
        if columns_of(text) + rest > room:
            if self._is_below:
                below, room = f"\n{_INDENT}", max(self._width - len(_INDENT), 1)
            if short is not None and columns_of(text) + rest > room and room - rest < _LEAST:
                remarks = short
        return below + cut(cut(text, max(room - columns_of(remarks), _SOME)) + remarks, room)

    def _make_message(self, socket_type: str | None, frames: int, octets: int) -> str:
        kind = self._message_kind(socket_type)
        if not self._with_sizes:
            return kind
        # Without thousands separators, for people who split lines with awk.
        widths = self._widths
        frame = f"{'frame' if frames == 1 else 'frames':{widths.noun}}"
        octet = f"{'octet' if octets == 1 else 'octets':{widths.noun}}"
        return f"{kind}{frames:>{widths.frames}} {frame} {octets:>{widths.octets}} {octet} "

    def _message_kind(self, socket_type: str | None) -> str:
        return self.kind("message" if socket_type is None else f"message {escape(socket_type)}", self._palette.title)

    def _widest(self, *addresses: str) -> int:
        return min(max(map(len, addresses)), self._widths.address)

    def _make_sender(self, flow: int | None, src: str | None, dst: str | None) -> str:
        """The flow, the sender and the receiver. Sender and receiver have the colour of the sending side."""
        palette = self._palette
        number = "" if flow is None else f"connection {flow}"
        if src is None or dst is None:
            return palette.paint(palette.place, number) + " " if number else ""
        addresses = escape(src), escape(dst)
        are_many_now = self._width is not None and self._hosts.add(*addresses)
        if (widest := self._widest(*addresses)) > self._address or are_many_now:
            self._address = max(self._address, widest)
            self._fit()
        width = self._address
        if not self._with_hosts:
            addresses = port(addresses[0]), port(addresses[1])
            width = min(width, _PORT)
        place = f"{palette.paint(palette.place, f'{number:{self._widths.flow}}')} " if self._with_flow else ""
        return (
            f"{place}{palette.paint(palette.of_sender(src, dst), f'{addresses[0]:{width}} > {addresses[1]:{width}}')} "
        )


def cut(text: str, columns: int) -> str:
    """A text in at most so many columns of a terminal; it ends with three dots if it was cut."""
    if columns_of(text) <= columns:
        return text
    taken = accumulate(map(_columns_of_character, text))
    place = next(place for place, end in enumerate(taken) if end > columns - len(_MORE))
    return text[:place] + _MORE[:columns]


def columns_of(text: str) -> int:
    """How many columns a text takes in which nothing is to be escaped."""
    return len(text) if text.isascii() else sum(map(_columns_of_character, text))


def _columns_of_character(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0  # it is drawn on the one before
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
