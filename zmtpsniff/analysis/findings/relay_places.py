"""Places: programs that messages of ways come to, how long each has them, and which go no further.

Theory
------

A place counts what the ways tell of one program. Its *inside* times are those in which it worked on a message. What it
*held* is that and the time in which it worked on others meanwhile: a queue inside the program is its own, but for a
service that asks others.

A publication is *missing* if it went no further, though an earlier one of its topic did: before that one, no
subscriber may have asked for the topic. Once a later one goes on, the missing ones are lost. If none does, the proxy
may hold them, or its subscribers have gone.
"""

from collections.abc import Sequence
from heapq import heappush, heappushpop
from typing import NamedTuple

import msgspec

from dissectors.address import host_of
from dissectors.events import Octets
from zmtpsniff.analysis.findings.finding import Occurrences
from zmtpsniff.analysis.findings.queues import QueueCount
from zmtpsniff.analysis.findings.slow_replies import FEW_SLOW, LEAST_SLOW, LONG_NS, SLOW_NS, TEAM_TIMES
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.analysis.ways.delays import Passage
from zmtpsniff.analysis.ways.hops import BY_SERVICES, Hop, SharedFacts

STOPPED = 3
"""A program that passes so many messages in a row on no further has stopped."""
STOPPED_NS = 1_000_000_000
"""It has not passed anything on for so long, either."""
_TASKS = 8  # tasks of one place that are told apart
_BY_CHANCE = 8  # where so many slow ones are expected, that there are none is rarer than one case in a thousand
_WAITING = 1000  # hosts that wait for one place
_TOPICS = 1000  # topics of one place, and missing publications of one topic
_SLOWEST = 4  # slow messages that are remembered of one place
_PEERS = 64  # peers to which a place passes requests on
ANSWERING = "between taking a request and answering it"
"""The work of a program that passes nothing on, in words."""


class SlowPassage(NamedTuple):
    """A message that a place had for long; the slower one compares as greater."""

    own_ns: int  # how long the place had it
    time_ns: int
    packet: int
    flow: int
    waiting: str  # the host that waits for the program
    words: str  # the work of the program
    ends: tuple[str, str]  # the sockets of the leg as which it was passed on
    shared: SharedFacts  # of the connection over which it came
    until_ns: int  # when it was passed on
    is_certain: bool  # no other message can be the one that was passed on

    @property
    def is_work(self) -> bool:
        """Whether it was a READY, and the place gave the worker a request then. That may be known only later."""
        return self.shared.upstream == self.ends[0]


class Losses(msgspec.Struct, eq=False):
    """Messages that went no further."""

    seen: dict[tuple[str, str], Occurrences] = {}  # by kind of way, and fate
    waits: dict[str, None] = {}  # hosts that wait for them
    questions: dict[str, int] = {}  # by socket: when the program first asked it in vain
    closed_ns: int = 0  # when the program last closed a connection over which one of them had come

    def add(self, kind: str, fate: str, hop: Hop) -> None:
        """A message went no further."""
        if fate == "closed":
            self.closed_ns = max(self.closed_ns, hop.stream.shared.closed_ns or 0)
        self.seen.setdefault((kind, fate), Occurrences()).add(hop.time_ns, hop.packet, hop.flow)
        if len(self.waits) < _WAITING:
            self.waits[host_of(hop.way.first.src if hop.reply else hop.src)] = None

    def joined_with(self, others: "Losses") -> "Losses":
        """These losses and the others together."""
        both = Losses()
        for one in (self, others):
            both.waits |= one.waits
            both.closed_ns = max(both.closed_ns, one.closed_ns)
            both.questions = one.questions | both.questions
            for key, seen in one.seen.items():
                both.seen.setdefault(key, Occurrences()).merge(seen)
        return both


class Loss(NamedTuple):
    """Messages of one kind that went no further at a place, and had one fate."""

    place: "RelayPlace"
    kind: str
    fate: str
    all: Losses  # the others there, too
    now_ns: int  # at the end of the capture

    @property
    def seen(self) -> Occurrences:
        """The messages."""
        return self.all.seen[self.kind, self.fate]

    @property
    def waits(self) -> dict[str, None]:
        """The hosts that wait for these messages, or for others of the place."""
        return self.all.waits

    @property
    def begun_ns(self) -> int:
        """When the place took the first."""
        return self.seen.first_ns or 0

    @property
    def has_stopped(self) -> bool:
        """Whether the place has passed nothing on since then, for long enough."""
        latest_ns = self.place.passed_ns - STOPPED_NS
        return self.seen.count >= STOPPED and self.begun_ns >= latest_ns <= self.now_ns - 2 * STOPPED_NS


class RelayPlace:
    """A program that messages of ways came to."""

    def __init__(self) -> None:
        """Start without any messages."""
        self.at = ""  # the socket that took its first message
        self.upstream = ""  # the socket that sent that one
        self.pushes_replies = False  # its replies go by a PUSH, on another connection
        self.seems_to_pass_on = False  # messages of a late connection go on from here, perhaps by equal octets alone
        self.tasks: dict[Octets, None] = {}  # the tasks that its requests name, up to one more than are told apart
        self.forget_times()
        self.late = Occurrences()  # messages that the network lost, so it got them when TCP sent them again
        self.latest_ns = 0  # the longest time until TCP had sent one of these again
        # By its socket and its peer's, between which it passes requests on: the type of the peer.
        self.asks: dict[tuple[str, str], str] = {}
        self.queue = QueueCount()
        self.passed = 0  # how many messages it passed on or answered
        self.forth = 0  # those of them that were on their way forth, not back
        self.passed_ns = 0  # when it passed on, or answered, the latest
        self.lost = Losses()
        self.stuck = Losses()  # messages that it has had for long, while their ways are open
        # By topic: the missing publications, since the last one of that topic that went on.
        self.missing: Ledger[Octets, list[Hop]] = Ledger(limit=_TOPICS)

    def forget_times(self) -> None:
        """Drop all times: the program passes messages on, and may have done so when it seemed to answer them itself."""
        self.inside = Sketch()  # how long the place worked on each message
        self.held = Sketch()  # how long it worked on each message, and on others meanwhile
        self.network = Sketch()  # how long the packets were on their way to its host and back, where that is known
        self.slowest: list[SlowPassage] = []  # a heap

    def add(self, one: Passage) -> None:
        """The program passed a message on, or answered it."""
        taken, passed = one.taken, one.passed
        own_ns = one.inside_ns
        self.inside.add(own_ns)
        if one.queue_ns and (passed.joined not in BY_SERVICES or one.taken.stream.dst_kind == "PULL"):
            own_ns += one.queue_ns
        self.held.add(own_ns)
        if one.network_ns:
            self.network.add(one.network_ns)
        if one.resent_ns:
            self.late.add(taken.time_ns, taken.packet, taken.flow)
            self.latest_ns = max(self.latest_ns, one.resent_ns)
        if not self.passed:
            self.upstream = self.upstream or taken.src
        self.passed += 1
        self.pushes_replies = self.pushes_replies or one.taken.stream.pushed_forms is not None
        if not taken.reply:
            self.forth += 1
            self._note_task(one.taken)
        if not passed.reply and len(self.asks) < _PEERS:
            self.asks[passed.src, passed.dst] = passed.stream.dst_kind
        if passed.time_ns > self.passed_ns:
            self.passed_ns = passed.time_ns
        if len(self.slowest) < _SLOWEST or own_ns > self.slowest[0].own_ns:
            asks = taken.stream.sends == "request" and not taken.reply  # publishers and pushers wait for nobody
            waiting = host_of(taken.src if asks else passed.dst)
            slow = SlowPassage(
                own_ns, taken.time_ns, taken.packet, taken.flow, waiting, _work_in_words(one), (passed.src, passed.dst),
                taken.stream.shared, passed.time_ns,
                all(hop.certain and not hop.is_ambiguous for hop in taken.way.hops),
            )  # fmt: skip
            (heappush if len(self.slowest) < _SLOWEST else heappushpop)(self.slowest, slow)

    def _note_task(self, hop: Hop) -> None:
        """Learn which task a message is for. If the capture lacks the client's request, that is not known."""
        way = hop.way
        if len(self.tasks) <= _TASKS and (way.kind != "request" or hop is not way.first):
            self.tasks[way.first.topic if way.kind == "request" else b""] = None

    def losses_of_ways(self, *, is_open: bool) -> Losses:
        """Those of ways that are open, or of those that are over."""
        return self.stuck if is_open else self.lost

    def loses(self, what: tuple[str, str]) -> float:
        """How many messages of a kind had a fate, for each that it passed on; 0 if they are a few.

        ``what`` is the kind and the fate.
        """
        count = sum(one.seen[what].count for one in (self.lost, self.stuck) if what in one.seen)
        return count / max(self.passed, 1) if count >= LEAST_SLOW else 0

    def does_the_same(self, other: "RelayPlace") -> bool:
        """Whether one socket gives both the same work.

        A PUSH or DEALER gives any work to any peer. A ROUTER may have a peer for each task.
        """
        if self.upstream != other.upstream:
            return False
        return max(len(self.tasks), len(other.tasks)) > _TASKS or not self.tasks.keys().isdisjoint(other.tasks)

    def rare_ns(self, team: Sequence["RelayPlace"]) -> int:
        """The time that one message in a hundred of the others of a team exceeds, if this place exceeds it far more
        often.

        It is 0 if this one is not, or if the others had so few messages that it may be chance that they were not slow.
        """
        if not team:
            return 0
        rare_ns = max(1, *(one.inside.percentile(99) for one in team))
        slow = self.inside.above(max(SLOW_NS, TEAM_TIMES * rare_ns))
        expected = slow * sum(one.inside.count for one in team) / self.inside.count
        return rare_ns if slow >= LEAST_SLOW and expected >= _BY_CHANCE else 0

    def hurts(self, usual_ns: int) -> bool:
        """Whether it matters that its work usually takes so long: the time is long in itself, or messages queue up."""
        return usual_ns > LONG_NS or self.held.above(SLOW_NS) >= max(LEAST_SLOW, FEW_SLOW * self.forth)

    @property
    def usual_ns(self) -> int:
        """How long it usually works on a message, with the way of the packets to its host and back."""
        return self.inside.percentile(50) + self.network_ns

    @property
    def longest_ns(self) -> int:
        """The longest time that it held a message, with the usual way of the packets to its host and back."""
        return self.held.maximum + self.network_ns

    @property
    def network_ns(self) -> int:
        """How long the packets usually are on their way to its host and back; 0 if that is known of few only."""
        return self.network.percentile(50) if 2 * self.network.count > self.inside.count else 0

    def publish(self, hop: Hop) -> None:
        """The program took a publication. If it passed that on, the missing ones of the topic are lost."""
        topic = hop.topic
        if hop.is_passed_on:
            for missing in self.missing.pop(topic, ()):
                self.upstream = self.upstream or missing.src
                self.lost.add("publication", "not-forwarded", missing)
            self.missing[topic] = []
        elif topic in self.missing and not hop.is_overtaken and len(self.missing[topic]) < _TOPICS:
            self.missing[topic].append(hop)


def _work_in_words(one: Passage) -> str:
    """The work of a program on a message, in words."""
    if one.passed.reply and not one.taken.reply:
        return ANSWERING
    if one.passed.reply:
        return "between taking a reply and passing it back"
    return "between taking a message and passing it on"
