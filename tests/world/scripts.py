"""Healthy conversations of all socket types, as pieces in causal order, with what is true of them.

A :class:`.Piece` says what a program hands to its kernel, and how much of the other side's it must have read before. It
is the whole of causality: when that happens follows from the network in :mod:`.link`. A :class:`KnownConversation` has
beside its pieces the messages and subscriptions of both sides, and which message answers which.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tests.world.conversation import CLIENT, SERVER, Conversation, End, Piece, text_body
from tests.world.octets import NUMBERS, SIGNATURE, command, frame, frame_v1, prop
from tests.world.protocols import PROTOCOLS

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000

_IDENTIFIED = frozenset({"REQ", "DEALER", "ROUTER"})  # libzmq sends Identity from these only


class SentMessage(NamedTuple):
    """A message that a side sent, and where it is in the octets of that side."""

    frames: tuple[bytes, ...]
    begin: int
    end: int


@dataclass(eq=False)
class KnownConversation(Conversation):
    """A conversation, and the truth about it."""

    pieces: list[Piece] = field(default_factory=list)
    types: tuple[str, str] = "", ""  # socket types of client and server
    versions: tuple[str, str] = "", ""  # that they can speak
    mechanism: str | None = None
    messages: tuple[list[SentMessage], list[SentMessage]] = field(default_factory=lambda: ([], []))
    subscriptions: tuple[list[tuple[str, bytes, str]], list[tuple[str, bytes, str]]] = field(
        default_factory=lambda: ([], [])
    )
    requester: int = CLIENT
    pairs: dict[int, int] = field(default_factory=dict)  # a replier's message to the requester's that it answers
    beats: list[tuple[int, int, int]] = field(default_factory=list)  # side of a PING, where it and its PONG end
    commands: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))  # names
    opened: tuple[int, int] = (0, 0)  # how many pieces of each side are the greeting and the handshake

    @property
    def version(self) -> str:
        """The version that is negotiated."""
        return min(self.versions)

    @property
    def pairs_shown(self) -> bool:
        """Whether the wire tells what answers what."""
        return self.version != "1.0"

    def is_quiet(self, said: tuple[int, int]) -> bool:
        """Whether nobody waits for an answer, or is in the middle of a message, once so many octets are said."""
        asks = self.requester
        waited = [
            (asks, self.messages[asks][request].end, self.messages[1 - asks][reply].end)
            for reply, request in self.pairs.items()
        ]
        inside = any(one.begin < said[side] < one.end for side in (CLIENT, SERVER) for one in self.messages[side])
        return not inside and all(
            (asked <= said[side]) == (told <= said[1 - side]) for side, asked, told in waited + self.beats
        )

    @property
    def opening(self) -> int:
        """How many of the pieces are the greetings and the handshake."""
        return self.opened[CLIENT] + self.opened[SERVER]


# ---------------------------------------------------------------------- octets


def metadata(socket_type: str, identity: bytes) -> bytes:
    """The metadata of READY and INITIATE."""
    pairs = [(b"Socket-Type", socket_type.encode())]
    if socket_type in _IDENTIFIED:
        pairs.append((b"Identity", identity))
    return b"".join(prop(name, value) for name, value in pairs)


# ---------------------------------------------------------------------- scripts


class Script:
    """Writes a conversation down, step by step, and keeps its truth."""

    def __init__(self, random: Random, talk: KnownConversation, pace_ns: int) -> None:
        """Begin to fill ``talk``; programs pause for about ``pace_ns``."""
        self.random = random
        self.talk = talk
        self.pace_ns = pace_ns
        self._held = bytearray(), bytearray()
        self._length = [0, 0]
        self.count = [0, 0]  # writes of each side
        self._serial = 0
        self.old = talk.version == "1.0"  # frames of ZMTP 1.0
        self.most = random.choice([8, 40, 40, 200, 200, 1000])  # octets of a body

    def say(self, side: int, octets: bytes) -> None:
        """Put octets into a side's next write."""
        self._held[side].extend(octets)
        self._length[side] += len(octets)

    def flush(self, side: int, needs: int | None = None, pause_ns: int | None = None) -> int:
        """Write what a side holds, after so many writes of the other (all so far, if not given); their number."""
        if self._held[side]:
            if needs is None:
                needs = self.count[1 - side]
            if pause_ns is None:
                pause_ns = int(self.pace_ns * self.random.random()) + 1
            self.talk.pieces.append(Piece(side, bytes(self._held[side]), needs=needs, pause_ns=pause_ns))
            self._held[side].clear()
            self.count[side] += 1
        return self.count[side]

    def message(self, side: int, *frames: bytes) -> int:
        """Put a message into a side's next write; returns its place among that side's messages."""
        begin = self._length[side]
        last = len(frames) - 1
        make = frame_v1 if self.old else frame
        self.say(side, b"".join(make(body, place < last) for place, body in enumerate(frames)))
        return self.sent(side, begin, frames)

    def sent(self, side: int, begin: int, frames: tuple[bytes, ...]) -> int:
        """Note down a message whose octets were said from ``begin`` on."""
        messages = self.talk.messages[side]
        messages.append(SentMessage(frames, begin, self._length[side]))
        return len(messages) - 1

    def split_message(self, side: int, frames: tuple[bytes, ...], between: Callable[[], None]) -> int:
        """A message of several writes; ``between`` may say something between two of its frames."""
        begin = self._length[side]
        for place, body in enumerate(frames):
            self.say(side, (frame_v1 if self.old else frame)(body, place < len(frames) - 1))
            if place < len(frames) - 1:
                self.flush(side)
                between()
        number = self.sent(side, begin, frames)
        self.flush(side)
        return number

    def body(self, name: bytes = b"m") -> bytes:
        """A body that is like no other of the conversation."""
        self._serial += 1
        length = self.random.randrange(self.most)
        return b"%s%d %s" % (name, self._serial, text_body(self.random, length))

    def command(self, side: int, name: bytes, data: bytes = b"") -> None:
        """Put a command into a side's next write."""
        self.say(side, command(name, data))
        if name not in (b"SUBSCRIBE", b"CANCEL"):  # which are shown as subscriptions
            self.talk.commands[side].append(name.decode())

    def subscribe(self, side: int, topic: bytes, action: str = "subscribe") -> None:
        """Put a subscription, or its end, into a side's next write."""
        wanted = action == "subscribe"
        as_command = self.talk.version == "3.1" and self.talk.types[side] == "SUB"
        if as_command:
            self.command(side, b"SUBSCRIBE" if wanted else b"CANCEL", topic)
        else:
            self.say(side, (frame_v1 if self.old else frame)(bytes([wanted]) + topic))
        self.talk.subscriptions[side].append((action, topic, "command" if as_command else "message"))

    def ping(self, side: int) -> None:
        """A PING and its PONG, each in a write of its own."""
        context = self.random.choice([b"", b"%d" % self.random.randrange(1000)])
        self.command(side, b"PING", b"\0\0" + context)
        self.flush(side)
        self.command(1 - side, b"PONG", context)
        self.flush(1 - side)
        self.talk.beats.append((side, self._length[side], self._length[1 - side]))


# ---------------------------------------------------------------------- the opening


def _open(script: Script, style: str) -> None:
    """The greetings and the handshake, in the steps in which libzmq sends them."""
    talk, random = script.talk, script.random
    for side in (CLIENT, SERVER):
        if talk.versions[side] == "1.0":
            script.say(side, frame_v1(b""))
        else:
            script.say(side, SIGNATURE)
        if style == "steps" or talk.version == "1.0":
            script.flush(side, needs=0)
    if talk.version == "1.0":
        return  # what another one takes for a signature is the identity frame of this version, with a long length
    mixed = "2.0" in talk.versions and talk.versions[CLIENT] != talk.versions[SERVER]
    for side in (CLIENT, SERVER):
        script.say(side, bytes([1 if talk.versions[side] == "2.0" else 3]))
        if mixed or (style == "steps" and random.random() < 0.5):  # 10, 1 and 53 octets, or 10 and 54
            script.flush(side, needs=int(style == "steps"))
    begun = script.count[SERVER], script.count[CLIENT]
    if talk.version == "2.0":
        for side in (CLIENT, SERVER):
            script.say(side, bytes([NUMBERS[talk.types[side].encode()]]) + frame(b""))
            script.flush(side, needs=begun[side])
        return
    mechanism = (talk.mechanism or "NULL").encode()
    for side in (CLIENT, SERVER):
        script.say(side, bytes([int(talk.versions[side][-1])]) + mechanism.ljust(20, b"\0") + bytes(32))
        script.flush(side, needs=begun[side] if style == "steps" else 0)
    identity = b"" if random.random() < 0.8 else b"peer-%d" % random.randrange(100)
    said = [metadata(kind, identity) for kind in talk.types]
    if talk.mechanism == "PLAIN":
        for side, name, data in (
            (CLIENT, b"HELLO", b"\5admin\6secret"),
            (SERVER, b"WELCOME", b""),
            (CLIENT, b"INITIATE", said[CLIENT]),
            (SERVER, b"READY", said[SERVER]),
        ):
            script.command(side, name, data)
            script.flush(side)
        return
    greeted = script.count[SERVER], script.count[CLIENT]
    for side in (CLIENT, SERVER):
        script.command(side, b"READY", said[side])
        script.flush(side, needs=greeted[side])


# ---------------------------------------------------------------------- what socket types say


def _beat(script: Script) -> None:
    """Now and then a heartbeat, where there are any."""
    if script.talk.version == "3.1" and script.random.random() < 0.1:
        script.ping(script.random.choice([CLIENT, SERVER]))


def _lock_step(script: Script, count: int) -> None:
    """REQ to REP or ROUTER: one request at a time."""
    talk = script.talk
    asks, answers = talk.requester, 1 - talk.requester
    numbered = script.random.random() < 0.2  # ZMQ_REQ_CORRELATE
    for number in range(count):
        head = (struct.pack("!I", number + 77), b"") if numbered else (b"",)
        parts = script.random.choice([1, 1, 1, 2, 3])
        request = script.message(asks, *head, *(script.body(b"q") for _ in range(parts)))
        script.flush(asks)
        reply = script.message(answers, *head, *(script.body(b"a") for _ in range(parts)))
        script.flush(answers)
        talk.pairs[reply] = request
        _beat(script)


def _pipelined(script: Script, count: int) -> None:
    """DEALER to REP or ROUTER: several requests under way, the replies in their order."""
    talk, random = script.talk, script.random
    asks, answers = talk.requester, 1 - talk.requester
    strict = "REP" in talk.types
    envelope = random.choice(["identity", "delimiter"] if strict else ["identity", "delimiter", "none"])
    waiting: list[tuple[int, tuple[bytes, ...], int]] = []  # request, envelope, writes that the reply needs
    asked = 0
    most = random.choice([1, 3, 8, 30])
    while asked < count or waiting:
        if asked < count and len(waiting) < most and (not waiting or random.random() < 0.6):
            asked += 1
            head: tuple[bytes, ...] = ()
            if envelope == "identity":
                head = (b"\0" + struct.pack("!I", 0x10000 + asked % 7), b"")
            elif envelope == "delimiter":
                head = (b"",)
            request = script.message(asks, *head, script.body(b"q"))
            # A program that does not wait need not have read anything.
            needs = 0 if random.random() < 0.7 else None
            waiting.append((request, head, script.flush(asks, _greeted(script, asks) if needs == 0 else None)))
        else:
            request, head, needed = waiting.pop(0)
            reply = script.message(answers, *head, script.body(b"a"))
            script.flush(answers, needs=needed)
            talk.pairs[reply] = request
            if not waiting:
                _beat(script)


def _greeted(script: Script, side: int) -> int:
    """How many writes of the other side were its opening."""
    return script.talk.opened[1 - side]


def _publish(script: Script, count: int) -> None:
    """PUB to SUB: subscriptions before and between messages, all of which match what the publisher has read."""
    talk, random = script.talk, script.random
    reader = next(side for side in (CLIENT, SERVER) if talk.types[side] in ("SUB", "XSUB"))
    writer = 1 - reader
    topics = [b"weather.", b"stock.", b"alarm.", b"trace.", b"position."]
    random.shuffle(topics)
    active: list[bytes] = []
    needed = 0

    def subscribe() -> None:
        nonlocal needed
        topic = topics.pop()
        script.subscribe(reader, topic)
        needed = script.flush(reader, needs=_greeted(script, reader))
        active.append(topic)

    for _ in range(random.randint(1, 2)):
        subscribe()
    for _ in range(count):
        chance = random.random()
        if chance < 0.05 and topics:
            subscribe()
        elif chance < 0.1 and len(active) > 1:
            # Until the publisher has read this, its messages still match the subscriptions that it knows.
            topic = active.pop(0)
            script.subscribe(reader, topic, "cancel")
            after = script.flush(reader, needs=_greeted(script, reader))
            for _ in range(random.randrange(3)):
                script.message(writer, topic + b"late", script.body())
                script.flush(writer, needs=needed)
            needed = after
        else:
            script.message(writer, random.choice(active) + b"x", *(script.body() for _ in range(random.randint(1, 2))))
            if random.random() < 0.7:
                script.flush(writer, needs=needed)
            _beat(script)
    script.flush(writer, needs=needed)


def _push(script: Script, count: int) -> None:
    """PUSH to PULL, or one half of a PAIR: messages that nobody answers."""
    random = script.random
    sides = [CLIENT, SERVER] if "PAIR" in script.talk.types else [script.talk.types.index("PUSH")]
    for _ in range(count):
        side = random.choice(sides)
        script.message(side, *(script.body() for _ in range(random.choice([1, 1, 2, 5]))))
        if random.random() < 0.6:
            script.flush(side, needs=_greeted(script, side))
            _beat(script)
    for side in sides:
        script.flush(side, needs=_greeted(script, side))


def _large(script: Script, count: int) -> None:
    """PUSH to PULL: frames over many segments, and messages of many parts with heartbeats in between."""
    random = script.random
    side = script.talk.types.index("PUSH")
    for _ in range(max(count // 8, 2)):
        if random.random() < 0.02:
            script.most = 60_000
            for _ in range(60):  # more than is kept of a stream that waits
                script.message(side, script.body())
                script.flush(side, needs=_greeted(script, side))
        elif random.random() < 0.5:
            script.most = random.choice([3000, 20_000, 60_000])
            script.message(side, script.body())
            script.flush(side, needs=_greeted(script, side))
            script.most = 100
        else:
            script.most = 2000
            parts = tuple(script.body() for _ in range(random.randint(3, 12)))
            script.split_message(side, parts, lambda: _beat(script))


_KINDS: list[tuple[str, str, Callable[[Script, int], None]]] = [
    ("REQ", "REP", _lock_step),
    ("REQ", "REP", _lock_step),
    ("REQ", "ROUTER", _lock_step),
    ("DEALER", "REP", _pipelined),
    ("DEALER", "ROUTER", _pipelined),
    ("DEALER", "ROUTER", _pipelined),
    ("SUB", "PUB", _publish),
    ("XSUB", "XPUB", _publish),
    ("PUSH", "PULL", _push),
    ("PAIR", "PAIR", _push),
    ("PUSH", "PULL", _large),
]
_ASKING = frozenset({"REQ", "DEALER"})
_VERSIONS = [("3.1", "3.1")] * 6 + [
    ("3.0", "3.0"), ("2.0", "2.0"), ("1.0", "1.0"), ("3.1", "3.0"), ("3.1", "2.0"), ("3.0", "2.0"), ("3.1", "1.0"),
    ("2.0", "1.0"),
]  # fmt: skip


def converse(
    random: Random, kinds: frozenset[str] | None = None, greets: bool = False, count: int | None = None
) -> KnownConversation:
    """A conversation of any kind, of ``count`` exchanges.

    One of the socket types in ``kinds`` asks, subscribes or pushes, if these are given. One that ``greets`` is of a
    version with a signature.
    """
    first, second, play = random.choice([kind for kind in _KINDS if kinds is None or kind[0] in kinds])
    versions = random.choice(_VERSIONS)
    if "1.0" in versions and (greets or play is _publish):  # a subscriber of ZMTP 1.0 says nothing
        versions = "3.1", "3.1"
    if random.random() < 0.5:
        versions = versions[::-1]
    types = (first, second) if random.random() < 0.7 else (second, first)
    mechanism = None
    if min(versions)[0] == "3":
        mechanism = "PLAIN" if random.random() < 0.1 else "NULL"
    end: End = random.choice(("fin", "fin", "fin", "rst", "open"))
    name = f"{first}-{second} {'/'.join(versions)}"
    talk = KnownConversation(name, [], end, random.randrange(2), types, versions, mechanism)
    talk.requester = CLIENT if types[CLIENT] in _ASKING else SERVER
    script = Script(random, talk, random.choice([5 * US, 100 * US, 100 * US, 500 * US, 20 * MS]))
    _open(script, random.choice(["steps", "steps", "whole"]))
    talk.opened = script.count[CLIENT], script.count[SERVER]
    play(script, count or random.choice([2, 5, 10, 20, 40]))
    return talk


def speak(name: str, random: Random) -> KnownConversation:
    """A conversation of a protocol that is not ZMTP, one of ``PROTOCOLS``."""
    talk = KnownConversation(name, [], random.choice(("fin", "fin", "rst", "open")), random.randrange(2))
    pace_ns = random.choice([20 * US, 200 * US, 5 * MS])
    count = [0, 0]
    for side, octets in PROTOCOLS[name](random, random.choice([1, 5, 20, 40])):
        if octets:
            pause_ns = int(pace_ns * random.random()) + 1
            talk.pieces.append(Piece(side, octets, needs=count[1 - side], pause_ns=pause_ns))
            count[side] += 1
    return talk
