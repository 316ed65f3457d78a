"""Frames of ZMTP 1.0, and of ZMTP 2.0 and later: two readers behind one interface.

A reader is given octets and passes frames to its :class:`~dissectors.zmtp.session.Session`. The two loops over frames
are the hottest code of the program: each is one method with local variables and the common case first, and makes the
event of a message by itself if the session says that nothing more is to be said of it.

A frame that is not all there waits in the buffer, or is collected piece by piece if it lacks much:

    frames ── a long body begins ──▶ body ── it is over ──▶ frames
    frames ── no frame can begin so ──▶ lost or unreadable

Which of the two is in `body` (None: frames). What no frame can be is `failure`: if the frames before may have been
false ones, the reader is lost, and others may be looked for; else what its peer sends cannot be read.
"""

from typing import Literal

from dissectors.events import Cut, Message, Octets, Run
from dissectors.snapshots import Part
from dissectors.zmtp import wire
from dissectors.zmtp.buffer import WAIT_LIMIT, Buffer, LongBody, LongBodyState, collect, skip
from dissectors.zmtp.session import Session

Failure = Literal["lost", "unreadable"]


class FrameReaderState(Part):
    """What a reader of frames says of itself in a snapshot."""

    framing: int
    flags: int
    body: LongBodyState | None


# Octets in which messages that are all alike are worth finding out, and looked up here rather than at each segment.
_ENOUGH_ALIKE = wire.ENOUGH_ALIKE


class FrameReader:
    """What the readers of both framings have in common."""

    __slots__ = ("_buffer", "_flags", "_journal", "_keep", "_session", "body", "failure")

    framing = 0  # 1: ZMTP 1.0, 2: ZMTP 2.0 and later

    def __init__(self, buffer: Buffer, session: Session) -> None:
        """Pass frames to ``session``; ``buffer`` holds what waits for more octets."""
        self._buffer = buffer
        self._session = session
        self._journal = session.journal
        self._keep = session.keep
        self._flags = 0  # of the frame whose body is being collected
        self.body: LongBody | None = None  # that is being collected
        self.failure: Failure | None = None  # why it reads no further

    def read(self, data: bytes, position: int) -> int:
        """Take frames from ``position`` on; returns how far it got."""
        raise NotImplementedError

    def _begin_body(self, flags: int, length: int) -> LongBody:
        self._flags = flags
        self.body = LongBody(length, self._keep)
        return self.body

    def end_body(self, body: LongBody) -> None:
        """Pass the frame of a body that is over to the session."""
        self.body = None
        octets = body.octets
        whole = octets if len(octets) == body.length else Cut(octets, body.length)
        self._session.frame(self._flags, whole, body.is_whole)

    def skip(self, length: int | None) -> bool:
        """Go on behind ``length`` octets that are missing (None: nobody knows how many); False if a header is lost.

        Of the frame that the hole is in only those octets are lost.
        """
        self.open()
        return skip(self, length)

    def open(self) -> None:
        """Collect the body of the frame that waits for its last octets, if its header is there."""
        held = self._buffer.content
        header = self._header(held) if held else None
        if header is not None:
            size, flags, length = header
            self._buffer.clear()
            self._begin_body(flags, length).take(held, size)

    def _header(self, octets: bytes) -> tuple[int, int, int] | None:
        """The size of the header that ``octets`` begin with, its flags and the body's length; None if they are few."""
        raise NotImplementedError

    @property
    def rest(self) -> Octets | None:
        """What has come of a frame that will not go on, None if that is none of a message."""
        if self.body is None or self._flags & wire.COMMAND:
            return None
        return Cut(self.body.octets, self.body.length)

    def snapshot(self) -> FrameReaderState:
        """What to go on from."""
        return FrameReaderState(self.framing, self._flags, None if self.body is None else self.body.snapshot())

    def restore(self, state: FrameReaderState) -> None:
        """Go on from there."""
        self._flags = state.flags
        self.body = None if state.body is None else LongBody.restore(state.body)

    def _fail(self, code: str, detail: str) -> None:
        """No frame can begin so."""
        if self._session.doubtful:
            self.failure = "lost"
        elif self.failure is None:
            self._journal.problem(code, detail)
            self.failure = "unreadable"


class ReaderV2(FrameReader):
    """Flags, length of 1 or 8 octets, body (15/ZMTP and 23/ZMTP, "Framing")."""

    __slots__ = ()

    framing = 2

    def read(self, data: bytes, position: int) -> int:
        """Take frames from ``position`` on; returns how far it got."""
        if self.body is not None:
            return collect(self, data, position)
        session, journal = self._session, self._journal
        end = len(data)
        parts = session.parts
        plain = session.plain
        if plain is None:
            if data[position] > wire.LONG | wire.MORE and end - position >= 2:
                return self._odd_frame(data, position)  # nobody has to look for commands of the handshake
            plain = session.look()
        append = journal.out.append
        time_ns, packet, flow, src, dst = journal.time_ns, journal.packet, journal.flow, journal.src, journal.dst
        socket_type, offset, seen = session.socket_type, journal.begin, journal.seen
        body: Octets
        if plain and not parts and end - position >= _ENOUGH_ALIKE and not data[position]:
            alike = wire.messages_alike(data, position)
            if alike and session.limits.runs:
                append(Run(time_ns, packet, flow, src, dst, alike, socket_type, offset, seen))  # type: ignore[arg-type]  # asked for
            else:
                for body in alike:
                    append(Message(time_ns, packet, flow, src, dst, [body], socket_type, offset, seen))
            session.messages += len(alike)
            position += len(alike) * (2 + data[position + 1])
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
                    if stop - end > WAIT_LIMIT or length > self._keep:
                        self._begin_body(flags, length)
                        return start
                    self._buffer.need = stop - position
                    break
                body = data[start:stop] if length <= self._keep else Cut(data[start : start + self._keep], length)
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
            elif plain:
                if parts:
                    parts.append(body)
                    frames = parts
                    parts = session.parts = []
                else:
                    frames = [body]
                session.messages += 1
                append(Message(time_ns, packet, flow, src, dst, frames, socket_type, offset, seen))
            else:
                session.last(body)
                return position
        return position

    def _odd_frame(self, data: bytes, position: int) -> int:
        """A command, or a frame whose flags have reserved bits: returns the position after it, or of it to wait."""
        flags = data[position]
        if flags & wire.RESERVED and self._session.doubtful:
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
            self._session.frame(flags, kept if length <= self._keep else Cut(kept[: self._keep], length), True)
            return stop
        if stop - len(data) > WAIT_LIMIT or length > self._keep:
            self._begin_body(flags, length)
            return start
        self._buffer.need = stop - position
        return position

    def _check_length(self, length: int) -> bool:
        """Report what is odd about a long frame's length; False if nothing can be read after it."""
        if length > wire.MAX_LENGTH:
            self._fail("frame-too-long", f"a frame announces {length} octets")
            return False
        if length <= wire.SHORT_LIMIT:
            self._journal.problem_once("long-flag-not-needed", f"a frame of {length} octets has the LONG flag")
        return True

    def _header(self, octets: bytes) -> tuple[int, int, int] | None:
        size = 9 if octets[0] & wire.LONG else 2
        return None if len(octets) < size else (size, octets[0], int.from_bytes(octets[1:size], "big"))


class ReaderV1(FrameReader):
    """Length of 1 or 9 octets that counts the flags, flags, body (13/ZMTP)."""

    __slots__ = ()

    framing = 1

    def read(self, data: bytes, position: int) -> int:
        """Take frames from ``position`` on; returns how far it got."""
        if self.body is not None:
            return collect(self, data, position)
        session, journal = self._session, self._journal
        end = len(data)
        parts = session.parts
        plain = session.plain
        if plain is None:
            plain = session.look()
        append = journal.out.append
        time_ns, packet, flow, src, dst = journal.time_ns, journal.packet, journal.flow, journal.src, journal.dst
        socket_type = session.socket_type  # one that announces revision 0 says it
        offset, seen = journal.begin, journal.seen
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
                if stop - end > WAIT_LIMIT or length > self._keep:
                    self._begin_body(flags & wire.MORE, length)
                    return start
                self._buffer.need = stop - position
                break
            body = data[start:stop] if length <= self._keep else Cut(data[start : start + self._keep], length)
            position = stop
            if flags & 1:
                if len(parts) < session.many:
                    parts.append(body)
                else:
                    session.part(body)
                    plain = session.plain
            elif plain:
                if parts:
                    parts.append(body)
                    frames = parts
                    parts = session.parts = []
                else:
                    frames = [body]
                session.messages += 1
                append(Message(time_ns, packet, flow, src, dst, frames, socket_type, offset, seen))
            else:
                session.last(body)
                return position
        if end - position == 1 and data[position] == 0:
            self._fail_length(0)
        return position

    def _fail_length(self, length: int) -> None:
        """Nothing after a frame of impossible length can be read."""
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
