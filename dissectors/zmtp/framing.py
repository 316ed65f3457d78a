"""Frames of ZMTP 1.0, and of ZMTP 2.0 and later: two readers behind one interface.

A reader takes octets and passes frames to its :class:`~dissectors.zmtp.session.Session`. The two loops over frames are
the hottest code of the program. So each is one method with local variables and the common case first. If the session
says that messages need no closer look, the loop makes their events itself.

A frame whose octets have not all come waits in the buffer. If it lacks many octets, the reader collects its body piece
by piece:

    frames ── a long body begins ──▶ body ── it is over ──▶ frames
    frames ── no frame can begin so ──▶ lost or unreadable

`body` is the body that the reader collects, None in the state `frames`. `failure` says why the next octets are no
frame. If the frames before them may have been false, the reader is lost, and a search may find others. If those frames
were certain, the peer sends something that nobody can read.
"""

from typing import Literal

from dissectors.events import Cut, Message, MessageRun, Octets
from dissectors.snapshots import Live, Part
from dissectors.zmtp import wire
from dissectors.zmtp.buffer import WAIT_LIMIT, Buffer, LongBody, collect, skip
from dissectors.zmtp.session import Session

Failure = Literal["lost", "unreadable"]


# So many octets are worth a check whether all messages are alike. This is a copy, since a global is quick to read.
_ENOUGH_ALIKE = wire.ENOUGH_ALIKE
# The highest flags of a frame of a message.
_LAST_OF_MESSAGES = wire.LONG | wire.MORE


class FrameReader(Part):
    """The interface of both readers, and the code that they share."""

    framing = 0  # 1: ZMTP 1.0, 2: ZMTP 2.0 and later

    _buffer: Live[Buffer]  # holds octets that wait for more
    _session: Live[Session]  # takes the frames
    _flags: int = 0  # of the frame whose body the reader collects
    _begun: tuple[int, int] = (
        -1,
        0,
    )  # the number of the message that such a frame is in, and when its first octets came
    body: LongBody | None = None  # that the reader collects
    failure: Live[Failure | None] = None  # why it reads no further

    def read(self, data: bytes, position: int) -> int:
        """Take frames from ``position`` on; returns how far it got."""
        raise NotImplementedError

    def _begin_body(self, flags: int, length: int) -> LongBody:
        self._flags = flags
        number = self._session.journal.messages
        if self._begun[0] != number:
            self._begun = number, self._session.journal.time_ns
        self.body = LongBody(length, self._session.keep)
        return self.body

    def end_body(self, body: LongBody) -> None:
        """The body is over: pass its frame to the session."""
        self.body = None
        octets = body.octets
        whole = octets if len(octets) == body.length else Cut(octets, body.length)
        self._session.frame(self._flags, whole, body.is_whole)
        out = self._session.journal.out
        if not self._flags & wire.MORE and out and type(out[-1]) is Message:
            out[-1].begun_ns = self._begun[1]

    def skip(self, length: int | None) -> bool:
        """Go on behind ``length`` missing octets (None: nobody knows how many).

        Returns whether the hole is inside a body; else it has taken a header, and the reader cannot go on. A body loses
        only the octets of the hole.
        """
        self.open()
        return skip(self, length)

    def open(self) -> None:
        """Collect the body of the frame that waits in the buffer, if its header is there."""
        held = self._buffer.content
        header = self._header(held) if held else None
        if header is not None:
            size, flags, length = header
            self._buffer.clear()
            self._begin_body(flags, length).take(held, size)

    def _header(self, octets: bytes) -> tuple[int, int, int] | None:
        """The size, the flags and the body's length of the header that ``octets`` begin with; None if it is cut."""
        raise NotImplementedError

    @property
    def rest(self) -> Octets | None:
        """The octets that came of a frame that will not go on; None if the frame is no part of a message."""
        if self.body is None or self._flags & wire.COMMAND:
            return None
        return Cut(self.body.octets, self.body.length)

    def _fail(self, code: str, detail: str) -> None:
        """No frame can begin so."""
        if self._session.doubtful:
            self.failure = "lost"
        elif self.failure is None:
            self._session.journal.problem(code, detail)
            self.failure = "unreadable"


class ReaderV2(FrameReader):
    """Flags, length of 1 or 8 octets, body (15/ZMTP and 23/ZMTP, "Framing")."""

    framing = 2

    def read(self, data: bytes, position: int) -> int:
        """Take frames from ``position`` on; returns how far it got."""
        if self.body is not None:
            return collect(self, data, position)
        session = self._session
        plain = session.plain
        if plain is None:
            if data[position] > _LAST_OF_MESSAGES and len(data) - position >= 2:
                return self._odd_frame(data, position)  # a handshake's command: the loop below need not look for one
            plain = session.look()
        journal = session.journal
        end = len(data)
        parts = session.parts
        append = journal.out.append
        time_ns, packet, flow, src, dst = journal.time_ns, journal.packet, journal.flow, journal.src, journal.dst
        socket_type, offset, seen = session.socket_type, journal.begin, journal.seen
        if packet != journal.counted:
            journal.turn()
        part = journal.part
        body: Octets
        if plain and not parts and end - position >= _ENOUGH_ALIKE and not data[position]:
            count, length = wire.count_alike(data, position), data[position + 1]
            size = 2 + length
            stop = position + count * size
            if count and session.limits.runs:
                bodies = wire.bodies_alike(data[position:stop], size)
                first = part + 1
                run = MessageRun(
                    time_ns, packet, flow, src, dst, bodies, length, count, socket_type, offset, seen, first
                )
                append(run)  # type: ignore[arg-type]  # those who set the limit know that runs come
            else:
                alike = [data[start + 2 : start + size] for start in range(position, stop, size)]
                for number, body in enumerate(alike, part + 1):
                    append(Message(time_ns, packet, flow, src, dst, [body], socket_type, offset, seen, number))
            part = journal.part = part + count
            position = stop
        while end - position >= 2:
            flags = data[position]
            if flags <= 1:
                start = position + 2
                stop = start + data[position + 1]
                if stop > end:
                    self._buffer.need = stop - position
                    break
                body = data[start:stop]
            elif flags <= 3:
                start = position + 9
                if start > end:
                    self._buffer.need = 9
                    break
                length = int.from_bytes(data[position + 1 : start], "big")
                if (length < 256 or length > wire.MAX_LENGTH) and not self._check_length(length):
                    break
                stop = start + length
                if stop > end:
                    if stop - end > WAIT_LIMIT or length > session.keep:
                        self._begin_body(flags, length)
                        return start
                    self._buffer.need = stop - position
                    break
                body = data[start:stop] if length <= session.keep else Cut(data[start : start + session.keep], length)
            else:
                # It may change what this loop holds in local variables.
                return self._odd_frame(data, position)
            position = stop
            if flags & 1:
                if len(parts) < session.many:
                    parts.append(body)
                else:
                    session.part(body)
                    plain = session.plain
                    journal.turn()
                    part = journal.part
            elif plain:
                if parts:
                    parts.append(body)
                    frames = parts
                    parts = session.parts = []
                else:
                    frames = [body]
                part = journal.part = part + 1
                append(Message(time_ns, packet, flow, src, dst, frames, socket_type, offset, seen, part))
            else:
                session.last(body)
                return position
        return position

    def _odd_frame(self, data: bytes, position: int) -> int:
        """Read a command, or a frame with reserved flags. Returns the position behind it, or its own if it is cut."""
        flags, session = data[position], self._session
        if flags == wire.COMMAND:
            stop = position + 2 + data[position + 1]
            if stop > len(data):
                self._buffer.need = stop - position
                return position
            session.command(data[position + 2 : stop])
            return stop
        if flags & wire.RESERVED and session.doubtful:
            self.failure = "lost"
            return position
        start = position + (9 if flags & wire.LONG else 2)
        if start > len(data):
            self._buffer.need = 9
            return position
        length = int.from_bytes(data[position + 1 : start], "big")
        if flags & wire.LONG and not self._check_length(length):
            return position
        stop = start + length
        if stop <= len(data):
            kept = data[start:stop]
            session.frame(flags, kept if length <= session.keep else Cut(kept[: session.keep], length), True)
            return stop
        if stop - len(data) > WAIT_LIMIT or length > session.keep:
            self._begin_body(flags, length)
            return start
        self._buffer.need = stop - position
        return position

    def _check_length(self, length: int) -> bool:
        """Report an odd length of a long frame. Returns whether the reader can go on behind it."""
        if length > wire.MAX_LENGTH:
            self._fail("frame-too-long", f"a frame announces {length} octets")
            return False
        if length <= wire.SHORT_LIMIT:
            self._session.journal.problem_once("long-flag-not-needed", f"a frame of {length} octets has the LONG flag")
        return True

    def _header(self, octets: bytes) -> tuple[int, int, int] | None:
        size = 9 if octets[0] & wire.LONG else 2
        return None if len(octets) < size else (size, octets[0], int.from_bytes(octets[1:size], "big"))


class ReaderV1(FrameReader):
    """Length of 1 or 9 octets that counts the flags, flags, body (13/ZMTP)."""

    framing = 1

    def read(self, data: bytes, position: int) -> int:
        """Take frames from ``position`` on; returns how far it got."""
        if self.body is not None:
            return collect(self, data, position)
        session = self._session
        journal = session.journal
        end = len(data)
        parts = session.parts
        plain = session.plain
        if plain is None:
            plain = session.look()
        append = journal.out.append
        time_ns, packet, flow, src, dst = journal.time_ns, journal.packet, journal.flow, journal.src, journal.dst
        socket_type = session.socket_type  # a peer that announces revision 0 says it
        offset, seen = journal.begin, journal.seen
        if packet != journal.counted:
            journal.turn()
        part = journal.part
        body: Octets
        while end - position >= 2:
            length = data[position]
            start = position + 2
            if length == wire.LENGTH_ESCAPE_V1:
                start = position + 10
                if start > end:
                    self._buffer.need = 10
                    break
                length = int.from_bytes(data[position + 1 : start - 1], "big")
            if length == 0 or length > wire.MAX_LENGTH:
                self._fail_length(length)
                break
            flags = data[start - 1]
            length -= 1
            stop = start + length
            if stop > end:
                if stop - end > WAIT_LIMIT or length > session.keep:
                    self._begin_body(flags & wire.MORE, length)
                    return start
                self._buffer.need = stop - position
                break
            body = data[start:stop] if length <= session.keep else Cut(data[start : start + session.keep], length)
            position = stop
            if flags & 1:
                if len(parts) < session.many:
                    parts.append(body)
                else:
                    session.part(body)
                    plain = session.plain
                    journal.turn()
                    part = journal.part
            elif plain:
                if parts:
                    parts.append(body)
                    frames = parts
                    parts = session.parts = []
                else:
                    frames = [body]
                part = journal.part = part + 1
                append(Message(time_ns, packet, flow, src, dst, frames, socket_type, offset, seen, part))
            else:
                session.last(body)
                return position
        if end - position == 1 and data[position] == 0:
            self._fail_length(0)
        return position

    def _fail_length(self, length: int) -> None:
        """The length is impossible, so nothing behind this frame can be read."""
        if length:
            self._fail("frame-too-long", f"a frame announces {length} octets")
        else:
            self._fail("zero-length-frame", "a ZMTP 1.0 frame of length zero")

    def _header(self, octets: bytes) -> tuple[int, int, int] | None:
        size = 10 if octets[0] == wire.LENGTH_ESCAPE_V1 else 2
        if len(octets) < size:
            return None
        length = int.from_bytes(octets[1:9], "big") if size == 10 else octets[0]
        return size, octets[size - 1] & wire.MORE, length - 1
