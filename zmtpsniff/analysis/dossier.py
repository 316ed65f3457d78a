"""The dossier of a flow: the facts of its two sockets that several stages ask for.

Theory
------

Patterns, payloads and findings see the same events one stage after the other, each a whole batch at a time. So two
stages never stand at the same event. If they shared one dossier, the later stage would read in the middle of its batch
of an announcement, or of a hole, that comes at the end of it; its results would depend on where batches end. So each
stage has a dossier of its own for a flow, and lets it learn from an event when the stage takes that event. Within a
stage all parts share it: findings hand theirs to the inquiries and to the ways that these follow. The rules of learning
stand here, once:

- The first announcement of a side counts. A peer that announces another type later breaks the protocol.
- A connection has two sides. An announcement from a third address is no fact.
- The stage of patterns may infer both types, or take those that the user declares. Announcements after that change
  nothing.
- Once blind, always blind: octets that are missing do not come back.
- The facts end with the Connection record of the flow.

No stage looks up a dossier for each message: an object that takes the messages of one flow gets the dossier when it
begins, and keeps the reference.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dissectors.address import host_of
from dissectors.events import Command, Connection, Greeting, Message, Octets, Subscription, at_hand
from dissectors.payloads.majordomo import CLIENTS, WORKERS, command_of
from dissectors.zmtp.sockets import PUBLISHERS, SUBSCRIBERS
from dissectors.zmtp.upgrade import PROTOCOL as ZWS
from dissectors.zmtp.wire import IDENTITY_LIMIT

_MOST = 50_000  # flows at a time
_OWN_ID = 5  # octets of an id that a ROUTER makes: a zero (jszmq: a one) and a counter of four
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_UUID_OCTETS, _UUID_TEXT = 16, 36
_WORD = re.compile(rb"[A-Za-z_][A-Za-z_.:/-]{1,63}")
_MOST_WORDS = 4
WORK_FRAMES = 3  # a delimiter, an id, a delimiter
_SOON_NS = 1_000_000_000
_FAR_NS = 1_000_000  # a shorter time may be that of the program and not of the network
_WORK = {"REQUEST": True, "REPLY": False, "PARTIAL": False, "FINAL": False}
_READY = WORKERS | {b"READY", b"\1"}  # workers say it first (the ZeroMQ guide, 7/MDP, 18/MDP)


class Guess(NamedTuple):
    """The type that a socket seems to have."""

    kind: str
    lookalike: str | None = None  # the other type that it may have, since nothing in the capture tells the two apart


class SenderType(NamedTuple):
    """The type of a socket that does not announce it, as messages show it."""

    socket_type: str
    inferred: bool  # the user did not declare it
    lookalike: str | None


Guesses = dict[str, Guess]
"""By the addresses of sockets."""


class Dossier(msgspec.Struct, eq=False):
    """One flow while it lasts, with the facts that its two sides announced."""

    flow: int
    start_ns: int = 0  # time and packet of its first event
    packet: int = 0
    types: dict[str, str] = {}  # address to socket type
    identities: dict[str, bytes] = {}  # address to identity
    greeted_ns: dict[str, int] = {}  # address to the time of its greeting
    # Address to the time that packets of the other side take to that host, and its answer back to the capture point.
    round_trip_ns: dict[str, int] = {}
    early: list[Message | Subscription | Command] = []  # wait until both types are known
    guesses: Guesses | None = None  # of sockets that announce no types
    is_declared: bool = False  # the user gave these types
    blind: bool = False  # octets are missing, so the absence of an event proves nothing
    websocket: bool = False
    is_untyped: bool = False  # ZMTP 1.0, or a WebSocket without a mechanism: types are not announced

    @property
    def is_guessed(self) -> bool:
        """Whether the socket types are inferred: neither the sockets nor the user gave them."""
        return self.guesses is not None and not self.is_declared

    def identity_of_other(self, address: str) -> bytes:
        """The identity of the peer at the other end than ``address``."""
        return next((identity for other, identity in self.identities.items() if other != address), b"")

    @property
    def publication(self) -> tuple[str, str] | None:
        """The addresses of a publisher and its subscriber; None if these are other sockets."""
        publisher = next((address for address, kind in self.types.items() if kind in PUBLISHERS), None)
        subscriber = next((address for address, kind in self.types.items() if kind in SUBSCRIBERS), None)
        return None if publisher is None or subscriber is None else (publisher, subscriber)

    def guess(self, guesses: Guesses) -> None:
        """Take inferred or declared types. From here on no problem may accuse a side because of a guess."""
        self.blind = True
        self.types = {address: guess.kind for address, guess in guesses.items()}
        self.guesses = guesses

    @property
    def sender_types(self) -> dict[str, SenderType]:
        """The types of those sockets that do not announce them, by their addresses."""
        guesses = {} if self.guesses is None else self.guesses
        return {
            address: SenderType(kind, not self.is_declared, lookalike) for address, (kind, lookalike) in guesses.items()
        }

    def see_version(self, event: Greeting) -> None:
        """Learn from a greeting whether the sides will announce their types."""
        self.websocket = event.version == ZWS
        self.is_untyped = event.version in (None, "1.0") or (self.websocket and event.mechanism is None)

    def learn(self, event: Greeting | Command) -> bool:
        """Take an announcement. Returns whether now both types are known, and were not before."""
        address, kind, identity = event.src, event.socket_type, event.identity
        if isinstance(event, Greeting):
            self.greeted_ns[address] = event.time_ns
            self.see_version(event)
        if kind is None or address in self.types or len(self.types) == 2:
            return False
        self.types[address] = kind
        asked_ns = self.greeted_ns.get(event.dst)
        # libzmq sends READY as soon as it has the greeting of the other side (23/ZMTP).
        if asked_ns is not None and isinstance(event, Command) and event.time_ns - asked_ns >= _FAR_NS:
            self.round_trip_ns[address] = event.time_ns - asked_ns
        if isinstance(identity, bytes) and 0 < len(identity) <= IDENTITY_LIMIT:
            self.identities[address] = identity
        if len(self.types) < 2:
            return False
        self.greeted_ns = {}  # which nothing needs any more
        return True


class Dossiers:
    """The dossiers of all flows that last, as far as one stage has read."""

    def __init__(self) -> None:
        """Start without any."""
        self._dossiers: dict[int, Dossier] = {}

    def at(self, event: Greeting | Command | Subscription | Message) -> Dossier:
        """The dossier of the event's flow. If there are too many flows, the result is a new one that is not kept."""
        dossier = self._dossiers.get(event.flow)
        if dossier is None:
            dossier = Dossier(event.flow, event.time_ns, event.packet)
            if len(self._dossiers) < _MOST:
                self._dossiers[event.flow] = dossier
        return dossier

    def get(self, flow: int) -> Dossier | None:
        """The dossier of a flow; None if the flow has none."""
        return self._dossiers.get(flow)

    def pop(self, flow: int) -> Dossier | None:
        """Let go of a flow, which may be over. Returns its dossier; None if it has none."""
        return self._dossiers.pop(flow, None)

    def put(self, dossier: Dossier | None) -> None:
        """Take the dossier of a flow back, if it had one."""
        if dossier is not None:
            self._dossiers[dossier.flow] = dossier


# ------------------------------------------------------------------ what brokers and their peers are (7/MDP, 18/MDP)


def _is_counted(frame: Octets) -> bool:
    """Whether a frame has a routing id in the form that libzmq or jszmq gives it; libzmq begins at a random number."""
    return isinstance(frame, bytes) and len(frame) == _OWN_ID and (not frame[0] or frame[:2] == b"\1\0")


def _is_named(frame: bytes) -> bool:
    """Whether a frame has the routing id that jszmq makes of an identity: a zero in front, with which none begins."""
    return len(frame) > 1 and not frame[0]


def is_own_id(frame: Octets) -> bool:
    """Whether a frame has a routing id in the form that ROUTERs give it: libzmq's own, or a random UUID (version 4).

    zmq4 for Go makes UUIDs in text, zmq.rs in octets.
    """
    if not isinstance(frame, bytes):
        return False
    if len(frame) == _UUID_OCTETS:
        return frame[6] >> 4 == 4 and frame[8] >> 6 == 2
    return _is_counted(frame) or (len(frame) == _UUID_TEXT and _UUID.fullmatch(frame) is not None)


def has_envelope_inside(frames: Sequence[Octets]) -> bool:
    """Whether, behind the delimiter, a message has the envelope of a client's request: a broker or its worker sends it.

    Clients have no such ids: the ROUTER makes them. A UUID may be a client's own.
    """
    if len(frames) <= WORK_FRAMES or frames[0] != b"" or b"" not in frames[2:-1]:
        return False
    first = frames[1]
    return isinstance(first, bytes) and (_is_counted(first) or _is_named(first))


def has_client_id(frames: Sequence[Octets]) -> bool:
    """Whether a message has the id of a client in front, as a ROUTER counts it: a broker passes it on.

    A UUID may be a client's own.
    """
    return any(map(_is_counted, frames[:-1]))


def is_of_client(frames: Sequence[Octets]) -> bool:
    """Whether a message is between a client and its broker, which is a ROUTER."""
    return len(frames) > 1 and frames[1] in CLIENTS


def is_of_worker(frames: Sequence[Octets]) -> bool:
    """Whether a message is between a worker and its broker."""
    return len(frames) > 2 and frames[1] in WORKERS


def task_of(frames: Sequence[Octets], depth: int) -> bytes:
    """The names in front of the body of a request, which may say what is asked for; empty if there are none.

    ``depth`` is that of its envelope. A client of Majordomo names a service. Elsewhere it is a short first frame, with
    the words behind it: a command often stands in front of the name of a service. An id is no word.
    """
    if is_of_client(frames):
        return at_hand(frames[2]) if len(frames) > 2 else b""
    name = at_hand(frames[depth]) if len(frames) > depth + 1 else b""
    words = filter(_WORD.fullmatch, map(at_hand, frames[depth + 1 : -1][:_MOST_WORDS]))
    return b"\0".join((name, *words)) if len(name) <= IDENTITY_LIMIT else b""


def gives_work(frames: Sequence[Octets]) -> bool | None:
    """Whether a message between a worker and its broker is a request; None if it is no reply, either."""
    return _WORK.get(command_of(frames[1], frames[2]) or "")


def ends_of(event: Connection) -> tuple[str, str]:
    """The client's host and the server's socket, by which findings count: a client has a new port each time."""
    return host_of(event.client.address), event.server.address


def ended_soon(event: Connection) -> bool:
    """Whether a side closed a connection soon after it began."""
    return event.is_closed and event.end_ns - event.start_ns <= _SOON_NS


def only_looks(event: Connection) -> bool:
    """Whether the client of a connection that ended soon may only have looked if the service is up.

    Then it closes the connection itself, perhaps in the middle of the handshake, though the service had begun to speak.
    """
    return event.handshake == "complete" or (event.closed_by == "client" and event.octets.server > 0)


def says_ready(frames: Sequence[Octets]) -> bool:
    """Whether the first message of a connection only says that a worker is ready."""
    return at_hand(frames[-1]) in _READY or any(at_hand(frame) in _READY for frame in frames[:3])
