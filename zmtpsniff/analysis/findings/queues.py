"""The queue of each program that passes messages on, in minus out over time: queue-grows.

Theory
------

A program has a queue, in its memory or its kernel's: the messages that it took and has neither passed on nor lost. The
ways of messages show both times of each message, so that the queue at any time is known. It is kept in intervals,
which become longer where there are many. A message that went no further while a later one did is dropped, perhaps on
purpose, and is in no queue. Where most joins of the ways are not certain, a table shows the queue only if it
grows, and that is possible only.

A queue after a burst is no fault: it drains. One that rises for a second or longer, so that what comes last waits half
a second, grows: more comes in than goes out. If it is still there in the end, that is a warning. The program is not to
blame if it could not send more, since the next one had no room, or if a broker waits for the workers of its requests:
then it is a note.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import accumulate

from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.statistics.stats_records import QueueRow
from zmtpsniff.analysis.statistics.timeline import widened
from zmtpsniff.analysis.ways.hops import Hop
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about

_WIDTH_NS = 100_000_000  # of an interval, at first
_INTERVALS = 600
_LEAST = 20  # messages in a queue that grows
_PASSED = 5  # messages, before anybody says that it passes on what it takes; of guesses _LEAST
_RISE_NS = 1_000_000_000
_WAIT_NS = 500_000_000
_SENDERS = 64  # sockets of one program
_UNPASSED = 4096  # messages of one program

_Waiting = tuple[int, int, int]  # a message: its time, packet and flow


class QueueCount:
    """Messages that a program took, and those that it passed on, by time."""

    def __init__(self) -> None:
        """Begin without any."""
        self.at = ""  # the socket that took the first
        self.passed = 0
        self.asks = False  # some of them are requests
        self.guessed = 0  # of those that it passed on: another message may be the one
        self.senders: dict[str, None] = {}
        self.grows = False  # a claim says so
        self.seen = Occurrences()  # messages that waited long
        self._width_ns = _WIDTH_NS
        self._in: Counter[int] = Counter()  # by interval
        self._out: Counter[int] = Counter()
        self._latest_ns = 0  # when it took the latest message that it passed on
        self._forgotten = 0  # of those that it did not pass on, the oldest
        self._unpassed: deque[_Waiting] = deque(maxlen=_UNPASSED)
        self._open: deque[_Waiting] = deque(maxlen=_UNPASSED)  # those that it may pass on

    def hold(self, taken: Hop, *, is_open: bool = False) -> None:
        """The program took a message and has not passed it on; ``is_open``: it still may."""
        self._note(taken)
        if not is_open and len(self._unpassed) == _UNPASSED:
            self._forgotten += 1
        (self._open if is_open else self._unpassed).append((taken.time_ns, taken.packet, taken.flow))

    def forget_open(self) -> None:
        """Those that it might pass on are counted anew."""
        self._open.clear()

    def _note(self, taken: Hop) -> None:
        self.at = self.at or taken.dst
        self.asks = self.asks or taken.way.kind == "request"

    def add(self, taken: Hop, passed: Hop) -> None:
        """The program took a message, and passed it on."""
        if not self.asks:
            self._note(taken)
        if passed.time_ns - taken.time_ns >= _WAIT_NS:
            self.seen.add(taken.time_ns, taken.packet, taken.flow)
        self.passed += 1
        if not passed.certain:
            self.guessed += 1
        if taken.time_ns > self._latest_ns:
            self._latest_ns = taken.time_ns
        self._in[taken.time_ns // self._width_ns] += 1
        self._out[passed.time_ns // self._width_ns] += 1
        if len(self._in) > _INTERVALS or len(self._out) > _INTERVALS:
            self._width_ns *= 2
            self._in, self._out = Counter(widened(self._in, 1, 2)), Counter(widened(self._out, 1, 2))
        if len(self.senders) < _SENDERS:
            self.senders[passed.src] = None

    @property
    def is_certain(self) -> bool:
        """Whether most of what it passed on is known to be what it took."""
        return 2 * self.guessed <= self.passed

    @property
    def _held(self) -> list[_Waiting]:
        """The messages that it has not passed on, nor any that came later."""
        return [one for each in (self._unpassed, self._open) for one in each if one[0] > self._latest_ns]

    @property
    def taken(self) -> int:
        """How many it passed on, holds or dropped."""
        return self.passed + self._forgotten + len(self._unpassed) + len(self._open)

    def levels(self) -> list[tuple[int, int]]:
        """How long the queue was at the end of each interval in which it changed, and when that was."""
        held = Counter(time_ns // self._width_ns for time_ns, _, _ in self._held)
        places = sorted(self._in.keys() | self._out.keys() | held.keys())
        levels = accumulate(self._in[place] + held[place] - self._out[place] for place in places)
        return [((place + 1) * self._width_ns, level) for place, level in zip(places, levels, strict=True)]

    def row(self) -> QueueRow:
        """Its record."""
        levels = self.levels()
        most_ns, most = max(levels, key=lambda each: each[1])
        left = len(self._held)
        # A message that it had for less than an interval was in its queue, too.
        return QueueRow(self.at, self.taken, self.passed, max(most, 1), most_ns, left, self.taken - self.passed - left)

    def claims(self, waited: Iterable[str]) -> Iterator[Claim]:
        """The claim that it grows, if it does. ``waited``: senders whose receivers had no room."""
        seen = Occurrences.all_of([self.seen, Occurrences.of(self._held)])
        if not seen.count or self.passed < (_PASSED if self.is_certain else _LEAST):
            return
        levels = self.levels()
        most_ns, most = max(levels, key=lambda each: each[1])
        begun_ns = max((at_ns for at_ns, level in levels if at_ns < most_ns and 4 * level <= most), default=None)
        if begun_ns is None:
            begun_ns = levels[0][0] - self._width_ns
        rise_ns = most_ns - begun_ns
        width = self._width_ns
        passed = sum(count for place, count in self._out.items() if begun_ns < (place + 1) * width <= most_ns)
        wait_ns = most * rise_ns // passed if passed else rise_ns
        if most < _LEAST or rise_ns < _RISE_NS or wait_ns < _WAIT_NS:
            return
        left = len(self._held)
        why = ""
        if not self.senders.keys().isdisjoint(waited):
            why = "; the next one had no room"
        elif self.asks:
            why = "; requests wait for whoever answers them"
        self.grows = True
        told = f"; {left:,} were left in the end" if left else "; it was empty in the end"
        yield Claim(
            "queue-grows",
            f"the queue of {self.at} grew to {plural(most, 'message')} in {about(rise_ns)}: what came last would "
            f"wait some {about(wait_ns)}{told}",
            f"it took {plural(self.taken, 'message')} and passed {self.passed:,} on, as the way of each shows; "
            f"{seen.count:,} waited for {about(_WAIT_NS)} or longer, or were left in the end{why}",
            seen,
            [self.at],
            "note" if why or 2 * left < most else None,
            certainty="likely" if self.is_certain else "possible",
            subject=self.at,
        )
