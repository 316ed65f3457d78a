"""The handshake of ZMTP 3.x and what the security mechanisms make of it: NULL, PLAIN, CURVE, GSSAPI.

23/ZMTP ("The NULL Security Mechanism"), 24/ZMTP-PLAIN, 25/ZMTP-CURVE and 26/CURVEZMQ, 38/ZMTP-GSSAPI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dissectors.events import Cut, Side
from dissectors.problems import refusal
from dissectors.zmtp import commands, sockets, wire

if TYPE_CHECKING:
    from dissectors.zmtp.half import Half

# Which commands each mechanism's handshake has.
_EXPECTED = {
    "NULL": frozenset({"READY"}),
    "PLAIN": frozenset({"HELLO", "WELCOME", "INITIATE", "READY"}),
    "CURVE": frozenset({"HELLO", "WELCOME", "INITIATE", "READY"}),
    "GSSAPI": frozenset({"INITIATE", "READY"}),
}


# With one of these a side's handshake is done.
_LAST = frozenset({"READY", "INITIATE", "MESSAGE"})
_BOTH: frozenset[Side] = frozenset({"client", "server"})


def counts_up(last: bytes, nonce: bytes) -> bool:
    """Whether a nonce of CURVE may come after ``last``, which is empty if it is the first (26/CURVEZMQ).

    libzmq 4.0 sends them in the order of its processor. In network order the first octets of a nonce are zero for
    billions of messages, which tells the two apart.
    """
    return nonce > last or (any(last[:4]) and nonce[::-1] > last[::-1])


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
        "unknown_start",
    )

    KNOWN = tuple(_EXPECTED)

    def __init__(self) -> None:
        """Begin before the greetings."""
        self.mechanism: str | None = None  # if both sides announce the same
        self._assumed: str | None = None  # what commands look like, where no greeting tells
        self.unknown_start = False  # the capture may not hold all of the handshake
        self.failed = False
        self.hello_is_bad = False  # so that the handshake fails, unless the server is lenient
        self._sent: dict[Side, frozenset[str]] = {"client": frozenset(), "server": frozenset()}
        self._done: frozenset[Side] = frozenset()
        self._lost: frozenset[Side] = frozenset()  # sides of which octets are missing
        self._nonces: dict[Side, bytes] = {}  # of the last MESSAGE of CURVE

    def begin(self, mechanism: str | None) -> None:
        """Both greetings are there and say ``mechanism``, None if they differ or one is not known."""
        self.mechanism = mechanism

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
        self.unknown_start = bool(self._lost)
        self._done = self._lost | {side for side, sent in self._sent.items() if sent & _LAST}

    @property
    def encrypts(self) -> bool:
        """Whether messages are in boxes once the handshake is done."""
        return self.mechanism == "CURVE"

    @property
    def may_encrypt(self) -> bool:
        """Whether a message may be a MESSAGE command: of CURVE, GSSAPI or nobody knows what."""
        return self.mechanism in (None, "CURVE", "GSSAPI") and (self.mechanism is not None or self.unknown_start)

    @property
    def has_boxes(self) -> bool:
        """Whether the mechanism is known to be one that has MESSAGE commands."""
        return self.mechanism in ("CURVE", "GSSAPI")

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

    def mechanism_of(self, half: Half, body: bytes) -> str | None:
        """The mechanism by which to read a command: that agreed on, announced by one side, or that it looks like."""
        known = self.mechanism or half.mechanism or half.other.mechanism
        if known is None and self.unknown_start:
            self._assumed = self._assumed or commands.assume_mechanism(body)
        return known or self._assumed

    def command(self, half: Half, name: str, fields: commands.Fields, mechanism: str | None) -> None:
        """Follow a whole command of ``half``; what is wrong with it is reported there."""
        side = half.side
        sent = self._sent[side]
        if name == "ERROR":
            reason = fields.get("reason")
            shown = commands.text(reason) if isinstance(reason, bytes) else "no reason"
            half.problem("peer-error", refusal(side, shown, mechanism))
            self.failed = self.failed or not self.complete
            return
        expected = _EXPECTED.get(mechanism or "", commands.HANDSHAKE_COMMANDS)
        repeatable = mechanism == "GSSAPI" and name == "INITIATE"
        if name in expected and (repeatable or name not in sent):
            self._sent[side] = sent | {name}
            if name == "HELLO":
                self._hello(half, mechanism)
            elif name in ("READY", "INITIATE"):
                self._metadata(half, fields)
                self._done |= {side}
        elif name in expected or name in commands.HANDSHAKE_COMMANDS:
            half.problem("unexpected-command", f"{name} of the {side} outside its place in the handshake")
        elif name == "MESSAGE":
            self._sent[side] = sent | {name}
            self._done |= {side}
            if self.mechanism == "CURVE":
                self._count(half, fields.get("nonce"))

    def last_nonce(self, side: Side) -> bytes:
        """The nonce of this side's last MESSAGE of CURVE, empty if there was none."""
        return self._nonces.get(side, b"")

    def note_nonce(self, side: Side, nonce: bytes) -> None:
        """Say that it is this one."""
        self._nonces[side] = nonce

    def _count(self, half: Half, nonce: object) -> None:
        """Hold the nonce of a MESSAGE against the one before, which is less (26/CURVEZMQ): so libzmq knows replays."""
        last = self.last_nonce(half.side)
        if not isinstance(nonce, bytes):
            return  # it is not all in the capture
        if counts_up(last, nonce):
            self.note_nonce(half.side, nonce)
        else:
            half.problem(
                "unexpected-command", f"MESSAGE with nonce 0x{nonce.hex()} behind one with nonce 0x{last.hex()}"
            )

    def _hello(self, half: Half, mechanism: str | None) -> None:
        if mechanism == "PLAIN":
            half.problem("plain-credentials", "a user name and a password in clear")
        if "HELLO" in self._sent[half.other.side]:
            half.problem("both-hello", "both sides send HELLO")
            self.failed = True

    def _metadata(self, half: Half, fields: commands.Fields) -> None:
        """Read the socket type and the identity from READY or INITIATE."""
        socket_type = fields.get("socket_type")
        if isinstance(socket_type, str):
            half.set_socket_type(socket_type)
        identity = fields.get("identity")
        if isinstance(identity, bytes | Cut):
            half.identity = identity
            if isinstance(identity, bytes) and len(identity) > wire.IDENTITY_LIMIT:
                half.problem("identity-too-long", f"an identity of {len(identity)} octets")
        name = half.socket_type
        if name is None:
            return
        if name not in sockets.PEERS:
            half.problem("unknown-socket-type", f"socket type {name!r} is not known")
            self.failed = True
        elif half.other.socket_type and not sockets.may_talk(name, half.other.socket_type):
            half.problem("incompatible-socket-types", f"{name} may not talk to {half.other.socket_type}")
            self.failed = True
