"""Ways for people: a line for each message, with the time since the beginning and the time at each place."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TextIO

from dissectors.address import host_of
from zmtpsniff.analysis.ways.way_records import Leg, Way, lasted_ns
from zmtpsniff.render.clock import Clock
from zmtpsniff.render.color import Color
from zmtpsniff.render.console import terminal_width
from zmtpsniff.render.fit import fitted
from zmtpsniff.render.palette import make_palette
from zmtpsniff.render.wording import place_words
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import encodable, escape

_NO_TERMINAL = 120  # columns
_REMEMBERED = 4096  # texts of each kind: legs of other ways have the same ends, and often the same times
_WHY = {
    "closed": "{at} closed the connection while it had the message",
    "not-forwarded": "{at} took the message and passed nothing on",
    "not-answered": "{at} took the message and did not answer",
    "reply-not-forwarded": "{at} took the reply and did not pass it on",
    "reply-to-nobody": "{at} had nobody to send the reply to: the client had closed",
    "not-taken": "{at} never acknowledged the message",
    "capture-ended": "the capture ended while {at} had the message",
}
_WHAT = {"inside": "inside {at}", "queue": "in the queue of {at}", "network": "in the network before {at}"}


def is_only_counted(way: Way) -> bool:
    """Whether there is nothing to show: it was published or pushed to one socket, and ended well there."""
    return way.kind != "request" and len(way.legs) == 1 and way.ended is None


class LadderRenderer:
    """Writes ways to a stream."""

    def __init__(self, stream: TextIO, utc: bool = False, color: Color = "auto") -> None:
        """Write as wide as the terminal of the stream."""
        self._stream = stream
        self._palette = make_palette(stream, color)
        self._width = terminal_width(stream) or _NO_TERMINAL
        self._clock = Clock(utc, digits=6)
        self._change = encodable(getattr(stream, "encoding", None))
        self._ends = lru_cache(_REMEMBERED)(self._make_ends)
        self._since = lru_cache(_REMEMBERED)(self._make_since)
        self._is_first = True
        self._count: Counter[str] = Counter()  # of ways, by kind
        self._left_out: Counter[str] = Counter()
        self._lost = 0

    def write(self, ways: Sequence[Way]) -> None:
        """Write some ways; those with nothing to show are only counted."""
        for way in ways:
            self._count[way.kind] += 1
            self._lost += _is_lost(way)
            if is_only_counted(way):
                self._left_out[way.kind] += 1
                continue
            self._write(self._lines(way))

    def finish(self, nothing: str = "") -> None:
        """Write the line that sums up, or ``nothing`` if there was no way."""
        shown = [plural(count, kind) for kind, count in (self._count - self._left_out).items()]
        hidden = [plural(count, kind) for kind, count in self._left_out.items()]
        told = [f"{', '.join(shown)} shown"] if shown else []
        if 0 < self._lost < (self._count - self._left_out).total():
            told[0] += f", {self._lost:,} of them lost or not answered, which --lost shows alone"
        told += [f"not shown, to one socket only: {', '.join(hidden)}"] if hidden else []
        self._write(["; ".join(told) or nothing])

    def _write(self, lines: Sequence[str]) -> None:
        width = self._width
        text = "\n".join([line if len(line) <= width else fitted(line, width) for line in lines])
        self._stream.write(self._change(f"{text}\n" if self._is_first else f"\n{text}\n"))
        self._is_first = False

    def _lines(self, way: Way) -> list[str]:
        palette = self._palette
        verdict = _verdict(way)
        if _is_lost(way):
            verdict = palette.paint(palette.error, verdict)
        elif way.answered:
            verdict = palette.paint(palette.good, verdict)
        head = f"{palette.paint(palette.title, way.kind)} at {self._clock.time(way.time_ns)}, {verdict}"
        if way.again is not None:
            head += f", asks again for {place_words(way.again.packet, way.again.part)}"
        lines = [head]
        widest = max(map(len, {leg.src for leg in way.legs} | {leg.dst for leg in way.legs}))
        taken: dict[str, Leg] = {}
        before: Leg | None = None
        for leg in way.legs:
            if way.kind == "publication":
                before = taken.get(host_of(leg.src))
                taken[host_of(leg.dst)] = leg
            lines.append(self._leg(leg, before, way.time_ns, widest))
            before = leg
        lines += [f"  {palette.paint(palette.label, 'slowest:')} {words}" for words in _slowest(way)]
        lines += [f"  {palette.paint(palette.error, 'ended:')} {words}" for words in _ended(way)]
        return lines

    def _leg(self, leg: Leg, before: Leg | None, start_ns: int, widest: int) -> str:
        here = " " * 9 if before is None else _step(leg.time_ns - before.time_ns)
        return (
            f"{self._since(leg.time_ns - start_ns)}  {self._ends(leg.src, leg.dst, leg.reply, widest)} {here}  "
            f"{place_words(leg.packet, leg.part)}{'' if leg.certain else ' ?'}"
        )

    def _make_since(self, length_ns: int) -> str:
        return self._palette.paint(self._palette.time, f"{brief(length_ns):>9}")

    def _make_ends(self, src: str, dst: str, is_reply: bool, widest: int) -> str:
        palette = self._palette
        left, arrow, right = (dst, "◀─", src) if is_reply else (src, "─▶", dst)
        colour = palette.server if is_reply else palette.client
        return palette.paint(colour, f"{escape(left):>{widest}} {arrow} {escape(right):<{widest}}")


def _is_lost(way: Way) -> bool:
    return way.answered is False or way.ended is not None


@lru_cache(_REMEMBERED)
def _step(length_ns: int) -> str:
    sign = "+" if length_ns >= 0 else ""
    return f"{sign + brief(length_ns):>9}"


def way_words(way: Way) -> list[str]:
    """A phrase each for the verdict on a way, for where most of its time went, and for where it ended."""
    slowest = [f"slowest: {words}" for words in _slowest(way)]
    return [f"{way.kind} {_verdict(way)}", *slowest, *(f"ended: {words}" for words in _ended(way))]


def _verdict(way: Way) -> str:
    lasted = brief(lasted_ns(way))
    if way.kind != "request":
        return f"{plural(len(way.legs), 'leg')} in {lasted}" if way.ended is None else "lost"
    if way.answered is None:
        return "perhaps answered"
    return f"answered after {lasted}" if way.answered else "not answered"


def _slowest(way: Way) -> list[str]:
    if way.slowest is None or (way.kind == "request" and not way.answered):
        return []
    return [f"{brief(way.slowest.ns)} {_WHAT[way.slowest.what].format(at=escape(way.slowest.at))}"]


def _ended(way: Way) -> list[str]:
    return [] if way.ended is None else [_WHY[way.ended.why].format(at=escape(way.ended.at))]
