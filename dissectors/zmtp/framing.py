"""From the octets of one direction to frames and messages: ZMTP 1.0 and 2.0 framing, gaps, finding frames again.

The two loops over frames are the hottest code of the program; each is one method with local variables and the common
case first.
"""

from dissectors.events import UNBOUNDED, AnyEvent, Cut, Message, Octets, at_hand
from dissectors.zmtp import wire
from dissectors.zmtp.searching import FrameSearch
from dissectors.zmtp.stream import Limits

# A body that lacks more octets than this is collected piece by piece; one that lacks fewer waits in front of the
# next segment, which costs one copy of that segment.
_WAIT_LIMIT = 4096
# From how many frames of a message on their octets are counted, how many frames and octets of one are kept.
_MANY_FRAMES = 1024
_MOST_FRAMES = 1 << 20
_MESSAGE_OCTETS = 64 << 20
# How the bodies of PING and PONG begin. libzmq sends them when they are due (ZMQ_HEARTBEAT_IVL), be it between two
# frames of a message, and takes them there; the grammar of 37/ZMTP has no such place.
_HEARTBEATS = (b"\x04PING", b"\x04PONG")


class FrameStream(FrameSearch):
    """One direction of a connection as a stream of frames."""

    __slots__ = (
        "_body",
        "_damaged",
        "_doubtful",
        "_flags",
        "_hole",
        "_keep",
        "_kept",
        "_left",
        "_length",
        "_many",
        "_message_octets",
        "_parts",
        "_parts_octets",
        "_plain",
        "messages",
        "socket_type",
    )

    def __init__(self, out: list[AnyEvent], flow: int, src: str, dst: str, limits: Limits) -> None:
        """Append events to ``out``, as sent by ``src`` to ``dst`` in connection ``flow``."""
        super().__init__(out, flow, src, dst, limits)
        self.messages = 0
        self.socket_type: str | None = None
        self._keep = limits.keep
        self._plain = False  # messages need no look: no handshake, subscription, encryption or damage
        self._many = _MANY_FRAMES  # from so many frames of a message on each needs a look
        self._parts: list[Octets] = []  # frames of the message that is not finished
        self._parts_octets = 0  # held in them, where they are many
        self._message_octets = _MESSAGE_OCTETS if limits.body_octets else wire.MAX_LENGTH
        self._damaged = False  # something of the message that is not finished is, or may be, missing
        self._doubtful = 0  # frames to come that may be false ones, or belong to a message that began before them
        # the frame whose body is being collected
        self._flags = 0
        self._length = 0
        self._left = 0
        self._body: list[bytes] = []
        self._kept = 0
        self._hole = False

    # ------------------------------------------------------------------ frames

    def _start_frames(self, framing: int) -> None:
        self.framing = framing
        self._state = self._frames_v1 if framing == 1 else self._frames_v2

    def _frames_v2(self, data: bytes, position: int) -> int:
        """Flags, length of 1 or 8 octets, body (15/ZMTP and 23/ZMTP, "Framing")."""
        end = len(data)
        parts = self._parts
        plain = self._plain
        many = self._many
        keep = self._keep
        append = self.out.append
        time_ns, packet, flow, src, dst = self.time_ns, self.packet, self.flow, self.src, self.dst
        socket_type, offset, seen = self.socket_type, self.begin, self.seen
        body: Octets
        if plain and not parts and end - position >= wire.ENOUGH_ALIKE and not data[position]:
            alike = wire.messages_alike(data, position)
            for body in alike:
                append(Message(time_ns, packet, flow, src, dst, [body], socket_type, offset, seen))
            self.messages += len(alike)
            position += len(alike) * (2 + data[position + 1])
        while end - position >= 2:
            flags = data[position]
            if flags <= 1:
                start = position + 2
                stop = start + data[position + 1]
                if stop > end:
                    self._need = stop - position
                    break
                body = data[start:stop]
            elif flags <= 3:
                start = position + 9
                if start > end:
                    self._need = 9
                    break
                length = int.from_bytes(data[position + 1 : start], "big")
                if (length < 256 or length > wire.MAX_LENGTH) and not self._check_length(length):
                    return end
                stop = start + length
                if stop > end:
                    if stop - end > _WAIT_LIMIT or length > keep:
                        self._begin_body(flags, length)
                        return start
                    self._need = stop - position
                    break
                body = data[start:stop] if length <= keep else Cut(data[start : start + keep], length)
            else:
                # It may change what this loop holds in local variables.
                return self._odd_frame(data, position)
            position = stop
            if flags & 1:
                if len(parts) < many:
                    parts.append(body)
                else:
                    self._one_of_many(body)
                    plain = self._plain
            elif plain:
                if parts:
                    parts.append(body)
                    frames = parts
                    parts = self._parts = []
                else:
                    frames = [body]
                self.messages += 1
                append(Message(time_ns, packet, flow, src, dst, frames, socket_type, offset, seen))
            else:
                self._last_frame(body)
                return position
        return position

    def _odd_frame(self, data: bytes, position: int) -> int:
        """A command, or a frame whose flags have reserved bits: returns the position after it, or of it to wait."""
        flags = data[position]
        if flags & wire.RESERVED and self._is_lost_again():
            return position
        start = position + (9 if flags & wire.LONG else 2)
        if start > len(data):
            self._need = 9
            return position
        length = int.from_bytes(data[position + 1 : start], "big")
        if flags & wire.LONG and not self._check_length(length):
            return len(data)
        stop = start + length
        if stop <= len(data):
            kept = data[start:stop]
            self._frame(flags, kept if length <= self._keep else Cut(kept[: self._keep], length), True)
            return stop
        if stop - len(data) > _WAIT_LIMIT or length > self._keep:
            self._begin_body(flags, length)
            return start
        self._need = stop - position
        return position

    def _frames_v1(self, data: bytes, position: int) -> int:
        """Length of 1 or 9 octets that counts the flags, flags, body (13/ZMTP)."""
        end = len(data)
        parts = self._parts
        plain = self._plain
        keep = self._keep
        append = self.out.append
        time_ns, packet, flow, src, dst = self.time_ns, self.packet, self.flow, self.src, self.dst
        socket_type = self.socket_type  # one that announces revision 0 says it
        offset, seen = self.begin, self.seen
        body: Octets
        while end - position >= 2:
            length = data[position]
            start = position + 2
            if length == wire.LENGTH_ESCAPE_V1:
                start = position + 10
                if start > end:
                    self._need = 10
                    break
                length = int.from_bytes(data[position + 1 : start - 1], "big")
            if length == 0 or length > wire.MAX_LENGTH:
                return self._bad_length_v1(length, position, end)
            flags = data[start - 1]
            length -= 1
            stop = start + length
            if stop > end:
                if stop - end > _WAIT_LIMIT or length > keep:
                    self._begin_body(flags & wire.MORE, length)
                    return start
                self._need = stop - position
                break
            body = data[start:stop] if length <= keep else Cut(data[start : start + keep], length)
            position = stop
            if flags & 1:
                if len(parts) < _MANY_FRAMES:
                    parts.append(body)
                else:
                    self._one_of_many(body)
                    plain = self._plain
            elif plain:
                if parts:
                    parts.append(body)
                    frames = parts
                    parts = self._parts = []
                else:
                    frames = [body]
                self.messages += 1
                append(Message(time_ns, packet, flow, src, dst, frames, socket_type, offset, seen))
            else:
                self._last_frame(body)
                return position
        if end - position == 1 and data[position] == 0:
            return self._bad_length_v1(0, position, end)
        return position

    def _bad_length_v1(self, length: int, position: int, end: int) -> int:
        """Nothing after a frame of impossible length, at ``position``, can be read; returns how far that is."""
        if self._is_lost_again():
            return position
        if length:
            self.problem("frame-too-long", f"a frame announces {length} octets")
        else:
            self.problem("zero-length-frame", "a ZMTP 1.0 frame of length zero")
        self._die()
        return end

    def _check_length(self, length: int) -> bool:
        """Report what is odd about a long frame's length; False if nothing can be read after it."""
        if length > wire.MAX_LENGTH:
            if not self._is_lost_again():
                self.problem("frame-too-long", f"a frame announces {length} octets")
                self._die()
            return False
        if length <= wire.SHORT_LIMIT:
            self.problem_once("long-flag-not-needed", f"a frame of {length} octets has the LONG flag")
        return True

    def _frame(self, flags: int, body: Octets, whole: bool) -> None:
        """Take a frame that is not the common case; ``whole`` is false if octets of it are not in the capture."""
        if flags & wire.RESERVED:
            self.problem("reserved-flags", f"reserved bits of the flags octet are set: 0x{flags:02x}")
        if flags & wire.COMMAND:
            if flags & wire.MORE:
                self.problem("command-with-more", f"MORE is set on a command: flags 0x{flags:02x}")
            if self._parts:
                self._interrupt(body, whole)
            self._command(body, whole)
            # It shows where frames begin, not where messages do: PING and PONG come between the frames of one, too.
            self._doubtful -= self._doubtful > 1
            return
        if not whole:
            self._damaged = True
            self._plain = False
        if flags & wire.MORE:
            self._one_of_many(body)
        else:
            self._last_frame(body)

    def _interrupt(self, command: Octets, whole: bool) -> None:
        """Report a command between the frames of a message, unless it may be one that libzmq sends there."""
        name = at_hand(command)[: len(_HEARTBEATS[0])]
        if name in _HEARTBEATS:
            self.problem_once("heartbeat-inside-message", "PING or PONG between the frames of a message, first here")
        elif whole or not any(heartbeat.startswith(name) for heartbeat in _HEARTBEATS):
            self.problem("command-inside-message", "a command between the frames of a message")

    def _one_of_many(self, body: Octets) -> None:
        """A frame with MORE, which is kept within bounds: nothing says how many frames a message may have."""
        parts = self._parts
        if len(parts) == _MANY_FRAMES:
            self._parts_octets = sum(len(part) for part in parts if isinstance(part, bytes))
        if len(parts) < _MANY_FRAMES:
            parts.append(body)
        elif len(parts) < _MOST_FRAMES:
            self._parts_octets += len(body) if isinstance(body, bytes) else 0
            if self._parts_octets > self._message_octets and isinstance(body, bytes):
                self._parts_octets -= len(body)
                body = Cut(b"", len(body))
            parts.append(body)
        elif not self._damaged:
            self._damaged = True
            self._plain = False
            self.problem("message-too-large", f"only the first {_MOST_FRAMES} frames of a message are shown")

    def _last_frame(self, body: Octets) -> None:
        """The last frame of a message that needs a look."""
        frames = self._parts
        frames.append(body)
        self._parts = []
        damaged = self._damaged
        self._end_message(len(frames))
        self._message(frames, damaged)
        self._plain = self._is_plain()

    def _end_message(self, frames: int) -> None:
        """A message of so many frames is over; the next one may not be whole either."""
        self._doubtful = max(self._doubtful - frames, 0)
        self._damaged = self._doubtful > 0

    def _message(self, frames: list[Octets], incomplete: bool) -> None:
        self.messages += 1
        self.out.append(
            Message(
                self.time_ns, self.packet, self.flow, self.src, self.dst, frames, self.socket_type,
                self.begin, self.seen, incomplete,
            )
        )  # fmt: skip

    # ------------------------------------------------------------------ for those who know more than frames

    def look_at_each(self) -> None:
        """From now on each frame with MORE needs a look, since it may be more than a part of a message."""
        self._many = 0

    def _is_plain(self) -> bool:
        """Whether messages need no look from now on."""
        return not self._damaged

    def _command(self, body: Octets, whole: bool) -> None:
        """Take a command frame."""

    def _frames_found(self, skipped: int) -> None:
        """Frames have been found after ``skipped`` octets in which none were."""

    # ------------------------------------------------------------------ bodies in pieces

    def _begin_body(self, flags: int, length: int) -> None:
        self._flags = flags
        self._length = self._left = length
        self._body = []
        self._kept = 0
        self._hole = False
        self._state = self._collect_body

    def _collect_body(self, data: bytes, position: int) -> int:
        """Octets of a body that is longer than what is there: kept up to the limit, then only counted."""
        taken = min(self._left, len(data) - position)
        wanted = min(taken, self._keep - self._kept)
        if wanted > 0 and not self._hole:
            self._body.append(data[position : position + wanted])
            self._kept += wanted
        self._left -= taken
        if self._left == 0:
            self._finish_body()
        return position + taken

    def _finish_body(self) -> None:
        body = b"".join(self._body)
        self._body = []
        self._start_frames(self.framing)
        self._frame(self._flags, body if len(body) == self._length else Cut(body, self._length), not self._hole)

    # ------------------------------------------------------------------ gaps

    @property
    def _collects(self) -> bool:
        """Whether the octets of a long body are being collected."""
        return self._state == self._collect_body

    def gap(self, length: int, cut: bool, time_ns: int, packet: int) -> None:
        """``length`` octets of the stream are not in the capture; ``cut`` if the snaplen cost them."""
        since_ns, self.time_ns = self.time_ns, time_ns
        self.packet = packet
        offset = self.octets
        self.octets += length
        if self._state == self._dead:
            return
        if cut:
            self.problem_once("packets-cut", f"packets are cut short by the snaplen, first at stream offset {offset}")
        else:
            self.problem("capture-gap", f"{length} octets are missing at stream offset {offset}", since_ns)
        self._skip(length, cut)

    def _skip(self, length: int, cut: bool) -> None:
        """Go on after a gap of ``length`` octets; a body that covers it loses only its own octets."""
        self.search_now(length if cut else 0, before_gap=True)
        if self._searches:
            self._search_behind_gap(length)
            return
        if self._state in (self._frames_v1, self._frames_v2) and self._held:
            self._open_body()
        if self._state == self._collect_body and length <= self._left:
            self._hole = True
            self._left -= length
            if self._left == 0:
                self._finish_body()
        else:
            self._lose()

    def _open_body(self) -> None:
        """Turn the frame that waits for its last octets into a body being collected, if its header is there."""
        held = b"".join(self._chunks)
        if self.framing == 1:
            size = 10 if held[0] == wire.LENGTH_ESCAPE_V1 else 2
            if len(held) < size:
                return
            length = int.from_bytes(held[1:9], "big") if size == 10 else held[0]
            flags, length = held[size - 1] & wire.MORE, length - 1
        else:
            size = 9 if held[0] & wire.LONG else 2
            if len(held) < size:
                return
            flags, length = held[0], int.from_bytes(held[1:size], "big")
        self._chunks = []
        self._held = 0
        self._begin_body(flags, length)
        self._collect_body(held, size)

    def _lose(self) -> None:
        """A header is lost: give out what there is of the message and look for frames."""
        self._flush_message()
        self._chunks = []
        self._held = 0
        self._start_search()

    def _flush_message(self) -> None:
        """Give out the frames of a message whose end will not come."""
        frames = self._parts
        self._parts = []
        if self._state == self._collect_body and not self._flags & wire.COMMAND:
            frames.append(Cut(b"".join(self._body), self._length))
            self._body = []
        if frames:
            self._damaged = False
            self._message(frames, True)

    def _found(self, framing: int, doubtful: int, skipped: int) -> None:
        # The octets that were searched came in many segments. Nobody knows any more what was sent when.
        self.begin, self.seen = UNBOUNDED, -1
        self._doubtful = doubtful
        self._damaged = doubtful > 0
        self._plain = False
        self._start_frames(framing)
        self._frames_found(skipped)

    def _is_lost_again(self) -> bool:
        """Whether what no frame can be shows that those found a moment ago were none; then it looks for others."""
        if not self._doubtful:
            return False
        self._lose()
        return True

    def _die(self) -> None:
        """Nothing after this can be read."""
        self._flush_message()
        self._state = self._dead
