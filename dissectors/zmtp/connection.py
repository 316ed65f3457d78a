"""A ZMTP connection: two halves and what only the pair knows."""

from typing import Literal

from dissectors.events import AnyEvent, Connection, End, Handshake, Peer, Sides
from dissectors.zmtp import evidence, greeting, resync, sockets, upgrade, wire
from dissectors.zmtp.half import Half
from dissectors.zmtp.midstream import MidStream
from dissectors.zmtp.opening import Opening
from dissectors.zmtp.security import Security
from dissectors.zmtp.stream import Limits

# What other protocols begin with, to say what speaks on a port of ZeroMQ.
_OTHERS = (
    (b"\x16\x03", "TLS"),
    (b"SSH-", "SSH"),
    (b"GET ", "HTTP"),
    (b"POST ", "HTTP"),
    (b"PUT ", "HTTP"),
    (b"HEAD ", "HTTP"),
    (b"OPTIONS ", "HTTP"),
    (b"HTTP/", "HTTP"),
    (b"PRI * HTTP/2", "HTTP/2"),
    (b"AMQP", "AMQP"),
)


class ZmtpConnection:
    """Dissects one TCP connection.

    ``client.feed`` and ``server.feed`` take the octets of each side in order, ``gap`` of each tells of octets that
    are missing; events are appended to ``out``. Nothing is reported before it is certain that this is ZMTP;
    ``rejected`` becomes true when it is certain that it is not.
    """

    __slots__ = (
        "_compared",
        "_doubts",
        "_final",
        "_from_start",
        "_not_seen",
        "_refusal",
        "accepted",
        "client",
        "flow",
        "forced",
        "forced_version",
        "halves",
        "midstream",
        "out",
        "over",
        "protocol",
        "rejected",
        "security",
        "server",
        "transport",
        "version",
    )

    def __init__(
        self,
        out: list[AnyEvent],
        flow: int,
        client: str,
        server: str,
        from_start: tuple[bool, bool] = (True, True),
        limits: Limits | None = None,
        forced: int | None = None,
        transport: Literal["tcp", "ipc"] = "tcp",
        doubts: evidence.Doubts | None = None,
    ) -> None:
        """``transport`` is what carries it; that it is ws shows by itself.

        ``from_start`` says for each side whether its first octets are those of its stream.

        ``forced`` is None to find out whether this is ZMTP, 0 to take it for ZMTP, 1, 2 or 3 for that version.

        ``doubts`` is told if it may have been ZMTP, and nothing proved it.
        """
        limits = limits or Limits()
        self.flow = flow
        self.transport = transport
        self.accepted = False
        self.rejected = False
        self.forced = forced is not None
        self.forced_version = forced or None
        self._doubts = doubts
        self._refusal: tuple[Opening, str, str] | None = None
        self.security = Security()
        self.midstream: MidStream | None = None  # of a side that is searched
        self.over = False  # no more octets will come
        self.version: str | None = None
        self.protocol: str | None = None  # of WebSocket, if the server has chosen one
        self._final = out
        self.out: list[AnyEvent] = []  # until it is certain
        self._not_seen = False
        self._from_start = all(from_start)
        self._compared = False
        self.client = Half(self, "client", client, server, limits, from_start[0])
        self.server = Half(self, "server", server, client, limits, from_start[1])
        self.client.other, self.server.other = self.server, self.client
        self.halves = (self.client, self.server)
        if forced is not None:
            self.accept()
        if forced:
            for half in self.halves:
                half.framing = 1 if forced == 1 else 2

    # ------------------------------------------------------------------ is it ZMTP?

    def accept(self) -> None:
        """It is ZMTP: give out what has been held back."""
        if self.accepted or self.rejected:
            return
        self.accepted = True
        self._final.extend(self.out)
        self.out = self._final
        for half in self.halves:
            half.proven()
        if self._refusal:
            self._refuse(*self._refusal)

    def refuse(self, half: Opening, code: str, detail: str) -> None:
        """This half does not speak ZMTP; whether that is a problem depends on the other one."""
        half.stop()
        if self.accepted:
            self._refuse(half, code, detail)
            return
        self._refusal = self._refusal or (half, code, detail)
        if half.other.stopped or half.other.versioned is False:
            self.reject()

    def has_refused(self, half: Opening) -> bool:
        """Whether ``half`` was found to speak something else, which says much of the other one, too.

        Not where the user says which version this is: then the other half is taken for that whatever this one says.
        """
        read = half.greeted or half.silent or half.versioned is not None or not half.beginning
        return half.stopped and not (read or self.forced_version)

    def _refuse(self, half: Opening, code: str, detail: str) -> None:
        if not detail:
            what = next((name for start, name in _OTHERS if half.beginning.startswith(start)), None)
            shown = half.beginning.hex(" ")
            detail = f"the {half.side} does not speak ZMTP, its octets begin {shown}"
            if what:
                detail = f"the {half.side} speaks {what} instead of ZMTP, its octets begin {shown}"
        half.problem(code, detail)
        self.security.failed = True
        half.other.resume()

    def reject(self) -> None:
        """It is not ZMTP, or nothing proves that it is."""
        midstream = self.midstream
        in_doubt = self._may_have_been() or (midstream is not None and midstream.remains_open(self.halves))
        if self._doubts is not None and not self.rejected and in_doubt:
            self._doubts.add(self.flow, self.client.src, self.server.src)
        self.rejected = True
        self.out = []
        for half in self.halves:
            half.stop()

    def give_up(self, half: Opening) -> None:
        """No frames were found in as much of ``half`` as is searched."""
        if not self.accepted and (half.other.stopped or not half.other.octets):
            self.reject()

    def announced(self) -> None:
        """A half has sent its revision: two that answer each other prove what one alone does not."""
        signatures = [half.signature for half in self.halves if half.revision is not None and half.signature]
        if len(signatures) == 2 and all(signature.last == wire.SIGNATURE_END for signature in signatures):
            self.accept()

    def believes(self, half: Opening, window: bytes, starts: list[int], found: resync.Found, cut: int) -> bool:
        """Whether the frames that ``half`` has found in mid-stream are of ZMTP."""
        if self.midstream is None:
            self.midstream = MidStream()
        return self.midstream.believes(half, window, starts, found, cut)

    def weigh(self, at_end: bool = False) -> None:
        """Hold what both halves have said as ZMTP 1.0 against what else it may be; ``at_end`` if nothing more comes."""
        if self.accepted:
            return
        one, other = (half.evidence for half in self.halves)
        if one is not None and other is not None and evidence.are_certain(one, other, at_end):
            self.accept()
        elif any(half.octets > evidence.UNPROVEN_LIMIT for half in self.halves):
            self.reject()

    def _may_have_been(self) -> bool:
        """Whether it looked like ZMTP, and nothing more was missing than a proof."""
        one, other = (half.evidence for half in self.halves)
        if one is not None and other is not None and evidence.are_worth_a_note(one, other):
            return True
        return any(half.signature is not None and half.revision is not None for half in self.halves)

    def found_frames(self, half: Opening, skipped: int) -> None:
        """``half`` has no greeting in the capture, but frames were found."""
        self._not_seen = True
        self.security.unknown_start = True
        self.security.skip()
        self.accept()
        other = half.other
        if not other.greeted and not other.framing:
            other.framing = half.framing
        other.known = True
        where = f"frames were found {skipped} octets after the start" if skipped else "it starts with a frame"
        half.problem("no-greeting", f"the {half.side}'s greeting is not in the capture; {where}")

    # ------------------------------------------------------------------ what both halves agree on

    def identified(self) -> None:
        """A half of version 1.0 or 2.0 has read its identity frame."""
        one, other = self.halves
        self.security.skip()
        for half in self.halves:
            half.look_again()
        if one.greeted and other.greeted:
            self.version = "1.0" if 1 in (one.framing, other.framing) else "2.0"
            self._check_types_v2()

    def _check_types_v2(self) -> None:
        one, other = self.client.socket_type, self.server.socket_type
        if one and other and not sockets.may_talk(one, other):
            half = self.client if self.client.packet >= self.server.packet else self.server
            half.problem("incompatible-socket-types", f"{one} may not talk to {other}")

    def greeted_v3(self) -> None:
        """A half has read its 3.x greeting."""
        one, other = self.halves
        for half in self.halves:
            if not half.greeted:
                half.framing = 2  # else the other one would not have said so much
        if self._compared or not (one.greeted and other.greeted):
            self._wake()
            return
        self._compared = True
        if not self._not_seen:
            self.security.resume()
        if None not in (one.revision, one.minor, other.revision, other.minor):
            self.version = greeting.negotiated_v3((one.revision, one.minor), (other.revision, other.minor))  # type: ignore[arg-type]
        last = one if one.packet >= other.packet else other
        if one.mechanism is None or other.mechanism is None:
            self._not_seen = True
            self.security.unknown_start = True
        elif one.mechanism != other.mechanism:
            last.problem(
                "mechanism-mismatch",
                f"the client announces {one.mechanism or 'none'}, the server {other.mechanism or 'none'}",
            )
            self.security.failed = True
        elif not one.mechanism_is_legal:
            self.security.failed = True
        else:
            self._begin(one.mechanism)
            if one.mechanism not in Security.KNOWN:
                last.problem("unknown-mechanism", f"mechanism {one.mechanism!r} is not known")
            elif one.mechanism != "NULL" and one.as_server and other.as_server:
                last.problem("both-as-server", "both sides say that they are the server")
                self.security.failed = True
        self._wake()

    def _begin(self, mechanism: str) -> None:
        """Both sides announce this mechanism."""
        self.security.begin(mechanism)
        if self.security.has_boxes:
            for half in self.halves:
                half.look_at_each()

    def greeted_zws(self) -> None:
        """A half has upgraded to ZWS; the server's protocol is the one that counts (45/ZWS, "Handshake")."""
        one, other = self.halves
        if self._compared or not (one.greeted and one.upgraded and other.greeted and other.upgraded):
            return  # one alone is not enough, nor is one that greets as over TCP
        if one.upgrade is None or other.upgrade is None:
            return
        self._compared = True
        self.protocol = other.upgrade.protocols[0]
        if self.protocol in one.upgrade.protocols:
            self.version = other.version
            if other.mechanism is None:
                self.security.skip()
            else:
                self._begin(other.mechanism)
                if other.mechanism not in Security.KNOWN:
                    other.problem("unknown-mechanism", f"mechanism {other.mechanism!r} is not known")
        else:
            offered = ", ".join(one.upgrade.protocols)
            other.problem("mechanism-mismatch", f"the client offers {offered}, the server chooses {self.protocol}")
            self.security.failed = True
        for half in self.halves:
            half.resume()

    def identified_zws(self) -> None:
        """A half without mechanism has sent its identity."""
        for half in self.halves:
            half.look_again()

    def _wake(self) -> None:
        for half in self.halves:
            half.look_again()
            half.resume()

    def missed_greeting(self) -> None:
        """Octets of a greeting are missing, and perhaps of the handshake: that it stayed incomplete accuses nobody."""
        self._not_seen = True

    def lost_greeting(self) -> None:
        """Octets of a greeting are missing, so that the handshake cannot be judged."""
        self._not_seen = True
        self.skip_handshake()

    def skip_handshake(self) -> None:
        """Read on without the handshake of a side that is absent, until it greets after all."""
        self.security.unknown_start = True
        self.security.skip()
        for half in self.halves:
            half.look_again()

    # ------------------------------------------------------------------ the end

    def finish(self, end: End, start_ns: int, end_ns: int) -> None:
        """The connection, or the capture, is over: report what is unfinished, and the summary."""
        if not self.accepted and not self.rejected:
            self.over = True
            for half in self.halves:
                half.search_now()
        for half in self.halves:
            half.ended = True
        for half in self.halves:
            if not half.stopped:
                half.resume()
        self.weigh(at_end=True)
        if not self.accepted:
            self.reject()
            return
        for half in self.halves:
            half.finish(end)
        handshake = self._handshake()
        if handshake == "incomplete":
            self._report_incomplete(end)
        self.out.append(
            Connection(
                flow=self.flow,
                transport="ws" if self.client.upgraded or self.server.upgraded else self.transport,
                client=self._peer(self.client),
                server=self._peer(self.server),
                messages=Sides(self.client.messages, self.server.messages),
                octets=Sides(self.client.octets, self.server.octets),
                start_ns=start_ns,
                end_ns=max(start_ns, end_ns),
                end=end,
                version=self.version,
                mechanism=self.security.mechanism,
                handshake=handshake,
                subscriptions=[*self.client.topics, *self.server.topics],
            )
        )

    def release(self) -> None:
        """Break the circle of the two halves and their connection, which is over or rejected."""
        self._refusal = None
        for half in self.halves:
            half.release()

    def _peer(self, half: Half) -> Peer:
        return Peer(half.src, half.version, half.socket_type, half.identity)

    def _handshake(self) -> Handshake:
        if self.security.failed:
            return "failed"
        if self.version in ("1.0", "2.0") or self.security.complete:
            return "complete"
        if self.protocol == upgrade.PROTOCOL and all(half.identity is not None for half in self.halves):
            return "complete"
        if self.security.hello_is_bad:
            return "failed"
        late = not self._from_start and not all(half.greeted for half in self.halves)
        absent = any(half.is_absent for half in self.halves)
        return "not-seen" if late or absent or self._not_seen or self.security.unknown_start else "incomplete"

    def _report_incomplete(self, end: End) -> None:
        half = self.client if self.client.packet >= self.server.packet else self.server
        how = {"fin": "was closed", "rst": "was reset", "timeout": "fell silent", "open": "is still open"}[end]
        half.problem(
            "handshake-incomplete",
            f"the connection {how} before the handshake was complete, and nothing on the wire says why",
        )
