"""Ways for people: a line for each message, with the time since the beginning and the time at each place."""

from collections import Counter
from collections.abc import Sequence
from typing import TextIO

from dissectors.address import host_of
from zmtpsniff.analysis.ways.records import Leg, Way, lasted_ns
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
_WHY = {
    "closed": "{at} closed the connection while it had the message",
    "not-forwarded": "{at} took it and passed nothing on",
    "not-answered": "{at} took it and did not answer",
    "reply-not-forwarded": "{at} took the reply and did not pass it on",
    "reply-to-nobody": "{at} had nobody to send the reply to: the one who asked had closed",
    "not-taken": "{at} never acknowledged it",
    "capture-ended": "the capture ended while {at} had it",
}
_WHAT = {"inside": "inside {at}", "queue": "in the queue of {at}", "network": "in the network before {at}"}


def is_only_counted(way: Way) -> bool:
    """Whether there is nothing to show: it was published or pushed to one socket, and ended well there."""
    return way.kind != "request" and len(way.legs) == 1 and way.ended is None


class LadderRenderer:
    """Writes ways to a stream."""

    def __init__(self, stream: TextIO, utc: bool = False, color: Color = "auto", width: int | None = None) -> None:
        """Write as wide as the terminal of the stream, or ``width`` columns."""
        self._stream = stream
        self._palette = make_palette(stream, color)
        self._width = width or terminal_width(stream) or _NO_TERMINAL
        self._clock = Clock(utc, digits=6)
        self._change = encodable(getattr(stream, "encoding", None))
        self._is_first = True
        self._count: Counter[str] = Counter()  # of ways, by kind
        self._left_out: Counter[str] = Counter()

    def write(self, ways: Sequence[Way]) -> None:
        """Write some ways; those with nothing to show are only counted."""
        for way in ways:
            self._count[way.kind] += 1
            if is_only_counted(way):
                self._left_out[way.kind] += 1
                continue
            self._write(self._lines(way))

    def finish(self, nothing: str = "") -> None:
        """Write the line that sums up, or ``nothing`` if there was no way."""
        shown = [plural(count, kind) for kind, count in (self._count - self._left_out).items()]
        hidden = [plural(count, kind) for kind, count in self._left_out.items()]
        told = [f"{', '.join(shown)} shown"] if shown else []
        told += [f"not shown, to one socket only: {', '.join(hidden)}"] if hidden else []
        self._write(["; ".join(told) or nothing])

    def _write(self, lines: Sequence[str]) -> None:
        text = "\n".join([*([] if self._is_first else [""]), *(fitted(line, self._width) for line in lines)]) + "\n"
        self._is_first = False
        self._stream.write(self._change(text))

    def _lines(self, way: Way) -> list[str]:
        palette = self._palette
        verdict = _verdict(way)
        if way.answered is False or way.ended is not None:
            verdict = palette.paint(palette.error, verdict)
        elif way.answered:
            verdict = palette.paint(palette.good, verdict)
        head = f"{palette.paint(palette.title, way.kind)} at {self._clock.time(way.time_ns)}, {verdict}"
        if way.again is not None:
            head += f", asks again for {place_words(way.again.packet, way.again.part)}"
        lines = [head]
        widest = max(max(len(leg.src), len(leg.dst)) for leg in way.legs)
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
        palette = self._palette
        step_ns = 0 if before is None else leg.time_ns - before.time_ns
        here = "" if before is None else f"{'+' if step_ns >= 0 else ''}{brief(step_ns)}"
        arrow = "◀─" if leg.reply else "─▶"
        ends = (leg.dst, leg.src) if leg.reply else (leg.src, leg.dst)
        colour = palette.server if leg.reply else palette.client
        doubt = "" if leg.certain else " ?"
        return (
            f"{palette.paint(palette.time, f'{brief(leg.time_ns - start_ns):>9}')}  "
            f"{palette.paint(colour, f'{escape(ends[0]):>{widest}} {arrow} {escape(ends[1]):<{widest}}')} "
            f"{here:>9}  {place_words(leg.packet, leg.part)}{doubt}"
        )


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
