"""What the frames of one side mean: a session turns frames into messages, commands and subscriptions.

The readers of :mod:`dissectors.zmtp.framing` pass frames to a session. Nearly all frames are whole messages that need
no closer look. The readers' hot loops turn these into events themselves, as long as `plain` says that they may.

The box of an encrypted MESSAGE holds a frame, too. If there is a key, a second session, `inside`, reads these frames
like those of a connection in clear.

When octets of a message are missing, the session reports the rest as incomplete. After a search for frames nobody knows
whether the first frames begin a message, or whether they are frames at all: `doubtful` counts them.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import field

from dissectors.events import Command, Cut, Hidden, Message, Octets, Side, Subscription, at_hand, without_first
from dissectors.snapshots import LATER, Live, Part
from dissectors.zmtp import commands, sockets, wire
from dissectors.zmtp.curve import OVERHEAD, Box, Boxes
from dissectors.zmtp.journal import Journal, Moment
from dissectors.zmtp.limits import Limits
from dissectors.zmtp.security import MECHANISMS, Security, inside_boxes

# From this many frames of a message on, their octets are counted. Below: the most frames and octets to keep of one.
_MANY_FRAMES = 1024
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
# Commands of CURVE that have a box, those whose box the key of the connection opens, and the flags inside a box.
_WITH_BOXES = frozenset({"HELLO", "WELCOME", "INITIATE", "READY", "MESSAGE"})
_WITH_KEY = frozenset({"INITIATE", "READY", "MESSAGE"})
_MORE_INSIDE, _COMMAND_INSIDE = 0x01, 0x02
_NO_FAULTS: list[commands.Fault] = []


class Session(Part):
    """Turns the frames of one side into events."""

    journal: Live[Journal]  # takes the events
    side: Live[Side]
    security: Live[Security]  # of the connection
    limits: Live[Limits]
    keep: Live[int] = 0  # octets to keep of the body of a frame
    boxes: Live[Boxes | None] = None  # opens the boxes of the connection; None if nobody has keys
    inside: "Session | None" = None  # takes the frames in this side's boxes; None until a box has been opened
    missed: bool = False  # there was a MESSAGE that no key opened
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
    many: int = _MANY_FRAMES  # from this many frames of a message on, each frame needs a look
    damaged: bool = False  # a part of the unfinished message is missing, or may be
    doubtful: int = 0  # so many of the next frames may be none, or belong to a message that began before them
    plain: Live[bool | None] = None  # messages need no look: no subscriptions, not encrypted, not damaged

    def __post_init__(self) -> None:
        """Begin without the other side."""
        self.keep = self.limits.keep
        self.other = self

    def make(self, kind: type[Part]) -> Part:
        """Make the session inside the boxes."""
        return self._session_inside()

    def _session_inside(self) -> "Session":
        inside = Session(self.journal, self.side, inside_boxes(), self.limits)
        inside.encrypted = True
        return inside

    def use(self, boxes: Boxes) -> None:
        """Open boxes with ``boxes`` from now on."""
        self.boxes = boxes
        self.keep = min(self.limits.keep + OVERHEAD, wire.MAX_LENGTH)

    # ------------------------------------------------------------------ whether messages need a look

    def look(self) -> bool:
        """Find out whether messages need no look from now on; `plain` remembers that until something changes."""
        self.plain = not (self.damaged or self.subscribes) and self.security.in_clear(self.side)
        return self.plain

    def look_again(self) -> None:
        """What the connection knows has changed: find out again whether messages need a look."""
        self.plain = None

    def damage(self) -> None:
        """A part of the unfinished message is missing."""
        self.damaged = True
        self.plain = None
        self._damage_inside()

    def _damage_inside(self) -> None:
        """A part of the unfinished message in boxes is missing."""
        wait = None if self.boxes is None else self.boxes.wait
        if wait is not None:
            wait.defer(self._damage_inside)
        elif self.inside is not None:
            self.inside.damage()

    def _flush_inside(self) -> None:
        """The unfinished message in boxes will have no end."""
        wait = None if self.boxes is None else self.boxes.wait
        if wait is not None:
            moment = self.journal.moment()
            wait.defer(lambda: self._at(moment, self._flush_inside))
        elif self.inside is not None:
            self.inside.flush(None)

    def _at(self, moment: Moment, action: Callable[[], None]) -> None:
        """Do something that was to be done when this was read last."""
        now = self.journal.moment()
        self.journal.go_to(moment)
        action()
        self.journal.go_to(now)

    def look_at_each(self) -> None:
        """Look at each frame with MORE from now on, since it may be more than a part of a message."""
        self.many = 0

    @property
    def all_topics(self) -> list[Octets]:
        """The topics that this side subscribes to, encrypted or not."""
        topics = list(self.topics)
        return topics if self.inside is None else [*topics, *self.inside.topics]

    @property
    def unfinished(self) -> int:
        """How many frames of an unfinished message there are."""
        return len(self.parts) or (0 if self.inside is None else len(self.inside.parts))

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
        self.other.look_again()

    def identify(self, identity: Octets, length: int) -> None:
        """Take this side's identity from its first frame, which has ``length`` octets (45/ZWS, "No Mechanism")."""
        self.identity = identity
        if length > wire.IDENTITY_LIMIT:
            self.journal.problem("identity-too-long", f"an identity of {length} octets")
        self.look_again()
        self.other.look_again()

    def lose(self) -> None:
        """Octets of this side are missing; they may have held commands of its handshake."""
        self.security.lost(self.side)
        self._damage_inside()
        self.look_again()
        self.other.look_again()

    def found(self, doubtful: int) -> None:
        """Go on behind a search for frames: the first ``doubtful`` may be none, or may not begin a message."""
        self.doubtful = doubtful
        self.damaged = doubtful > 0
        self.plain = None
        if self.damaged:
            self._damage_inside()

    # ------------------------------------------------------------------ frames

    def frame(self, flags: int, body: Octets, whole: bool) -> None:
        """Take a frame that is not the common case; ``whole`` is false if octets of it are not in the capture."""
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
        """Take a command; ``whole`` is false if octets of it are not in the capture."""
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
        # The flags inside a box say whether more frames follow; MORE on the frame around the box says nothing.
        if not (self.security.rules.has_boxes and at_hand(body).startswith(wire.CURVE_MESSAGE)):
            self._keep_part(body)
            return
        self.journal.problem("command-with-more", "MORE is set on the frame of a MESSAGE")
        whole = not self.damaged
        if self.parts:
            self.journal.problem("command-inside-message", "a MESSAGE between the frames of a message")
        else:
            self._end_message(1)
        self._command(body, whole)

    def _keep_part(self, body: Octets) -> None:
        """Keep a frame of a message within bounds: nothing says how many frames one may have."""
        parts = self.parts
        if len(parts) == _MANY_FRAMES:
            self._parts_octets = sum(len(part) for part in parts if isinstance(part, bytes))
        if len(parts) < _MANY_FRAMES:
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
        boxes = self.boxes
        if boxes is not None and boxes.is_open and isinstance(body, bytes) and not (self.parts or self.damaged):
            # With a known key nearly all boxes open here, and need none of the checks below.
            plain = self._open_message(boxes, body)
            if plain is not None:
                assert self.inside is not None
                self.inside.content(plain)
                return
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
        self._flush_inside()

    # ------------------------------------------------------------------ messages

    def _message(self, frames: list[Octets], incomplete: bool) -> None:
        """A message that needs a look: a subscription, an encrypted one, one too early, or a damaged one."""
        security, journal = self.security, self.journal
        octets = at_hand(frames[0]) if len(frames) == 1 else b""
        least = 0 if security.mechanism else wire.CURVE_MESSAGE_LEAST
        if security.may_encrypt and octets.startswith(wire.CURVE_MESSAGE) and len(octets) >= least:
            self._command(frames[0], not incomplete)
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
                *journal.place(), frames, self.socket_type, journal.begin, journal.seen, part, incomplete,
                self.encrypted,
            )
        )  # fmt: skip

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
        mechanism = security.mechanism or security.mechanism_of(self.mechanism or self.other.mechanism, octets, whole)
        name, fields, faults = commands.parse_command(octets, mechanism, whole, self.limits.show_secrets)
        if name in _OF_TOPICS and not faults:
            self._check_command(name, mechanism, whole)
            self._subscription(name == "SUBSCRIBE", without_first(body, 1 + len(name)), "command", not whole)
            return
        if not whole and isinstance(body, Cut) and isinstance(box := fields.get("box"), bytes):
            fields = fields | {"box": Cut(box, len(box) + body.length - len(octets))}
        shown: commands.Fields | None = fields
        if self.boxes is not None and mechanism == "CURVE" and name in _WITH_BOXES and not faults:
            shown, faults = self._unseal(self.boxes, name, fields, has_no_hole)
        if shown is not None:
            self._report_command(name, shown, incomplete, has_no_hole)
        if faults:
            for code, detail in faults:
                self.journal.problem(code, detail)
            codes = {code for code, _ in faults}
            if codes & _NOT_PARSED:
                security.malformed(self.side, name)
            if "malformed-command" in codes:
                return
        is_of_handshake = name in commands.HANDSHAKE_COMMANDS
        if not is_of_handshake:
            self._check_command(name, mechanism, whole)
        for code, detail in (wrong := security.take(self.side, name, fields, mechanism)):
            self.journal.problem(code, detail)
        fields = shown or fields
        if name in ("READY", "INITIATE") and not wrong:
            self._metadata(fields)
        if not whole:
            security.lost(self.side)
        else:
            if is_of_handshake and not self.parts:
                self.damaged = False  # no message begins before this command
            if self.socket_type is None and not faults and "properties" in fields:
                self.journal.problem("no-socket-type", f"{name} without a Socket-Type")
        self.plain = self.other.plain = None

    def _report_command(self, name: str, fields: commands.Fields, incomplete: bool, whole: bool) -> None:
        """Report a command. If it is still encrypted and a key may come, it waits for that.

        It is not ``whole`` if a hole in the capture has octets of it; ``incomplete`` is what its record says.
        """
        journal, boxes = self.journal, self.boxes
        wait = None
        if boxes is not None and name in _WITH_KEY and "box" in fields and not boxes.is_open:
            client = self if self.side == "client" else self.other
            self.missed = self.missed or (name == "MESSAGE" and not whole)
            wait = boxes.curve.hold(boxes, (client, client.other), journal.time_ns)
        command = Command(journal.time_ns, journal.packet, journal.flow, journal.src, journal.dst, name, **fields)  # type: ignore[arg-type]
        command.offset, command.seen = journal.begin, journal.seen
        if incomplete:
            command.incomplete = True
        if self.encrypted:
            command.encrypted = True
        if wait is None:
            if name == "MESSAGE":
                self.missed = True
            journal.out.append(command)
        else:
            wait.add(self, command, whole)

    def _metadata(self, fields: commands.Fields) -> None:
        """Read the socket type and the identity from READY or INITIATE."""
        name = fields.get("socket_type")
        if isinstance(name, str):
            self.socket_type = name
            if self.inside is not None:
                self.inside.set_socket_type(name)
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

    # ------------------------------------------------------------------ boxes of CURVE

    def content(self, plain: bytes) -> None:
        """Take the content of a whole MESSAGE's box: flags, and the body of a frame (26/CURVEZMQ, "MESSAGE")."""
        if plain[0]:
            self._frame_inside(plain[0], plain[1:], True)
        elif self.plain and not self.parts:
            journal = self.journal
            part = journal.count()
            journal.out.append(
                Message(
                    *journal.place(), [plain[1:]], self.socket_type, journal.begin, journal.seen, part, False, True
                )
            )  # fmt: skip
        else:
            if self.plain is None:
                self.look()
            self.last(plain[1:])

    def _frame_inside(self, flags: int, body: Octets, whole: bool) -> None:
        """Take a frame that was in a box; ``whole`` is false if octets of it are not in the capture."""
        rest = flags & ~(_MORE_INSIDE | _COMMAND_INSIDE)
        if rest:
            self.journal.problem("reserved-flags", f"reserved bits of the flags in a box are set: 0x{flags:02x}")
        self.frame(flags & _MORE_INSIDE | (wire.COMMAND if flags & _COMMAND_INSIDE else 0), body, whole)

    def _open_message(self, boxes: Boxes, body: bytes) -> bytes | None:
        """The content of the box in this body; None if it is no MESSAGE, is out of place, or does not open."""
        nonce = body[8:16]
        if len(body) < wire.CURVE_MESSAGE_LEAST or body[:8] != wire.CURVE_MESSAGE:
            return None
        security, side = self.security, self.side
        if not security.is_done(side) or self.inside is None:
            return None
        plain = boxes.open_message(side, nonce, body[16:])
        if plain is not None:
            for code, detail in security.count(side, nonce):
                self.journal.problem(code, detail)
        return plain

    def _unseal(
        self, boxes: Boxes, name: str, fields: commands.Fields, whole: bool
    ) -> tuple[commands.Fields | None, list[commands.Fault]]:
        """The fields of a command with the content of its box, and what is wrong with that content.

        The fields are None if events of the content stand for the command.
        """
        nonce, box = fields.get("nonce"), fields.get("box")
        if not isinstance(nonce, bytes):
            return fields, _NO_FAULTS
        if name == "MESSAGE":
            return self._unseal_message(boxes, nonce, box, fields, whole)
        if not isinstance(box, bytes):
            return fields, _NO_FAULTS
        had_key = boxes.is_open
        opened = self._open_handshake(boxes, name, Box(nonce, box), fields)
        if boxes.is_open and not had_key:
            self._settle(boxes)
        if opened is None:
            return fields, self._not_opened(name) if had_key and whole and name in _WITH_KEY else _NO_FAULTS
        found, faults = opened
        rest = {field: value for field, value in fields.items() if field != "box"}
        return rest | found | {"encrypted": True}, faults

    def _open_handshake(
        self, boxes: Boxes, name: str, sealed: Box, fields: commands.Fields
    ) -> tuple[commands.Fields, list[commands.Fault]] | None:
        """The content of a handshake command's box, and what is wrong with it; None if no key opens it."""
        client_key, cookie = fields.get("client_key"), fields.get("cookie")
        if name == "HELLO" and isinstance(client_key, bytes):
            key = boxes.take_hello(self.side, client_key, sealed, self.journal.time_ns)
            return None if key is None else ({"server_key": key}, _NO_FAULTS)
        if name == "WELCOME":
            key = boxes.take_welcome(sealed)
            if boxes.hello_for is not None:
                boxes.curve.learn(self.journal.src, boxes.hello_for)
            return None if key is None else ({"server_key": key}, _NO_FAULTS)
        if name == "READY":
            plain = boxes.take_ready(self.side, sealed)
            return None if plain is None else commands.metadata(plain)
        if name != "INITIATE" or not isinstance(cookie, bytes):
            return None
        introduction = boxes.take_initiate(self.side, cookie, sealed)
        if introduction is None:
            return None
        found, faults = commands.metadata(introduction.metadata)
        if introduction.vouch_is_good is False:
            faults = [*faults, ("box-not-opened", "the vouch in INITIATE is not that of the client's long-term key")]
        keys: commands.Fields = {
            "long_term_key": introduction.long_term_key,
            "shared_key": boxes.key if self.limits.show_secrets else Hidden(len(boxes.key)),
        }
        return found | keys, faults

    def _unseal_message(
        self, boxes: Boxes, nonce: bytes, box: object, fields: commands.Fields, whole: bool
    ) -> tuple[commands.Fields | None, list[commands.Fault]]:
        had_key = boxes.is_open
        if isinstance(box, bytes):
            plain = boxes.open_message(self.side, nonce, box)
            if plain is not None:
                self.missed = self.missed or not whole
                self._settle(boxes)
                assert self.inside is not None
                self.inside.content(plain)
                return None, _NO_FAULTS
        elif isinstance(box, Cut) and had_key:
            plain = boxes.begin_message(self.side, nonce, box.data)
            if plain is not None:
                self._settle(boxes)
                assert self.inside is not None
                length = box.length - wire.CURVE_BOX_OVERHEAD - 1
                self.inside._frame_inside(plain[0], Cut(plain[1:], length), whole)
                return None, _NO_FAULTS
        if self.inside is not None:
            self.inside.damage()  # this box may have held a part of the next message
        accused = had_key and whole and isinstance(box, bytes)
        return fields, self._not_opened("MESSAGE") if accused else _NO_FAULTS

    def _not_opened(self, name: str) -> list[commands.Fault]:
        detail = f"the box of a {name} does not open with the key of its connection: "
        detail += "its octets are not those that the sender sealed"
        return [("box-not-opened", detail)]

    def _settle(self, boxes: Boxes) -> None:
        """The key is known: give out the events that waited for it, and be ready for frames in boxes."""
        boxes.curve.release(boxes)
        for session in (self, self.other):
            session.begin_inside(session.may_lack_octets)

    @property
    def may_lack_octets(self) -> bool:
        """Whether the next message in boxes may have begun in octets that nobody can read."""
        return self.damaged or self.missed

    def begin_inside(self, damaged: bool) -> None:
        """Be ready for frames in boxes, if it is not; if ``damaged``, the first may belong to a message before."""
        if self.inside is not None:
            return
        self.inside = inside = self._session_inside()
        inside.socket_type = self.socket_type
        inside.version = self.version
        inside.damaged = damaged
        self.join_inside()

    def join_inside(self) -> None:
        """Let the sessions inside the boxes of both sides know each other."""
        if self.inside is not None and self.other.inside is not None:
            self.inside.other = self.other.inside
            self.other.inside.other = self.inside

    def reopen(self, event: Command, whole: bool) -> None:
        """Show the content of a command's box; when the command came, there was no key for it."""
        journal, boxes = self.journal, self.boxes
        assert boxes is not None
        now = journal.moment()
        journal.go_to((event.time_ns, event.packet, event.offset, event.seen))
        fields: commands.Fields = {"nonce": event.nonce, "box": event.box}
        if event.cookie is not None:
            fields["cookie"] = event.cookie
        shown, faults = self._unseal(boxes, event.name, fields, whole)
        if shown is fields:
            self.missed = self.missed or event.name == "MESSAGE"
            journal.out.append(event)
        elif shown is not None:
            self._report_command(event.name, shown, event.incomplete, whole)
            self._metadata(shown)
        for code, detail in faults:
            journal.problem(code, detail)
        journal.go_to(now)

    def release(self) -> None:
        """Break the references back to this session, which takes nothing any more."""
        del self.other
        if self.inside is not None:
            del self.inside.other


def _cost(topic: Octets) -> int:
    """Octets of memory that a topic takes."""
    return _TOPIC_COST + len(at_hand(topic))
