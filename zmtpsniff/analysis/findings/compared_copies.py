"""Compares the copies that a publisher sends on two connections (:mod:`~zmtpsniff.analysis.findings.copies`)."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec import field

from dissectors.events import Message, at_hand
from zmtpsniff.analysis.findings.finding import Occurrences

SLOW_NS = 1_000_000_000
"""A subscriber that gets a message so much later than others is slow."""
_WAITING = 20_000  # messages of one side of a comparison
_WINDOW = 4096  # contents to remember while a comparison looks for its first message
_SAME_NS = 1_000_000_000  # two copies of one message come within this time, if nobody is slow yet
_SURE = 3  # messages after the first one that must have come on both
_LATE_NS = 2_000_000_000  # a message that one had for so long, and an idle connection beside it had not, was dropped
_IDLE_NS = 1_000_000_000
_MOST_TOPICS = 256  # topics to compare one by one
_MOST_PARTNERS = 8  # connections with which one connection asks to be compared at once
_FREE = 1024  # places that wait
_MOST_LOOKS = 500  # connections, the newest, whose topics are compared with those of one
_MOST_LOSSES = 16  # comparisons of one connection that say what it lost
_FEW = 16  # messages between two losses: a queue from which libzmq has to take more before it drops again is longer
_SHALLOW = 3  # losses so soon after the one before that show that the queue is short
_TWICE = -1


class CopyRoom(msgspec.Struct, eq=False):
    """How many messages may wait in all comparisons together."""

    left: int = 500_000


class _Queue(msgspec.Struct, eq=False):
    """The messages that have come on one side of a comparison only."""

    room: CopyRoom
    waiting: deque[tuple[int, int]] = field(default_factory=deque)  # contents, as a number, and time of each message
    count: dict[int, int] = {}  # waiting messages by contents; none is 0
    forgotten: int = 0  # messages that waited in front of these, and were forgotten
    forgotten_ns: int = 0  # when the last of these came
    lost: Occurrences = field(default_factory=Occurrences)  # messages of the other side that did not come here
    lost_contents: dict[int, None] = {}  # the contents of the last of them
    lost_at: dict[int, int] = {}  # where in the stream of each flow the last loss was noticed
    soon: int = 0  # how often few messages came between two losses

    def add(self, contents: int, time_ns: int, limit: int = _WAITING) -> None:
        """Let a message wait."""
        self.waiting.append((contents, time_ns))
        self.count[contents] = self.count.get(contents, 0) + 1
        self.room.left -= 1
        if len(self.waiting) > limit or self.room.left < 0:
            for _ in range(max(len(self.waiting) // 2, 1)):
                _, self.forgotten_ns = self._pop()
                self.forgotten += 1

    def _pop(self) -> tuple[int, int]:
        first = self.waiting.popleft()
        contents = first[0]
        self.room.left += 1
        others = self.count[contents] - 1
        if others:
            self.count[contents] = others
        else:
            del self.count[contents]
        return first

    def take_to(self, contents: int, other: "_Queue") -> tuple[int, int]:
        """Remove a waiting message and all before it; returns how many of these ``other`` lost, and its time."""
        passed = self.forgotten
        self.forgotten = 0
        while self.waiting[0][0] != contents:
            other.lose(self._pop()[0])
            passed += 1
        return passed, self._pop()[1]

    def take_all(self, other: "_Queue") -> int:
        """Remove all waiting messages, which ``other`` lost; returns how many."""
        passed = self.forgotten + len(self.waiting)
        for contents, _ in self.waiting:
            other.lose(contents)
        self.clear()
        return passed

    def lose(self, contents: int) -> None:
        """A message of the other side did not come here."""
        self.lost_contents[contents] = None
        if len(self.lost_contents) > _WINDOW:
            del self.lost_contents[next(iter(self.lost_contents))]

    def note_loss(self, event: Message, count: int) -> None:
        """Count ``count`` messages that did not come here, as ``event`` shows, which either side received."""
        self.lost.add(event.time_ns, event.packet, event.flow, count)
        if event.flow in self.lost_at:
            size = max(sum(len(at_hand(frame)) for frame in event.frames), 1)
            self.soon += event.offset - self.lost_at[event.flow] <= _FEW * size
        self.lost_at[event.flow] = event.offset

    def clear(self) -> None:
        """Forget what waits."""
        self.room.left += len(self.waiting)
        self.forgotten = 0
        self.waiting.clear()
        self.count.clear()

    def older(self, than_ns: int) -> int:
        """How many have waited since before that time."""
        forgotten = self.forgotten if self.forgotten_ns < than_ns else 0
        return forgotten + sum(1 for _, time_ns in self.waiting if time_ns < than_ns)


class ComparedPublisher(msgspec.Struct, eq=False):
    """One publisher, with the connections of its subscribers."""

    room: CopyRoom
    places: int = 0  # that streams have, or had
    free: deque[int] = field(default_factory=deque)  # of these the places of streams that are over
    changes: int = 0  # of its streams and their topics
    streams: "dict[int, CopyStream]" = {}
    searches: int = 0  # comparisons that have not begun
    window: dict[int, tuple[int, int]] = {}  # contents: when they came first, and on which streams

    def take_place(self) -> int:
        """The place of a new stream. One that was left waits for long, so that the window hardly knows it any more."""
        if len(self.free) > _FREE:
            return self.free.popleft()
        self.places += 1
        return self.places

    def see(self, contents: int, time_ns: int, stream: "CopyStream") -> None:
        """Remember contents while a beginning is looked for."""
        first_ns, streams = self.window.get(contents, (time_ns, 0))
        bit = 1 << stream.place
        self.window[contents] = first_ns, _TWICE if streams & bit else streams | bit
        if len(self.window) > _WINDOW:
            del self.window[next(iter(self.window))]


class CopyStream(msgspec.Struct, eq=False):
    """The copies that one subscriber gets on one connection."""

    publisher: ComparedPublisher
    server: str  # the publisher's address
    address: str  # the subscriber's
    flow: int
    place: int  # among all streams of the publisher
    topics: Counter[bytes] = field(default_factory=Counter)
    blind: bool = False
    is_late: bool = False  # the capture lacks its subscriptions
    chosen: bool = False  # it has found somebody to be compared with
    looked: int = -1  # the changes of its publisher when it found nobody
    comparisons: "list[_Comparison]" = []
    last_ns: int = 0  # when the last message came
    last_packet: int = 0
    _losses: "dict[_Comparison, tuple[Sequence[bytes], Occurrences]]" = {}  # with the topics compared
    lag_ns: int = 0  # the longest time by which others had a message earlier
    late: Occurrences = field(default_factory=Occurrences)  # messages that others had a second earlier, each by more
    is_shallow: bool = False  # few messages came between many losses, so its queue holds few

    def take(self, messages: Sequence[Message]) -> None:
        """Compare messages with what others get."""
        publisher = self.publisher
        if self.blind or (len(publisher.streams) < 2 and not self.comparisons):
            return
        server = self.server
        for event in messages:
            if event.src != server:
                if self.is_late:
                    self.forget_topics()
                continue
            if event.incomplete or not (self._is_wanted(event) if self.is_late else event.matched is not None):
                self.leave()
                return
            if not self.chosen and self.looked != publisher.changes:
                self.choose_partners()
            time_ns = event.time_ns
            self.last_ns = time_ns
            self.last_packet = event.packet
            frames = event.frames
            contents = hash(frames[0]) if len(frames) == 1 else hash(tuple(frames))
            if publisher.searches:
                publisher.see(contents, time_ns, self)
            for comparison in self.comparisons:
                comparison.take(self, contents, event)

    def _is_wanted(self, event: Message) -> bool:
        """Whether a message shows what the subscriber of a late connection wants: all with the same first frame."""
        if len(event.frames) < 2 or len(self.topics) > _MOST_TOPICS:
            return False
        topic = at_hand(event.frames[0])
        if topic not in self.topics:
            self.topics[topic] += 1
            self.change()
        return True

    def forget_topics(self) -> None:
        """The subscriber of a late connection says something: it may not want any longer what it got so far."""
        self.topics.clear()
        self.change()

    def choose_partners(self) -> None:
        """Find connections to compare with this one."""
        others = [one for one in self.publisher.streams.values() if one is not self and not one.blind and one.topics]
        self.chosen = bool(others)
        self.looked = self.publisher.changes
        for best in self._partners(others):
            if all(best not in one.streams for one in self.comparisons):
                made = _Comparison(self, best)
                self.comparisons.append(made)
                best.comparisons.append(made)

    def _partners(self, others: Sequence["CopyStream"]) -> list["CopyStream"]:
        """One with the same topics, or all of them, if there is one; else some that have different parts of them."""
        mine = self.topics.keys()
        best = next((one for one in others if one.topics.keys() == mine), None)
        if best is None:
            others = others[-_MOST_LOOKS:]
            best = next((one for one in others if _has_all(one.topics, mine)), None)
        if best is not None:
            return [best]
        found: list[CopyStream] = []
        for one in others:
            if _overlap(mine, one.topics) and all(_apart(one.topics, other.topics) for other in found):
                found.append(one)
            if len(found) == _MOST_PARTNERS:
                break
        return found

    def fall_behind(self, lag_ns: int, event: Message | None) -> None:
        """The subscriber gets only now, or not until the end, messages that others had long ago."""
        self.lag_ns = lag_ns
        if event is not None and lag_ns >= SLOW_NS:
            self.late.add(event.time_ns, event.packet, event.flow)

    def lose(self, comparison: "_Comparison", topics: Sequence[bytes], lost: Occurrences) -> None:
        """A comparison of messages with these topics says what it lost so far."""
        self._losses[comparison] = topics, lost
        if len(self._losses) > _MOST_LOSSES:
            del self._losses[min(self._losses, key=lambda one: self._losses[one][1].count)]

    @property
    def lost(self) -> Occurrences:
        """The messages that it did not get: the largest sum of comparisons that have no message in common."""
        counted: list[Sequence[bytes]] = []
        lost = Occurrences()
        for topics, one in sorted(self._losses.values(), key=lambda loss: -loss[1].count):
            if all(_apart(topics, others) for others in counted):
                counted.append(topics)
                lost.merge(one)
        return lost

    def look_again(self) -> None:
        """It has lost a comparison."""
        self.chosen, self.looked = False, -1

    def change(self) -> None:
        """Its subscriptions change."""
        self.publisher.changes += 1
        for comparison in self.comparisons:
            comparison.begin_anew()

    def leave(self) -> None:
        """The stream can no longer be compared."""
        self.blind = True
        for comparison in list(self.comparisons):
            comparison.dissolve()

    def end(self, until_ns: int, stalled: bool) -> None:
        """Its connection is over. Later messages of other subscribers may still show that they lost something."""
        if self.publisher.streams.pop(self.flow, None) is not None:
            self.publisher.free.append(self.place)
        is_idle = not stalled and until_ns - self.last_ns > _IDLE_NS
        for comparison in list(self.comparisons):
            if is_idle:
                comparison.lose_late(self, until_ns)
            else:
                self.lag_ns = max(self.lag_ns, comparison.lag_ns(self, until_ns))
            comparison.part(self)


class _Comparison:
    """Two connections of one publisher beside each other."""

    __slots__ = (
        "compared", "first", "has_begun", "is_wrong", "parted", "publisher", "queues", "streams", "sure", "wanted",
    )  # fmt: skip

    def __init__(self, one: CopyStream, other: CopyStream) -> None:
        self.publisher = one.publisher
        self.streams = (one, other)
        self.queues = (_Queue(one.publisher.room), _Queue(one.publisher.room))
        self.wanted: tuple[tuple[bytes, ...] | None, ...] = (None, None)  # topics of the other; None: the same
        self.compared: set[bytes] = set()  # topics of which each message that is compared has one
        self.has_begun = False
        self.is_wrong = False
        self.parted = False  # one of the two is over
        self.first = 0  # contents of the message that it began with
        self.sure = 0  # messages since that both had
        self.publisher.searches += 1
        self._compare_topics()

    def _compare_topics(self) -> None:
        one, other = (stream.topics for stream in self.streams)
        same = one.keys() == other.keys()
        self.wanted = (None, None) if same else (tuple(other), tuple(one))
        if len(self.compared) <= _MOST_TOPICS:
            self.compared |= _common(one, other)

    def begin_anew(self) -> None:
        """Look for a beginning again."""
        if self.sure >= _SURE:
            self.publisher.searches += 1
        self.has_begun = False
        self.sure = 0
        for queue in self.queues:
            queue.clear()
        self._compare_topics()

    def take(self, stream: CopyStream, contents: int, event: Message) -> None:
        """Take a message of one of the two."""
        mine = 0 if stream is self.streams[0] else 1
        wanted = self.wanted[mine]
        if wanted is not None:
            first = at_hand(event.frames[0])
            is_wanted = first in wanted if self.streams[1 - mine].is_late else first.startswith(wanted)
            if not is_wanted:
                return
        here, there = self.queues[mine], self.queues[1 - mine]
        if not self.has_begun:
            self._look_for_beginning(contents, event.time_ns, here, there)
        elif contents in there.count:
            if here.waiting and there.count[contents] > 1:
                here.add(contents, event.time_ns)  # nothing shows which of the equal messages this is
                return
            passed, since_ns = there.take_to(contents, here)
            if passed:
                here.note_loss(event, passed)
            if event.time_ns - since_ns > stream.lag_ns:
                stream.fall_behind(event.time_ns - since_ns, event)
            if here.waiting or here.forgotten:
                there.note_loss(event, here.take_all(there))
            if self.sure < _SURE:
                self._make_sure()
        elif there.forgotten:
            there.forgotten -= 1  # it is one of those
        elif contents in here.lost_contents:
            self.is_wrong = True
        else:
            here.add(contents, event.time_ns)

    def _look_for_beginning(self, contents: int, time_ns: int, here: _Queue, there: _Queue) -> None:
        """Begin with this message if it has come on both, and its contents only once on each."""
        here.add(contents, time_ns, _WINDOW)
        here.forgotten = 0
        if there.count.get(contents) != 1 or here.count[contents] != 1:
            return
        first_ns, streams = self.publisher.window.get(contents, (0, _TWICE))
        if streams == _TWICE or time_ns - first_ns > _SAME_NS:
            return
        self.has_begun = True
        self.first = contents
        there.take_to(contents, here)
        here.clear()
        here.lost_contents.clear()

    def _make_sure(self) -> None:
        """The first message must be certain. Take note if a later message shows that its contents were not unique."""
        self.sure += 1
        if self.publisher.window.get(self.first, (0, 0))[1] == _TWICE:
            self.begin_anew()
            for queue in self.queues:
                queue.lost = Occurrences()
        elif self.sure == _SURE:
            self.publisher.searches -= 1

    def lose_late(self, stream: CopyStream, end_ns: int) -> None:
        """A connection was idle at its end.

        Count the messages that it did not get and that the other one had for long.
        """
        mine = 0 if stream is self.streams[0] else 1
        there = self.queues[1 - mine]
        if self.sure >= _SURE and (late := there.older(end_ns - _LATE_NS)):
            self.queues[mine].lost.add(end_ns, stream.last_packet, stream.flow, late)

    def lag_ns(self, stream: CopyStream, end_ns: int) -> int:
        """How long ago the other connection had the message that this one gets next; None if it never had it."""
        waiting = self.queues[1 - self.streams.index(stream)].waiting
        return end_ns - waiting[0][1] if waiting and self.sure >= _SURE else 0

    def part(self, stream: CopyStream) -> None:
        """The connection of one of the two is over."""
        if self.parted or not self.has_begun:
            self.dissolve()
        else:
            self.parted = True
            self._tell(stream)
            stream.comparisons.remove(self)
            other = self.streams[1] if stream is self.streams[0] else self.streams[0]
            other.look_again()

    def dissolve(self) -> None:
        """Compare no more."""
        if self.sure < _SURE:
            self.publisher.searches -= 1
        for stream, queue in zip(self.streams, self.queues, strict=True):
            self._tell(stream)
            if self in stream.comparisons:
                stream.comparisons.remove(self)
            stream.look_again()
            queue.clear()
        if not self.publisher.searches:
            self.publisher.window.clear()

    def _tell(self, stream: CopyStream) -> None:
        """Tell a connection what it lost."""
        queue = self.queues[self.streams.index(stream)]
        if queue.lost.count and not self.is_wrong and self.sure >= _SURE:
            stream.lose(self, list(self.compared), queue.lost)
            stream.is_shallow |= queue.soon >= _SHALLOW


def _overlap(one: Iterable[bytes], other: Iterable[bytes]) -> bool:
    """Whether there may be messages that match topics of both."""
    mine, theirs = tuple(one), tuple(other)
    if len(mine) > _MOST_TOPICS or len(theirs) > _MOST_TOPICS:
        return False
    return any(topic.startswith(theirs) for topic in mine) or any(topic.startswith(mine) for topic in theirs)


def _has_all(one: Collection[bytes], other: Collection[bytes]) -> bool:
    """Whether a subscriber to the first topics gets all that one to the other topics gets."""
    wide = tuple(one)
    return max(len(wide), len(other)) <= _MOST_TOPICS and all(topic.startswith(wide) for topic in other)


def _common(one: Collection[bytes], other: Collection[bytes]) -> set[bytes]:
    """Topics of which each message has one that both want."""
    if len(one) > _MOST_TOPICS or len(other) > _MOST_TOPICS:
        return set(one)
    mine, theirs = tuple(one), tuple(other)
    return {topic for topic in one if topic.startswith(theirs)} | {topic for topic in other if topic.startswith(mine)}


def _apart(one: Collection[bytes], other: Collection[bytes]) -> bool:
    """Whether it is certain that no message has topics of both."""
    return max(len(one), len(other)) <= _MOST_TOPICS and not _overlap(one, other)
