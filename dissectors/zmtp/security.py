"""The handshake of ZMTP 3.x under each security mechanism: NULL, PLAIN, CURVE, GSSAPI.

23/ZMTP ("The NULL Security Mechanism"), 24/ZMTP-PLAIN, 25/ZMTP-CURVE and 26/CURVEZMQ, 38/ZMTP-GSSAPI.

A handshake is a few commands each way. A side has finished its part when it has sent its last command:

    NULL      client READY             server READY
    PLAIN     client HELLO INITIATE    server WELCOME READY
    CURVE     client HELLO INITIATE    server WELCOME READY      then MESSAGE, a box with a frame inside
    GSSAPI    both INITIATE, as often as they like, then READY   then perhaps MESSAGE

The greeting does not say who is client and who is server (libzmq leaves as-server 0 on both sides), and TCP's client
may be the server of the mechanism. So no side has a fixed role here. Either side may send each command of the mechanism
once, and the handshake is complete if the commands of both sides fit together.

The box of a MESSAGE holds a frame: an octet of flags, and a body (25/ZMTP-CURVE, "Framing"). If the key is known
(:mod:`dissectors.zmtp.curve`), a second session reads these frames; :func:`inside_boxes` is its security.

A capture may begin after the handshake, or have a hole in it. Then this module accuses nobody, and a message may be
anything: `Security.unknown_start`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from msgspec import field

from dissectors.events import Side, text
from dissectors.problems import refusal
from dissectors.snapshots import Live, Part
from dissectors.zmtp import commands
from dissectors.zmtp.commands import Fault


class Mechanism(NamedTuple):
    """The rules of a security mechanism."""

    commands: frozenset[str]  # of its handshake
    repeats: frozenset[str] = frozenset()  # commands that a side may send more than once
    encrypts: bool = False  # every message is in a box once the handshake is done
    has_boxes: bool = False  # it has MESSAGE commands


_COMMANDS = frozenset({"HELLO", "WELCOME", "INITIATE", "READY"})
MECHANISMS = {
    "NULL": Mechanism(frozenset({"READY"})),
    "PLAIN": Mechanism(_COMMANDS),
    "CURVE": Mechanism(_COMMANDS, encrypts=True, has_boxes=True),
    "GSSAPI": Mechanism(frozenset({"INITIATE", "READY"}), repeats=frozenset({"INITIATE"}), has_boxes=True),
}
_UNKNOWN = Mechanism(commands.HANDSHAKE_COMMANDS)

# Each of these is the last command of a side's handshake.
_LAST = frozenset({"READY", "INITIATE", "MESSAGE"})
_NOBODY: frozenset[Side] = frozenset()
_BOTH: frozenset[Side] = frozenset({"client", "server"})
_NOTHING: frozenset[str] = frozenset()
_IN_ORDER: tuple[()] = ()
_Member = TypeVar("_Member", bound=str)


@lru_cache(256)  # connections go through the same few sets: each need not keep its own, of 216 octets
def _with(some: frozenset[_Member], one: _Member) -> frozenset[_Member]:
    return some | {one}


def counts_up(last: bytes, nonce: bytes) -> bool:
    """Whether a nonce of CURVE may come after ``last``, which is empty before the first one (26/CURVEZMQ).

    libzmq 4.0 sends nonces in the byte order of its processor. In network order the first octets of a nonce stay zero
    for billions of messages, so those octets show which order it is.
    """
    return nonce > last or (any(last[:4]) and nonce[::-1] > last[::-1])


class Security(Part, gc=False):
    """How far the handshake of a connection is, and whether its messages are encrypted after that."""

    mechanism: str | None = None  # that both sides announce; None if they differ
    rules: Live[Mechanism] = _UNKNOWN  # of that mechanism
    _assumed: str | None = None  # the mechanism that commands look like, if the capture lacks the greetings
    unknown_start: bool = False  # the capture may not hold all of the handshake
    failed: bool = False
    hello_is_bad: bool = False  # HELLO was malformed: the handshake fails, unless the peer accepts that
    _done: frozenset[Side] = _NOBODY  # sides that have sent the last command of their handshake
    _lost: frozenset[Side] = _NOBODY  # sides that lack octets in the capture
    _sent: dict[Side, frozenset[str]] = field(default_factory=lambda: {"client": _NOTHING, "server": _NOTHING})
    _nonces: dict[Side, bytes] = field(default_factory=dict)  # of the last MESSAGE of CURVE

    def begin(self, mechanism: str) -> None:
        """Both greetings announce ``mechanism``, which may be unknown."""
        self.mechanism = mechanism
        self.rules = MECHANISMS.get(mechanism, _UNKNOWN)

    def skip(self) -> None:
        """There is no handshake to follow: a version before 3.0, or a capture that starts after it."""
        self._done = _BOTH

    def lost(self, side: Side) -> None:
        """Octets of this side are missing; they may have held the last command of its handshake."""
        self._lost = _with(self._lost, side)
        if side not in self._done:
            self._done = _with(self._done, side)
            self.unknown_start = True

    def resume(self) -> None:
        """Both greetings are there: follow the handshake from here on."""
        if not self._done:
            return  # this has followed the handshake from its beginning
        self.unknown_start = bool(self._lost)
        self._done = self._lost | {side for side, sent in self._sent.items() if sent & _LAST}

    @property
    def may_encrypt(self) -> bool:
        """Whether a message may be a MESSAGE command: of CURVE, of GSSAPI, or of an unknown mechanism."""
        return self.unknown_start if self.mechanism is None else self.rules.has_boxes

    def in_clear(self, side: Side) -> bool:
        """Whether a message of this side is just a message."""
        return side in self._done and not self.may_encrypt

    def is_done(self, side: Side) -> bool:
        """Whether this side has sent the last command of its handshake."""
        return side in self._done or self.unknown_start

    @property
    def complete(self) -> bool:
        """READY both ways, or INITIATE and READY; for GSSAPI also the MESSAGEs that READY is wrapped in."""
        one, other = self._sent["client"], self._sent["server"]
        if self.mechanism in (None, "NULL"):
            return "READY" in one and "READY" in other
        if self.mechanism == "GSSAPI":
            return all(sent & {"READY", "MESSAGE"} for sent in (one, other))
        return ("INITIATE" in one and "READY" in other) or ("INITIATE" in other and "READY" in one)

    def malformed(self, side: Side, name: str) -> None:
        """A command of ``side`` is malformed; a handshake ends with that."""
        if side in self._done and name not in ("READY", "INITIATE"):
            return
        if name == "HELLO":
            # libzmq checks only parts of HELLO: what follows shows whether it accepted this one.
            self.hello_is_bad = True
        else:
            self.failed = self.failed or not self.complete

    def mechanism_of(self, announced: str | None, body: bytes, whole: bool = True) -> str | None:
        """The mechanism by which to read a command: the agreed one, else the ``announced`` one, else a guess by it.

        ``whole`` is false if octets at its end are missing from the capture.
        """
        known = self.mechanism or announced
        if known is None and self.unknown_start:
            self._assumed = self._assumed or commands.assume_mechanism(body, whole)
        return known or self._assumed

    def take(self, side: Side, name: str, fields: commands.Fields, mechanism: str | None) -> Sequence[Fault]:
        """Follow a whole command of ``side``, read by the rules of ``mechanism``; returns what is wrong with it.

        The metadata of READY and INITIATE counts only if nothing is wrong.
        """
        sent = self._sent[side]
        rules = MECHANISMS.get(mechanism or "", _UNKNOWN)
        if name == "ERROR":
            reason = fields.get("reason")
            shown = text(reason) if isinstance(reason, bytes) else "no reason"
            self.failed = self.failed or not self.complete
            return [("peer-error", refusal(side, shown, mechanism))]
        if name in rules.commands and (name not in sent or name in rules.repeats):
            self._sent[side] = _with(sent, name)
            if name == "HELLO":
                return self._hello(side, mechanism)
            if name in _LAST:
                self._done = _with(self._done, side)
        elif name in commands.HANDSHAKE_COMMANDS:
            return [("unexpected-command", f"{name} of the {side} outside its place in the handshake")]
        elif name == "MESSAGE":
            self._sent[side] = _with(sent, name)
            self._done = _with(self._done, side)
            if self.mechanism == "CURVE":
                return self.count(side, fields.get("nonce"))
        return _IN_ORDER

    def count(self, side: Side, nonce: object) -> Sequence[Fault]:
        """Check that the nonces of MESSAGEs grow (26/CURVEZMQ); libzmq takes one that does not for a replay."""
        if not isinstance(nonce, bytes):
            return _IN_ORDER  # the capture lacks a part of it
        last = self._nonces.get(side, b"")
        if counts_up(last, nonce):
            self._nonces[side] = nonce
            return _IN_ORDER
        return [("unexpected-command", f"MESSAGE with nonce 0x{nonce.hex()} behind one with nonce 0x{last.hex()}")]

    def _hello(self, side: Side, mechanism: str | None) -> Sequence[Fault]:
        faults = []
        if mechanism == "PLAIN":
            faults.append(("plain-credentials", "a user name and a password in clear"))
        if "HELLO" in self._sent["server" if side == "client" else "client"]:
            faults.append(("both-hello", "both sides send HELLO"))
            self.failed = True
        return faults

    def after_load(self) -> None:
        """Find the rules of the mechanism."""
        self.rules = MECHANISMS.get(self.mechanism or "", _UNKNOWN)


def inside_boxes() -> Security:
    """The security of frames that were in boxes: the handshake is over, and nothing more is encrypted."""
    security = Security()
    security.begin("NULL")
    security.skip()
    for side in _BOTH:
        security._sent[side] = frozenset({"READY"})
    return security
