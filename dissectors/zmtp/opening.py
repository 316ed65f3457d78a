"""How a side begins: its greeting, step by step, until frames follow.

A side that supports old peers sends its greeting in pieces and chooses each by what it has read from the other side,
so a side is read with an eye on the other one. One that waits for the other is woken by it (``resume``). A signature
proves the connection if nothing else begins so; an odd one is believed for what follows it, or for the answer to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dissectors.events import Greeting, Octets, Side
from dissectors.zmtp import greeting, sockets, wire
from dissectors.zmtp.evidence import UNPROVEN_LIMIT, EvidenceV1
from dissectors.zmtp.framing import FrameStream
from dissectors.zmtp.stream import Limits

if TYPE_CHECKING:
    from dissectors.zmtp.connection import ZmtpConnection

# Octets that wait for a word from the other side before it is taken not to be in the capture.
_PATIENCE = 16_384
# So many segments that have seen nothing new of the other side show that it says nothing; so many if no more will come.
_QUIET = 8
_QUIET_AT_END = 2
# An identity has 255 octets at most; a longer one is read to be reported, but not one of any length.
_IDENTITY_LIMIT = 0xFFFF
# A revision that nobody has announced yet: where the signature proves little, this is something else.
_LAST_REVISION = 15


def _released(data: bytes, position: int) -> int:
    return len(data)


class Opening(FrameStream):
    """One side of a connection, as far as its greeting."""

    __slots__ = (
        "_from_start",
        "_greeting_around_gap",
        "_identity_left",
        "as_server",
        "beginning",
        "connection",
        "ended",
        "evidence",
        "greeted",
        "identity",
        "mechanism",
        "mechanism_is_legal",
        "minor",
        "other",
        "revision",
        "side",
        "signature",
        "silent",
        "topics",
        "upgraded",
        "version",
        "versioned",
    )

    def __init__(
        self, connection: ZmtpConnection, side: Side, src: str, dst: str, limits: Limits, from_start: bool
    ) -> None:
        """Read what ``side`` sends from ``src``; ``from_start`` if its first octets are the first of its stream."""
        super().__init__(connection.out, connection.flow, src, dst, limits)
        self.connection = connection
        self.side: Side = side
        self.other: Opening = self  # the connection puts the other half here
        self.signature: greeting.Signature | None = None
        self.versioned: bool | None = None  # begins with a signature; None: not known yet
        self.revision: int | None = None
        self.minor: int | None = None
        self.mechanism: str | None = None
        self.mechanism_is_legal = True
        self.as_server = False
        self.identity: Octets | None = None
        self.version: str | None = None  # as it announces it
        self.greeted = False  # its greeting is over, so that frames follow
        self.silent = False  # what it says about versions will never be known
        self.ended = False
        self.evidence: EvidenceV1 | None = None  # while it reads ZMTP 1.0 that nothing proves
        self.topics: dict[Octets, None] = {}  # subscribed to
        self._identity_left = 0
        self._greeting_around_gap = b"", 0  # what came before it, how many octets come after it
        self.upgraded = False  # to WebSocket
        self.beginning = b""  # the first octets, to say what it is if it is not ZMTP
        self._from_start = from_start
        self._begin()

    def _begin(self) -> None:
        """Wait for the first octets."""
        self._state = self._start if self._from_start else self._perhaps_start

    @property
    def is_quiet(self) -> bool:
        """Whether it is certain that it has sent nothing since the other side was captured first."""
        enough = _QUIET_AT_END if self.connection.over else _QUIET
        return not self.octets and self.other.silence >= enough

    @property
    def stopped(self) -> bool:
        """Whether nothing more can be read of this side."""
        return self._state == self._dead

    def stop(self) -> None:
        """Read nothing more of this side."""
        self._state = self._dead
        self._chunks = []
        self._held = 0

    def proven(self) -> None:
        """The connection is ZMTP: what this half finds is given out from now on."""
        self.out = self.connection.out
        self.known = True
        self.evidence = None
        if self._state == self._unproven_v1:
            self._state = self._frames_v1

    def set_socket_type(self, name: str | None) -> None:
        """Set the socket type once it is announced."""
        self.socket_type = name
        self.look_again()
        self.other.look_again()

    @property
    def subscribes(self) -> bool:
        """Whether messages of this side may be subscriptions; only a subscriber talks to a publisher."""
        if self.socket_type is None:
            return self.other.socket_type in sockets.PUBLISHERS
        return self.socket_type in sockets.SUBSCRIBERS

    def release(self) -> None:
        """Let go of what refers back to this side, so that it is freed at once; nothing may be fed any more."""
        self._state = _released
        del self.other, self.connection

    def look_again(self) -> None:
        """Something about the connection changed that tells how messages are to be taken."""
        self._plain = self._is_plain()

    # ------------------------------------------------------------------ the greeting

    def _perhaps_start(self, data: bytes, position: int) -> int:
        """The first octets captured, perhaps in mid-stream: only a signature shows that they are the first at all."""
        first = data[position : position + wire.SIGNATURE_SIZE]
        if first[0] == wire.SIGNATURE_START:
            if len(first) < wire.SIGNATURE_SIZE:
                self._need = wire.SIGNATURE_SIZE
                return position
            if greeting.parse_signature(first).is_certain:
                self._state = self._signature
                return position
        rest = greeting.find_rest(data[position : position + 2 * wire.GREETING_SIZE])
        if isinstance(rest, int):
            self._need = rest
            if not rest or self.ended:
                self.silent = True
                self._start_search()
                self.other.resume()
            return position
        self.connection.accept()
        self.versioned = True
        self.revision = rest.revision
        if rest.after_revision:
            self._greet_v3(rest.after_revision)
        self._end_greeting()
        return position + rest.size

    def _start(self, data: bytes, position: int) -> int:
        """The first octet: FF for a signature or a long frame of ZMTP 1.0, else a short frame of ZMTP 1.0."""
        self.beginning = data[position : position + 16]
        self._state = self._signature if data[position] == wire.SIGNATURE_START else self._identity_v1
        return position

    def _signature(self, data: bytes, position: int) -> int:
        self.beginning = data[position : position + 16]
        if len(data) - position < wire.SIGNATURE_SIZE:
            self._need = wire.SIGNATURE_SIZE
            return position
        signature = greeting.parse_signature(data[position : position + wire.SIGNATURE_SIZE])
        if not signature.is_versioned and signature.length >= wire.LENGTH_ESCAPE_V1:
            self._state = self._identity_v1
            return position
        detail = f"octet 9 is 0x{signature.last:02x}, must be 0x7f"
        if not signature.is_versioned:
            self.connection.refuse(self, "bad-signature", detail)
            return position
        if not (signature.is_possible or self.connection.forced):
            self.connection.refuse(self, "not-zmtp", "")
            return position
        self.signature = signature
        if signature.is_certain:
            self.connection.accept()
        if signature.last != wire.SIGNATURE_END:
            self.problem("bad-signature", detail)
        self.versioned = True
        self._identity_left = max(signature.length - 1, 0)
        self._state = self._after_signature
        self.other.resume()
        return position + wire.SIGNATURE_SIZE

    def _after_signature(self, data: bytes, position: int) -> int:
        """What follows depends on whether the other side is versioned."""
        if self.other.versioned is None and self._waits(data, position):
            return position
        versioned = self.other.versioned
        if versioned is None:
            guessed = self._guess(data[position:])
            if guessed is None and not self.ended:
                self._need = greeting.GUESS_SIZE
                return position
            versioned = guessed != 1
        if versioned:
            self._state = self._revision
        elif self._is_proven():
            self._state = self._identity_after_signature
        return position

    def _is_proven(self) -> bool:
        """Whether this side's greeting is one; if nothing has proven it until now, nothing will, and it is refused."""
        if not self.connection.accepted:
            self.connection.refuse(self, "not-zmtp", "")
        return self.connection.accepted

    def resume(self) -> None:
        """Look again; an identity of no octets after a signature needs none to be read."""
        is_whole = self._state == self._after_signature and self.other.versioned is False and not self._identity_left
        if is_whole and self._is_proven():
            self._identified(b"", 1)
        super().resume()

    def _shown(self, octets: bytes) -> int | None:
        """The major version that the user says, or that what follows the signature shows beyond doubt."""
        return self.connection.forced_version or greeting.version_shown(octets, self._identity_left)

    def _guess(self, octets: bytes) -> int | None:
        """The same, or the one that it looks like most."""
        return self._shown(octets) or greeting.guess_after_signature(octets)

    def _waits(self, data: bytes, position: int, revision: bytes = b"", is_sure: bool = False) -> bool:
        """Whether to wait for the other side before reading on; then nothing is taken until it wakes this half.

        One that is absent may come yet. It is waited for unless what it will say ``is_sure``, or the octets that are
        there show it, which begin with the revision: with ``revision``, if that has been read.
        """
        held = len(data) - position
        if self.other.will_not_tell() or held > _PATIENCE:
            return False
        self._need = _PATIENCE
        if self.other.is_absent:
            if is_sure or self._shown(revision + data[position:]) is not None:
                return False
            self._need = held + 1 if held < wire.GREETING_SIZE else _PATIENCE
        return True

    def will_not_tell(self) -> bool:
        """Whether this side's version will never be known."""
        return self.silent or self.ended or self._state == self._dead

    def _revision(self, data: bytes, position: int) -> int:
        assert self.signature is not None
        if data[position] > _LAST_REVISION and not (self.signature.is_certain or self.connection.forced):
            self.connection.refuse(self, "not-zmtp", "")
            return position
        self.revision = data[position]
        self._state = self._after_revision
        if not self.connection.accepted:
            self.connection.announced()
        self.other.resume()
        return position + 1

    def _after_revision(self, data: bytes, position: int) -> int:
        """Old revisions are followed by the socket type; so is a new one if the other side's is old."""
        assert self.revision is not None
        if self.revision <= wire.REVISION_2:
            self._state = self._socket_type
            return position
        theirs = self.other.revision
        if theirs is None:
            if self._waits(data, position, bytes([self.revision])):
                return position
            guessed = self._guess(bytes([self.revision]) + data[position:])
            if guessed is None and not self.ended:
                self._need = greeting.GUESS_SIZE - 1
                return position
            theirs = wire.REVISION_2 if guessed == 2 else wire.REVISION_3
        self._state = self._socket_type if theirs <= wire.REVISION_2 else self._greeting_v3
        return position

    def _greeting_v3(self, data: bytes, position: int) -> int:
        size = wire.AFTER_REVISION_SIZE
        if len(data) - position < size:
            self._need = size
            return position
        if not self.connection.accepted and greeting.is_greeting_v3(data[position : position + size]):
            self.connection.accept()
        self._greet_v3(data[position : position + size])
        self._end_greeting()
        return position + size

    def _greet_v3(self, octets: bytes) -> None:
        """Report a 3.x greeting, of which octets may be missing at the end."""
        parsed = greeting.parse_after_revision(octets)
        self.minor = parsed.minor
        if self.revision is not None and parsed.minor is not None:
            self.version = f"{self.revision}.{parsed.minor}"
        self.mechanism = parsed.mechanism
        self.mechanism_is_legal = parsed.mechanism_is_legal
        self.as_server = bool(parsed.as_server)
        self._report_greeting(parsed.mechanism, parsed.as_server)
        if not parsed.mechanism_is_legal:
            self.problem("bad-mechanism", f"the mechanism's octets are {octets[1 : 1 + wire.MECHANISM_SIZE].hex()}")

    def _end_greeting(self) -> None:
        """The 64 octets are over: the handshake follows."""
        self.greeted = True
        self.framing = 2
        self._state = self._after_greeting
        self.connection.greeted_v3()

    def _after_greeting(self, data: bytes, position: int) -> int:
        """What a command holds depends on the mechanism, so the other side's greeting comes first."""
        if not self.other.greeted:
            if self._waits(data, position, is_sure=True):
                return position
            if self.other.is_absent:
                self.connection.skip_handshake()
            else:
                self.connection.lost_greeting()
        if not self._is_proven():
            return position
        self._start_frames(2)
        self._plain = self._is_plain()
        return position

    def _report_greeting(self, mechanism: str | None = None, as_server: bool | None = None) -> None:
        place = self.time_ns, self.packet, self.flow, self.src, self.dst
        self.out.append(Greeting(*place, self.version, mechanism, as_server, self.socket_type, self.identity))

    def _socket_type(self, data: bytes, position: int) -> int:
        """The socket type of a 2.0 greeting; frames follow, the first of which is the identity (15/ZMTP)."""
        assert self.revision is not None
        theirs = self.other.revision
        is_v2 = data[position + 1 : position + 2] == b"\0"  # no identity frame of 1.0 begins so
        if (theirs is None and self._waits(data, position, is_sure=is_v2)) or not self._is_proven():
            return position
        number = data[position]
        self.version = {0: "1.0", 1: "2.0"}.get(self.revision, str(self.revision))
        self.set_socket_type(sockets.name_v2(number))
        if self.socket_type is None:
            self.problem("unknown-socket-type", f"socket type {number} is not known in ZMTP 2.0")
        oldest = self.revision if theirs is None else min(self.revision, theirs)
        self._state = self._identity_v1 if oldest == wire.REVISION_1 else self._identity_v2
        return position + 1

    def _identity_v2(self, data: bytes, position: int) -> int:
        """The first frame of ZMTP 2.0 is the identity: flags, length, octets."""
        size = 9 if data[position] & wire.LONG else 2
        if len(data) - position < size:
            self._need = size
            return position
        length = int.from_bytes(data[position + 1 : position + size], "big")
        stop = position + size + length
        if stop > len(data) and length <= _IDENTITY_LIMIT:
            self._need = stop - position
            return position
        if data[position] & ~wire.LONG:
            self.problem("malformed-command", f"the identity frame has flags 0x{data[position]:02x}")
        if length > _IDENTITY_LIMIT:
            self.problem("identity-too-long", f"an identity of {length} octets")
            self._die()
            return len(data)
        self._identified(data[position + size : stop], 2)
        return stop

    def _identified(self, identity: bytes, framing: int) -> None:
        """The identity frame of 1.0 or 2.0 is read: the greeting is whole."""
        self.identity = identity
        self.greeted = True
        if len(identity) > wire.IDENTITY_LIMIT:
            self.problem("identity-too-long", f"an identity of {len(identity)} octets")
        self._report_greeting()
        self._start_frames(framing)
        self._plain = self._is_plain()
        self.connection.identified()

    # ------------------------------------------------------------------ ZMTP 1.0

    def _identity_after_signature(self, data: bytes, position: int) -> int:
        stop = position + self._identity_left
        if self._identity_left > _IDENTITY_LIMIT:
            self.problem("identity-too-long", f"an identity of {self._identity_left} octets")
            self._die()
            return len(data)
        if stop > len(data):
            self._need = stop - position
            return position
        self._identified(data[position:stop], 1)
        return stop

    def _identity_v1(self, data: bytes, position: int) -> int:
        """The first frame of ZMTP 1.0 is the identity: length, flags, octets (13/ZMTP)."""
        size = 10 if data[position] == wire.LENGTH_ESCAPE_V1 else 2
        length, strange = data[position], False
        if len(data) - position >= size:
            if size == 10:
                length = int.from_bytes(data[position + 1 : position + 9], "big")
            flags = data[position + size - 1]
            strange = flags & wire.MORE > 0 or (flags not in wire.FLAGS_SEEN_V1 and not self.connection.forced)
        # ZMTP 1.0 has no mark: beside a side that speaks something else nothing makes this one an identity.
        strange = strange or (not self.versioned and self.connection.has_refused(self.other))
        if length == 0 or length > _IDENTITY_LIMIT or strange:
            self.connection.refuse(self, "not-zmtp", "")
            return position
        stop = position + size + length - 1
        if len(data) < max(stop, position + size):
            self._need = max(stop, position + size) - position
            return position
        if self.versioned is None:
            self.versioned = False
            self.version = "1.0"
        if not self.connection.accepted:
            self.evidence = EvidenceV1(length - 1, data[position + size - 1])
        self._identified(data[position + size : stop], 1)
        self.connection.weigh()
        self.other.resume()
        return stop

    def _unproven_v1(self, data: bytes, position: int) -> int:
        """Frames of ZMTP 1.0 while nothing proves that they are: one that is not legal disproves it."""
        assert self.evidence is not None
        stop, legal = self.evidence.frames(data, position)
        while position < stop:
            position += self._frames_v1(data[position:stop], 0)
        self.connection.weigh()
        if self.connection.accepted or (legal and not self.connection.rejected):
            return self._frames_v1(data, position)
        if self.other.evidence is None and not self.other.will_not_tell():
            self._need = UNPROVEN_LIMIT  # its beginning may prove that what comes here should have been a frame
        else:
            self.evidence = None
            self.connection.reject()
        return position

    def _start_frames(self, framing: int) -> None:
        super()._start_frames(framing)
        if framing == 1 and not self.connection.accepted:
            self._state = self._unproven_v1

    # ------------------------------------------------------------------ gaps

    def absent(self, time_ns: int, packet: int) -> None:
        """No packet of this side has been captured, though the other side answers it; some may come after all."""
        if not (self.octets or self.stopped or self.is_absent):
            self.time_ns = time_ns
            self.packet = packet
            self._state = self._absent
            self.other.resume()

    @property
    def is_absent(self) -> bool:
        """Whether this side is taken not to be in the capture."""
        return self._state == self._absent

    def _absent(self, data: bytes, position: int) -> int:
        """It is there after all."""
        self._begin()
        return position

    def _skip(self, length: int, cut: bool) -> None:
        if self.greeted or self.stopped or self._searches:
            super()._skip(length, cut)
            return
        if self._state == self._perhaps_start:  # behind the hole as much is known as before it
            self._chunks = []
            self._held = 0
            return
        # In the greeting: octets held began at stream offset `begin`, the gap is over at `end`.
        end = self.octets
        begin = end - length - self._held
        held = b"".join(self._chunks)
        self._chunks = []
        self._held = 0
        self.silent = True
        self.other.resume()
        first = wire.SIGNATURE_SIZE + 1
        three = self.other.greeted and self.other.framing == 2 and self.other.minor is not None
        if end < wire.GREETING_SIZE and not (three or self._state == self._greeting_v3):
            # The rest of a greeting may follow.
            self._state = self._behind_signature if end == wire.SIGNATURE_SIZE else self._perhaps_start
            self.connection.missed_greeting()
            return
        if end > wire.GREETING_SIZE or not (three or self._state == self._greeting_v3):
            self._greet_what_is_known()
            self._start_search()
            self.framing = self.other.framing
            self.connection.lost_greeting()
            return
        if begin < wire.SIGNATURE_SIZE:
            self.versioned = True
            held = b""
        elif begin < first and held:
            self.revision = held[0]
            held = held[1:]
        self._greeting_around_gap = held, wire.GREETING_SIZE - end
        if end < wire.GREETING_SIZE:
            self._state = self._rest_of_greeting
        else:
            self._end_greeting_with_hole()

    def _behind_signature(self, data: bytes, position: int) -> int:
        """A hole has taken the signature: what follows may be the revision and the rest of a 2.0 greeting."""
        octets = data[position : position + greeting.GUESS_SIZE]
        if len(octets) < greeting.GUESS_SIZE and not self.ended:
            self._need = greeting.GUESS_SIZE
            return position
        if self.connection.accepted and greeting.is_rest_v2(octets):
            self.versioned = True
            self.revision = octets[0]
            self._state = self._socket_type
            return position + 1
        self._state = self._perhaps_start
        return position

    def _rest_of_greeting(self, data: bytes, position: int) -> int:
        """What follows a hole in the greeting says nothing that counts."""
        size = self._greeting_around_gap[1]
        if len(data) - position < size:
            self._need = size
            return position
        self._end_greeting_with_hole()
        return position + size

    def _end_greeting_with_hole(self) -> None:
        self._greet_v3(self._greeting_around_gap[0])
        self._end_greeting()

    def _greet_what_is_known(self) -> None:
        """Report a greeting that will not be whole."""
        if self.versioned and not self.greeted:
            held = b"".join(self._chunks)
            if self._state == self._greeting_v3:
                self._greet_v3(held)
            else:
                self._report_greeting()
