"""One side of a connection: its handshake, and what its messages mean."""

from typing import Literal

from dissectors.events import Command, Cut, End, Octets, Subscription, at_hand, without_first
from dissectors.zmtp import commands, resync, sockets, wire
from dissectors.zmtp.websocket import Upgraded

# A frame that lacks more octets than this at the end of its connection, and of which less than one part in so many
# came, is taken for one whose length is nonsense.
_PLAUSIBLE_REST = 1 << 30
_NEARLY_NOTHING = 100
_MORE_THAN_ANY = 1 << 65  # octets: no frame is so long


class Half(Upgraded):
    """What one side sends."""

    __slots__ = ()

    def lose(self, code: str, detail: str, time_ns: int, packet: int) -> None:
        """Octets of the stream are missing, nobody knows how many; ``code`` and ``detail`` say so as a problem.

        So no body can be trusted to go on behind them: frames are looked for.
        """
        self.time_ns = time_ns
        self.packet = packet
        if self._state == self._dead:
            return
        self.problem(code, f"{detail}, at stream offset {self.octets}")
        if self._searches:
            self._forget_place()
            self._skip(0, False)
            return
        self.octets += _MORE_THAN_ANY
        self._skip(_MORE_THAN_ANY, False)
        self.octets -= _MORE_THAN_ANY

    def _is_plain(self) -> bool:
        return not (self._damaged or self.subscribes) and self.connection.security.in_clear(self.side)

    def _one_of_many(self, body: Octets) -> None:
        # A box says inside whether more follow; MORE on its frame does not make it a part of anything.
        if not (self.connection.security.has_boxes and at_hand(body).startswith(wire.CURVE_MESSAGE)):
            super()._one_of_many(body)
            return
        self.problem("command-with-more", "MORE is set on the frame of a MESSAGE")
        whole = not self._damaged
        if self._parts:
            self.problem("command-inside-message", "a MESSAGE between the frames of a message")
        else:
            self._end_message(1)
        self._command(body, whole)

    def _message(self, frames: list[Octets], incomplete: bool) -> None:
        """A message that needs a look: a subscription, an encrypted one, one too early, or a damaged one."""
        security = self.connection.security
        octets = at_hand(frames[0]) if len(frames) == 1 else b""
        least = 0 if security.mechanism else wire.CURVE_MESSAGE_LEAST
        if security.may_encrypt and octets.startswith(wire.CURVE_MESSAGE) and len(octets) >= least:
            self._command(frames[0], not incomplete)
            return
        if len(frames) > 1 and security.has_boxes and at_hand(frames[-1]).startswith(wire.CURVE_MESSAGE):
            *clear, box = frames
            self._message(clear, incomplete)
            self.problem("command-inside-message", "a MESSAGE where the last frame of a message should be")
            self._command(box, not incomplete)
            return
        if security.mechanism and not security.is_done(self.side) and not incomplete:
            self.problem("message-before-ready", "a message before this side's handshake was done")
            security.failed = True
        elif security.encrypts and not incomplete:
            self.problem("not-encrypted", f"a message in clear on a connection with {security.mechanism}")
        # A message that may lack its first frames is no subscription, even if what is left of it looks like one.
        if self.subscribes and octets[:1] in (b"\0", b"\1") and (not incomplete or isinstance(frames[0], Cut)):
            self._subscription(octets[0] == 1, without_first(frames[0], 1), "message", incomplete)
            return
        super()._message(frames, incomplete)

    def _subscription(self, on: bool, topic: Octets, encoding: Literal["message", "command"], incomplete: bool) -> None:
        if not sockets.may_send(self.socket_type, "SUBSCRIBE"):
            pass  # so that it gets nothing by it
        elif on:
            self.topics[topic] = None
        else:
            self.topics.pop(topic, None)
        self.out.append(
            Subscription(
                self.time_ns, self.packet, self.flow, self.src, self.dst,
                "subscribe" if on else "cancel", topic, encoding, self.begin, self.seen, incomplete,
            )
        )  # fmt: skip

    def _command(self, body: Octets, whole: bool) -> None:
        """A command frame, or a message that is one (an encrypted MESSAGE)."""
        security = self.connection.security
        octets = at_hand(body)
        whole = whole and not isinstance(body, Cut)
        mechanism = security.mechanism_of(self, octets)
        name, fields, faults = commands.parse_command(octets, mechanism, whole, self.limits.show_secrets)
        if name in ("SUBSCRIBE", "CANCEL") and not faults:
            self._check_command(name, mechanism, whole)
            self._subscription(name == "SUBSCRIBE", without_first(body, 1 + len(name)), "command", not whole)
            return
        if "box" in fields and isinstance(body, Cut) and isinstance(fields["box"], bytes):
            box = fields["box"]
            fields["box"] = Cut(box, len(box) + body.length - len(octets))
        self.out.append(
            Command(
                self.time_ns, self.packet, self.flow, self.src, self.dst, name,
                offset=self.begin, seen=self.seen, incomplete=not whole and not isinstance(body, Cut), **fields,  # type: ignore[arg-type]
            )
        )  # fmt: skip
        for code, detail in faults:
            self.problem(code, detail)
        codes = {code for code, _ in faults}
        if codes & {"malformed-command", "bad-metadata"}:
            security.malformed(self.side, name)
        if "malformed-command" in codes:
            return
        self._check_command(name, mechanism, whole)
        security.command(self, name, fields, mechanism)
        if whole and name in commands.HANDSHAKE_COMMANDS and not self._parts:
            self._damaged = False  # no message can have begun before it
        if not whole:
            security.lost(self.side)
        if whole and not faults and "properties" in fields and self.socket_type is None:
            self.problem("no-socket-type", f"{name} without a Socket-Type")
        self.look_again()
        self.other.look_again()

    def _check_command(self, name: str, mechanism: str | None, whole: bool) -> None:
        """Report a command that does not belong here; ``whole`` is false if octets of it are missing."""
        security = self.connection.security
        in_clear = name != "MESSAGE" and name not in commands.HANDSHAKE_COMMANDS
        if in_clear and whole and security.encrypts and security.is_done(self.side):
            self.problem("not-encrypted", f"{name} in clear on a connection with {security.mechanism}")
        elif not commands.is_known(name, mechanism):
            if whole and mechanism in (None, *security.KNOWN):  # else its name may be cut
                self.problem("unknown-command", f"command {name!r} is not known")
        elif not sockets.may_send(self.socket_type, name):
            self.problem("unexpected-command", f"{name} from a {self.socket_type} socket")
        elif name in commands.COMMANDS_OF_3_1 and self.connection.version == "3.0":
            self.problem_once("command-of-later-version", f"{name} on a connection of version 3.0")
        elif name in commands.COMMANDS_OF_3_1 and security.mechanism and not security.is_done(self.side):
            self.problem("unexpected-command", f"{name} before the handshake was done")

    def conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        """Octets already read came again with another value."""
        self.time_ns = max(self.time_ns, time_ns)
        self.packet = max(self.packet, packet)
        self.problem(
            "overlap-differs",
            f"{length} octets at stream offset {offset} came again with another value, which is not used",
        )

    # ------------------------------------------------------------------ gaps and the end

    def _frames_found(self, skipped: int) -> None:
        if self.connection.accepted and self.greeted:
            self.problem("frames-found-again", f"the next frame was found after {skipped} octets")
        else:
            self.connection.found_frames(self, skipped)
        self.greeted = True

    def _skip(self, length: int, cut: bool) -> None:
        if self.is_absent:
            self._begin()
        super()._skip(length, cut)

    def _is_believed(self, window: bytes, found: resync.Found) -> bool:
        return self.connection.believes(self, window, self._starts, found, self._cut)

    def _lose(self) -> None:
        super()._lose()
        self.connection.security.lost(self.side)

    def _search_failed(self) -> None:
        self._die()
        self.connection.give_up(self)

    def finish(self, end: End) -> None:
        """No more octets will come, because of ``end``: report what is unfinished."""
        self.ended = True
        self.search_now()
        if not self.connection.accepted:
            return
        if self.is_absent:
            self.problem("one-direction", f"no packet of the {self.side} is in the capture")
        searching = self._searches
        if searching and self._searched + self._held:
            lost = self._searched + self._held
            self.problem("frames-lost", f"no frames were found in the last {lost} octets of the {self.side}")
        if not self.greeted:
            if self.octets and not searching and not self.stopped:
                self._greet_what_is_known()
                self.problem("greeting-truncated", f"the connection ended after {self.octets} octets of a greeting")
            return
        held = self._held
        if held and self._state in (self._frames_v1, self._frames_v2):
            self._open_body()
        if self._collects:
            detail = f"{self._left} of the {self._length} octets of a frame's body are missing"
            came = self._length - self._left
            if self._left > _PLAUSIBLE_REST and came < self._length // _NEARLY_NOTHING:
                self.problem("implausible-length", detail)
            else:
                self.problem("capture-ends-inside" if end == "open" else "truncated-frame", detail)
        elif self._held and not searching:
            detail = f"the last {held} octets are the beginning of a frame"
            self.problem("capture-ends-inside" if end == "open" else "truncated-frame", detail)
        elif self._parts:
            detail = f"the last message has {len(self._parts)} frames and no end"
            self.problem("capture-ends-inside" if end == "open" else "truncated-message", detail)
        self._flush_message()
