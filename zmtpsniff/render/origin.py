"""The beginning of the first line of a record in the tree: time, packet, connection, sender and receiver."""

from collections.abc import Callable
from functools import lru_cache

from dissectors.events import Beacon, Command, Comment, Greeting, Message, Problem, Subscription
from zmtpsniff.render.clock import Clock, Stopwatch
from zmtpsniff.render.palette import Palette, Signs
from zmtpsniff.words.text import escape

NUMBER = 5  # columns of the number of a packet
_SENDERS = 512  # whose part of the line is kept


class Origin:
    """Writes where records come from, and the date whenever it changes."""

    def __init__(self, palette: Palette, signs: Signs, clock: Clock | Stopwatch) -> None:
        """Tell it in these colours, with the times of the clock."""
        self._palette = palette
        self._signs = signs
        self._clock = clock
        self._date = ""
        # The same few peers send all the time.
        self._sender: Callable[[int, str, str], str] = lru_cache(_SENDERS)(self._make_sender)

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

    def side(self, flow: int, src: str, dst: str) -> str:
        """The part of the first line between the number of the packet and the title."""
        return self._sender(flow, src, dst)

    def of_wire(self, event: Greeting | Command | Subscription | Message | Beacon, lines: list[str]) -> str:
        """The begin of the first line of a record from the wire; a new date is added to the lines."""
        number = f"#{event.packet}"
        sender = self._sender(event.flow, event.src, event.dst)
        return f"{self.time(event.time_ns, lines)}  {self._palette.place}{number:>{NUMBER}}{sender}"

    def of_any(self, event: Problem | Comment, lines: list[str]) -> str:
        """The same for a record that may lack some or all of these."""
        palette = self._palette
        words = [] if event.time_ns is None else [self.time(event.time_ns, lines)]
        place = [] if event.packet is None else [f"{'#' + str(event.packet):>{NUMBER}}"]
        if isinstance(event, Problem) and event.flow is not None:
            place.append(f"connection {event.flow}")
        if place:
            words.append(palette.paint(palette.place, " ".join(place)))
        if isinstance(event, Problem) and event.src is not None and event.dst is not None:
            words.append(self._direction(event.src, event.dst))
        return "  ".join([*words, ""])

    def _make_sender(self, flow: int, src: str, dst: str) -> str:
        """The text after the packet's number. It is the same for all records of one side of a connection."""
        return f" connection {flow}{self._palette.reset}  {self._direction(src, dst)}  "

    def _direction(self, src: str, dst: str) -> str:
        """Sender and receiver in the colour of the sending side."""
        palette = self._palette
        return palette.paint(palette.of_sender(src, dst), f"{escape(src)} {self._signs.arrow} {escape(dst)}")
