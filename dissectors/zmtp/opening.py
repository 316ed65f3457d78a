"""How a side begins: its greeting as a state machine, until frames follow.

A side that supports old peers sends its greeting in pieces and chooses each by what it has read from the other side
(15/ZMTP and 23/ZMTP, "Backwards Interoperability"). So a side is read with an eye on the other one:

- It first sends a signature of 10 octets, which to a ZMTP 1.0 peer is the header of a long identity frame.
- If the other side has no signature, the identity's octets follow, and frames of ZMTP 1.0 both ways.
- Else its revision follows. If that of either side is 0 or 1, next come its socket type and an identity frame (2.0).
- If both revisions are 3 or more, the rest of 64 octets follows: minor, mechanism, as-server, zeros.

Often what the other side says decides how to read the next octets of a side. Then these octets wait for the other side.
If the capture lacks the other side, the opening guesses at last. A side that begins like HTTP may upgrade to WebSocket
(45/ZWS). A side whose first octets are not in the capture may be anywhere in its stream.

An opening reads octets and acts on nothing. Each `read` may set a `fact`, and `faults` with it: problem codes with
details. The connection, which owns both sides, draws the conclusions from a fact. The attributes of an opening say what
its side has announced. The :mod:`~dissectors.zmtp.agreement` says what both sides agree on. The states, and what leads
from one to the next, are in :mod:`~dissectors.zmtp.opening_states`; only that table sets the state.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import field

from dissectors.events import Side
from dissectors.snapshots import LATER, Live, Part, quick
from dissectors.zmtp import commands, frame_headers, greeting, sockets, upgrade, wire
from dissectors.zmtp import websocket_frames as ws
from dissectors.zmtp.buffer import Buffer
from dissectors.zmtp.evidence import EvidenceV1
from dissectors.zmtp.greeting import GreetingV3, Signature
from dissectors.zmtp.opening_states import NEXT, Cause, State
from dissectors.zmtp.search import Segment
from dissectors.zmtp.upgrade import HEAD_END, HEAD_LIMIT, PROTOCOL, Upgrade

Fact = Literal[
    "signature",  # the side has a signature: a proof perhaps, or what the other side waits for
    "revision",  # the side has a revision: likewise
    "type",  # its socket type is known (2.0)
    "greeting",  # its greeting of 64 octets is over
    "identity",  # its identity frame is over (1.0, 2.0)
    "upgrade",  # its HTTP head upgrades to ZWS
    "frames",  # the other side has greeted, too, or never will: frames follow, in `framing`
    "messages",  # the same, and messages of WebSocket follow
    "refusal",  # the side does not speak ZMTP
    "unreadable",  # the side speaks ZMTP, but nothing that follows can be read
    "unknown",  # this is not the beginning of a stream: a search may find frames
    "no-upgrade",  # the side answers an upgrade with something else
    "hole",  # octets are missing, and nothing is known of what follows
]

# So many octets wait for a word from the other side. When there are more, the capture lacks the other side.
_PATIENCE = 16_384
# An identity has 255 octets at most. Longer ones up to this length are read, to report them.
_IDENTITY_LIMIT = 0xFFFF
# No peer has announced a higher revision yet. Where the signature proves little, a higher one is no ZMTP.
_LAST_REVISION = 15
_BEGINNING = 16  # octets to show of a side that does not speak ZMTP
_NOT_ZMTP = (("not-zmtp", ""),)
# The states in which octets may wait for a word from the other side, though they may show what they are.
_WAITING = frozenset({"after signature", "after revision", "socket type", "after greeting", "after head"})


@quick
class Opening(Part):
    """How one side begins."""

    _buffer: Live[Buffer]  # holds octets that wait
    side: Live[Side]
    _from_start: bool = True  # its first octets are the first of its stream
    forced: int | None = None  # the user knows: nothing, ZMTP of any version (0), or that version (1, 2, 3)
    other: Live["Opening"] = LATER  # the opening of the other side, as soon as there is one
    state: State = "start"
    fact: Live[Fact | None] = None
    is_proof: Live[bool] = False  # nothing but ZMTP begins like this
    faults: Live[tuple[commands.Fault, ...]] = ()
    proven: bool = False  # the connection is known to be ZMTP
    ended: bool = False  # no more octets will come
    silent: bool = False  # the capture lacks what it says about versions
    hurries: bool = False  # a hole follows, so it does not wait for the other side if its own octets show the version
    greeted: bool = False  # its greeting is over, so that frames follow
    segments: list[Segment] = field(default_factory=list)  # whose octets wait in "perhaps start"
    beginning: bytes = b""  # the first octets, to name the protocol if it is not ZMTP
    # Its announcement
    versioned: bool | None = None  # it begins with a signature; None: not known yet
    signature: Signature | None = None
    revision: int | None = None
    greeting: GreetingV3 | None = None  # 3.x
    version: str | None = None
    socket_type: str | None = None  # 2.0
    identity: bytes | None = None  # 1.0, 2.0
    upgraded: bool = False  # to WebSocket
    upgrade: Upgrade | None = None  # what its HTTP head says of ZWS, if that is in the capture
    framing: int = 0  # of the frames that follow: 1 for ZMTP 1.0, 2 for 2.0 and later, 0 if it is not known
    evidence: EvidenceV1 | None = None  # there while this looks like ZMTP 1.0 and nothing proves it
    _identity_left: int = 0
    _before_hole: bytes = b""
    _after_hole: int = 0

    def __post_init__(self) -> None:
        """Wait for the first octets."""
        self.other = self
        if not self._from_start:
            self.turn("octets from anywhere")

    def turn(self, cause: Cause) -> None:
        """Pass to the state that follows from ``cause``."""
        self.state = NEXT[self.state][cause]

    # ------------------------------------------------------------------ what others ask

    @property
    def mechanism(self) -> str | None:
        """The mechanism that the side announces; None if its greeting is not known."""
        if self.greeting is not None:
            return self.greeting.mechanism
        return None if self.upgrade is None else self.upgrade.mechanism

    @property
    def as_server(self) -> bool | None:
        """Whether the side announces that it is the server of the mechanism; None if its greeting is not known."""
        return None if self.greeting is None else self.greeting.as_server

    @property
    def minor(self) -> int | None:
        """The minor version that the side announces; None if its greeting is not known."""
        return None if self.greeting is None else self.greeting.minor

    @property
    def will_not_tell(self) -> bool:
        """Whether its version will never be known."""
        return self.silent or self.ended or self.state == "over"

    @property
    def speaks_otherwise(self) -> bool:
        """Whether the side speaks something else than ZMTP, so that the other side probably does, too.

        Always false where the user says which version this is: then the other side is read as that version.
        """
        read = self.greeted or self.silent or self.versioned is not None or not self.beginning
        return self.state == "over" and not (read or self.forced)

    # ------------------------------------------------------------------ what others do

    def begin(self) -> None:
        """Octets come of a side that seemed absent."""
        self.turn("octets" if self._from_start else "octets from anywhere")

    def word(self) -> None:
        """The other side has said something: read on, even if no octets wait, since an identity may have none."""
        if self.state == "after signature" and self.other.versioned is False and not self._identity_left:
            if self.proven:
                self._identified(b"", 1)
            else:
                self._refuse()

    def hurry(self) -> bool:
        """A hole follows the octets at hand. Returns whether they wait for the other side."""
        self.hurries = True
        return self.state in _WAITING and self._buffer.held > 0

    def end_with(self, octets: bytes) -> bool:
        """Note what the last ``octets`` of a cut greeting say. Returns whether any part of the greeting is known."""
        if not self.versioned or self.greeted:
            return False
        if self.state == "greeting":
            self._learn(octets)
        return True

    def skip(self, held: bytes, begin: int, end: int | None) -> None:
        """Go on behind a hole that ends at offset ``end`` of the stream (None: nobody knows where).

        The octets ``held``, which begin at offset ``begin``, come before the hole and have not been read.
        """
        self.hurries = False
        end = wire.GREETING_SIZE + 1 if end is None else end
        three = self.other.greeted and self.other.framing == 2 and self.other.minor is not None
        three = three or self.state == "greeting"
        if end < wire.GREETING_SIZE and not three:
            # The rest of a greeting may follow.
            self.turn("hole over signature" if end == wire.SIGNATURE_SIZE else "hole over beginning")
            self.fact = "hole"
            return
        if end > wire.GREETING_SIZE or not three:
            self.fact = "unknown"
            return
        if begin < wire.SIGNATURE_SIZE:
            self.versioned = True
            held = b""
        elif begin == wire.SIGNATURE_SIZE and held:
            self.revision = held[0]
            held = held[1:]
        self._before_hole, self._after_hole = held, wire.GREETING_SIZE - end
        if self._after_hole:
            self.turn("hole in greeting")
        else:
            self._end_greeting(held)

    # ------------------------------------------------------------------ reading

    def read(self, data: bytes, position: int) -> int:
        """Take octets from ``position`` on, at least one, up to the next fact; returns how far it got."""
        while True:
            state, before = self.state, position
            position = _STEPS[state](self, data, position)
            if self.fact is not None or position == len(data) or (position == before and self.state is state):
                return position

    def _wait(self, octets: int) -> None:
        self._buffer.need = octets

    def _announce(self, fact: Fact) -> None:
        """Set a fact that matters as a proof, or to the other side if that waits; else leave it out."""
        if not self.proven or self.faults or self.other._buffer.held:
            self.fact = fact

    def _refuse(self, code: str = "", detail: str = "") -> None:
        """The side does not speak ZMTP. ``code`` and ``detail`` say what is wrong, if it nearly does."""
        self.fact = "refusal"
        self.faults = ((code, detail),) if code else _NOT_ZMTP

    def _absent(self, data: bytes, position: int) -> int:
        """A side that seemed absent sends octets after all."""
        self.begin()
        return position

    def _perhaps_start(self, data: bytes, position: int) -> int:
        """The first octets in the capture may be in mid-stream; only a signature shows that the stream begins here."""
        if upgrade.may_be_head(data[position : position + 5]):
            self.turn("words")
            return position
        first = data[position : position + wire.SIGNATURE_SIZE]
        if first[0] == wire.SIGNATURE_START:
            if len(first) < wire.SIGNATURE_SIZE:
                self._wait(wire.SIGNATURE_SIZE)
                return position
            if greeting.parse_signature(first).is_certain:
                self.turn("mark")
                return position
        rest = greeting.find_rest(data[position : position + 2 * wire.GREETING_SIZE])
        if isinstance(rest, int):
            self._wait(rest)
            if not rest or self.ended:
                self.silent = True
                self.fact = "unknown"
            return position
        self.is_proof = True
        self.versioned = True
        self.revision = rest.revision
        self.silent = rest.revision is None
        self._end_greeting(rest.after_revision or None)
        return position + rest.size

    def _behind_signature(self, data: bytes, position: int) -> int:
        """A hole has taken the signature: what follows may be the revision and the rest of a 2.0 greeting."""
        octets = data[position : position + greeting.GUESS_SIZE]
        if len(octets) < greeting.GUESS_SIZE and not self.ended:
            self._wait(greeting.GUESS_SIZE)
            return position
        theirs = self.other.revision
        if self.proven and greeting.is_rest_v2(octets, theirs == wire.REVISION_2):
            self.versioned = True
            self.revision = octets[0]
            self.turn("revision")
            return position + 1
        may_be_rest = self.proven and theirs is None and greeting.is_rest_v2(octets, True)
        if may_be_rest and self._waits(data, position):
            return position
        self.turn("octets from anywhere")
        return position

    def _start(self, data: bytes, position: int) -> int:
        """The first octet: FF for a signature or a long frame of ZMTP 1.0, a letter for HTTP."""
        if data[position] == wire.SIGNATURE_START:
            self.turn("mark")
            return position
        may_be_head = False if self.forced else upgrade.may_be_head(data[position : position + 5])
        if may_be_head is None and not self.ended:
            self._wait(len(data) - position + 1)
        else:
            self.beginning = data[position : position + _BEGINNING]
            self.turn("words" if may_be_head else "length")
        return position

    def _signature(self, data: bytes, position: int) -> int:
        self.beginning = data[position : position + _BEGINNING]
        if len(data) - position < wire.SIGNATURE_SIZE:
            self._wait(wire.SIGNATURE_SIZE)
            return position
        signature = greeting.parse_signature(data[position : position + wire.SIGNATURE_SIZE])
        if not signature.is_certain:
            detail = f"octet 9 is 0x{signature.last:02x}, must be 0x7f"
            if not signature.is_versioned:
                if signature.length >= wire.LENGTH_ESCAPE_V1:
                    self.turn("length")
                else:
                    self._refuse("bad-signature", detail)
                return position
            if not (signature.is_possible or self.forced is not None):
                self._refuse()
                return position
            if signature.last != wire.SIGNATURE_END:
                self.faults = (("bad-signature", detail),)
        self.signature = signature
        self.versioned = True
        self._identity_left = signature.length - 1 if signature.length else 0
        self.turn("signature")
        self._announce("signature")
        return position + wire.SIGNATURE_SIZE

    def _after_signature(self, data: bytes, position: int) -> int:
        """The next octets depend on the other side: a revision if that is versioned, else an identity."""
        if self.other.versioned is None and self._waits(data, position):
            return position
        versioned = self.other.versioned
        if versioned is None:
            guessed = self._guess(data[position:])
            if guessed is None and not self.ended:
                self._wait(greeting.GUESS_SIZE)
                return position
            versioned = guessed != 1
        if versioned:
            self.turn("versioned")
            return self._revision(data, position)
        if self.proven:
            self.turn("unversioned")
        else:
            self._refuse()
        return position

    def _shown(self, octets: bytes) -> int | None:
        """The major version that the user gave, or that ``octets`` behind the signature show beyond doubt."""
        return self.forced or greeting.version_shown(octets, self._identity_left)

    def _guess(self, octets: bytes) -> int | None:
        """The version of :meth:`_shown`, or else the most likely one."""
        return self._shown(octets) or greeting.guess_after_signature(octets)

    def _waits(self, data: bytes, position: int, revision: bytes = b"", is_sure: bool = False) -> bool:
        """Whether to wait for the other side before reading on; then the octets stay in the buffer until it speaks.

        The packets of an absent side may come late, so this waits for it, too. It does not wait if what the other side
        will say ``is_sure``, or if ``revision`` and the octets at hand show it.
        """
        held = len(data) - position
        if self.other.will_not_tell or held > _PATIENCE:
            return False
        patience = _PATIENCE
        if self.other.state == "absent" or self.hurries:
            if is_sure or self._shown(revision + data[position:]) is not None:
                return False
            if held < wire.GREETING_SIZE:
                patience = held + 1
        self._wait(patience)
        return True

    def _revision(self, data: bytes, position: int) -> int:
        assert self.signature is not None
        if data[position] > _LAST_REVISION and not (self.signature.is_certain or self.forced is not None):
            self._refuse()
            return position
        self.revision = data[position]
        self.turn("revision")
        self._announce("revision")
        position += 1
        if self.fact is not None or position == len(data):
            return position
        return self._after_revision(data, position)

    def _after_revision(self, data: bytes, position: int) -> int:
        """The socket type follows if the revision of either side is old."""
        assert self.revision is not None
        if self.revision <= wire.REVISION_2:
            self.turn("old")
            return position
        theirs = self.other.revision
        if theirs is None:
            if self._waits(data, position, bytes([self.revision])):
                return position
            guessed = self._guess(bytes([self.revision]) + data[position:])
            if guessed is None and not self.ended:
                self._wait(greeting.GUESS_SIZE - 1)
                return position
            theirs = wire.REVISION_2 if guessed == 2 else wire.REVISION_3
        if theirs <= wire.REVISION_2:
            self.turn("old")
            return position
        self.turn("new")
        return self._greeting(data, position)

    # ------------------------------------------------------------------ ZMTP 3.x

    def _greeting(self, data: bytes, position: int) -> int:
        size = wire.AFTER_REVISION_SIZE
        if len(data) - position < size:
            self._wait(size)
            return position
        octets = data[position : position + size]
        self.is_proof = self.proven or greeting.is_greeting_v3(octets)
        self._end_greeting(octets)
        return position + size

    def _rest_of_greeting(self, data: bytes, position: int) -> int:
        """Pass over the rest of a greeting behind a hole: it says nothing that counts."""
        size = self._after_hole
        if len(data) - position < size:
            self._wait(size)
            return position
        self._end_greeting(self._before_hole)
        return position + size

    def _end_greeting(self, octets: bytes | None) -> None:
        """End the greeting of 64 octets, of which ``octets`` are known after the revision: the handshake follows."""
        if octets is not None:
            self._learn(octets)
        self.greeted = True
        self.framing = 2
        self.turn("greeting")
        self.fact = "greeting"

    def _learn(self, octets: bytes) -> None:
        """Note what the octets after the revision say; the end may be missing."""
        self.greeting = said = greeting.parse_after_revision(octets)
        is_known = self.revision is not None and said.minor is not None
        self.version = f"{self.revision}.{said.minor}" if is_known else None
        mechanism = octets[1 : 1 + wire.MECHANISM_SIZE]
        fault = "bad-mechanism", f"the mechanism's octets are {mechanism.hex()}"
        self.faults = () if said.mechanism_is_legal else (fault,)

    def _after_greeting(self, data: bytes, position: int) -> int:
        """Wait for the other side's greeting: what a command holds depends on the mechanism."""
        if self.other.greeted or not self._waits(data, position, is_sure=True):
            self.fact = "frames"
        return position

    # ------------------------------------------------------------------ ZMTP 2.0 and 1.0

    def _socket_type(self, data: bytes, position: int) -> int:
        """The socket type of a 2.0 greeting; frames follow, the first of which is the identity (15/ZMTP)."""
        assert self.revision is not None
        theirs = self.other.revision
        is_v2 = data[position + 1 : position + 2] == b"\0"  # no identity frame of 1.0 begins so
        if theirs is None and self._waits(data, position, is_sure=is_v2):
            return position
        if not self.proven:
            self._refuse()
            return position
        number = data[position]
        self.version = {0: "1.0", 1: "2.0"}.get(self.revision, str(self.revision))
        self.socket_type = sockets.name_v2(number)
        if self.socket_type is None:
            self.faults = (("unknown-socket-type", f"socket type {number} is not known in ZMTP 2.0"),)
        oldest = self.revision if theirs is None else min(self.revision, theirs)
        self.turn("frames of 1.0" if oldest == wire.REVISION_1 else "frames of 2.0")
        self.fact = "type"
        return position + 1

    def _identity_v2(self, data: bytes, position: int) -> int:
        """The first frame of ZMTP 2.0 is the identity: flags, length, octets."""
        header = frame_headers.read_v2(data, position)
        if isinstance(header, int):
            self._wait(header)
            return position
        flags, begin, length = header
        stop = begin + length
        if stop > len(data) and length <= _IDENTITY_LIMIT:
            self._wait(stop - position)
            return position
        if flags & ~wire.LONG:
            self.faults = (("malformed-command", f"the identity frame has flags 0x{flags:02x}"),)
        if length > _IDENTITY_LIMIT:
            self._fail_identity(length)
            return position
        self._identified(data[begin:stop], 2)
        return stop

    def _identity_after_signature(self, data: bytes, position: int) -> int:
        stop = position + self._identity_left
        if self._identity_left > _IDENTITY_LIMIT:
            self._fail_identity(self._identity_left)
            return position
        if stop > len(data):
            self._wait(stop - position)
            return position
        self._identified(data[position:stop], 1)
        return stop

    def _identity_v1(self, data: bytes, position: int) -> int:
        """The first frame of ZMTP 1.0 is the identity: length, flags, octets (13/ZMTP)."""
        header = frame_headers.read_v1(data, position)
        # Nothing marks ZMTP 1.0: if the other side speaks something else, these octets are no identity either.
        strange = not data[position] or (not self.versioned and self.other.speaks_otherwise)
        if not isinstance(header, int):
            flags, begin, length = header
            strange = strange or flags & wire.MORE > 0 or (flags not in wire.FLAGS_SEEN_V1 and self.forced is None)
            strange = strange or not 0 <= length < _IDENTITY_LIMIT
        if strange:
            self._refuse()
            return position
        if isinstance(header, int):
            self._wait(header - 1 + data[position])  # also the length of a long frame is as great as its first octet
            return position
        stop = begin + length
        if stop > len(data):
            self._wait(stop - position)
            return position
        if self.versioned is None:
            self.versioned = False
            self.version = "1.0"
        if not self.proven:
            self.evidence = EvidenceV1()
            self.evidence.identity(length, flags, begin - position > 2)
        self._identified(data[begin:stop], 1)
        return stop

    def _fail_identity(self, length: int) -> None:
        self.faults = (*self.faults, ("identity-too-long", f"an identity of {length} octets"))
        self.fact = "unreadable"

    def _identified(self, identity: bytes, framing: int) -> None:
        """The identity frame of 1.0 or 2.0 is read: the greeting is whole."""
        self.identity = identity
        self.greeted = True
        if len(identity) > wire.IDENTITY_LIMIT:
            self.faults = (*self.faults, ("identity-too-long", f"an identity of {len(identity)} octets"))
        self.framing = framing
        self.turn("identity")
        self.fact = "identity"

    # ------------------------------------------------------------------ WebSocket

    def _head(self, data: bytes, position: int) -> int:
        """The HTTP request of a client, or the response of a server, up to its empty line."""
        self.beginning = data[position : position + _BEGINNING]
        end = data.find(HEAD_END, position, position + HEAD_LIMIT)
        if end < 0 and len(data) - position < HEAD_LIMIT and not self.ended:
            self._wait(len(data) - position + 1)
            return position
        head = upgrade.parse_head(data[position:end]) if end >= 0 else None
        if head is not None:
            self.is_proof = True
            self.upgraded = True
            self.upgrade = head
            self.version = PROTOCOL
            self.versioned = True
            self.greeted = True
            self.turn("upgrade")
            self.fact = "upgrade"
            return end + len(HEAD_END)
        if self.other.upgraded:
            line = upgrade.first_line(data[position : position + HEAD_LIMIT])
            detail = f"the {self.side} does not upgrade to {PROTOCOL}, it answers {line!r}"
            self.faults = (("upgrade-refused", detail),)
            self.fact = "no-upgrade"
            return len(data)
        self.turn("length")
        return position

    def _after_head(self, data: bytes, position: int) -> int:
        """Wait for the server's head: what comes first depends on the protocol that it chooses."""
        header = ws.parse_header(data, position)
        is_sure = not isinstance(header, int) and header[3] < len(data)
        if self.other.greeted or not self._waits(data, position, is_sure=is_sure):
            self.fact = "messages"
        return position

    def _nothing(self, data: bytes, position: int) -> int:
        """The greeting is over: the opening reads no more octets."""
        return position


_STEPS: dict[State, Callable[[Opening, bytes, int], int]] = {
    "absent": Opening._absent,
    "start": Opening._start,
    "perhaps start": Opening._perhaps_start,
    "behind signature": Opening._behind_signature,
    "signature": Opening._signature,
    "after signature": Opening._after_signature,
    "revision": Opening._revision,
    "after revision": Opening._after_revision,
    "greeting": Opening._greeting,
    "rest of greeting": Opening._rest_of_greeting,
    "after greeting": Opening._after_greeting,
    "socket type": Opening._socket_type,
    "identity 2.0": Opening._identity_v2,
    "identity 1.0": Opening._identity_v1,
    "identity after signature": Opening._identity_after_signature,
    "head": Opening._head,
    "after head": Opening._after_head,
    "frames": Opening._nothing,
    "over": Opening._nothing,
}
