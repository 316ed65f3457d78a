"""One side of a connection whose beginning may be in an earlier file, with what is noted for those who join files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dissectors.events import Command, Cut, Message, Octets, Subscription, at_hand
from dissectors.zmtp import sockets, wire
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.half import Half
from dissectors.zmtp.security import counts_up
from zmtpsniff.spark.runs import Run

if TYPE_CHECKING:
    from zmtpsniff.spark.watch import Trace

_MOST_TOPICS = 4096  # changes of subscriptions in a piece
_MOST_FRAMES = 64  # of a message that is looked at together with others
# One that only sends commands is synchronised before its first message once it has sent so much.
_COMMANDS_OCTETS = 1024
# The octet that a topic, or its end, or an encrypted message begins with.
_MARKS = frozenset({0, 1, wire.CURVE_MESSAGE[0]})
_HARMLESS = frozenset({"PING", "PONG", "JOIN", "LEAVE", "MESSAGE"})


class Sync:
    """Where a half stood when it was synchronised."""

    def __init__(self, half: Half) -> None:
        """Note where ``half`` stands; the octets that it holds come after."""
        self.framing = half.framing
        self.octets = half.octets - half._held
        self.messages = half.messages
        self.told = sorted(half._told)
        self.subscribes = half.subscribes


class WatchedHalf(Half):
    """One side of a connection of which the beginning may be in an earlier file."""

    __slots__ = ("has_clear", "has_command", "nonces", "sync", "topic_changes", "trace")

    has_clear: bool  # messages that are no boxes
    has_command: bool
    nonces: list[bytes]  # of the first and the last box since the sync point, if there are any
    sync: Sync | None
    topic_changes: list[tuple[bool, Octets]]
    trace: Trace

    def feed(self, data: bytes, time_ns: int, packet: int) -> None:
        """Take the next octets, and keep them while the half has no sync point."""
        trace = self.trace
        if self.sync is None and trace.keeps and not trace.opening:
            trace.keep((packet, time_ns, int(self.side == "server"), data))
            super().feed(data, time_ns, packet)
            if not self.connection.rejected and trace.keeps:
                trace.settle(self)
        else:
            super().feed(data, time_ns, packet)

    @property
    def rests(self) -> bool:
        """Whether it stands between two messages, with no more than the beginning of the next."""
        return (
            self.connection.accepted
            and self.greeted
            and not self._parts
            and self._state in (self._frames_v1, self._frames_v2)
            and (not self._damaged or (self.has_command and not self.messages and self.octets > _COMMANDS_OCTETS))
        )

    def gap(self, length: int, cut: bool, time_ns: int, packet: int) -> None:
        """What is said of a gap counts octets from the beginning of the stream."""
        self.trace.doubt("gap")
        super().gap(length, cut, time_ns, packet)

    def absent(self, time_ns: int, packet: int) -> None:
        """This side is not in this file."""
        self.trace.doubt("absent")
        super().absent(time_ns, packet)

    def conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        """What is said of a conflict counts octets from the beginning of the stream, too."""
        self.trace.doubt("conflict")
        super().conflict(offset, length, time_ns, packet)

    def problem(self, code: str, detail: str) -> None:
        """No problem of a stretch is sure to be one in its connection."""
        if self.sync is not None:
            self.trace.doubt(code)
        super().problem(code, detail)

    def _frames_v2(self, data: bytes, position: int) -> int:
        if self.sync is not None and not self._damaged and not self._parts:
            position = self._clear_messages(data, position)
            if position == len(data):
                return position
        return super()._frames_v2(data, position)

    def _clear_messages(self, data: bytes, position: int) -> int:
        """Take whole messages of short frames as long as it is plain that they are nothing else; where they end.

        One after the other they would cost twice as much, and in a file that begins in a busy connection nearly all
        messages are of it.
        """
        end = len(data)
        append: Any = self.out.append  # of what the scan makes batches of, which know runs
        time_ns, packet, flow, src, dst = self.time_ns, self.packet, self.flow, self.src, self.dst
        socket_type = self.socket_type
        reached, count = position, 0
        if end - position >= wire.ENOUGH_ALIKE and not data[position] and data[position + 1]:
            alike = wire.messages_alike(data, position)
            step = 2 + data[position + 1]
            stop = position + len(alike) * step
            if alike and _MARKS.isdisjoint(data[position + 2 : stop : step]):
                count = len(alike)
                append(Run(time_ns, packet, flow, src, dst, alike, [1] * count, socket_type))
                reached = position = stop
        frames: list[bytes] = []
        counts: list[int] = []
        begin = 0  # of the frames of the message that is not finished
        while end - position >= 2 and data[position] <= 1:
            start = position + 2
            stop = start + data[position + 1]
            if stop > end:
                break
            body = data[start:stop]
            if data[position]:
                if len(frames) - begin == _MOST_FRAMES:
                    break
                frames.append(body)
                position = stop
                continue
            if len(frames) == begin and body and body[0] in _MARKS:
                break
            frames.append(body)
            counts.append(len(frames) - begin)
            begin = len(frames)
            reached = position = stop
        if counts:
            del frames[begin:]
            append(Run(time_ns, packet, flow, src, dst, frames, counts, socket_type))
            count += len(counts)
        if count:
            self.messages += count
            self.has_clear = True
        return reached

    def _last_frame(self, body: Octets) -> None:
        # Of most messages it is plain that they are nothing else, whatever came before.
        frames = self._parts
        if (
            self.sync is None
            or self._damaged
            or not (frames or (type(body) is bytes and (not body or body[0] not in _MARKS)))
        ):
            super()._last_frame(body)
            return
        frames.append(body)
        self._parts = []
        self.messages += 1
        self.has_clear = True
        self.out.append(Message(self.time_ns, self.packet, self.flow, self.src, self.dst, frames, self.socket_type))

    def _message(self, frames: list[Octets], incomplete: bool) -> None:
        if self.sync is not None:
            trace = self.trace
            octets = at_hand(frames[0]) if len(frames) == 1 else b""
            if incomplete:
                trace.doubt("incomplete")
            if octets[:1] in (b"\0", b"\1"):
                trace.seen.add(("topic", self.side))
            if not octets.startswith(wire.CURVE_MESSAGE):
                self.has_clear = True
            elif len(octets) < wire.CURVE_MESSAGE_LEAST:
                trace.doubt("short box")
            else:
                trace.seen.add(("box", self.side))
        super()._message(frames, incomplete)

    def _command(self, body: Octets, whole: bool) -> None:
        self.has_command = True
        out = self.out
        before = len(out)
        super()._command(body, whole)
        if self.sync is not None:
            event = out[before] if len(out) > before else None
            if not whole or isinstance(body, Cut):
                self.trace.doubt("cut command")
            elif isinstance(event, Command) and event.name not in _HARMLESS:
                self.trace.doubt(event.name)
            elif isinstance(event, Command) and event.name == "MESSAGE":
                self.trace.seen.add(("box", self.side))
                self._count(event.nonce)
            else:
                self.trace.seen.add(("command", self.side))
                name = "SUBSCRIBE" if isinstance(event, Subscription) else getattr(event, "name", "")
                if name in sockets.SENDERS:
                    self.trace.seen.add((name, self.side))

    def _count(self, nonce: Octets | None) -> None:
        """Note the nonce of a box: those of a connection count up."""
        if not isinstance(nonce, bytes):
            self.trace.doubt("cut box")
            return
        if self.nonces and not counts_up(self.nonces[1], nonce):
            self.trace.doubt("nonces")
        self.nonces = [self.nonces[0] if self.nonces else nonce, nonce]

    def _subscription(self, on: bool, topic: Octets, encoding: Literal["message", "command"], incomplete: bool) -> None:
        super()._subscription(on, topic, encoding, incomplete)
        if self.sync is not None:
            self.topic_changes.append((on, topic))
            if len(self.topic_changes) > _MOST_TOPICS:
                self.trace.doubt("topics")
                self.topic_changes.clear()


class WatchedConnection(ZmtpConnection):
    """A connection of which the beginning may be in an earlier file."""

    __slots__ = ("trace",)
    half_type = WatchedHalf

    def __init__(self, trace: Trace, *arguments: Any) -> None:
        """Watch what passes for ``trace``; the other arguments are those of a connection."""
        self.trace = trace
        super().__init__(*arguments)
        for half in (self.client, self.server):
            assert isinstance(half, WatchedHalf)
            half.trace = trace
            half.has_clear = half.has_command = False
            half.sync = None
            half.topic_changes = []
            half.nonces = []

    @property
    def is_unknown(self) -> bool:
        """Whether nothing was said that tells how messages travel, so that every one of them is looked at."""
        security = self.security
        return security.unknown_start and security.mechanism is None and not self.forced and self.version is None
