"""A ZMTP connection: two halves, and what only the pair of them knows.

The connection decides whether it is ZMTP at all. It gives out no event before that is certain. Once it is certain that
this is something else, it reads nothing more.

    undecided ── a signature, an upgrade, frames, both sides' evidence: it can be nothing else ──▶ accepted
    undecided ── neither side can be ZMTP, or nothing proves it until the end ──▶ rejected

One side that does not speak ZMTP does not decide that. The other side may speak ZMTP to it, and then the connection
reports the first side as a problem.
"""

from typing import Literal

import msgspec
from msgspec import field

from dissectors import snapshots
from dissectors.events import AnyEvent, Connection, End, Handshake, Peer, Side, Sides, printable
from dissectors.snapshots import LATER, Live, Part, quick
from dissectors.zmtp import ending, evidence, sockets, upgrade, wire
from dissectors.zmtp.agreement import Agreement, agree, agree_zws
from dissectors.zmtp.curve import Boxes, Curve
from dissectors.zmtp.half import Half
from dissectors.zmtp.journal import Journal, in_causal_order
from dissectors.zmtp.limits import Limits
from dissectors.zmtp.midstream import MidStream
from dissectors.zmtp.pair import Finding, ReadingTurns
from dissectors.zmtp.resync import Discovery
from dissectors.zmtp.security import Security

_KIND = "ZMTP connection"

# The first octets of other protocols, to say which one speaks on a port of ZeroMQ.
_OTHERS = (
    (b"\x16\x03", "TLS"),
    (b"\x15\x03", "TLS"),  # an alert
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


class Merge(msgspec.Struct, eq=False):
    """The events of one side, read again, wait to be put in order with those that the other side may show now."""

    connection: "ZmtpConnection"
    half: Half
    out: list[AnyEvent]
    begin: int
    end: int

    def go_on(self) -> None:
        """The other side has been read."""
        out, boxes = self.out, self.connection.boxes
        waits_for_keys = boxes is not None and boxes.wait is not None  # then events keep their places
        if self.half.journal.out is out and not waits_for_keys:
            out[self.begin :] = in_causal_order(out[self.begin : self.end], out[self.end :])


@quick
class ZmtpConnection(Part):
    """Dissects one TCP connection.

    ``client.feed`` and ``server.feed`` take the octets of each side in order. ``client.gap`` and ``server.gap`` report
    missing octets. The connection appends events to ``out``, from the moment it is certain that this is ZMTP.
    ``rejected`` becomes true when it is certain that this is not ZMTP.

    The connection calls ``doubts`` when it ends and may have been ZMTP, but nothing proved it. ``curve`` opens boxes of
    CURVE.
    """

    out: Live[list[AnyEvent]]
    flow: int
    client_address: Live[str]
    server_address: Live[str]
    from_start: tuple[bool, bool] = (True, True)  # the capture has the first octets of each side's stream
    limits: Live[Limits | None] = None
    forced: int | None = None  # the user knows: nothing, ZMTP of any version (0), or that version (1, 2, 3)
    transport: Literal["tcp", "ipc"] = "tcp"  # WebSocket over TCP shows by itself
    doubts: Live[evidence.Doubts | None] = None
    curve: Live[Curve | None] = None
    accepted: bool = False
    rejected: bool = False
    version: str | None = None
    protocol: str | None = None  # the sub-protocol of WebSocket, if the server has chosen one
    security: Security = field(default_factory=Security)
    client: Half = LATER
    server: Half = LATER
    boxes: Live[Boxes | None] = None  # opens the boxes of CURVE; None if nobody has keys
    _saved_boxes: Boxes | None = None  # the same in a snapshot: who goes on from it may have keys or none
    _held: bytes = b""  # in a snapshot: the events that wait until it is certain that this is ZMTP
    _refusal: tuple[Side, str, str] | None = None  # a side that does not speak ZMTP, the problem and its detail
    _midstream: MidStream | None = None  # there while a side is searched for frames
    _is_news: Live[bool] = False  # frames were found in a side that has no greeting
    turns: Live[ReadingTurns] = field(default_factory=ReadingTurns)
    _over: Live[bool] = False  # no more octets will come
    _not_seen: bool = False  # octets of a greeting are missing: an incomplete handshake accuses nobody
    _agreed: bool = False  # the greetings of both sides have been compared

    def __post_init__(self) -> None:
        """Begin with both halves."""
        limits, forced = self.limits or Limits(), self.forced
        held: list[AnyEvent] = []  # events that wait until it is certain that this is ZMTP
        names = self.client_address, self.server_address
        self.client = one = Half.begin(
            self, Journal(held, self.flow, *names), "client", self.security, limits, self.from_start[0], forced
        )
        self.server = other = Half.begin(
            self, Journal(held, self.flow, *names[::-1]), "server", self.security, limits, self.from_start[1], forced
        )
        one.opening.other, other.opening.other = other.opening, one.opening
        one.session.other, other.session.other = other.session, one.session
        one.box_reader.other, other.box_reader.other = other.box_reader, one.box_reader
        if self.curve is not None:
            self.boxes = Boxes(self.curve)
            for half in self.halves:
                half.box_reader.use(self.boxes)
        if forced is not None:
            self.accept()
        if forced:
            for half in self.halves:
                half.expect(1 if forced == 1 else 2)

    def write_to(self, out: list[AnyEvent]) -> None:
        """Append the events from now on to ``out``, but for those that wait until it is certain that this is ZMTP."""
        self.out = out
        if self.accepted:
            for half in self.halves:
                half.journal.out = out

    @property
    def halves(self) -> tuple[Half, Half]:
        """Both sides, the client first."""
        return self.client, self.server

    def _other(self, half: Half) -> Half:
        return self.server if half is self.client else self.client

    # ------------------------------------------------------------------ what a side has found out

    def _wake(self, half: Half) -> None:
        """Give ``half`` a turn if it waits for the other side."""
        if half.buffer.held or half.opening.state == "after signature":
            self.turns.wake(half)

    def take(self, half: Half, finding: Finding) -> None:
        """Draw the conclusions from what ``half`` has found out."""
        other = self.server if half is self.client else self.client
        match finding:
            case "greeting":
                self._greeted(other)
            case "signature":
                signature = half.opening.signature
                if not self.accepted and signature is not None and signature.is_certain:
                    self.accept()
                self._wake(other)
            case "silence" | "unknown":
                self._wake(other)
            case "revision":
                if not self.accepted:
                    self._announced()
                self._wake(other)
            case "frames":
                self._begin_frames(half)
            case "identity":
                self._identified(half, other)
                self._weigh()
                self._wake(other)
            case "proof":
                self.accept()
            case "evidence":
                self._weigh()
            case "illegal":
                self.reject()
            case "hole":
                self._not_seen = True
            case "lost":
                self._not_seen = True
                self._skip_handshake()
            case "hopeless":
                if not self.accepted and (other.stopped or not other.buffer.octets):
                    self.reject()
            case "upgrade":
                self._upgraded()
            case "no-upgrade":
                self.security.failed = True
                half.stop()
                self._wake(other)

    # ------------------------------------------------------------------ is it ZMTP?

    def accept(self) -> None:
        """It is ZMTP: give out the events that waited for that."""
        if self.accepted or self.rejected:
            return
        self.accepted = True
        self.out.extend(self.client.journal.out)
        for half in self.halves:
            half.prove(self.out)
        if self._refusal:
            side, code, detail = self._refusal
            self._report_refusal(self.client if side == "client" else self.server, code, detail)

    def refuse(self, half: Half, code: str, detail: str) -> None:
        """``half`` does not speak ZMTP. That is a problem only if the other half does."""
        half.stop()
        if self.accepted:
            self._report_refusal(half, code, detail)
            return
        self._refusal = self._refusal or (half.side, code, detail)
        other = self._other(half)
        if other.stopped or other.opening.versioned is False:
            self.reject()

    def _report_refusal(self, half: Half, code: str, detail: str) -> None:
        if not detail:
            beginning = half.opening.beginning
            what = next((name for start, name in _OTHERS if beginning.startswith(start)), None)
            does = f"speaks {what} instead of ZMTP" if what else "does not speak ZMTP"
            detail = f"the {half.side} {does}: its octets begin {_legible(beginning)}"
        half.journal.problem(code, detail)
        self.security.failed = True
        self._wake(self._other(half))

    def reject(self) -> None:
        """It is not ZMTP, or nothing proves that it is."""
        midstream = self._midstream
        in_doubt = self._may_have_been() or (midstream is not None and midstream.remains_open(self.halves, self._over))
        if self.doubts is not None and not self.rejected and in_doubt:
            self.doubts.add(self.flow, self.client.journal.src, self.server.journal.src)
        self.rejected = True
        nobody: list[AnyEvent] = []
        for half in self.halves:
            half.stop()
            half.journal.out = nobody

    def _announced(self) -> None:
        """A half has sent its revision. Two revisions that answer each other prove ZMTP; one alone does not."""
        openings = [half.opening for half in self.halves]
        signatures = [one.signature for one in openings if one.revision is not None and one.signature]
        if len(signatures) == 2 and all(signature.last == wire.SIGNATURE_END for signature in signatures):
            self.accept()

    def believes(self, half: Half, octets: bytes, found: Discovery) -> bool:
        """Whether the frames that ``half`` has found in mid-stream are frames of ZMTP."""
        if self._midstream is None:
            self._midstream = MidStream()
        return self._midstream.believes(half, self._other(half), octets, found, self._over)

    def _weigh(self, at_end: bool = False) -> None:
        """Decide by the evidence of both halves whether they speak ZMTP 1.0; ``at_end``: no more octets will come."""
        if self.accepted:
            return
        one, other = (half.opening.evidence for half in self.halves)
        if one is not None and other is not None and evidence.are_certain(one, other, at_end):
            self.accept()
        # The end of a long frame will tell; of its body no more is held than of any other.
        elif any(half.buffer.octets > evidence.UNPROVEN_LIMIT for half in self.halves) and not (
            one is not None and other is not None and (one.in_long or other.in_long)
        ):
            self.reject()

    def _may_have_been(self) -> bool:
        """Whether it looked like ZMTP all the time, and only a proof was missing."""
        one, other = (half.opening.evidence for half in self.halves)
        if one is not None and other is not None and evidence.are_worth_a_note(one, other):
            return True
        return any(half.opening.signature is not None and half.opening.revision is not None for half in self.halves)

    def found(self, half: Half, skipped: int) -> None:
        """The capture lacks the greeting of ``half``, but the search found frames behind ``skipped`` octets."""
        self._not_seen = True
        self._is_news = True
        self._skip_handshake()
        self.accept()
        other = self._other(half)
        if not other.opening.greeted and not other.opening.framing:
            other.expect(half.opening.framing)
        where = f"zmtpsniff found frames {skipped} octets after the start" if skipped else "it starts with a frame"
        half.journal.problem("no-greeting", f"the {half.side}'s greeting is not in the capture; {where}")

    def read_again(self, half: Half, out: list[AnyEvent], begin: int) -> None:
        """``half`` has read the octets in which something was found: their events are in ``out`` from ``begin`` on.

        This may be all that was missing to find frames of the other side, which happened at the same time.
        """
        if not self._is_news or any(isinstance(one, Merge) for one in self.turns):
            return
        self._is_news = False
        self.turns.add(Merge(self, half, out, begin, len(out)))
        self._other(half).search_now()

    # ------------------------------------------------------------------ what both halves agree on

    def _identified(self, half: Half, other: Half) -> None:
        """``half``, of version 1.0 or 2.0, has read its identity frame; both sides have the same framing then."""
        self.security.skip()
        self.client.session.look_again()
        if other.opening.greeted:
            self._set_version("1.0" if 1 in (half.opening.framing, other.opening.framing) else "2.0")
            self._check_types_v2()
        elif not other.opening.framing:
            other.expect(half.opening.framing)

    def _check_types_v2(self) -> None:
        one, other = self.client.session.socket_type, self.server.session.socket_type
        if one and other and not sockets.may_talk(one, other):
            self._last().journal.problem("incompatible-socket-types", f"{one} may not talk to {other}")

    def _last(self) -> Half:
        """The half that spoke last."""
        return self.client if self.client.journal.packet >= self.server.journal.packet else self.server

    def _set_version(self, version: str | None) -> None:
        self.version = version
        self.client.session.version = self.server.session.version = version

    def _greeted(self, other: Half) -> None:
        """The half that is not ``other`` has read its 3.x greeting."""
        if not other.opening.greeted:
            other.expect(2)  # had the other one been older, this one would not have said so much
        elif not self._agreed:
            self._agreed = True
            if not self._not_seen:
                self.security.resume()
            agreement = agree(self.client.opening, self.server.opening)
            if agreement.version is not None:
                self._set_version(agreement.version)
            if not agreement.is_known:
                self._not_seen = True
                self.security.unknown_start = True
            self._take_agreement(agreement, self._last())
            if self.accepted:
                for side in self.halves:
                    if side.opening.state == "after greeting":
                        side.begin_frames(2)
        self.client.session.look_again()
        self._wake(other)

    def _take_agreement(self, agreement: Agreement, last: Half) -> None:
        """Begin the handshake on which the greetings agree; ``last`` is the half that greeted last."""
        security = self.security
        if agreement.mechanism is not None:
            security.begin(agreement.mechanism)
            if security.rules.has_boxes:
                for half in self.halves:
                    half.session.look_at_each()
        security.failed = security.failed or agreement.failed
        last.journal.problems(agreement.faults)

    def _begin_frames(self, half: Half) -> None:
        """The greeting of ``half`` is over; the other half has greeted, or never will."""
        if not self._other(half).opening.greeted:
            # The other side is absent: read on without a handshake, until that side greets after all.
            self._not_seen = self._not_seen or not self._other(half).is_absent
            self._skip_handshake()
        if self.accepted:
            half.begin_frames(2)
        else:
            # If nothing has proven it until now, nothing will.
            self.refuse(half, "not-zmtp", "")

    def _upgraded(self) -> None:
        """A half has upgraded to ZWS."""
        one, other = self.client.opening.upgrade, self.server.opening.upgrade
        if self._agreed or one is None or other is None:
            return  # the other one has not upgraded, or greets as over TCP
        self._agreed = True
        agreement = agree_zws(one, other)
        self.protocol = other.protocols[0]
        if agreement.version is not None:
            self._set_version(agreement.version)
        if agreement.mechanism is None and not agreement.failed:
            self.security.skip()
        self._take_agreement(agreement, self.server)
        for half in self.halves:
            self._wake(half)

    def _skip_handshake(self) -> None:
        """Read on without the handshake: the capture shows too little to judge that."""
        self.security.unknown_start = True
        self.security.skip()
        self.client.session.look_again()

    # ------------------------------------------------------------------ the end

    def finish(self, end: End, start_ns: int, end_ns: int, closed_by: Side | None = None) -> None:
        """The connection or the capture is over: report unfinished messages, and the summary."""
        if not self.accepted and not self.rejected:
            self._over = True
            for half in self.halves:
                half.search_now()
        self.client.opening.ended = self.server.opening.ended = True
        for half in self.halves:
            self._wake(half)
        self._weigh(at_end=True)
        if not self.accepted:
            self.reject()
            return
        for half in self.halves:
            ending.report(half, end)
        if self.boxes is not None:
            self.boxes.curve.release(self.boxes)
        handshake = self._handshake()
        if handshake == "incomplete":
            handshake = self._judge_incomplete(end, end_ns)
        self.out.append(self._summary(end, start_ns, end_ns, handshake, closed_by))

    def summary(self, start_ns: int, last_ns: int) -> Connection | None:
        """The summary of a connection that is still open; None while it is not certain that it is ZMTP."""
        return self._summary("open", start_ns, last_ns, None) if self.accepted else None

    def _summary(
        self, end: End, start_ns: int, end_ns: int, handshake: Handshake | None, closed_by: Side | None = None
    ) -> Connection:
        one, other = self.client, self.server
        return Connection(
            flow=self.flow,
            transport="ws" if one.opening.upgraded or other.opening.upgraded else self.transport,
            client=self._peer(one),
            server=self._peer(other),
            messages=Sides(one.journal.messages, other.journal.messages),
            octets=Sides(one.buffer.octets, other.buffer.octets),
            start_ns=start_ns,
            end_ns=max(start_ns, end_ns),
            end=end,
            version=self.version,
            mechanism=self.security.mechanism,
            handshake=handshake,
            subscriptions=one.topics + other.topics,
            closed_by=closed_by,
        )

    def release(self) -> None:
        """Break the references between the connection and its halves; it is over or rejected."""
        for half in self.halves:
            half.release()

    def _peer(self, half: Half) -> Peer:
        session = half.session
        return Peer(half.journal.src, half.opening.version, session.socket_type, session.identity)

    def _handshake(self) -> Handshake:
        if self.security.failed:
            return "failed"
        if self.version in ("1.0", "2.0") or self.security.complete:
            return "complete"
        if self.protocol == upgrade.PROTOCOL and all(half.session.identity is not None for half in self.halves):
            return "complete"
        if self.security.hello_is_bad:
            return "failed"
        late = not all(self.from_start) and not all(half.opening.greeted for half in self.halves)
        absent = any(half.is_absent for half in self.halves)
        return "not-seen" if late or absent or self._not_seen or self.security.unknown_start else "incomplete"

    def _judge_incomplete(self, end: End, end_ns: int) -> Handshake:
        """Report a handshake that stopped; if nothing on the wire explains that, a key may."""
        boxes = self.boxes
        if boxes is not None and boxes.client_side is not None and end in ("fin", "rst"):
            server = self.server if boxes.client_side == "client" else self.client
            detail = boxes.wrong_server_key(server.journal.src, end_ns)
            if detail is not None:
                self._other(server).journal.problem("server-key-wrong", detail)
                return "failed"
        self._report_incomplete(end)
        return "incomplete"

    def _report_incomplete(self, end: End) -> None:
        how = {"fin": "the connection was closed", "rst": "the connection was reset",
               "timeout": "the connection fell silent", "open": "the capture ended"}[end]  # fmt: skip
        self._last().journal.problem(
            "handshake-incomplete",
            f"{how} before the handshake was complete, and nothing on the wire says why",
        )

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """The state of a connection that is not over; :meth:`restore` makes a connection from it that continues."""
        return snapshots.save(_KIND, self)

    @classmethod
    def restore(
        cls,
        octets: bytes,
        out: list[AnyEvent],
        limits: Limits | None = None,
        doubts: evidence.Doubts | None = None,
        curve: Curve | None = None,
    ) -> "ZmtpConnection":
        """Make a connection that continues where a :meth:`snapshot` was taken, and appends its events to ``out``.

        ``limits``, ``doubts`` and ``curve`` are as for a new connection, since a snapshot has no keys. Raises
        :class:`~dissectors.snapshots.SnapshotError` if the octets are no snapshot of a connection, or have another
        format.
        """
        connection = cls(out, 0, "", "", limits=limits, doubts=doubts, curve=curve)
        snapshots.load(_KIND, octets, connection)
        return connection

    def make(self, kind: type[Part]) -> Part:
        """Make the evidence of a search in mid-stream, or take the boxes that there are keys for."""
        return self.boxes or Boxes() if kind is Boxes else MidStream()

    def before_save(self) -> None:
        """Let no event wait for a key, since a snapshot has none, and save those that wait for something else."""
        if self.boxes is not None:
            self.boxes.curve.release(self.boxes)
        self._saved_boxes = self.boxes
        self._held = b"" if self.accepted else snapshots.store_events(self.client.journal.out)

    def after_load(self) -> None:
        """Let both halves write events to one place, and know each other's boxes."""
        out = self.out if self.accepted else snapshots.fetch_events(self._held)
        for half in self.halves:
            half.journal.out = out
            half.box_reader.join()


def _legible(beginning: bytes) -> str:
    """The first line of a text in quotes; other octets in hexadecimal digits."""
    line = printable(beginning.partition(b"\r\n")[0]) or ""
    return f'"{line}"' if len(line) > 3 else beginning.hex(" ")
