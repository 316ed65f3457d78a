"""The ways that are not over, and when each of them is.

Theory
------

A way goes through these states:

- *open*: legs are added. The way may become a part of another one (``OpenWay.take_over()``), and is over then.
- *finished*: its request is answered, or it has waited long enough; or there are too many ways, or too many octets in
  them. ``pop_finished()`` gives it once, and its record is made before the next call.
- *forgotten*: with the call after that. Its messages join no others any more. *Late* messages are those that come to a
  way behind that: the last ones are kept for a while, since they may be answered or passed on.
"""

from collections import OrderedDict, deque

from zmtpsniff.analysis.dossier import task_of
from zmtpsniff.analysis.ways.hops import PATIENCE_NS, Hop, OpenWay
from zmtpsniff.analysis.ways.join_tables import JoinTables
from zmtpsniff.words.set_clocks import SET_BACK_NS, later

_WAYS = 65_536  # open ways at most; with one more, the oldest is finished as it is
_BEGUN = 4  # ways that a REQ began, of which the last ones may be its READY
_LEGS = 4096  # of one request: a service may send replies to it for ever
_LATE = 4096  # late messages
_LATE_OCTETS = 8 << 20  # of those
_OCTETS = 64 << 20  # of the messages of open ways
_GRACE_NS = 5_000_000_000  # a way without open request or job is finished so long after its last leg


class OpenWays:
    """Takes ways as they begin, and returns each once it is finished."""

    def __init__(self, tables: JoinTables, *, in_order: bool) -> None:
        """``tables`` forget the messages of ways that are over.

        With ``in_order`` the ways come in the order of their beginnings, else each request as soon as it is answered.
        """
        self.now_ns = 0
        """The time of the latest event."""
        self._tables = tables
        self._in_order = in_order
        self._ways: OrderedDict[OpenWay, None] = OrderedDict()  # open ones, in the order of their beginnings
        self._octets = 0  # of the messages of open ways, and of those that came and went since they were counted
        self._oldest: OpenWay | None = None  # the first of the open ways; None if that has to be looked up
        self._due_ns = 0  # the oldest is not finished before, unless it becomes a part of another one
        self._answered: list[OpenWay] = []  # finished since the last call of pop_finished()
        self._late: deque[Hop] = deque()  # the last late messages
        self._late_octets = 0
        self._popped: list[OpenWay] = []  # returned by the last call

    def __contains__(self, way: OpenWay) -> bool:
        """Whether a way is open, or has become a part of another one lately."""
        return way in self._ways

    def begin(self, way: OpenWay) -> None:
        """A message begins a way: nothing joins it to an earlier one."""
        self._ways[way] = None
        stream = way.first.stream
        if stream.src_kind == "REQ":
            if stream.begun is None:
                stream.begun = deque(maxlen=_BEGUN)
            stream.begun.append(way)

    def extend(self, hop: Hop) -> None:
        """A message has been joined to its way, which may be finished by that."""
        way = hop.way
        if way.is_told:
            self._keep_late(hop)
        elif not way.is_over and (len(way.hops) > _LEGS or (hop.reply and not self._in_order)):
            is_long = way.kind == "request" and len(way.hops) > _LEGS
            if is_long or self._is_answered_by(hop):
                self._finish(way)

    def answer(self, way: OpenWay) -> None:
        """The first sender of a way has a reply."""
        if not self._in_order and not way.is_over:
            self._finish(way)

    def _finish(self, way: OpenWay) -> None:
        way.is_over = True
        self._answered.append(way)

    def hold_octets(self, octets: int) -> None:
        """So many octets of messages have come."""
        self._octets += octets

    @property
    def is_due(self) -> bool:
        """Whether pop_finished() may find a finished way: a quick test for each batch."""
        oldest = self._oldest
        return (
            oldest is None
            or bool(self._answered)
            or oldest.is_over
            or self.now_ns >= self._due_ns
            or len(self._ways) >= _WAYS
            or self._octets > _OCTETS
        )

    def _make_room(self) -> list[OpenWay]:
        """Close the oldest ways, as they are, until the messages of the others take little enough memory."""
        closed: list[OpenWay] = []
        if self._octets > _OCTETS:
            self._octets = sum(way.octets for way in self._ways)
            while self._octets > _OCTETS * 3 // 4 and self._ways:
                way = next(iter(self._ways))
                if way.is_over:
                    del self._ways[way]  # another way has its messages
                else:
                    self._octets -= way.octets
                    closed.append(way)
                    self._close(way)
        return closed

    def pop_finished(self) -> list[OpenWay]:
        """Return the ways to which no more legs come, each once. The caller makes its record before the next call."""
        if not self.is_due:
            return []
        self._tables.endings.pass_time(self.now_ns)
        for way in self._popped:
            way.earlier = None  # else each way of a client would keep all those before it in memory
            way.is_told = True
            self._tables.programs.forget(way)
            if way.kind == "publication":
                del way.hops[1:]  # late copies may keep the first one in memory, but not all that came in time
            for hop in way.hops:
                self._tables.forget_tokens(hop)
        self._popped = found = self._answered
        self._answered = []
        for way in found:
            self._close(way)
        if not self.is_due:
            return found
        self._oldest = None
        found += self._make_room()
        while self._ways:
            way = next(iter(self._ways))
            patience_ns = PATIENCE_NS if self._tables.endings.may_go_on(way) else _GRACE_NS
            waited_ns = self.now_ns - way.last_ns
            if not way.is_over and -SET_BACK_NS < waited_ns < patience_ns and len(self._ways) < _WAYS:
                self._oldest, self._due_ns = way, way.last_ns + _GRACE_NS
                break
            if way.is_over:
                del self._ways[way]
            else:
                self._close(way)
                found.append(way)
        return found

    def set_back(self, now_ns: int) -> None:
        """The clock was set back to ``now_ns``: the times of open ways do not tell any more how long these waited."""
        self.now_ns, self._oldest = now_ns, None
        self._tables.endings.set_back(now_ns)

    def finish(self, now_ns: int = 0) -> list[OpenWay]:
        """Return the ways that are left. The capture is over, at ``now_ns`` or with the last event."""
        left = self._answered + self.open_at(now_ns)
        self._answered = []
        self._ways.clear()
        for way in left:
            _name_task(way)
        return left

    def open_at(self, now_ns: int) -> list[OpenWay]:
        """Return the ways that are open at ``now_ns``. They stay open: legs may still come."""
        self.now_ns = later(self.now_ns, now_ns or self.now_ns)
        self._tables.endings.pass_time(self.now_ns)
        return [way for way in self._ways if not way.is_over]

    def _close(self, way: OpenWay) -> None:
        """Finish a way: take its messages out of all tables by which others could be joined to them."""
        way.is_over = True
        self._ways.pop(way, None)
        _name_task(way)
        for hop in way.hops:
            self._tables.let_go(hop)

    def _keep_late(self, hop: Hop) -> None:
        """The record of the way of a message is made. Of such messages the last ones stay, since others may follow."""
        late = self._late
        late.append(hop)
        self._late_octets += hop.octets
        while len(late) > _LATE or (self._late_octets > _LATE_OCTETS and len(late) > 1):
            oldest = late.popleft()
            self._late_octets -= oldest.octets
            self._tables.forget_tokens(oldest)
            self._tables.let_go(oldest)

    def _is_answered_by(self, hop: Hop) -> bool:
        """Whether a message is the reply that the first sender of its way waits for, and ways are told so early."""
        first, before = hop.way.first, hop.before
        if self._in_order or not hop.reply or hop.flow != first.flow or before is None:
            return False
        if not hop.stream.is_local:
            is_next = before.stream.dst_host == hop.stream.src_host
            while before.reply and before.before is not None:
                before = before.before
            if before.is_passed_on or not is_next:
                return False  # the reply that a broker passed back may have overtaken the one that the broker took
        return not self._may_be_passed_back(first)

    def _may_be_passed_back(self, first: Hop) -> bool:
        """Whether a broker sent a request with the envelope of one that nobody saw, and may pass its reply back."""
        frames = first.frames
        return (
            len(frames) > 0
            and frames[0] != b""
            and b"" in frames
            and self._tables.programs[first.src].longest_relay_ns >= 0
        )


def _name_task(way: OpenWay) -> None:
    """Note the task that the first message of a way names, as long as its frames are there."""
    first = way.first
    first.topic = first.topic or task_of(first.frames, first.depth)
