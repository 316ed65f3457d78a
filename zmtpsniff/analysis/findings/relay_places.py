"""Programs that messages of ways come to: how long each has them, and which it loses."""

from collections.abc import Sequence
from heapq import heappush, heappushpop
from typing import NamedTuple

import msgspec

from dissectors.address import host_of
from dissectors.events import Octets
from zmtpsniff.analysis.findings.finding import Occurrences
from zmtpsniff.analysis.findings.queues import QueueCount
from zmtpsniff.analysis.findings.slow_replies import FEW_SLOW, LONG_NS, SLOW_NS, TEAM_TIMES
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.analysis.ways.delays import Passage
from zmtpsniff.analysis.ways.hops import BY_SERVICES, Hop, SharedFacts

LEAST_SLOW = 3
"""So many slow messages are no accident."""
STOPPED = 3
"""Messages in a row that went no further."""
STOPPED_NS = 1_000_000_000
_TASKS = 8
_BY_CHANCE = 8  # where so many slow ones are expected, none is rarer than one case in a thousand
_TOPICS = 1000
_SLOWEST = 4
_UNCOUNTED = 1000  # times
_PEERS = 64  # to which a program passes requests on
ANSWERING = "between taking a request and answering it"
"""The work of a program that passes nothing on."""


class SlowPassage(NamedTuple):
    """A message that a place had for long; the slower is the greater."""

    own_ns: int
    time_ns: int
    packet: int
    flow: int
    waiting: str  # the host that waits for the program
    words: str
    ends: tuple[str, str]  # the sockets between which it went on
    shared: SharedFacts  # of the connection over which it came

    @property
    def is_work(self) -> bool:
        """Whether the place gives work to its peer, which had asked for some, as may be seen only later."""
        return self.shared.upstream == self.ends[0]


class Losses(msgspec.Struct, eq=False):
    """Messages that went no further."""

    seen: dict[tuple[str, str], Occurrences] = {}  # by kind of way, and why
    waits: dict[str, None] = {}  # hosts that wait for them
    questions: dict[str, int] = {}  # by socket: when the program asked it and got no answer for the first time
    closed_ns: int = 0  # when the program closed the connection of one of them for the last time

    def add(self, kind: str, why: str, hop: Hop) -> None:
        """A message went no further."""
        if why == "closed":
            self.closed_ns = max(self.closed_ns, hop.stream.shared.closed_ns or 0)
        self.seen.setdefault((kind, why), Occurrences()).add(hop.time_ns, hop.packet, hop.flow)
        self.waits[host_of(hop.way.first.src if hop.reply else hop.src)] = None

    def with_those(self, others: "Losses") -> "Losses":
        """These and the others."""
        both = Losses()
        for one in (self, others):
            both.waits |= one.waits
            both.closed_ns = max(both.closed_ns, one.closed_ns)
            both.questions = one.questions | both.questions
            for key, seen in one.seen.items():
                both.seen.setdefault(key, Occurrences()).merge(seen)
        return both


class RelayPlace:
    """A program that messages of ways came to."""

    def __init__(self) -> None:
        """Start without any messages."""
        self.at = ""  # the socket that took the first
        self.pushes_replies = False  # its replies come on another connection
        self.seems_to_pass_on = False  # of a late connection, messages go on, perhaps by equal octets alone
        self.upstream = ""  # the socket that gave the first
        self.tasks: dict[Octets, None] = {}  # that its requests name, up to one more than are told apart
        self.forget_times()
        self.late = Occurrences()  # messages that the network lost: it got them when TCP sent them again
        self.latest_ns = 0  # so long after they were sent first, at most
        # By its socket and its peer's, to which it passes requests on: the type of the peer.
        self.asks: dict[tuple[str, str], str] = {}
        self.queue = QueueCount()
        self.passed = 0
        self.first = 0  # of them those that are on their way there, not back
        self.passed_ns = 0  # the last time
        self.lost = Losses()
        self.stuck = Losses()  # messages that it has had for long now, while their ways may go on
        # Of publications, by topic: those that went no further since the last one of that topic that did.
        self.missing: Ledger[Octets, list[Hop]] = Ledger(limit=_TOPICS)

    def forget_times(self) -> None:
        """Drop all times: a program that passes messages on may have done so when it seemed to answer."""
        self._inside = Sketch()
        self._held = Sketch()
        self._inside_ns: list[int] = []  # that are to be counted
        self._held_ns: list[int] = []
        self.network = Sketch()  # how long the packets were on their way to its host and back, if that is known
        self.slowest: list[SlowPassage] = []  # a heap
        self._least_slow_ns = -1  # of these, once there are enough

    @property
    def inside(self) -> Sketch:
        """How long it worked on each message."""
        self._count()
        return self._inside

    @property
    def held(self) -> Sketch:
        """The same with the time in which it worked on others."""
        self._count()
        return self._held

    def _count(self) -> None:
        """Count the times that wait for it, which is quicker for many at once."""
        self._inside.add_each(self._inside_ns)
        self._held.add_each(self._held_ns)
        self._inside_ns.clear()
        self._held_ns.clear()

    def add(self, one: Passage) -> None:
        """The program passed a message on, or answered it."""
        taken, passed = one.taken, one.passed
        own_ns = one.inside_ns
        self._inside_ns.append(own_ns)
        if one.queue_ns and (passed.joined not in BY_SERVICES or one.taken.stream.dst_kind == "PULL"):
            own_ns += one.queue_ns
        self._held_ns.append(own_ns)
        if len(self._held_ns) == _UNCOUNTED:
            self._count()
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
            self.first += 1
            self._note_task(one.taken)
        if not passed.reply and len(self.asks) < _PEERS:
            self.asks[passed.src, passed.dst] = passed.stream.dst_kind
        if passed.time_ns > self.passed_ns:
            self.passed_ns = passed.time_ns
        if own_ns > self._least_slow_ns:
            asks = taken.stream.sends == "request" and not taken.reply  # publishers and pushers wait for nobody
            waiting = host_of(taken.src if asks else passed.dst)
            slow = SlowPassage(
                own_ns, taken.time_ns, taken.packet, taken.flow, waiting, _doing(one), (passed.src, passed.dst),
                taken.stream.shared,
            )  # fmt: skip
            (heappush if len(self.slowest) < _SLOWEST else heappushpop)(self.slowest, slow)
            if len(self.slowest) == _SLOWEST:
                self._least_slow_ns = self.slowest[0].own_ns

    def _note_task(self, hop: Hop) -> None:
        """Learn which task a message is for; of a request that nobody saw before a broker sent it that is not known."""
        way = hop.way
        if len(self.tasks) <= _TASKS and (way.kind != "request" or hop is not way.first):
            self.tasks[way.first.topic if way.kind == "request" else b""] = None

    def has_stopped(self, seen: Occurrences, now_ns: int) -> bool:
        """Whether it passed nothing on since it took these messages, which went no further."""
        begun_ns = seen.first_ns or 0
        return seen.count >= STOPPED and begun_ns >= self.passed_ns - STOPPED_NS <= now_ns - 2 * STOPPED_NS

    def loses(self, what: tuple[str, str]) -> float:
        """How many messages of this kind went no further for this reason, to one that it passed on; 0 of a few."""
        count = sum(one.seen[what].count for one in (self.lost, self.stuck) if what in one.seen)
        return count / max(self.passed, 1) if count >= LEAST_SLOW else 0

    def does_the_same(self, other: "RelayPlace") -> bool:
        """Whether one socket gives both the same work: a PUSH or DEALER any, a ROUTER perhaps each another service."""
        if self.upstream != other.upstream:
            return False
        return max(len(self.tasks), len(other.tasks)) > _TASKS or not self.tasks.keys().isdisjoint(other.tasks)

    def rare_ns(self, team: Sequence["RelayPlace"]) -> int:
        """How long the others of a team have one message in a hundred, if this one is slow far more often; else 0.

        They must have had so many messages that they would have been slow, too, if that were chance.
        """
        if not team:
            return 0
        rare_ns = max(1, *(one.inside.percentile(99) for one in team))
        slow = self.inside.above(max(SLOW_NS, TEAM_TIMES * rare_ns))
        expected = slow * sum(one.inside.count for one in team) / self.inside.count
        return rare_ns if slow >= LEAST_SLOW and expected >= _BY_CHANCE else 0

    def slow(self, over_ns: int) -> int:
        """How many messages it had for longer, with the time in which it worked on others; each counts once."""
        return self.held.above(over_ns)

    def hurts(self, usual_ns: int) -> bool:
        """Whether it matters that its work usually takes so long: others wait behind it, or it is long in itself."""
        return usual_ns > LONG_NS or self.slow(SLOW_NS) >= max(LEAST_SLOW, FEW_SLOW * self.first)

    @property
    def usual_ns(self) -> int:
        """How long it usually has a message, with the way to its host and back."""
        return self.inside.percentile(50) + self.network_ns

    @property
    def network_ns(self) -> int:
        """How long the packets usually are on their way to its host and back; 0 if that is not known of most."""
        return self.network.percentile(50) if 2 * self.network.count > self.inside.count else 0

    def publish(self, hop: Hop) -> None:
        """The program took a publication. If it went on, those of its topic before it that did not are lost."""
        topic = hop.topic
        if hop.is_passed_on:
            for missing in self.missing.pop(topic, ()):
                self.upstream = self.upstream or missing.src
                self.lost.add("publication", "not-forwarded", missing)
            self.missing[topic] = []
        elif topic in self.missing and not hop.is_overtaken and len(self.missing[topic]) < _TOPICS:
            self.missing[topic].append(hop)


def _doing(one: Passage) -> str:
    """The work of a program on a message, in words."""
    if one.passed.reply and not one.taken.reply:
        return ANSWERING
    if one.passed.reply:
        return "between taking a reply and passing it back"
    return "between taking a message and passing it on"
