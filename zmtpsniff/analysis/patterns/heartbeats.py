"""Heartbeats (37/ZMTP, "Connection Heartbeats"): PING and PONG, how long that took, and peers that fell silent."""

from collections import deque
from typing import NamedTuple

import msgspec

from dissectors.events import Command, Connection, Message, at_hand
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.insertions import Problems
from zmtpsniff.analysis.patterns.conversation import Rules, can_know, latency_ns

_PENDING = 16  # PINGs of one side without a PONG; more are only counted
# A PONG that the network loses is sent again after 200 ms, then after 400 (RFC 6298).
_LEAST_PATIENCE_NS = 1_000_000_000
_LATENESS_NS = 250_000_000  # a capture point may deliver one side's packets so much later than the other's


class _Ping(NamedTuple):
    """A PING that waits for its PONG."""

    time_ns: int
    packet: int
    context: int
    ttl_ms: int
    flow: int
    src: str
    dst: str


class _Side(msgspec.Struct, eq=False):
    """The PINGs and PONGs of one side of a connection."""

    heard_ns: int = 0
    offset: int = -1  # in the stream, of what it said last
    excused_ns: int = 0  # until then nothing that it said could get through
    pending: deque[_Ping] = msgspec.field(default_factory=deque)  # PINGs without a PONG
    more: int = 0  # PINGs without a PONG after those
    promise: _Ping | None = None  # the last PING that has a time to live
    told_late: bool = False
    told_unanswered: bool = False


class Heartbeats(Rules):
    """The heartbeats of one connection."""

    waits = True

    def __init__(self, dossier: Dossier, problems: Problems) -> None:
        """Look at the connection from its first PING on."""
        self._dossier = dossier
        self._problems = problems
        self._began_late = dossier.blind
        self._sides: dict[str, _Side] = {}
        self._slowest_ns = 0  # the longest time that a PONG took
        self.message = self._hear

    def command(self, event: Command) -> None:
        """Take note of any command."""
        self._hear(event)
        side = self._sides[event.src]
        if event.name == "PING":
            self._sides.setdefault(event.dst, _Side())
            ping = _Ping(
                event.time_ns,
                event.packet,
                hash(at_hand(event.context or b"")),
                event.ttl_ms or 0,
                event.flow,
                event.src,
                event.dst,
            )
            if len(side.pending) < _PENDING:
                side.pending.append(ping)
            else:
                side.more += 1
            if ping.ttl_ms:
                side.promise = ping
        elif event.name == "PONG":
            self._answer(event)

    def _answer(self, event: Command) -> None:
        side = self._sides.setdefault(event.dst, _Side())
        context = hash(at_hand(event.context or b""))
        ping = next((ping for ping in side.pending if ping.context == context), None)
        websocket = self._dossier.websocket
        if ping is None and websocket and side.pending and not event.context:
            ping = side.pending[0]  # libzmq's PONG over ws:// is empty, whatever the PING has
        if ping is not None:
            event.latency_ns = latency_ns(event, ping.time_ns)
            event.request = ping.packet
            self._slowest_ns = max(self._slowest_ns, event.latency_ns or 0)
            while side.pending.popleft() is not ping:
                pass  # an older PING without a PONG gets none any more
        elif side.more:
            side.more -= 1
        elif not self._dossier.blind and not websocket:  # on WebSocket any PONG may come (RFC 6455, section 5.5.3)
            self._problems.report("pong-without-ping", event, "a PONG that answers no PING")
        if not side.pending:
            side.told_unanswered = False

    def _hear(self, event: Command | Message) -> None:
        """A side is alive. Report it if it was silent for longer than it had announced."""
        other = self._sides.get(event.dst)
        if other is not None and not can_know(event, other.offset) and event.time_ns - other.heard_ns > _LATENESS_NS:
            other.excused_ns = event.time_ns  # the network lost what it said, and TCP keeps back what it says now
        side = self._sides.get(event.src)
        if side is None:
            side = self._sides[event.src] = _Side()
        if not side.heard_ns:
            side.heard_ns = 1  # the capture has what it says, and it said nothing so far
        self.pass_time(event.time_ns)
        side.heard_ns = event.time_ns
        side.offset = event.offset
        side.told_late = False

    def lose(self) -> None:
        """Octets are missing; they may be a PONG, or other signs of life."""
        self._sides.clear()
        self._began_late = False

    def excuse(self, now_ns: int) -> None:
        """Octets are late; they may be any sign of life."""
        for side in self._sides.values():
            side.excused_ns = now_ns

    def pass_time(self, now_ns: int) -> None:
        """Report a side that is silent for longer than its PING announced, or that answers no PING."""
        if self._is_blind:
            return
        for side in self._sides.values():
            promise = side.promise
            if promise is None or side.told_late:
                pass
            elif now_ns - max(side.heard_ns, side.excused_ns) > promise.ttl_ms * 1_000_000 + _LATENESS_NS:
                side.told_late = True
                detail = f"silent for longer than the {promise.ttl_ms:,} ms that its last PING announced"
                self._problems.report("heartbeat-late", promise, detail)
            if side.pending and not side.told_unanswered:
                first = next((ping for ping in side.pending if not self._was_heard(ping)), None)
                if first is not None and self._is_overdue(first, now_ns):
                    side.told_unanswered = True
                    detail = f"{first.dst} neither answers this PING nor says anything else"
                    self._problems.report("ping-unanswered", first, detail)

    @property
    def _is_blind(self) -> bool:
        """Whether silence proves nothing. Where only the beginning is missing, it does once both sides were heard."""
        return self._dossier.blind and not (self._began_late and all(side.heard_ns for side in self._sides.values()))

    @property
    def _patience_ns(self) -> int:
        return max(5 * self._slowest_ns, _LEAST_PATIENCE_NS)

    def _is_overdue(self, ping: _Ping, now_ns: int) -> bool:
        """Whether the answer to a PING should have come by now."""
        return now_ns - max(ping.time_ns, self._sides[ping.dst].excused_ns) > self._patience_ns

    def _was_heard(self, ping: _Ping) -> bool:
        """Whether the side that should answer has sent anything since."""
        return self._sides[ping.dst].heard_ns > ping.time_ns

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report the PINGs that stayed without an answer."""
        closer = None if event.closer is None else self._sides.get(event.closer.address)
        if closer is not None:  # it is gone then, and not silent, though its peer may hang and close nothing
            self.pass_time(event.end_ns)
            closer.promise = None
        # A connection with a FIN or RST ended with its last packet, even if that is known only later.
        end_ns = event.end_ns if event.is_closed else now_ns
        self.pass_time(end_ns)
        if self._is_blind:
            return
        for side in self._sides.values():
            if side.pending and not side.told_unanswered and self._is_overdue(side.pending[0], end_ns):
                first, more = side.pending[0], len(side.pending) + side.more - 1
                others = f", nor {more:,} after it" if more else ""
                detail = f"no PONG for this PING{others}, though its receiver says other things"
                self._problems.report("ping-unanswered", first, detail, "note")
