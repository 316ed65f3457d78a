"""The content of one side's boxes of CURVE: commands of the handshake, and frames (25/ZMTP-CURVE, "Framing").

:mod:`dissectors.zmtp.curve` opens boxes. The box of a MESSAGE holds an octet of flags and the body of a frame. A second
session, `inside`, reads these frames like those of a connection in clear. It is there from the first box on that a key
has opened.

The first key may come after some boxes. Then the commands, and with them all events of the connection, wait for that
key (:class:`~dissectors.zmtp.curve.Wait`). Damage and ends of messages inside boxes wait with them, since the boxes in
front of them may yet open.

    closed ── no key opens a MESSAGE, and none may come ──▶ closed, and a part of a message is `missed`
    closed ── a key may come ──▶ waiting ── it comes, or patience ends ──▶ `reopen` each command, in order
    closed, waiting ── a key opens a box ──▶ open: frames go to `inside`
"""

from collections.abc import Callable

from dissectors.events import Command, Cut, Hidden, Octets
from dissectors.snapshots import LATER, Live, Part
from dissectors.zmtp import commands, wire
from dissectors.zmtp.curve import OVERHEAD, Box, Boxes
from dissectors.zmtp.journal import Journal, Moment
from dissectors.zmtp.security import inside_boxes
from dissectors.zmtp.session import Session

_WITH_KEY = frozenset({"INITIATE", "READY", "MESSAGE"})  # commands whose box the key of the connection opens
_NO_FAULTS: list[commands.Fault] = []


class BoxReader(Part):
    """Reads the boxes in the commands of one side."""

    session: Live[Session]  # takes the commands
    journal: Live[Journal] = LATER
    boxes: Live[Boxes | None] = None  # opens the boxes of the connection; None if nobody has keys
    inside: Session | None = None  # takes the frames in this side's boxes; None until a box has been opened
    missed: bool = False  # there was a MESSAGE that no key opened
    other: Live["BoxReader"] = LATER  # that of the other side

    def __post_init__(self) -> None:
        """Read the boxes of the session's commands."""
        self.journal = self.session.journal
        self.session.box_reader = self

    def use(self, boxes: Boxes) -> None:
        """Open boxes with ``boxes`` from now on."""
        self.boxes = boxes
        self.session.keep = min(self.session.limits.keep + OVERHEAD, wire.MAX_LENGTH)

    # ------------------------------------------------------------------ what happens to the session

    def set_socket_type(self, name: str) -> None:
        """The side has said its socket type."""
        if self.inside is not None:
            self.inside.set_socket_type(name)

    def damage(self) -> None:
        """A part of the unfinished message in boxes is missing."""
        wait = None if self.boxes is None else self.boxes.wait
        if wait is not None:
            wait.defer(self.damage)
        elif self.inside is not None:
            self.inside.damage()

    def flush(self) -> None:
        """The unfinished message in boxes will have no end."""
        wait = None if self.boxes is None else self.boxes.wait
        if wait is not None:
            moment = self.journal.moment()
            wait.defer(lambda: self._at(moment, self.flush))
        elif self.inside is not None:
            self.inside.flush(None)

    def _at(self, moment: Moment, action: Callable[[], None]) -> None:
        """Do something that was to be done when this was read last."""
        now = self.journal.moment()
        self.journal.go_to(moment)
        action()
        self.journal.go_to(now)

    # ------------------------------------------------------------------ what boxes hold

    def open(self, body: bytes) -> bool:
        """Pass on the content of a MESSAGE, which is a whole message; False if ``body`` is none or does not open."""
        boxes, session, inside = self.boxes, self.session, self.inside
        if boxes is None or inside is None or not boxes.is_open or body[:8] != wire.CURVE_MESSAGE:
            return False
        security, side, nonce = session.security, session.side, body[8:16]
        if len(body) < wire.CURVE_MESSAGE_LEAST or not security.is_done(side):
            return False
        content = boxes.open_message(side, nonce, body[16:])
        if content is None:
            return False
        self.journal.problems(security.count(side, nonce))
        self._pass_on(inside, content)
        return True

    def _pass_on(self, inside: Session, content: bytes) -> None:
        """Pass on the content of a whole MESSAGE's box: flags, and the body of a frame (26/CURVEZMQ, "MESSAGE")."""
        if content[0]:
            self._frame(inside, content[0], content[1:], True)
        else:
            inside.last(content[1:])

    def _frame(self, inside: Session, flags: int, body: Octets, whole: bool) -> None:
        """Pass on a frame that was in a box; ``whole`` is false if the capture lacks some of its octets."""
        if flags & wire.RESERVED_INSIDE:
            self.journal.problem("reserved-flags", f"reserved bits of the flags in a box are set: 0x{flags:02x}")
        inside.frame(wire.flags_inside(flags), body, whole)

    def unseal(
        self, name: str, fields: commands.Fields, whole: bool
    ) -> tuple[commands.Fields | None, list[commands.Fault]]:
        """The fields of a command with the content of its box, and what is wrong with that content.

        The fields are None if events of the content stand for the command. It is not ``whole`` if a hole in the capture
        has octets of it.
        """
        boxes = self.boxes
        nonce, box = fields.get("nonce"), fields.get("box")
        if boxes is None or not isinstance(nonce, bytes):
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
            return fields, _not_opened(name) if had_key and whole and name in _WITH_KEY else _NO_FAULTS
        found, faults = opened
        rest = {field: value for field, value in fields.items() if field != "box"}
        return rest | found | {"encrypted": True}, faults

    def _open_handshake(
        self, boxes: Boxes, name: str, sealed: Box, fields: commands.Fields
    ) -> tuple[commands.Fields, list[commands.Fault]] | None:
        """The content of a handshake command's box, and what is wrong with it; None if no key opens it."""
        side, journal = self.session.side, self.journal
        client_key, cookie = fields.get("client_key"), fields.get("cookie")
        if name == "HELLO" and isinstance(client_key, bytes):
            key = boxes.take_hello(side, client_key, sealed, journal.time_ns)
            return None if key is None else ({"server_key": key}, _NO_FAULTS)
        if name == "WELCOME":
            key = boxes.take_welcome(sealed)
            if boxes.hello_for is not None:
                boxes.curve.learn(journal.src, boxes.hello_for)
            return None if key is None else ({"server_key": key}, _NO_FAULTS)
        if name == "READY":
            metadata = boxes.take_ready(side, sealed)
            return None if metadata is None else commands.metadata(metadata)
        if name != "INITIATE" or not isinstance(cookie, bytes):
            return None
        introduction = boxes.take_initiate(side, cookie, sealed)
        if introduction is None:
            return None
        found, faults = commands.metadata(introduction.metadata)
        if introduction.vouch_is_good is False:
            faults = [*faults, ("box-not-opened", "the vouch in INITIATE is not that of the client's long-term key")]
        keys: commands.Fields = {
            "long_term_key": introduction.long_term_key,
            "shared_key": boxes.key if self.session.limits.show_secrets else Hidden(len(boxes.key)),
        }
        return found | keys, faults

    def _unseal_message(
        self, boxes: Boxes, nonce: bytes, box: object, fields: commands.Fields, whole: bool
    ) -> tuple[commands.Fields | None, list[commands.Fault]]:
        had_key, side = boxes.is_open, self.session.side
        if isinstance(box, bytes):
            content = boxes.open_message(side, nonce, box)
            if content is not None:
                self.missed = self.missed or not whole
                self._settle(boxes)
                assert self.inside is not None
                self._pass_on(self.inside, content)
                return None, _NO_FAULTS
        elif isinstance(box, Cut) and had_key:
            content = boxes.begin_message(side, nonce, box.data)
            if content is not None:
                self._settle(boxes)
                assert self.inside is not None
                length = box.length - wire.CURVE_BOX_OVERHEAD - 1
                self._frame(self.inside, content[0], Cut(content[1:], length), whole)
                return None, _NO_FAULTS
        if self.inside is not None:
            self.inside.damage()  # this box may have held a part of the next message
        accused = had_key and whole and isinstance(box, bytes)
        return fields, _not_opened("MESSAGE") if accused else _NO_FAULTS

    # ------------------------------------------------------------------ keys that come late

    def hold(self, command: Command, whole: bool) -> bool:
        """Whether a command whose box is still closed waits for a key; the rest is as in :meth:`unseal`."""
        boxes, is_message = self.boxes, command.name == "MESSAGE"
        if boxes is not None and command.name in _WITH_KEY and command.box is not None and not boxes.is_open:
            client = self if self.session.side == "client" else self.other
            self.missed = self.missed or (is_message and not whole)
            wait = boxes.curve.hold(boxes, (client, client.other), self.journal.time_ns)
            if wait is not None:
                wait.add(self, command, whole)
                return True
        self.missed = self.missed or is_message
        return False

    def _settle(self, boxes: Boxes) -> None:
        """The key is known: give out the events that waited for it, and be ready for frames in boxes."""
        boxes.curve.release(boxes)
        for one in (self, self.other):
            one.begin_inside(one.may_lack_octets)

    @property
    def may_lack_octets(self) -> bool:
        """Whether the next message in boxes may have begun in octets that nobody can read."""
        return self.session.damaged or self.missed

    def begin_inside(self, damaged: bool) -> None:
        """Be ready for frames in boxes, if it is not; if ``damaged``, the first may belong to a message before."""
        if self.inside is not None:
            return
        self.inside = inside = self._session_inside()
        inside.socket_type = self.session.socket_type
        inside.version = self.session.version
        inside.damaged = damaged
        self.join()

    def _session_inside(self) -> Session:
        inside = Session(self.journal, self.session.side, inside_boxes(), self.session.limits)
        inside.encrypted = True
        return inside

    def join(self) -> None:
        """Let the sessions inside the boxes of both sides know each other."""
        if self.inside is not None and self.other.inside is not None:
            self.inside.other = self.other.inside
            self.other.inside.other = self.inside

    def reopen(self, event: Command, whole: bool) -> None:
        """Show the content of a command's box; when the command came, there was no key for it."""
        journal, session = self.journal, self.session
        now = journal.moment()
        journal.go_to((event.time_ns, event.packet, event.offset, event.seen))
        fields: commands.Fields = {"nonce": event.nonce, "box": event.box}
        if event.cookie is not None:
            fields["cookie"] = event.cookie
        shown, faults = self.unseal(event.name, fields, whole)
        if shown is fields:
            self.missed = self.missed or event.name == "MESSAGE"
            journal.out.append(event)
        elif shown is not None:
            session.report_command(event.name, shown, event.incomplete, whole)
            session.take_metadata(shown)
        journal.problems(faults)
        journal.go_to(now)

    def release(self) -> None:
        """Break the references back to this part, which takes nothing any more."""
        del self.other
        if self.inside is not None:
            self.inside.release()

    def make(self, kind: type[Part]) -> Part:
        """Make the session inside the boxes."""
        return self._session_inside()


def _not_opened(name: str) -> list[commands.Fault]:
    detail = f"the box of a {name} does not open with the key of its connection: "
    detail += "its octets are not those that the sender sealed"
    return [("box-not-opened", detail)]
