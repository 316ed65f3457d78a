"""ZMTP's frames inside WebSocket messages: the reader of a side that has upgraded to ZWS (45/ZWS, RFC 6455).

WebSocket frames have lengths, as ZMTP's do, so a hole in a capture costs only the octets that it covers. A message of
WebSocket may come in several frames (fragments) with PING, PONG and CLOSE between them, and may be compressed. In the
end it is an octet of flags and one frame of ZMTP.

    frames ── a long payload begins ──▶ body ── it is over ──▶ frames
    frames ── no frame can begin so ──▶ unreadable
"""

from dissectors.events import Command, Cut, Octets
from dissectors.snapshots import LATER, Live, Part
from dissectors.zmtp import deflate, wire
from dissectors.zmtp import websocket_frames as ws
from dissectors.zmtp.buffer import Buffer, LongBody, collect, is_collected, skip
from dissectors.zmtp.framing import Failure
from dissectors.zmtp.journal import Journal
from dissectors.zmtp.session import Session


class WebSocketReader(Part):
    """Reads the WebSocket frames of one side."""

    _buffer: Live[Buffer]  # holds octets that wait for more
    _session: Live[Session]  # takes the frames of ZMTP
    _inflater: deflate.Inflater | None  # undoes the compression of this side; None where nothing may be compressed
    _expects_identity: bool  # the first message is the identity (45/ZWS, "No Mechanism")
    _journal: Live[Journal] = LATER
    _keep: Live[int] = 0
    _first: int = 0  # octet of the frame whose payload is being collected
    _mask: bytes = b""
    body: LongBody | None = None  # that payload
    failure: Live[Failure | None] = None  # why it reads no further
    _fragments: list[bytes] | None = None  # of the message in several frames that is not finished
    _fragments_kept: int = 0  # octets in them
    _compressed: bool = False
    _message_length: int = 0  # octets that it has so far
    _message_whole: bool = True  # all of these are in the capture

    def __post_init__(self) -> None:
        """Write to the session's journal, and keep as much as the session."""
        self._journal = self._session.journal
        self._keep = self._session.keep

    # ------------------------------------------------------------------ frames of WebSocket

    def read(self, data: bytes, position: int) -> int:
        """Take WebSocket frames (RFC 6455, section 5.2) from ``position`` on; returns how far it got."""
        if self.body is not None:
            return collect(self, data, position)
        end = len(data)
        while position < end:
            header = ws.parse_header(data, position)
            if isinstance(header, int):
                self._buffer.need = header
                break
            first, mask, length, start = header
            if not self._check_header(first, bool(mask), length):
                self.failure = "unreadable"
                break
            stop = start + length
            if stop > end:
                if is_collected(stop - end, length, self._keep):
                    self._begin_body(first, mask, length)
                    return start
                self._buffer.need = stop - position
                break
            kept = data[start : min(stop, start + self._room(first))]
            position = stop
            self._payload(first, ws.unmask(kept, mask), length, True)
        return position

    def _check_header(self, first: int, masked: bool, length: int) -> bool:
        """Report what is wrong with a frame; False if nothing after it can be read."""
        opcode = first & ws.OPCODE
        reserved = first & ws.RESERVED_BITS
        problem = self._journal.problem
        if reserved and not (reserved == ws.COMPRESSED and self._inflater and opcode in (ws.TEXT, ws.BINARY)):
            problem("bad-websocket-frame", f"reserved bits are set without an extension for it: 0x{first:02x}")
            return False
        if opcode not in ws.OPCODES or length > wire.MAX_LENGTH:
            problem("bad-websocket-frame", f"a frame begins with 0x{first:02x} and announces {length} octets")
            return False
        if opcode >= ws.CLOSE and (length > ws.CONTROL_LIMIT or not first & ws.FINAL):
            problem("bad-websocket-frame", f"a control frame (0x{first:02x}) of {length} octets, or in parts")
            return opcode in ws.OPCODES and bool(first & ws.FINAL)
        side = self._session.side
        if masked != (side == "client"):
            what = "masked" if masked else "not masked"
            self._journal.problem_once("websocket-mask", f"the {side}'s frames are {what} (RFC 6455, section 5.1)")
        return True

    def _begin_body(self, first: int, mask: bytes, length: int) -> LongBody:
        self._first = first
        self._mask = mask
        self.body = LongBody(length, self._room(first))
        return self.body

    def end_body(self, body: LongBody) -> None:
        """Take the payload of a frame that is over."""
        self.body = None
        self._payload(self._first, ws.unmask(body.octets, self._mask), body.length, body.is_whole)

    def skip(self, length: int | None) -> bool:
        """Pass over ``length`` missing octets (None: the number is unknown). Returns False if a header is lost."""
        if self._inflater and self.body is None:
            self._inflater.lose()
        self._open()
        return skip(self, length)

    def _open(self) -> None:
        """Collect the payload of the frame that waits for its last octets, if its header is there."""
        held = self._buffer.content
        header = ws.parse_header(held, 0)
        if not isinstance(header, int):
            self._buffer.clear()
            first, mask, length, start = header
            self._begin_body(first, mask, length).take(held, start)

    @property
    def rest(self) -> Octets | None:
        """The first octets of a ZMTP frame whose rest will not come; None if the frame is no part of a message."""
        if self.body is None or self._first & (ws.OPCODE | ws.COMPRESSED) != ws.BINARY:
            return None
        kept = ws.unmask(self.body.octets, self._mask)
        return Cut(kept[1:], self.body.length - 1) if kept and not kept[0] & wire.COMMAND_INSIDE else None

    def _room(self, first: int) -> int:
        """The number of octets of a frame's payload to keep, by its first octet."""
        compressed = first & ws.COMPRESSED or (first & ws.OPCODE == ws.CONTINUATION and self._compressed)
        return deflate.COMPRESSED_LIMIT if compressed else self._keep + 1

    # ------------------------------------------------------------------ messages of WebSocket

    def _payload(self, first: int, kept: bytes, length: int, whole: bool) -> None:
        """Take a frame's payload of ``length`` octets; ``kept`` has the first of them."""
        opcode = first & ws.OPCODE
        if opcode >= ws.CLOSE:
            self._control(opcode, kept, whole)
            return
        if opcode == ws.TEXT:
            self._journal.problem_once("bad-websocket-frame", "a text message; those of ZWS are binary")
        if opcode == ws.CONTINUATION:
            if self._fragments is None:
                if not self._session.damaged:
                    self._journal.problem_once("bad-websocket-frame", "a continuation of nothing")
                return
        elif self._fragments is not None:
            self._journal.problem_once("bad-websocket-frame", "a message begins before the one before is over")
            self._reset_message()
        if opcode != ws.CONTINUATION and first & ws.FINAL:
            self._message(kept, length, whole, bool(first & ws.COMPRESSED))
            return
        if self._fragments is None:
            self._fragments = []
            self._compressed = bool(first & ws.COMPRESSED)
        room = self._room(first) - self._fragments_kept
        if kept and room > 0 and self._message_length == self._fragments_kept:
            self._fragments.append(kept[:room])
            self._fragments_kept += min(len(kept), room)
        self._message_length += length
        self._message_whole = self._message_whole and whole
        if first & ws.FINAL:
            message = b"".join(self._fragments), self._message_length, self._message_whole, self._compressed
            self._reset_message()
            self._message(*message)

    def _reset_message(self) -> None:
        """No message of several frames is unfinished."""
        self._fragments = None
        self._fragments_kept = 0
        self._compressed = False
        self._message_length = 0
        self._message_whole = True

    def _message(self, kept: bytes, length: int, whole: bool, compressed: bool) -> None:
        """Take a WebSocket message, which is over."""
        if not compressed:
            self._zws_frame(kept, length, whole)
            return
        assert self._inflater
        if len(kept) < length or not whole:
            self._inflater.lose()
        inflated = self._inflater.inflate(kept, self._keep + 1) if len(kept) == length and whole else None
        if inflated is None:
            self._journal.problem_once(
                "websocket-compression", "compressed messages that cannot be read, this is the first"
            )
            self._session.damage()
        else:
            self._zws_frame(*inflated, True)

    def _zws_frame(self, kept: bytes, length: int, whole: bool) -> None:
        """Take a WebSocket message, which is one frame of ZMTP with a flags octet before its body."""
        if not kept:
            if length:
                self._session.damage()
            else:
                self._journal.problem("bad-websocket-frame", "a message without a flags octet")
            return
        flags = kept[0]
        if flags & wire.RESERVED_INSIDE:
            self._journal.problem("reserved-flags", f"reserved bits of the flags octet are set: 0x{flags:02x}")
        body: Octets = kept[1:]
        if len(kept) - 1 > self._keep or len(kept) < length:
            body = Cut(kept[1 : 1 + self._keep], length - 1)
        if self._expects_identity:
            self._expects_identity = False
            self._session.identify(body, length - 1)
            return
        self._session.frame(wire.flags_inside(flags), body, whole)

    def _control(self, opcode: int, data: bytes, whole: bool) -> None:
        """PING and PONG, which are the heartbeats of ZWS, and CLOSE: a 2-octet status, a reason."""
        out, place = self._journal.out, self._journal.place()
        if opcode == ws.CLOSE:
            status = int.from_bytes(data[:2], "big") if len(data) >= 2 else None
            out.append(Command(*place, "CLOSE", reason=data[2:] or None, status=status, incomplete=not whole))
        else:
            name = "PING" if opcode == ws.PING else "PONG"
            out.append(Command(*place, name, context=data or None, incomplete=not whole))


class MessageSearch(Part):
    """A search for messages of WebSocket in a side that has lost its place."""

    reader: WebSocketReader  # of the frames that are found
    _masked: Live[bool]  # the sender must mask its frames
    found: Live[bool] = False
    searched: int = 0  # octets searched in vain

    def read(self, data: bytes, position: int) -> int:
        """Look for a chain of frames; returns where it begins if it is `found`, else the end of ``data``."""
        begin = ws.find_messages(data, position, self._masked)
        self.found = begin is not None
        reached = len(data) if begin is None else begin
        self.searched += reached - position
        return reached

    def skip(self, length: int) -> None:
        """``length`` octets are missing from the capture."""
        self.searched += length
