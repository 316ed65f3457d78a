"""Frames of ZMTP 1.0, and of ZMTP 2.0 and later: one reader, with the framing as its parameter.

A reader takes octets and passes frames to its :class:`~dissectors.zmtp.session.Session`. The loop over frames is the
hottest code of the program. So it is one method with local variables and the common case first, and reads the headers
of short frames itself; :mod:`dissectors.zmtp.frame_headers` reads all others. If the session
says that messages need no closer look, the loop makes their events itself.

A frame whose octets have not all come waits in the buffer. If it lacks many octets, the reader collects its body piece
by piece:

    frames ── a long body begins ──▶ body ── it is over ──▶ frames
    frames ── no frame can begin here ──▶ lost or unreadable

`body` is the body that the reader collects, None in the state `frames`. `failure` says why the next octets are no
frame. If the frames before them may have been false, the reader is lost, and a search may find others. If those frames
were certain, the peer sends something that nobody can read.
"""

from typing import Literal

from dissectors.events import Cut, Message, Octets
from dissectors.snapshots import Live, Part, quick
from dissectors.zmtp import wire
from dissectors.zmtp.buffer import Buffer, LongBody, collect, is_collected, skip
from dissectors.zmtp.frame_headers import read_v1, read_v2
from dissectors.zmtp.session import Session

Failure = Literal["lost", "unreadable"]

_ESCAPE_V1 = wire.LENGTH_ESCAPE_V1  # a copy, since a global is quick to read
# The highest flags of a frame of a message, in ZMTP 2.0 and later.
_LAST_OF_MESSAGES = wire.LONG | wire.MORE


@quick
class FrameReader(Part):
    """Reads the frames of one side."""

    _buffer: Live[Buffer]  # holds octets that wait for more
    _session: Live[Session]  # takes the frames
    framing: int = 2  # 1: ZMTP 1.0, 2: ZMTP 2.0 and later
    _flags: int = 0  # of the frame whose body the reader collects
    _begun: tuple[int, int] = (
        -1,
        0,
    )  # the number of the message that such a frame is in, and when its first octets came
    body: LongBody | None = None  # that the reader collects
    failure: Live[Failure | None] = None  # why it reads no further

    def read(self, data: bytes, position: int) -> int:
        """Take frames from ``position`` on; returns how far it got."""
        if self.body is not None:
            return collect(self, data, position)
        session = self._session
        plain = session.plain
        is_v1 = self.framing == 1
        if plain is None:
            if not is_v1 and data[position] > _LAST_OF_MESSAGES and len(data) - position >= 2:
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
        body: Octets | None
        while end - position >= 2:
            flags = data[position]
            if 0 < flags < _ESCAPE_V1 if is_v1 else flags <= 1:
                start = position + 2
                if is_v1:
                    stop = start - 1 + flags
                    flags = data[position + 1]
                else:
                    stop = start + data[position + 1]
                if stop > end:
                    self._buffer.need = stop - position
                    break
                body = data[start:stop]
            elif flags > 3 and not is_v1:
                # It may change what this loop holds in local variables.
                return self._odd_frame(data, position)
            else:
                flags, body, stop = self._frame(data, position)
                if body is None:
                    return stop
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
                append(Message(time_ns, packet, flow, src, dst, frames, socket_type, False, None, offset, seen, part))
            else:
                session.last(body)
                return position
        if is_v1 and end - position == 1 and not data[position]:
            self._check_length(0, -1)
        return position

    def _odd_frame(self, data: bytes, position: int) -> int:
        """Read a command, or a frame with reserved flags. Returns the position behind it, or its own if it is cut."""
        session, flags = self._session, data[position]
        if flags & wire.RESERVED and session.doubtful:
            self.failure = "lost"
            return position
        if flags == wire.COMMAND:
            stop = position + 2 + data[position + 1]
            if stop <= len(data):
                session.command(data[position + 2 : stop])
                return stop
        flags, body, stop = self._frame(data, position)
        if body is not None:
            session.frame(flags, body, True)
        return stop

    def _frame(self, data: bytes, position: int) -> tuple[int, Octets | None, int]:
        """Read a frame. Returns its flags, its body and where it ends.

        The body is None if the frame waits for more octets, or if there can be no such frame. The place is then that
        from which the reader goes on: behind the header if it collects the body, else ``position``.
        """
        header = (read_v1 if self.framing == 1 else read_v2)(data, position)
        if isinstance(header, int):
            self._buffer.need = header
            return 0, None, position
        flags, start, length = header
        if not wire.SHORT_LIMIT < length < wire.MAX_LENGTH and not self._check_length(flags, length):
            return 0, None, position
        stop, keep = start + length, self._session.keep
        if stop <= len(data) and length <= keep:
            return flags, data[start:stop], stop
        if is_collected(stop - len(data), length, keep):
            self._begin_body(flags, length)
            return 0, None, start
        self._buffer.need = stop - position
        return 0, None, position

    def _check_length(self, flags: int, length: int) -> bool:
        """Report an odd length of a body. Returns whether a frame may have this length."""
        is_v1 = self.framing == 1
        if length < 0:
            self._fail("zero-length-frame", "a ZMTP 1.0 frame of length zero")
            return False
        announced = length + is_v1
        if announced > wire.MAX_LENGTH:
            self._fail("frame-too-long", f"a frame announces {announced} octets")
            return False
        if length <= wire.SHORT_LIMIT and flags & wire.LONG and not is_v1:
            self._session.journal.problem_once("long-flag-not-needed", f"a frame of {length} octets has the LONG flag")
        return True

    def _begin_body(self, flags: int, length: int) -> LongBody:
        self._flags = flags & wire.MORE if self.framing == 1 else flags
        number = self._session.journal.messages
        if self._begun[0] != number:
            self._begun = number, self._session.journal.time_ns
        keep, new_hash = self._session.keep, self._session.limits.new_hash
        self.body = LongBody(length, keep, hash=new_hash() if new_hash is not None and length > keep else None)
        return self.body

    def end_body(self, body: LongBody) -> None:
        """Pass the frame of a body that is over to the session."""
        self.body = None
        octets = body.octets
        whole = octets if len(octets) == body.length else Cut(octets, body.length)
        self._session.frame(self._flags, whole, body.is_whole)
        journal = self._session.journal
        last = journal.out[-1] if journal.out else None
        if self._flags & wire.MORE or type(last) is not Message:
            return
        if self._begun[1] < journal.time_ns:
            last.begun_ns = self._begun[1]
        if body.hash is not None and last.frames[-1] is whole:  # and no box
            last.digest = body.hash.digest()

    def skip(self, length: int | None) -> bool:
        """Pass over ``length`` missing octets (None: the number is unknown).

        Returns whether the hole is inside a body; else it has taken a header, and the reader cannot go on. A body loses
        only the octets of the hole.
        """
        self.open()
        return skip(self, length)

    def open(self) -> None:
        """Collect the body of the frame that waits in the buffer, if its header is there."""
        held = self._buffer.content
        header = (read_v1 if self.framing == 1 else read_v2)(held, 0) if held else 0
        if not isinstance(header, int):
            flags, begin, length = header
            self._buffer.clear()
            self._begin_body(flags, length).take(held, begin)

    @property
    def rest(self) -> Octets | None:
        """The first octets of a frame whose rest will not come; None if the frame is no part of a message."""
        if self.body is None or self._flags & wire.COMMAND:
            return None
        return Cut(self.body.octets, self.body.length)

    def _fail(self, code: str, detail: str) -> None:
        """Stop reading, because no frame can begin with these octets."""
        if self._session.doubtful:
            self.failure = "lost"
        elif self.failure is None:
            self._session.journal.problem(code, detail)
            self.failure = "unreadable"
