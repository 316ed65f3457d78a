"""Messages that a publisher dropped, proved by the numbers in them: messages-dropped, also with one subscriber.

Theory
------

Many publishers count what they send: in a frame of its own, at the end of a text, or in a field of JSON. If such a
number has grown by exactly one many times in a row, it counts messages, and a hole in it says that some are missing.
Which number counts is found by itself: all are tried, and those that do not grow by one are given up. A publisher may
count all messages, or those of each topic, which is the first of several frames. Only a subscriber to everything must
get all of them.

A program may leave out numbers by itself, so a hole alone is a note. If the subscriber had let its TCP window close
before, its queue at the publisher was full (ZMQ_SNDHWM), and the publisher dropped these messages, most likely. Where
octets are missing from the capture, nothing is said.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from dissectors.events import Connection, Message, Octets, Subscription
from dissectors.zmtp.sockets import PUBLISHERS, SUBSCRIBERS
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Ledger, Listener
from zmtpsniff.net.witness import Stall
from zmtpsniff.words.counts import plural

_SURE = 20  # steps of one in a row, before the first hole
_PART = 0.1  # of the steps may be holes
_LARGEST = 1_000_000_000  # above are times since 1970
_TOPICS = 100  # of one connection
_TRIED = 2000  # messages of a connection, before nothing is found
_TEXT = 64  # octets of a text with a number in it
_JSON = 4096
_DIGITS = 9
_NAME = 40  # characters of a field's name
_END = re.compile(rb"(?<!\d)(\d{1,9})\D*\Z")


class _Place(NamedTuple):
    """The place of a number in a message."""

    frame: int
    kind: str  # "digits", "end" of a text, "big" or "little" for octets, "json"
    name: str = ""

    def __str__(self) -> str:
        where = f"frame {self.frame}"
        return f"{self.name!r} in the JSON of {where}" if self.kind == "json" else where


def _places(frames: Sequence[Octets]) -> list[_Place]:
    """All places of a message that may have a number."""
    places: list[_Place] = []
    for frame, octets in enumerate(frames):
        if not isinstance(octets, bytes):
            continue
        if octets[:1] == b"{":
            places += [_Place(frame, "json", name) for name in _fields(octets)]
        elif len(octets) <= _TEXT:
            places += [_Place(frame, kind) for kind in ("digits", "end", "big", "little")]
    return places


def _number(frames: Sequence[Octets], place: _Place) -> int | None:
    """The number at a place; None if there is none."""
    frame, kind, name = place
    octets = frames[frame] if frame < len(frames) else None
    value = None
    if not isinstance(octets, bytes):
        return None
    if kind == "digits":
        value = int(octets) if len(octets) <= _DIGITS and octets.isdigit() else None
    elif kind == "end":
        match = _END.search(octets) if len(octets) <= _TEXT else None
        value = int(match[1]) if match and not octets.isdigit() else None
    elif kind == "json":
        value = _fields(octets).get(name)
    elif len(octets) in (4, 8):
        value = int.from_bytes(octets, "big" if kind == "big" else "little")
    return value if value is not None and 0 <= value < _LARGEST else None


def _fields(octets: bytes) -> dict[str, int]:
    """The fields of a JSON object that are whole numbers."""
    try:
        fields = msgspec.json.decode(octets) if len(octets) <= _JSON else None
    except (msgspec.DecodeError, RecursionError):
        return {}
    if not isinstance(fields, dict):
        return {}
    return {name: value for name, value in fields.items() if type(value) is int and len(name) <= _NAME}


class _Track:
    """A number that may count: how often it grew by one, and the holes in it."""

    __slots__ = ("holes", "last", "lost", "steps")

    def __init__(self, value: int) -> None:
        self.last = value
        self.steps = 0
        self.holes = 0
        self.lost = Occurrences()

    def take(self, value: int, event: Message) -> bool:
        """The number of the next message; whether it may still count."""
        missing = value - self.last - 1
        self.last = value
        if not missing:
            self.steps += 1
            return True
        if missing < 0 or self.steps < _SURE:
            return False
        self.holes += 1
        self.lost.add(event.time_ns, event.packet, event.flow, missing)
        return True


class _Stream:
    """The messages of one connection, of all topics or of one."""

    __slots__ = ("tracks",)

    def __init__(self, frames: Sequence[Octets]) -> None:
        self.tracks: dict[_Place, _Track] = {}
        for place in _places(frames):
            value = _number(frames, place)
            if value is not None:
                self.tracks[place] = _Track(value)

    def take(self, event: Message) -> None:
        given_up = []
        for place, track in self.tracks.items():
            value = _number(event.frames, place)
            if value is None or not track.take(value, event):
                given_up.append(place)
        for place in given_up:
            del self.tracks[place]

    @property
    def counter(self) -> tuple[_Place, _Track] | None:
        """The number that counts, if there is one."""
        sure = [(place, track) for place, track in self.tracks.items() if track.steps >= _SURE]
        return max(sure, key=lambda one: one[1].steps, default=None)


class _Numbered:
    """A connection from a publisher to its subscriber."""

    def __init__(self, publisher: str, subscriber: str) -> None:
        self.publisher = publisher
        self.subscriber = subscriber
        self.everything = False
        self.is_over = False
        self._tried = 0
        self._counts_all = False  # so that it need not count those of each topic
        self._all: _Stream | None = None
        self._topics: dict[Octets, _Stream] = {}

    def take(self, messages: Sequence[Message]) -> None:
        """Look at the numbers of messages."""
        for event in messages:
            if self.is_over:
                return
            if event.src == self.publisher:
                self._take(event)

    def _take(self, event: Message) -> None:
        if event.incomplete or not self.everything:
            self.is_over = True
            return
        if self._all is None:
            self._all = _Stream(event.frames)
        else:
            self._all.take(event)
        if len(event.frames) > 1 and not self._counts_all:
            topic = event.frames[0]
            stream = self._topics.get(topic)
            if stream is not None:
                stream.take(event)
            elif len(self._topics) < _TOPICS:
                self._topics[topic] = _Stream(event.frames)
        self._tried += 1
        if not self._tried % _TRIED or self._tried == _SURE * 2:
            self._counts_all = self._all.counter is not None
            self.is_over = not self._all.tracks and not any(stream.tracks for stream in self._topics.values())

    def counters(self) -> list[tuple[_Place, _Track]]:
        """The numbers that count."""
        of_all = None if self._all is None else self._all.counter
        found = [stream.counter for stream in self._topics.values()] if of_all is None else [of_all]
        return [one for one in found if one is not None and one[1].holes <= _PART * one[1].steps]


class Numbering(Inquiry):
    """Numbers by which publishers count their messages."""

    def __init__(self) -> None:
        """Start without any."""
        self._open: Ledger[int, _Numbered | None] = Ledger(lambda: None)
        self._stalled: Ledger[int, int] = Ledger(int)  # when the window closed first, by flow
        self._ended: list[tuple[_Place, _Track, _Numbered, int | None]] = []

    def begin(self, dossier: Dossier) -> Listener | None:
        """Hear what a publisher sends."""
        kinds = dossier.types
        publisher = next((address for address, kind in kinds.items() if kind in PUBLISHERS), None)
        subscriber = next((address for address, kind in kinds.items() if kind in SUBSCRIBERS), None)
        if publisher is None or subscriber is None or dossier.blind:
            return None
        numbered = _Numbered(publisher, subscriber)
        self._open.put(dossier.flow, numbered)
        return numbered.take

    def subscription(self, dossier: Dossier, event: Subscription) -> None:
        """Learn who subscribes to everything; who cancels does not any more."""
        numbered = self._open.entries.get(dossier.flow)
        if numbered is not None and event.src == numbered.subscriber:
            is_new = event.action == "subscribe"
            numbered.everything = is_new and (numbered.everything or event.topic == b"")

    def lose(self, dossier: Dossier) -> None:
        """The missing octets may be the missing messages."""
        self._open.entries.pop(dossier.flow, None)

    def stall(self, stall: Stall) -> None:
        """A receiver let its sender wait; the first time counts. Stalls are told before the events of their batch."""
        if stall.cause == "window" and stall.flow not in self._stalled.entries:
            self._stalled.put(stall.flow, stall.since_ns)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Keep the holes of a connection."""
        numbered = self._open.entries.pop(event.flow, None)
        stalled_ns = self._stalled.entries.pop(event.flow, None)
        if numbered is not None and len(self._ended) < 1000:
            self._ended += [(place, track, numbered, stalled_ns) for place, track in numbered.counters() if track.holes]

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Subscribers that lack numbers."""
        for place, track, numbered, stalled_ns in self._ended:
            waited = stalled_ns is not None and stalled_ns <= (track.lost.last_ns or 0)
            why = "its TCP window was closed before" if waited else "nothing shows that it was slow"
            yield Claim(
                "messages-dropped",
                f"{plural(track.lost.count, 'message')} from {numbered.publisher} to its subscriber "
                f"{numbered.subscriber} {'are' if track.lost.count > 1 else 'is'} missing, by the numbers in them",
                f"the number in {place} grew by one {track.steps:,} times, and by more "
                f"{plural(track.holes, 'time')}; {why}",
                track.lost,
                [numbered.subscriber, numbered.publisher],
                None if waited else "note",
                certainty="likely",
                subject=numbered.subscriber,
            )
