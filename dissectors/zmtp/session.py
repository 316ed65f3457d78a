"""The meaning of the frames of one side: a session turns frames into messages, commands and subscriptions.

The readers of :mod:`dissectors.zmtp.framing` pass frames to a session. Nearly all frames are whole messages that need
no closer look. The readers' hot loops turn these into events themselves, as long as `plain` says that they may.

The box of an encrypted MESSAGE holds a frame, too (:mod:`dissectors.zmtp.box_reader`).

When octets of a message are missing, the session reports the rest as incomplete. After a search for frames nobody knows
whether the first frames begin a message, or whether they are frames at all: `doubtful` counts them.
"""

from typing import Literal, Protocol

from msgspec import field

from dissectors.events import Command, Cut, Greeting, Message, Octets, Side, Subscription, at_hand, without_first
from dissectors.snapshots import LATER, Live, Part, quick
from dissectors.zmtp import commands, sockets, wire
from dissectors.zmtp.encoder import frame_head
from dissectors.zmtp.journal import Journal
from dissectors.zmtp.limits import Limits
from dissectors.zmtp.security import MECHANISMS, Security

# From this many frames of a message on, their octets are counted. Below: the most frames and octets to keep of one.
MANY_FRAMES = 1024
_MOST_FRAMES = 1 << 20
_MESSAGE_OCTETS = 64 << 20
# How the bodies of PING and PONG begin. libzmq sends them when they are due (ZMQ_HEARTBEAT_IVL), also between two
# frames of a message, and accepts them there, although the grammar of 37/ZMTP does not.
_HEARTBEATS = (b"\x04PING", b"\x04PONG")
# Octets of memory that the topics of one side may take, and those of a topic beside its content.
_TOPICS_LIMIT = 4 << 20
_TOPIC_COST = 150
_OF_TOPICS = frozenset({"SUBSCRIBE", "CANCEL"})
_NOT_PARSED = frozenset({"malformed-command", "bad-metadata"})
_WITH_BOXES = frozenset({"HELLO", "WELCOME", "INITIATE", "READY", "MESSAGE"})  # commands of CURVE


class Unsealer(Protocol):
    """Reads the boxes in the commands of one side."""

    def open(self, body: bytes) -> bool:
        """Pass on the content of a MESSAGE, which is a whole message; False if ``body`` is none or does not open."""

    def unseal(
        self, name: str, fields: commands.Fields, whole: bool
    ) -> tuple[commands.Fields | None, list[commands.Fault]]:
        """The fields of a command with the content of its box, and what is wrong with that content.

        The fields are None if events of the content stand for the command. It is not ``whole`` if a hole in the capture
        has octets of it.
        """
        ...

    def hold(self, command: Command, whole: bool) -> bool:
        """Whether a command whose box is still closed waits for a key; the rest is as in :meth:`unseal`."""

    def damage(self) -> None:
        """A part of the unfinished message in boxes is missing."""

    def flush(self) -> None:
        """The unfinished message in boxes will have no end."""

    def set_socket_type(self, name: str) -> None:
        """The side has said its socket type."""


@quick
class Session(Part):
    """Turns the frames of one side into events."""

    journal: Live[Journal]  # takes the events
    side: Live[Side]
    security: Live[Security]  # of the connection
    limits: Live[Limits]
    keep: Live[int] = 0  # octets to keep of the body of a frame
    box_reader: Live[Unsealer | None] = None  # reads the boxes in this side's commands; None where there are none
    encrypted: Live[bool] = False  # this session takes the frames that were in boxes
    other: Live["Session"] = LATER  # the session of the other side; itself where there is only one
    mechanism: str | None = None  # that this side announces
    socket_type: str | None = None
    identity: Octets | None = None
    version: str | None = None  # of the connection
    # That this side subscribes to; not all if they are too many.
    topics: dict[Octets, None] = field(default_factory=dict)
    _topics_octets: int = 0  # of memory that they take
    parts: list[Octets] = field(default_factory=list)  # frames of the message that is not finished
    _parts_octets: int = 0  # in these frames, counted where there are many
    many: int = MANY_FRAMES  # from this many frames of a message on, each frame needs a look
    damaged: bool = False  # a part of the unfinished message is missing, or may be
    doubtful: int = 0  # so many of the next frames may be none, or belong to a message that began before them
    plain: Live[bool | None] = None  # messages need no look: no subscriptions, not encrypted, not damaged

    def __post_init__(self) -> None:
        """Begin without the session of the other side, which may be set later."""
        self.keep = self.limits.keep
        self.other = self

    # ------------------------------------------------------------------ whether messages need a look

    def look(self) -> bool:
        """Find out whether messages need no look from now on; `plain` remembers that until something changes."""
        self.plain = not (self.damaged or self.subscribes) and self.security.in_clear(self.side)
        return self.plain

    def look_again(self) -> None:
        """Find out again whether messages of either side need a look, since the connection has learnt something."""
        self.plain = self.other.plain = None

    def damage(self) -> None:
        """A part of the unfinished message is missing."""
        self.damaged = True
        self.plain = None
        if self.box_reader is not None:
            self.box_reader.damage()

    def look_at_each(self) -> None:
        """Look at each frame with MORE from now on, since it may be more than a part of a message."""
        self.many = 0

    def carry(self, held: bytes) -> bytes | None:
        """The octets of the message that is not over, with those ``held`` of its next frame; None if they are not all
        there, or if it is a long one.
        """
        if self.many < MANY_FRAMES or len(self.parts) >= MANY_FRAMES:
            return None
        frames: list[bytes] = []
        for body in self.parts:
            if not isinstance(body, bytes):
                return None
            frames.append(frame_head(len(body), wire.MORE) + body)
        return b"".join(frames) + held

    @property
    def subscribes(self) -> bool:
        """Whether messages of this side may be subscriptions; only a subscriber talks to a publisher."""
        if self.socket_type is None:
            return self.other.socket_type in sockets.PUBLISHERS
        return self.socket_type in sockets.SUBSCRIBERS

    # ------------------------------------------------------------------ what others find out

    def set_socket_type(self, name: str | None) -> None:
        """This side has said its socket type; ``name`` is None for an unknown one."""
        self.socket_type = name
        self.look_again()

    def identify(self, identity: Octets, length: int) -> None:
        """Take this side's identity from its first frame, which has ``length`` octets (45/ZWS, "No Mechanism")."""
        self.identity = identity
        if length > wire.IDENTITY_LIMIT:
            self.journal.problem("identity-too-long", f"an identity of {length} octets")
        self.look_again()

    def greet(self, version: str | None, mechanism: str | None, as_server: bool | None) -> None:
        """Report the greeting of this side."""
        self.mechanism = mechanism
        place = self.journal.place()
        self.journal.out.append(Greeting(*place, version, mechanism, as_server, self.socket_type, self.identity))

    def lose(self) -> None:
        """Octets of this side are missing; they may have held commands of its handshake."""
        self.security.lost(self.side)
        if self.box_reader is not None:
            self.box_reader.damage()
        self.look_again()

    def found(self, doubtful: int) -> None:
        """Go on behind a search for frames: the first ``doubtful`` may be none, or may not begin a message."""
        self.doubtful = doubtful
        self.damaged = doubtful > 0
        self.plain = None
        if self.damaged and self.box_reader is not None:
            self.box_reader.damage()

    # ------------------------------------------------------------------ frames

    def frame(self, flags: int, body: Octets, whole: bool) -> None:
        """Take a frame that is not the common case; ``whole`` is false if the capture lacks some of its octets."""
        if flags & wire.RESERVED:
            self.journal.problem("reserved-flags", f"reserved bits of the flags octet are set: 0x{flags:02x}")
        if flags & wire.COMMAND:
            if flags & wire.MORE:
                self.journal.problem("command-with-more", f"MORE is set on a command: flags 0x{flags:02x}")
            self.command(body, whole)
            return
        if not whole:
            self.damage()
        if flags & wire.MORE:
            self.part(body)
        else:
            self.last(body)

    def command(self, body: Octets, whole: bool = True) -> None:
        """Take a command; ``whole`` is false if the capture lacks some of its octets."""
        if self.parts:
            self._interrupt(body, whole)
        self._command(body, whole)
        # A command shows where frames begin, not where messages do: PING and PONG may come between two frames.
        if self.doubtful > 1:
            self.doubtful -= 1

    def _interrupt(self, command: Octets, whole: bool) -> None:
        """Report a command between the frames of a message, unless it may be one that libzmq sends there."""
        name = at_hand(command)[: len(_HEARTBEATS[0])]
        if name in _HEARTBEATS:
            self.journal.problem_once(
                "heartbeat-inside-message", "PING or PONG between the frames of a message, first here"
            )
        elif whole or not any(heartbeat.startswith(name) for heartbeat in _HEARTBEATS):
            self.journal.problem("command-inside-message", "a command between the frames of a message")

    def part(self, body: Octets) -> None:
        """Take a frame with MORE that needs a look."""
        # The flags inside a box say whether more frames follow; MORE on the frame around it (omq) says nothing.
        if not (self.security.rules.has_boxes and at_hand(body).startswith(wire.CURVE_MESSAGE)):
            self._keep_part(body)
            return
        whole = not self.damaged
        if self.parts:
            self.journal.problem("command-inside-message", "a MESSAGE between the frames of a message")
        else:
            self._end_message(1)
        self._command(body, whole)

    def _keep_part(self, body: Octets) -> None:
        """Keep a frame of a message within bounds: nothing says how many frames one may have."""
        parts = self.parts
        if len(parts) == MANY_FRAMES:
            self._parts_octets = sum(len(part) for part in parts if isinstance(part, bytes))
        if len(parts) < MANY_FRAMES:
            parts.append(body)
        elif len(parts) < _MOST_FRAMES:
            self._parts_octets += len(body) if isinstance(body, bytes) else 0
            most = _MESSAGE_OCTETS if self.limits.body_octets else wire.MAX_LENGTH
            if self._parts_octets > most and isinstance(body, bytes):
                self._parts_octets -= len(body)
                body = Cut(b"", len(body))
            parts.append(body)
        elif not self.damaged:
            self.damage()
            self.journal.problem("message-too-large", f"only the first {_MOST_FRAMES} frames of a message are shown")

    def last(self, body: Octets) -> None:
        """Take the last frame of a message that needs a look."""
        reader = self.box_reader
        if reader is not None and isinstance(body, bytes) and not (self.parts or self.damaged) and reader.open(body):
            return  # with a known key nearly all boxes open here, and need none of the checks below
        frames = self.parts
        frames.append(body)
        self.parts = []
        damaged = self.damaged
        self._end_message(len(frames))
        self._message(frames, damaged)

    def _end_message(self, frames: int) -> None:
        """A message of ``frames`` frames is over; the next one may not be whole either."""
        if self.damaged or self.doubtful:
            self.doubtful = max(self.doubtful - frames, 0)
            self.damaged = self.doubtful > 0
            self.plain = None

    def flush(self, rest: Octets | None) -> None:
        """The unfinished message will have no end; ``rest`` is what came of its next frame."""
        frames = self.parts
        self.parts = []
        if rest is not None:
            frames.append(rest)
        if frames:
            self.damaged = False
            self.plain = None
            self._message(frames, True)
        if self.box_reader is not None:
            self.box_reader.flush()

    # ------------------------------------------------------------------ messages

    def _message(self, frames: list[Octets], incomplete: bool) -> None:
        """A message that needs a look: a subscription, an encrypted one, one too early, or a damaged one."""
        security, journal = self.security, self.journal
        octets = at_hand(frames[0]) if len(frames) == 1 else b""
        if security.may_encrypt and all(map(self._is_box, frames)):
            for box in frames:
                self._command(box, not incomplete)
            return
        if len(frames) > 1 and security.rules.has_boxes and at_hand(frames[-1]).startswith(wire.CURVE_MESSAGE):
            *clear, box = frames
            self._message(clear, incomplete)
            journal.problem("command-inside-message", "a MESSAGE where the last frame of a message should be")
            self._command(box, not incomplete)
            return
        if security.mechanism and not security.is_done(self.side) and not incomplete:
            journal.problem("message-before-ready", "a message before this side's handshake was done")
            security.failed = True
        elif security.rules.encrypts and not incomplete:
            journal.problem("not-encrypted", f"a message in clear on a connection with {security.mechanism}")
        # A message that may lack its first frames is no subscription, even if its rest looks like one.
        if self.subscribes and octets[:1] in (b"\0", b"\1") and (not incomplete or isinstance(frames[0], Cut)):
            self._subscription(octets[0] == 1, without_first(frames[0], 1), "message", incomplete)
            return
        part = journal.count()
        journal.out.append(
            Message(
                *journal.place(), frames, self.socket_type, False, None, journal.begin, journal.seen, part, incomplete,
                self.encrypted,
            )
        )  # fmt: skip

    def _is_box(self, frame: Octets) -> bool:
        """Whether a frame looks like a MESSAGE. It needs all of its length if nothing says that boxes come."""
        octets = at_hand(frame)
        least = 0 if self.security.mechanism else wire.CURVE_MESSAGE_LEAST
        return octets.startswith(wire.CURVE_MESSAGE) and len(octets) >= least

    def _subscription(self, on: bool, topic: Octets, encoding: Literal["message", "command"], incomplete: bool) -> None:
        if not sockets.may_send(self.socket_type, "SUBSCRIBE"):
            pass  # a subscription of this side would have no effect
        elif on:
            self._remember(topic)
        elif topic in self.topics:
            del self.topics[topic]
            self._topics_octets -= _cost(topic)
        journal = self.journal
        action: Literal["subscribe", "cancel"] = "subscribe" if on else "cancel"
        journal.out.append(
            Subscription(
                *journal.place(), action, topic, encoding, journal.begin, journal.seen, incomplete, self.encrypted
            )
        )

    def _remember(self, topic: Octets) -> None:
        """Remember a topic for the summary, if there is room."""
        cost = _cost(topic)
        if topic not in self.topics and self._topics_octets + cost <= _TOPICS_LIMIT:
            self.topics[topic] = None
            self._topics_octets += cost

    # ------------------------------------------------------------------ commands

    def _command(self, body: Octets, whole: bool) -> None:
        """A command frame, or a message that is one (an encrypted MESSAGE)."""
        security = self.security
        has_no_hole = whole
        if isinstance(body, bytes):
            octets, incomplete = body, not whole
        else:
            octets, incomplete, whole = at_hand(body), not (whole or isinstance(body, Cut)), False
            incomplete = incomplete or not commands.has_name(octets)
        mechanism = security.mechanism or security.mechanism_of(self.mechanism or self.other.mechanism, octets, whole)
        name, fields, faults = commands.parse_command(octets, mechanism, whole, self.limits.show_secrets)
        if name in _OF_TOPICS and not faults:
            self._check_command(name, mechanism, whole)
            self._subscription(name == "SUBSCRIBE", without_first(body, 1 + len(name)), "command", not whole)
            return
        if not whole and isinstance(body, Cut) and isinstance(box := fields.get("box"), bytes):
            fields = fields | {"box": Cut(box, len(box) + body.length - len(octets))}
        shown: commands.Fields | None = fields
        if self.box_reader is not None and mechanism == "CURVE" and name in _WITH_BOXES and not faults:
            shown, faults = self.box_reader.unseal(name, fields, has_no_hole)
        if shown is not None:
            self.report_command(name, shown, incomplete, has_no_hole)
        if faults:
            self.journal.problems(faults)
            codes = {code for code, _ in faults}
            if codes & _NOT_PARSED:
                security.malformed(self.side, name)
            if "malformed-command" in codes:
                return
        is_of_handshake = name in commands.HANDSHAKE_COMMANDS
        if not is_of_handshake:
            self._check_command(name, mechanism, whole)
        wrong = security.take(self.side, name, fields, mechanism)
        self.journal.problems(wrong)
        fields = shown or fields
        if name in ("READY", "INITIATE") and not wrong:
            self.take_metadata(fields)
        if not whole:
            security.lost(self.side)
        else:
            if is_of_handshake and not self.parts:
                self.damaged = False  # no message begins before this command
            if self.socket_type is None and not faults and "properties" in fields:
                self.journal.problem("no-socket-type", f"{name} without a Socket-Type")
        self.plain = self.other.plain = None

    def report_command(self, name: str, fields: commands.Fields, incomplete: bool, whole: bool) -> None:
        """Report a command, unless it waits for a key to its box.

        It is not ``whole`` if a hole in the capture has octets of it; ``incomplete`` is what its record says.
        """
        journal = self.journal
        command = Command(journal.time_ns, journal.packet, journal.flow, journal.src, journal.dst, name, **fields)  # type: ignore[arg-type]
        command.offset, command.seen = journal.begin, journal.seen
        if incomplete:
            command.incomplete = True
        if self.encrypted:
            command.encrypted = True
        if self.box_reader is None or not self.box_reader.hold(command, whole):
            journal.out.append(command)

    def take_metadata(self, fields: commands.Fields) -> None:
        """Read the socket type and the identity from READY or INITIATE."""
        name = fields.get("socket_type")
        if isinstance(name, str):
            self.socket_type = name
            if self.box_reader is not None:
                self.box_reader.set_socket_type(name)
        identity = fields.get("identity")
        if isinstance(identity, (bytes, Cut)):
            self.identity = identity
            if isinstance(identity, bytes) and len(identity) > wire.IDENTITY_LIMIT:
                self.journal.problem("identity-too-long", f"an identity of {len(identity)} octets")
        name, other = self.socket_type, self.other.socket_type
        if name is None:
            return
        if name not in sockets.PEERS:
            self._fail("unknown-socket-type", f"socket type {name!r} is not known")
        elif other and not sockets.may_talk(name, other):
            self._fail("incompatible-socket-types", f"{name} may not talk to {other}")

    def _fail(self, code: str, detail: str) -> None:
        """The peers will not talk to each other, because of this problem."""
        self.journal.problem(code, detail)
        self.security.failed = True

    def _check_command(self, name: str, mechanism: str | None, whole: bool) -> None:
        """Report a command that is out of place outside a handshake; it is not ``whole`` if octets are missing."""
        security, journal = self.security, self.journal
        if name != "MESSAGE" and whole and security.rules.encrypts and security.is_done(self.side):
            journal.problem("not-encrypted", f"{name} in clear on a connection with {security.mechanism}")
        elif not commands.is_known(name, mechanism):
            if whole and (mechanism is None or mechanism in MECHANISMS):  # the name of one with a hole may be cut
                journal.problem("unknown-command", f"command {name!r} is not known")
        elif not sockets.may_send(self.socket_type, name):
            journal.problem("unexpected-command", f"{name} from a {self.socket_type} socket")
        elif name in commands.COMMANDS_OF_3_1 and self.version == "3.0":
            journal.problem_once("command-of-later-version", f"{name} on a connection of version 3.0")
        elif name in commands.COMMANDS_OF_3_1 and security.mechanism and not security.is_done(self.side):
            journal.problem("unexpected-command", f"{name} before the handshake was done")

    def release(self) -> None:
        """Break the references back to this session, which takes nothing any more."""
        del self.other, self.box_reader


def _cost(topic: Octets) -> int:
    """Octets of memory that a topic takes."""
    return _TOPIC_COST + len(at_hand(topic))
