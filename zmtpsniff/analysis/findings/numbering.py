"""Messages that a publisher dropped, proved by the numbers in them: messages-dropped, also with one subscriber.

Theory
------

Many publishers count what they send: in a frame of its own, at the beginning of a frame, in a text, or in a field of
JSON or MessagePack. If such a number has grown by exactly one many times in a row, it counts messages, and a hole in it
says that some are missing. Which number counts is found by itself: all are tried, and those that do not grow by one are
given up. A publisher may count all messages, or those of each topic, which is the first of several frames. Only a
subscriber to everything must get all of them.

A user may name the place of the number (``--sequence``). Such a number counts from its first step on, also what a
subscriber to some topics gets, and a number that falls is that of a publisher that was started again.

A program may leave out numbers by itself, so a hole alone is a note. If the subscriber had let its TCP window close
before, its queue at the publisher was full (ZMQ_SNDHWM), and the publisher dropped these messages, most likely. Where
octets are missing from the capture, nothing is said. A proxy passes the holes on that it got: these are told of the
connection on which they came first.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from dissectors.events import Connection, Message, Octets, Subscription
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Listener
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.net.witness import Stall
from zmtpsniff.words.counts import often, plural

_SURE = 20  # steps of one in a row, before the first hole
_SURE_IF_NAMED = 3  # steps of one, anywhere
_PART = 0.1  # of the steps may be holes
_LARGEST = 1_000_000_000  # above are times since 1970
_TOPICS = 100  # of one connection
_TRIED = 2000  # messages of a connection, before nothing is found
_HOLES = 1000  # of one number that are told apart
_TEXT = 64  # octets of a text that are searched for a number
_STRUCTURE = 4096  # octets of JSON or MessagePack
_DEPTH = 3  # of fields in fields
_FIELDS = 50
_DIGITS = 9
_LEFT_OUT_ADVICE = (
    "Find out whether the publisher leaves numbers out by itself, or numbers something else. If it does not, the queue "
    "of the subscriber was full: make it faster, or raise ZMQ_SNDHWM at the publisher and ZMQ_RCVHWM at the subscriber."
)
_NAME = re.compile(r"[A-Za-z_][\w-]{0,39}")  # a name that --sequence takes
_FIRST = re.compile(rb"\A\D*(\d{1,9})(?!\d)")
_LAST = re.compile(rb"(?<!\d)(\d{1,9})\D*\Z")

_Frames = Sequence[Octets]


class NumberPlace(NamedTuple):
    """The place of a number in a message, in the words of ``--sequence`` where it has some.

    ``read`` returns None for a message without a number there, and raises LookupError if it is not at hand.
    """

    name: str
    read: Callable[[Message], int | None]


class _Place(NamedTuple):
    """A place that may have a number that counts."""

    name: str
    read: Callable[[_Frames], int | None]


def _places(frames: _Frames) -> Iterator[_Place]:
    """All places of a message that may have a number."""
    for frame, octets in enumerate(frames):
        if not isinstance(octets, bytes):
            continue
        name = f"frames[{frame}]"
        if _is_structure(octets):
            for field in _fields(octets):
                yield _Place(f"body{field}", partial(_field, frame, field))
            continue
        if len(octets) <= _DIGITS and octets.isdigit():
            yield _Place(name, partial(_digits, frame))
        elif len(octets) <= _TEXT:
            yield _Place(f"the last digits of {name}", partial(_in_text, _LAST, frame))
        if octets[:_TEXT].isascii():
            yield _Place(f"the first digits of {name}", partial(_in_text, _FIRST, frame))
        for size in (4, 8):
            part = name if len(octets) == size else f"{name}[0:{size}]"
            if len(octets) >= size:
                yield _Place(f"{part}.uint", partial(_octets, frame, size, len(octets) == size, "big"))
                yield _Place(f"{part}.uint_le", partial(_octets, frame, size, len(octets) == size, "little"))


def _frame(frames: _Frames, frame: int) -> bytes:
    octets = frames[frame] if frame < len(frames) else None
    return octets if isinstance(octets, bytes) else b""


def _digits(frame: int, frames: _Frames) -> int | None:
    octets = _frame(frames, frame)
    return int(octets) if len(octets) <= _DIGITS and octets.isdigit() else None


def _in_text(pattern: re.Pattern[bytes], frame: int, frames: _Frames) -> int | None:
    octets = _frame(frames, frame)
    is_cut = pattern is _LAST and len(octets) > _TEXT
    match = None if is_cut or octets.isdigit() else pattern.search(octets[:_TEXT])
    return int(match[1]) if match else None


def _octets(frame: int, size: int, is_all: bool, order: Any, frames: _Frames) -> int | None:
    octets = _frame(frames, frame)
    fits = len(octets) == size if is_all else len(octets) > size
    return int.from_bytes(octets[:size], order) if fits else None


def _field(frame: int, field: str, frames: _Frames) -> int | None:
    octets = _frame(frames, frame)
    return _fields(octets).get(field) if _is_structure(octets) else None


def _is_structure(octets: bytes) -> bool:
    """Whether octets may be an object or array of JSON or MessagePack."""
    first = octets[:1]
    return first in (b"{", b"[") or b"\x80" <= first <= b"\x9f" or b"\xdc" <= first <= b"\xdf"


def _fields(octets: bytes) -> dict[str, int]:
    """The whole numbers in JSON or MessagePack, by their paths."""
    if len(octets) > _STRUCTURE:
        return {}
    try:
        value = (msgspec.json if octets[:1] in b"{[" else msgspec.msgpack).decode(octets)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return {}
    found: dict[str, int] = {}
    _collect(value, "", found)
    return found


def _collect(value: Any, path: str, found: dict[str, int]) -> None:
    if type(value) is int:
        if path and len(found) < _FIELDS:
            found[path] = value
    elif path.count(".") + path.count("[") < _DEPTH:
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(name, str) and _NAME.fullmatch(name):
                    _collect(inner, f"{path}.{name}", found)
        elif isinstance(value, list):
            for place, inner in enumerate(value[:_FIELDS]):
                _collect(inner, f"{path}[{place}]", found)


class _Hole(NamedTuple):
    """Numbers that are missing."""

    first: int
    size: int
    time_ns: int
    packet: int


class _Track(msgspec.Struct, eq=False):
    """A number that may count: how often it grew by one, and the holes in it."""

    last: int | None  # None: what comes next is no step
    steps: int = 0
    holes: list[_Hole] = []
    more: int = 0  # holes that are not told apart
    has_fallen: bool = False

    def take(self, value: int, event: Message) -> bool:
        """The number of the next message; whether it may still count by itself."""
        first = value if self.last is None else self.last + 1
        is_step, self.last = self.last is not None, value
        missing = value - first
        if not is_step:
            return True
        if not missing:
            self.steps += 1
            return True
        if missing < 0:
            self.has_fallen = True
            return False
        is_sure = self.steps >= _SURE
        if len(self.holes) < _HOLES:
            self.holes.append(_Hole(first, missing, event.time_ns, event.packet))
        else:
            self.more += 1
        return is_sure

    @property
    def is_mostly_whole(self) -> bool:
        """Whether the number nearly always grew by one."""
        return len(self.holes) + self.more <= _PART * self.steps


class _Stream:
    """The messages of one connection, of all topics or of one, in whose numbers one is searched that counts."""

    __slots__ = ("tracks",)

    def __init__(self, event: Message) -> None:
        self.tracks: dict[_Place, _Track] = {}
        for place in _places(event.frames):
            value = place.read(event.frames)
            if value is not None and 0 <= value < _LARGEST:
                self.tracks[place] = _Track(value)

    def take(self, event: Message) -> None:
        given_up = []
        for place, track in self.tracks.items():
            value = place.read(event.frames)
            if value is None or not 0 <= value < _LARGEST or not track.take(value, event):
                given_up.append(place)
        for place in given_up:
            del self.tracks[place]

    @property
    def counter(self) -> tuple[str, _Track] | None:
        """The number that counts, if there is one."""
        sure = [(place.name, track) for place, track in self.tracks.items() if track.steps >= _SURE]
        return max(sure, key=lambda one: one[1].steps, default=None)


class _Search:
    """The messages of one connection, in which any number may count, all of them or those of a topic."""

    def __init__(self) -> None:
        self._tried = 0
        self._counts_all = False  # so that it need not count those of each topic
        self._all: _Stream | None = None
        self._topics: dict[Octets, _Stream] = {}

    def take(self, event: Message, everything: bool) -> bool:
        """Look at a message; whether another one is wanted."""
        if not everything:
            return False
        if self._all is None:
            self._all = _Stream(event)
        else:
            self._all.take(event)
        if len(event.frames) > 1 and not self._counts_all:
            topic = event.frames[0]
            stream = self._topics.get(topic)
            if stream is not None:
                stream.take(event)
            elif len(self._topics) < _TOPICS:
                self._topics[topic] = _Stream(event)
        self._tried += 1
        if self._tried % _TRIED and self._tried != _SURE * 2:
            return True
        self._counts_all = self._all.counter is not None
        return bool(self._all.tracks) or any(stream.tracks for stream in self._topics.values())

    def counters(self, everything: bool) -> list[tuple[str, _Track]]:
        """The numbers that count, and where they are."""
        of_all = None if self._all is None else self._all.counter
        found = [stream.counter for stream in self._topics.values()] if of_all is None else [of_all]
        return [one for one in found if one is not None and one[1].is_mostly_whole]


class _Count:
    """The messages of one connection, whose number is at the place that the user has named."""

    def __init__(self, place: NumberPlace) -> None:
        self._place = place
        self._all: _Track | None = None
        self._topics: dict[Octets, _Track] = {}

    def take(self, event: Message, everything: bool) -> bool:
        """Look at a message; whether another one is wanted."""
        try:
            value = self._place.read(event)
        except LookupError:
            return False
        if value is None:
            return True
        if self._all is None:
            self._all = _Track(value)
        else:
            self._all.take(value, event)
        topic = event.frames[0] if len(event.frames) > 1 else b""
        track = self._topics.get(topic)
        if track is not None:
            track.take(value, event)
        elif len(self._topics) < _TOPICS:
            self._topics[topic] = _Track(value)
        return True

    @property
    def has_any(self) -> bool:
        """Whether a message had a number there."""
        return self._all is not None

    def interrupt(self) -> None:
        """The subscriber gets nothing for a while, as it wanted."""
        for track in filter(None, (self._all, *self._topics.values())):
            track.last = None

    def counters(self, everything: bool) -> list[tuple[str, _Track]]:
        """The numbers that count, and where they are: of a publisher that counts each topic they fall."""
        counts_all = everything and self._all is not None and not self._all.has_fallen
        tracks = [self._all] if counts_all and self._all is not None else self._topics.values()
        return [
            (self._place.name, track)
            for track in tracks
            if track.steps >= _SURE_IF_NAMED and (everything or track.is_mostly_whole)
        ]


class _Numbered(msgspec.Struct, eq=False):
    """A connection from a publisher to its subscriber."""

    flow: int
    publisher: str
    subscriber: str
    numbers: _Search | _Count
    everything: bool = False
    _is_over: bool = False

    def subscribe(self, event: Subscription) -> None:
        """Note a subscription. After any cancellation the subscriber no longer counts as one to everything."""
        is_new = event.action == "subscribe"
        self.everything = is_new and (self.everything or event.topic == b"")
        if isinstance(self.numbers, _Count) and not is_new:
            self.numbers.interrupt()

    def take(self, messages: Sequence[Message]) -> None:
        """Look at the numbers of messages."""
        for event in messages:
            if self._is_over:
                return
            if event.src == self.publisher:
                self._is_over = event.incomplete or not self.numbers.take(event, self.everything)

    def counters(self) -> list[tuple[str, _Track]]:
        """The numbers that count, and where they are."""
        return self.numbers.counters(self.everything)


class _Ended(NamedTuple):
    """Holes in the numbers of a connection that is over."""

    numbered: _Numbered
    place: str
    track: _Track
    stalled_ns: int | None


class Numbering(Inquiry):
    """Numbers by which publishers count their messages."""

    def __init__(self, place: NumberPlace | None = None) -> None:
        """Numbers are at ``place``; None: wherever they count."""
        self._place = place
        self._open: Ledger[int, _Numbered] = Ledger()
        self._stalled: Ledger[int, int] = Ledger(int)  # when the window closed first, by flow
        self._ended: list[_Ended] = []
        self.has_numbers = False  # at the place that the user has named

    def begin(self, dossier: Dossier) -> Listener | None:
        """Hear what a publisher sends."""
        ends = dossier.publication
        if ends is None or dossier.blind:
            return None
        numbers = _Search() if self._place is None else _Count(self._place)
        numbered = _Numbered(dossier.flow, *ends, numbers)
        self._open[dossier.flow] = numbered
        return numbered.take

    def subscription(self, dossier: Dossier, event: Subscription) -> None:
        """Learn who subscribes to everything."""
        numbered = self._open.get(dossier.flow)
        if numbered is not None and event.src == numbered.subscriber:
            numbered.subscribe(event)

    def lose(self, dossier: Dossier) -> None:
        """The missing octets may be the missing messages."""
        self._take_out(dossier.flow)

    def stall(self, stall: Stall) -> None:
        """A receiver let its sender wait; the first time counts. Stalls are told before the events of their batch."""
        if stall.cause == "window" and stall.flow not in self._stalled:
            self._stalled[stall.flow] = stall.since_ns

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Keep the holes of a connection."""
        numbered = self._take_out(event.flow)
        stalled_ns = self._stalled.pop(event.flow, None)
        if numbered is not None and len(self._ended) < 1000:
            self._ended += [
                _Ended(numbered, place, track, stalled_ns) for place, track in numbered.counters() if track.holes
            ]

    def _take_out(self, flow: int) -> _Numbered | None:
        numbered = self._open.pop(flow, None)
        if numbered is not None and isinstance(numbered.numbers, _Count):
            self.has_numbers |= numbered.numbers.has_any
        return numbered

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Subscribers that lack numbers."""
        origins: dict[tuple[int, int], tuple[int, str]] = {}  # of holes, by number and size: when and whose first
        for ended in self._ended:
            for hole in ended.track.holes:
                found = (hole.time_ns, ended.numbered.publisher)
                origins[hole[:2]] = min(found, origins.get(hole[:2], found))
        for ended in self._ended:
            publisher = ended.numbered.publisher
            holes = [hole for hole in ended.track.holes if origins[hole[:2]][1] == publisher]
            if holes:
                yield _claim(ended, holes)


def _claim(ended: _Ended, holes: Sequence[_Hole]) -> Claim:
    numbered, track = ended.numbered, ended.track
    lost = Occurrences()
    for hole in holes:
        lost.add(hole.time_ns, hole.packet, numbered.flow, hole.size)
    waited = ended.stalled_ns is not None and ended.stalled_ns <= holes[-1].time_ns
    why = "its TCP window was closed before" if waited else "no probe shows that it kept its TCP window closed"
    part = "" if numbered.everything else "; it did not subscribe to everything"
    return Claim(
        "messages-dropped",
        f"{plural(lost.count, 'message')} from {numbered.publisher} to its subscriber "
        f"{numbered.subscriber} {'are' if lost.count > 1 else 'is'} missing, by the numbers in them",
        f"the number at {ended.place} grew by one {often(track.steps)}, and by more "
        f"{often(len(holes) + track.more)}; {why}{part}",
        lost,
        [numbered.subscriber, numbered.publisher],
        (None if numbered.everything else "warning") if waited else "note",
        certainty="likely" if numbered.everything and (waited or isinstance(numbered.numbers, _Count)) else "possible",
        advice=None if waited else _LEFT_OUT_ADVICE,
        subject=numbered.subscriber,
    )
