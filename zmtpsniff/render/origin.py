"""The beginning of the first line of a record in the tree: time, packet, connection, sender and receiver."""

from functools import lru_cache

from dissectors.events import Beacon, Command, Comment, Greeting, Message, Problem, Subscription
from zmtpsniff.render.clock import Clock, Stopwatch
from zmtpsniff.render.fit import Hosts, port
from zmtpsniff.render.palette import Palette, Signs
from zmtpsniff.words.text import escape

NUMBER = 5  # columns of the number of a packet
_SENDERS = 512  # whose part of the line is kept
_TIME = len("12:34:56.123456  ")
_TITLE = 40  # columns that the title is to have before others give way to it


class Origin:
    """Writes where records come from, and the date whenever it changes.

    On a narrow terminal some of it gives way to the title, as in a summary: first the connection, then hosts beside
    their ports. The hosts stay where there are more than two.
    """

    def __init__(self, palette: Palette, signs: Signs, clock: Clock | Stopwatch, width: int | None = None) -> None:
        """Tell it in these colours, with the times of the clock, on ``width`` columns; None: on no terminal."""
        self._palette = palette
        self._signs = signs
        self._clock = clock
        self._date = ""
        self._width = width
        self._hosts = Hosts()
        # The same few peers send all the time.
        self.side = lru_cache(_SENDERS)(self._make_side)

    def time(self, time_ns: int, lines: list[str]) -> str:
        """The time of day; a new date is added to the lines."""
        time = self._clock.time(time_ns)
        palette = self._palette
        if self._clock.date != self._date:
            self._date = self._clock.date
            lines.append(palette.paint(palette.dim, self._date))
        return palette.paint(palette.time, time)

    @property
    def begin(self) -> str | None:
        """The begin of a line, up to the fraction of the second shown last; None: lines have no such begin."""
        begin = self._clock.begin
        return None if begin is None else f"{self._palette.time}{begin}"

    def of_wire(self, event: Greeting | Command | Subscription | Message | Beacon, lines: list[str]) -> str:
        """The begin of the first line of a record from the wire; a new date is added to the lines."""
        number = f"#{event.packet}"
        sender = self.side(event.flow, event.src, event.dst)
        return f"{self.time(event.time_ns, lines)}  {self._palette.place}{number:>{NUMBER}}{sender}"

    def of_any(self, event: Problem | Comment, lines: list[str]) -> str:
        """The same for a record that may lack some or all of these."""
        palette = self._palette
        words = [] if event.time_ns is None else [self.time(event.time_ns, lines)]
        place = [] if event.packet is None else [f"{'#' + str(event.packet):>{NUMBER}}"]
        direction = ""
        if isinstance(event, Problem):
            connection, direction = self._shown(event.flow, event.src, event.dst)
            place += [connection] if connection else []
        words += [palette.paint(palette.place, " ".join(place))] if place else []
        words += [direction] if direction else []
        return "  ".join([*words, ""])

    def _make_side(self, flow: int, src: str, dst: str) -> str:
        """The text between the packet's number and the title, the same for all records of one side of a connection."""
        connection, direction = self._shown(flow, src, dst)
        return f"{connection and ' '}{connection}{self._palette.reset}  {direction}  "

    def _shown(self, flow: int | None, src: str | None, dst: str | None) -> tuple[str, str]:
        """The connection, and sender and receiver in the colour of the sending side; each may be empty."""
        connection = "" if flow is None else f"connection {flow}"
        if src is None or dst is None:
            return connection, ""
        arrow, ends = f" {self._signs.arrow} ", [escape(src), escape(dst)]
        if self._width is not None:
            if self._hosts.add(*ends):
                self.side.cache_clear()
            room = self._width - _TITLE - _TIME - NUMBER - len(f"  {arrow.join(ends)}  ")
            connection = connection if room > len(connection) else ""
            ends = ends if room >= 0 or self._hosts.are_many else [port(end) for end in ends]
        return connection, self._palette.paint(self._palette.of_sender(src, dst), arrow.join(ends))
