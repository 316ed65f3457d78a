"""The handshake of ZMTP 3.x and what the security mechanisms make of it: NULL, PLAIN, CURVE, GSSAPI.

23/ZMTP ("The NULL Security Mechanism"), 24/ZMTP-PLAIN, 25/ZMTP-CURVE and 26/CURVEZMQ, 38/ZMTP-GSSAPI.

A handshake is a few commands each way, and a side is through with its part when it has sent the last one that its
mechanism gives it:

    NULL      client READY             server READY
    PLAIN     client HELLO INITIATE    server WELCOME READY
    CURVE     client HELLO INITIATE    server WELCOME READY      then MESSAGE, a box with a frame inside
    GSSAPI    both INITIATE, as often as they like, then READY   then perhaps MESSAGE

The greeting does not say who is client and who server (libzmq leaves as-server 0 on both sides), and TCP's client may
be the server of the mechanism. So a side is not held to a role: each of the mechanism's commands may come once from
either of them, and the handshake is complete if what both have sent fits together.

What is in the box of a MESSAGE is a frame: an octet of flags, and a body (25/ZMTP-CURVE, "Framing"). Who has the key
(:mod:`dissectors.zmtp.curve`) reads such frames by a session of their own, whose security is :func:`inside_boxes`.

A capture may begin after the handshake, or have a hole in it. Then nobody is accused, and a message may be anything:
`Security.unknown_start`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dissectors.events import Side
from dissectors.problems import refusal
from dissectors.snapshots import Part, fields_of, set_fields
from dissectors.zmtp import commands
from dissectors.zmtp.commands import Fault


class Mechanism(NamedTuple):
    """What a security mechanism makes of a connection."""

    commands: frozenset[str]  # of its handshake
    repeats: frozenset[str] = frozenset()  # those that a side may send again
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

# With one of these a side's handshake is done.
_LAST = frozenset({"READY", "INITIATE", "MESSAGE"})
_NOBODY: frozenset[Side] = frozenset()
_BOTH: frozenset[Side] = frozenset({"client", "server"})
_NOTHING: frozenset[str] = frozenset()
_IN_ORDER: tuple[()] = ()


def counts_up(last: bytes, nonce: bytes) -> bool:
    """Whether a nonce of CURVE may come after ``last``, which is empty if it is the first (26/CURVEZMQ).

    libzmq 4.0 sends them in the order of its processor. In network order the first octets of a nonce are zero for
    billions of messages, which tells the two apart.
    """
    return nonce > last or (any(last[:4]) and nonce[::-1] > last[::-1])


class SecurityState(Part):
    """What a connection's security says of itself in a snapshot."""

    mechanism: str | None
    unknown_start: bool
    failed: bool
    hello_is_bad: bool
    _assumed: str | None
    _done: frozenset[Side]
    _lost: frozenset[Side]
    _sent: dict[Side, frozenset[str]]
    _nonces: dict[Side, bytes]


class Security:
    """How far the handshake of a connection has come, and how its messages travel after it."""

    __slots__ = (
        "_assumed",
        "_done",
        "_lost",
        "_nonces",
        "_sent",
        "failed",
        "hello_is_bad",
        "mechanism",
        "rules",
        "unknown_start",
    )

    def __init__(self) -> None:
        """Begin before the greetings."""
        self.mechanism: str | None = None  # if both sides announce the same
        self.rules = _UNKNOWN  # of that mechanism
        self._assumed: str | None = None  # what commands look like, where no greeting tells
        self.unknown_start = False  # the capture may not hold all of the handshake
        self.failed = False
        self.hello_is_bad = False  # so that it fails, unless it is complete all the same
        self._done = _NOBODY  # sides that have sent the last command of their handshake
        self._lost = _NOBODY  # sides of which octets are missing
        self._sent: dict[Side, frozenset[str]] = {"client": _NOTHING, "server": _NOTHING}
        self._nonces: dict[Side, bytes] = {}  # of the last MESSAGE of CURVE

    def begin(self, mechanism: str) -> None:
        """Both greetings are there and say ``mechanism``, which may be one that nobody knows."""
        self.mechanism = mechanism
        self.rules = MECHANISMS.get(mechanism, _UNKNOWN)

    def skip(self) -> None:
        """There is no handshake to follow: a version before 3.0, or a capture that starts after it."""
        self._done = _BOTH

    def lost(self, side: Side) -> None:
        """Octets of this side are missing, among them perhaps the last command of its handshake."""
        self._lost |= {side}
        if side not in self._done:
            self._done |= {side}
            self.unknown_start = True

    def resume(self) -> None:
        """Both greetings are there: the handshake can be followed from where it has come to."""
        if not self._done:
            return  # it has been followed from the beginning
        self.unknown_start = bool(self._lost)
        self._done = self._lost | {side for side, sent in self._sent.items() if sent & _LAST}

    @property
    def may_encrypt(self) -> bool:
        """Whether a message may be a MESSAGE command: of CURVE, GSSAPI or nobody knows what."""
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
        """A command could not be taken apart; in the handshake that is its end."""
        if side in self._done and name not in ("READY", "INITIATE"):
            return
        if name == "HELLO":
            # libzmq does not look at all of it: whether it was too bad shows in what follows.
            self.hello_is_bad = True
        else:
            self.failed = self.failed or not self.complete

    def mechanism_of(self, announced: str | None, body: bytes) -> str | None:
        """The mechanism by which to read a command: that agreed on, ``announced`` by one side, or as it looks."""
        known = self.mechanism or announced
        if known is None and self.unknown_start:
            self._assumed = self._assumed or commands.assume_mechanism(body)
        return known or self._assumed

    def take(self, side: Side, name: str, fields: commands.Fields, mechanism: str | None) -> Sequence[Fault]:
        """Follow a whole command of ``side``, read by the rules of ``mechanism``; returns what is wrong with it.

        What READY and INITIATE say of their sender counts if nothing is.
        """
        sent = self._sent[side]
        rules = MECHANISMS.get(mechanism or "", _UNKNOWN)
        if name == "ERROR":
            reason = fields.get("reason")
            shown = commands.text(reason) if isinstance(reason, bytes) else "no reason"
            self.failed = self.failed or not self.complete
            return [("peer-error", refusal(side, shown, mechanism))]
        if name in rules.commands and (name in rules.repeats or name not in sent):
            self._sent[side] = sent | {name}
            if name == "HELLO":
                return self._hello(side, mechanism)
            if name in _LAST:
                self._done |= {side}
        elif name in commands.HANDSHAKE_COMMANDS:
            return [("unexpected-command", f"{name} of the {side} outside its place in the handshake")]
        elif name == "MESSAGE":
            self._sent[side] = sent | {name}
            self._done |= {side}
            if self.mechanism == "CURVE":
                return self.count(side, fields.get("nonce"))
        return _IN_ORDER

    def count(self, side: Side, nonce: object) -> Sequence[Fault]:
        """Hold the nonce of a MESSAGE against the one before, which is less (26/CURVEZMQ): so libzmq knows replays."""
        if not isinstance(nonce, bytes):
            return _IN_ORDER  # it is not all in the capture
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

    def snapshot(self) -> SecurityState:
        """What to go on from."""
        return fields_of(self, SecurityState)

    def restore(self, state: SecurityState) -> None:
        """Go on from there."""
        set_fields(self, state)
        self.rules = MECHANISMS.get(self.mechanism or "", _UNKNOWN)


def inside_boxes() -> Security:
    """The security of frames that were in boxes: the handshake is over, and nothing more is encrypted."""
    security = Security()
    security.begin("NULL")
    security.skip()
    for side in _BOTH:
        security._sent[side] = frozenset({"READY"})
    return security
