"""A side of a ZWS connection: the HTTP upgrade, then ZMTP's frames inside WebSocket messages (45/ZWS, RFC 6455).

WebSocket frames say how long they are, as ZMTP's do, so that holes in a capture cost only what they cover.
"""

from dissectors.events import Command, Cut, Octets
from dissectors.zmtp import deflate, wire
from dissectors.zmtp import websocket_frames as ws
from dissectors.zmtp.opening import Opening
from dissectors.zmtp.upgrade import HEAD_END, HEAD_LIMIT, PROTOCOL, Upgrade, first_line, may_be_head, parse_head

# A payload that lacks more octets than this is collected piece by piece.
_WAIT_LIMIT = 4096


class Upgraded(Opening):
    """One side of a connection, which may begin with an HTTP upgrade."""

    __slots__ = (
        "_compressed",
        "_expects_identity",
        "_first",
        "_fragments",
        "_fragments_kept",
        "_inflater",
        "_mask",
        "_message_length",
        "_message_whole",
        "upgrade",
    )

    # None of these is set before a side has begun as HTTP.
    upgrade: Upgrade | None  # what it says of ZWS, None if it is not in the capture
    _compressed: bool  # the message in several frames that is not finished
    _expects_identity: bool  # the next message is the identity
    _first: int  # octet of the frame whose payload is being collected
    _mask: bytes
    _fragments: list[bytes] | None  # of the message in several frames that is not finished
    _fragments_kept: int  # octets in them
    _inflater: deflate.Inflater | None  # None where nothing may be compressed
    _message_length: int  # octets that it has so far
    _message_whole: bool  # all of these are in the capture

    # ------------------------------------------------------------------ the upgrade

    def _start(self, data: bytes, position: int) -> int:
        may_be = may_be_head(data[position : position + 5])
        if may_be is False or self.connection.forced_version:
            return super()._start(data, position)
        if may_be is None and not self.ended:
            self._need = len(data) - position + 1
            return position
        self._state = self._head if may_be else super()._start
        return position

    def _perhaps_start(self, data: bytes, position: int) -> int:
        if may_be_head(data[position : position + 5]):
            self._state = self._head
            return position
        return super()._perhaps_start(data, position)

    def _head(self, data: bytes, position: int) -> int:
        """The HTTP request of a client, or the response of a server, up to its empty line."""
        self.beginning = data[position : position + 16]
        end = data.find(HEAD_END, position, position + HEAD_LIMIT)
        if end < 0 and len(data) - position < HEAD_LIMIT and not self.ended:
            self._need = len(data) - position + 1
            return position
        upgrade = parse_head(data[position:end]) if end >= 0 else None
        if upgrade is None:
            if self.other.upgraded:
                self._refuse_upgrade(first_line(data[position : position + HEAD_LIMIT]))
                return len(data)
            self._state = super()._start
            return position
        self._begin_websocket(upgrade)
        return end + len(HEAD_END)

    def _begin_websocket(self, upgrade: Upgrade) -> None:
        self.upgraded = True
        self.upgrade = upgrade
        self._inflater = None
        self._reset_message()
        self.version = PROTOCOL
        self.versioned = True
        self.mechanism = upgrade.mechanism
        self.known = True
        self.connection.accept()
        self._report_greeting(self.mechanism)
        self.greeted = True
        self._state = self._after_head
        self.connection.greeted_zws()

    def _refuse_upgrade(self, line: str) -> None:
        self.problem("upgrade-refused", f"the {self.side} does not upgrade to {PROTOCOL}, it answers {line!r}")
        self.connection.security.failed = True
        self.stop()
        self.other.resume()

    def _after_head(self, data: bytes, position: int) -> int:
        """What comes first depends on what the server chose."""
        header = ws.parse_header(data, position)
        is_sure = not isinstance(header, int) and header[3] < len(data)
        if not self.other.greeted and self._waits(data, position, is_sure=is_sure):
            return position
        if self.other.stopped and self.connection.security.failed:
            return len(data)
        # Without a mechanism each side's first message is its identity (45/ZWS, "No Mechanism").
        self._expects_identity = not self._has_mechanism(data, position)
        self._inflater = self._make_inflater()
        self._state = self._messages
        return position

    def _make_inflater(self) -> deflate.Inflater | None:
        """What undoes the compression of this side, if the server has agreed to any (RFC 7692, section 7.1)."""
        server = self.connection.server.upgrade if self.connection.server.upgraded else None
        if server is None:  # its answer is not in the capture
            return deflate.Inflater(True)
        accepted = deflate.parameters(server.extensions)
        return None if accepted is None else deflate.Inflater(f"{self.side}_no_context_takeover" not in accepted)

    def _has_mechanism(self, data: bytes, position: int) -> bool:
        """Whether commands come first; where nobody says it, because the first message is one."""
        if self.connection.protocol is not None:
            return self.connection.protocol != PROTOCOL
        header = ws.parse_header(data, position)
        if isinstance(header, int) or header[3] >= len(data):
            return self.mechanism is not None
        return bool(ws.unmask(data[header[3] : header[3] + 1], header[1])[0] & ws.ZWS_COMMAND)

    # ------------------------------------------------------------------ frames of WebSocket

    def _messages(self, data: bytes, position: int) -> int:
        """WebSocket frames (RFC 6455, section 5.2)."""
        end = len(data)
        while position < end:
            header = ws.parse_header(data, position)
            if isinstance(header, int):
                self._need = header
                break
            first, mask, length, start = header
            if not self._check_header(first, bool(mask), length):
                self._die()
                return end
            stop = start + length
            if stop > end:
                if stop - end > _WAIT_LIMIT or length > self._keep:
                    self._begin_payload(first, mask, length)
                    return start
                self._need = stop - position
                break
            kept = data[start : min(stop, start + self._room(first))]
            position = stop
            self._payload(first, ws.unmask(kept, mask), length, True)
            if self.stopped:
                return end
        return position

    def _check_header(self, first: int, masked: bool, length: int) -> bool:
        """Report what is wrong with a frame; False if nothing after it can be read."""
        opcode = first & ws.OPCODE
        reserved = first & ws.RESERVED_BITS
        if reserved and not (reserved == ws.COMPRESSED and self._inflater and opcode in (ws.TEXT, ws.BINARY)):
            self.problem("bad-websocket-frame", f"reserved bits are set without an extension for it: 0x{first:02x}")
            return False
        if opcode not in ws.OPCODES or length > wire.MAX_LENGTH:
            self.problem("bad-websocket-frame", f"a frame begins with 0x{first:02x} and announces {length} octets")
            return False
        if opcode >= ws.CLOSE and (length > ws.CONTROL_LIMIT or not first & ws.FINAL):
            self.problem("bad-websocket-frame", f"a control frame (0x{first:02x}) of {length} octets, or in parts")
            return opcode in ws.OPCODES and bool(first & ws.FINAL)
        if masked != (self.side == "client"):
            what = "masked" if masked else "not masked"
            self.problem_once("websocket-mask", f"the {self.side}'s frames are {what} (RFC 6455, section 5.1)")
        return True

    def _begin_payload(self, first: int, mask: bytes, length: int) -> None:
        self._first = first
        self._mask = mask
        self._length = self._left = length
        self._body = []
        self._kept = 0
        self._hole = False
        self._state = self._collect_payload

    def _collect_payload(self, data: bytes, position: int) -> int:
        """Octets of a payload that is longer than what is there: kept up to the limit, then only counted."""
        taken = min(self._left, len(data) - position)
        wanted = min(taken, self._room(self._first) - self._kept)
        if wanted > 0 and not self._hole:
            self._body.append(data[position : position + wanted])
            self._kept += wanted
        self._left -= taken
        if self._left == 0:
            self._end_payload()
        return position + taken

    def _end_payload(self) -> None:
        kept = ws.unmask(b"".join(self._body), self._mask)
        self._body = []
        self._state = self._messages
        self._payload(self._first, kept, self._length, not self._hole)

    def _room(self, first: int) -> int:
        """How many octets are kept of the payload of a frame that begins so."""
        compressed = first & ws.COMPRESSED or (first & ws.OPCODE == ws.CONTINUATION and self._compressed)
        return deflate.COMPRESSED_LIMIT if compressed else self._keep + 1

    def _payload(self, first: int, kept: bytes, length: int, whole: bool) -> None:
        """Take a frame's payload of ``length`` octets, of which the first are kept."""
        opcode = first & ws.OPCODE
        if opcode >= ws.CLOSE:
            self._control(opcode, kept, whole)
            return
        if opcode == ws.TEXT:
            self.problem_once("bad-websocket-frame", "a text message; those of ZWS are binary")
        if opcode == ws.CONTINUATION:
            if self._fragments is None:
                if not self._damaged:
                    self.problem_once("bad-websocket-frame", "a continuation of nothing")
                return
        elif self._fragments is not None:
            self.problem_once("bad-websocket-frame", "a message begins before the one before is over")
            self._reset_message()
        if opcode != ws.CONTINUATION and first & ws.FINAL:
            self._whole(kept, length, whole, bool(first & ws.COMPRESSED))
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
            self._whole(*message)

    def _reset_message(self) -> None:
        """No message of several frames is unfinished."""
        self._fragments = None
        self._fragments_kept = 0
        self._compressed = False
        self._message_length = 0
        self._message_whole = True

    def _whole(self, kept: bytes, length: int, whole: bool, compressed: bool) -> None:
        """Take a WebSocket message, which is over."""
        if not compressed:
            self._zws_frame(kept, length, whole)
            return
        assert self._inflater
        if len(kept) < length or not whole:
            self._inflater.lose()
        inflated = self._inflater.inflate(kept, self._keep + 1) if len(kept) == length and whole else None
        if inflated is None:
            self.problem_once("websocket-compression", "compressed messages that cannot be read, this is the first")
            self._damaged = True
            self._plain = False
        else:
            self._zws_frame(*inflated, True)

    def _zws_frame(self, kept: bytes, length: int, whole: bool) -> None:
        """Take a WebSocket message, which is one frame of ZMTP with a flags octet before its body."""
        if not kept:
            if length:
                self._damaged = True
                self._plain = False
            else:
                self.problem("bad-websocket-frame", "a message without a flags octet")
            return
        flags = kept[0]
        if flags & ws.ZWS_RESERVED:
            self.problem("reserved-flags", f"reserved bits of the flags octet are set: 0x{flags:02x}")
        body: Octets = kept[1:]
        if len(kept) - 1 > self._keep or len(kept) < length:
            body = Cut(kept[1 : 1 + self._keep], length - 1)
        if self._expects_identity:
            self._expects_identity = False
            self.identity = body
            if length - 1 > wire.IDENTITY_LIMIT:
                self.problem("identity-too-long", f"an identity of {length - 1} octets")
            self.connection.identified_zws()
            return
        self._frame(flags & ws.ZWS_MORE | (wire.COMMAND if flags & ws.ZWS_COMMAND else 0), body, whole)

    def _control(self, opcode: int, data: bytes, whole: bool) -> None:
        """PING and PONG, which are the heartbeats of ZWS, and CLOSE: a 2-octet status, a reason."""
        place = self.time_ns, self.packet, self.flow, self.src, self.dst
        if opcode == ws.CLOSE:
            status = int.from_bytes(data[:2], "big") if len(data) >= 2 else None
            self.out.append(Command(*place, "CLOSE", reason=data[2:] or None, status=status, incomplete=not whole))
        else:
            name = "PING" if opcode == ws.PING else "PONG"
            self.out.append(Command(*place, name, context=data or None, incomplete=not whole))

    # ------------------------------------------------------------------ gaps

    def _skip(self, length: int, cut: bool) -> None:
        if not self.upgraded and not self.other.upgraded:
            super()._skip(length, cut)
            return
        if self.stopped:
            return
        if not self.upgraded:  # the hole is in its HTTP head
            self.upgraded = True
            self.upgrade = None
            self._lose()
            self.connection.lost_greeting()
            return
        if self._state == self._search_messages:
            self._searched += length
            return
        if self._inflater and self._state != self._collect_payload:
            self._inflater.lose()
        if self._state == self._messages and self._held:
            held = b"".join(self._chunks)
            header = ws.parse_header(held, 0)
            if not isinstance(header, int):
                self._chunks = []
                self._held = 0
                self._begin_payload(*header[:3])
                self._collect_payload(held, header[3])
        if self._state == self._collect_payload and length <= self._left:
            self._hole = True
            self._left -= length
            if self._left == 0:
                self._end_payload()
        else:
            self._lose()

    def _start_search(self) -> None:
        if not self.upgraded:
            super()._start_search()
            return
        self._reset_message()
        self._expects_identity = False
        self._inflater = self._make_inflater()
        if self._inflater:
            self._inflater.lose()
        self._searched = 0
        self._state = self._search_messages

    def _search(self, data: bytes, position: int) -> int:
        """The start is not in the capture: does the other side show ZWS, or this one by itself?"""
        known = self.other.upgraded
        if not known and (self.greeted or self.other.greeted or len(data) - position < self._try_at):
            return super()._search(data, position)
        found = 0
        if not known:
            start = ws.find_unknown(data[position:], self._starts, self.side == "client")
            if start is None:
                return super()._search(data, position)
            found = start
        self._searching = False
        self.upgraded = True
        self.upgrade = None
        self._start_search()
        if not known:
            self._found_messages(found)
            self.other.search_now()
        return position + found

    def _flush_message(self) -> None:
        first = self._first & (ws.OPCODE | ws.COMPRESSED) if self._state == self._collect_payload else None
        if first == ws.BINARY and self._body:
            kept = ws.unmask(b"".join(self._body), self._mask)
            if not kept[0] & ws.ZWS_COMMAND:
                self._parts.append(Cut(kept[1:], self._length - 1))
            self._body = []
        super()._flush_message()

    def _search_messages(self, data: bytes, position: int) -> int:
        """Look for a chain of frames; the first message found may lack its beginning."""
        found = ws.find_messages(data, position, self.side == "client")
        if found is None:
            self._searched += len(data) - position
            return len(data)
        self._found_messages(found - position)
        return found

    def _found_messages(self, skipped: int) -> None:
        self._damaged = True
        self._plain = False
        self._state = self._messages
        self._frames_found(self._searched + skipped)

    @property
    def _searches(self) -> bool:
        return super()._searches or self._state == self._search_messages

    @property
    def _collects(self) -> bool:
        return super()._collects or self._state == self._collect_payload
