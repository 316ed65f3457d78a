"""Requests that get no reply, or a late one: request-unanswered, worker-silent, worker-closed, replies-slow.

Theory
------

For REQ and REP sockets the protocol says which message answers which, and the patterns have joined them already.
DEALER and ROUTER may send whatever they like. Then only examples show whether a message wants an answer. A service
answers requests if it answers its other peers about as often as they ask, or if it took turns with this peer before.
If nobody gets an answer, no finding says that a service is silent.

The side that speaks first asks. There is one exception: in a queue that gives work to the least busy worker, a worker
speaks first, to say that it is ready. Then the other side asks.

A worker that closes its connection while it has a request leaves somebody waiting, if the queue goes on without it. If
the queue stops, too, the whole system was stopped, and nobody is to blame.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappush, heappushpop
from typing import Literal, NamedTuple

from dissectors.address import host_of
from dissectors.events import Connection, Message, Problem, Severity, at_hand
from dissectors.zmtp.sockets import REQUEST_REPLY
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Ledger, Listener
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.net.witness import Attempt, Pause, Stall
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about

_READY = frozenset({b"READY", b"\1", b"MDPW01", b"MDPW02"})  # what workers say first (the ZeroMQ guide, 7/MDP, 18/MDP)
_PENDING = 64  # requests to remember of one connection
_TURNS = 5  # so many replies show that a service answers its peer
_LEAST_REPLIES = 3  # a median needs so many
_SLOW_NS = 100_000_000
_SLOW_TIMES = 20
_SLOW_MEDIAN_NS = 1_000_000_000
_FEW_SLOW = 0.02  # this part of the replies may be late on any busy machine
_SLOWEST = 4  # slow replies to remember of each service
_PAUSES = 256  # pauses to remember of each connection, for the replies that ended them
_PAUSED = 500  # connections whose pauses are remembered
_DELAYED_NS = 250_000_000  # a host may delay an acknowledgment so long on an idle network
_INFERRED = "; that these sockets ask and reply is inferred from their messages"
_RESENT = (
    "; before the reply came, octets of the connection were sent again: the network loses packets, and that takes "
)
_LOST_ADVICE = (
    "Look for what loses packets between the two hosts (`ip -s link`, `nstat -az TcpRetransSegs`): TCP waits 200 ms or "
    "longer before it sends octets again."
)
_TRANSFER_ADVICE = (
    "The service had begun to reply by then. Look at the link between the two (its rate, who else uses it), and at how "
    "fast the requester takes octets; smaller or compressed replies help."
)
_UNREACHED = "; its host does not even acknowledge it"
_UNREACHED_ADVICE = (
    "The service may be healthy: look at its host, which may be down, and at the network between the two, which may "
    "lose packets."
)
_RECENT_NS = 1_000_000_000  # a request may wait so long at the end of the capture without a finding
_SUSPECTS = 1000


class _SlowReply(NamedTuple):
    """A reply that took long; the slower is the greater."""

    latency_ns: int
    time_ns: int
    packet: int
    flow: int
    acked_ns: int | None  # how long it took until the host of the service acknowledged the request
    transfer_ns: int  # from the first octets of the reply to the last; 0 if a few packets held it
    resent_ns: int  # pauses that ended with octets sent again, so that the network may have lost them

    @property
    def takes(self) -> Literal["service", "transfer", "resending"]:
        """The part that takes most of the time. Before the first octet it is the service, or the way to it."""
        if 2 * self.resent_ns >= self.latency_ns:
            return "resending"
        return "transfer" if 2 * self.transfer_ns >= self.latency_ns else "service"


class _Exchange:
    """The requests and replies of one connection while it lasts."""

    __slots__ = (
        "answered", "asked", "asker", "blind", "in_turns", "is_inferred", "is_worker", "last_ns", "latencies", "pauses",
        "pending", "slowest", "strict",
    )  # fmt: skip

    def __init__(self, pauses: deque[Pause], *, strict: bool) -> None:
        self.pauses = pauses  # of its connection; those in a batch are known before its messages
        self.strict = strict  # patterns know which request is answered
        self.asker: str | None = None
        self.is_inferred = False  # the sockets have not said what they are
        self.is_worker = False  # the side that spoke first only said that it is ready
        self.asked = 0
        self.answered = 0
        self.in_turns = 0  # how often every request so far had its reply
        self.pending: deque[tuple[int, int, int]] = deque(maxlen=_PENDING)  # time, packet, part: without a reply
        self.latencies = Sketch()
        self.slowest: list[_SlowReply] = []  # a heap
        self.last_ns = 0  # when its last message came
        self.blind = False

    def take(self, messages: Sequence[Message]) -> None:
        """Count messages."""
        pending = self.pending
        slowest = self.slowest
        for event in messages:
            if self.asker is None:
                self._begin(event)
            if event.src == self.asker:
                self.asked += 1
                pending.append((event.time_ns, event.packet, event.part))
                continue
            if not self.asked:
                continue
            self.answered += 1
            if pending:
                self._take_off(event)
                if not pending:
                    self.in_turns += 1
            latency = event.latency_ns
            if latency is None or self.is_worker:
                continue
            self.latencies.add(latency)
            if len(slowest) < _SLOWEST or latency > slowest[0].latency_ns:
                transfer = 0 if event.begun_ns is None else min(event.time_ns - event.begun_ns, latency)
                acked, resent = self._acked_ns(event, latency), self._resent_ns(event, latency)
                slow = _SlowReply(latency, event.time_ns, event.packet, event.flow, acked, transfer, resent)
                (heappush if len(slowest) < _SLOWEST else heappushpop)(slowest, slow)

        self.last_ns = messages[-1].time_ns

    def _take_off(self, reply: Message) -> None:
        """One of those that wait has its reply: the one that it answers, if that is known, else the first."""
        pending = self.pending
        place = reply.request, reply.request_part
        known = (at for at, one in enumerate(pending) if one[1:] == place)
        del pending[next(known, 0) if reply.request is not None and pending[0][1:] != place else 0]

    def _acked_ns(self, event: Message, latency_ns: int) -> int | None:
        """How long the service's host took to acknowledge the request of a reply, if the capture shows it."""
        asked_ns = event.time_ns - latency_ns
        for pause in self.pauses:
            if asked_ns < pause.until_ns <= event.time_ns:
                acked_ns = pause.sender_acked_ns if pause.sender == event.src else pause.receiver_acked_ns
                if acked_ns >= asked_ns:
                    return acked_ns - asked_ns
        return None

    def _resent_ns(self, event: Message, latency_ns: int) -> int:
        """How long nothing came before octets that were sent again, while a reply was waited for."""
        asked_ns = event.time_ns - latency_ns
        return sum(
            pause.until_ns - max(pause.since_ns, asked_ns)
            for pause in self.pauses
            if pause.resends and asked_ns < pause.until_ns <= event.time_ns
        )

    def _begin(self, event: Message) -> None:
        frames = event.frames
        if frames == [b""]:
            return  # ZMQ_PROBE_ROUTER
        self.is_worker = at_hand(frames[-1]) in _READY or any(at_hand(frame) in _READY for frame in frames[:3])
        self.asker = event.dst if self.is_worker else event.src


class _Suspect:
    """A connection on which requests waited when it ended."""

    __slots__ = (
        "answered", "asked", "asker", "closed", "flow", "is_inferred", "oldest", "replier", "strict", "took_turns",
        "until_ns",
    )  # fmt: skip

    def __init__(self, exchange: _Exchange, event: Connection, until_ns: int) -> None:
        client, server = event.client.address, event.server.address
        self.asker = str(exchange.asker)
        self.replier = server if self.asker == client else client
        self.asked, self.answered = exchange.asked, exchange.answered
        self.oldest = exchange.pending[0]
        self.took_turns = exchange.in_turns >= _TURNS
        self.strict = exchange.strict
        self.is_inferred = exchange.is_inferred
        closer = {"client": client, "server": server}.get(event.closed_by or "")
        self.closed = closer == self.replier  # it closed the connection, and not its peer
        self.flow = event.flow
        self.until_ns = until_ns


class _Service:
    """One bound address, whose peers ask, or are asked by it."""

    __slots__ = ("answered", "asked", "is_inferred", "last_ns", "latencies", "peers", "slowest", "suspects")

    def __init__(self) -> None:
        # Of connections on which there were replies:
        self.asked = 0
        self.answered = 0
        self.peers = 0
        self.last_ns = 0  # when the last message came or went
        self.is_inferred = False  # at least one of these has sockets that have not announced their types
        self.suspects: list[_Suspect] = []
        self.latencies = Sketch()
        self.slowest: list[_SlowReply] = []

    @property
    def answers(self) -> bool:
        """Whether the socket usually answers messages, or its workers do."""
        return self.peers > 0 and 0.8 * self.asked <= self.answered <= 1.25 * self.asked + 1


class _Backlog:
    """Requests of one host to one address that got no reply."""

    __slots__ = ("details", "flows", "has_waited", "is_at_end", "seen")

    def __init__(self) -> None:
        self.seen = Occurrences()
        self.details: dict[str, None] = {}
        self.flows: set[int] = set()
        self.has_waited = False  # one of them for long enough
        self.is_at_end = True  # of the capture: the replies may have come later


class Requests(Inquiry):
    """Requests and their replies."""

    def __init__(self, passes_on: Callable[[str], bool], timeout_seconds: float = REPLY_SECONDS) -> None:
        """``passes_on`` says of a socket whether its program passes on what it takes, so that it waits for others.

        ``timeout_seconds`` is how long a request may wait for its reply.
        """
        self._passes_on = passes_on
        self._timeout_ns = int(min(timeout_seconds, 1e9) * 1e9)
        self._exchanges: dict[int, _Exchange] = {}
        self._asked_by_peers: Ledger[str, _Service] = Ledger(_Service)
        self._asks_peers: Ledger[str, _Service] = Ledger(_Service)
        self._unanswered: Ledger[tuple[str, str], _Backlog] = Ledger(_Backlog)
        self._ended: Ledger[int, tuple[int, bool]] = Ledger(lambda: (0, False), 1000)  # flows, and whether of a worker
        self._answering: Ledger[str, None] = Ledger(lambda: None)  # addresses that have answered
        self._network: Ledger[str, Sketch] = Ledger(Sketch)  # how long a SYN waits for its answer
        self._unreached: Ledger[tuple[int, str], None] = Ledger(lambda: None)  # each flow, and who is silent
        self._pauses: Ledger[int, deque[Pause]] = Ledger(lambda: deque(maxlen=_PAUSES), _PAUSED)

    def attempt(self, attempt: Attempt) -> None:
        """Learn how long the way to a service and back takes."""
        if attempt.answer_ns is not None:
            self._network.at(attempt.server).add(attempt.answer_ns)

    def pause(self, pause: Pause) -> None:
        """Learn what was acknowledged when nothing came."""
        self._pauses.at(pause.flow).append(pause)

    def stall(self, stall: Stall) -> None:
        """Learn whom requests do not reach any more."""
        if stall.cause == "unacknowledged" and not stall.is_open:
            self._unreached.at((stall.flow, stall.receiver))

    def begin(self, dossier: Dossier) -> Listener | None:
        """Hear the messages of request-reply sockets."""
        kinds = set(dossier.types.values())
        if not kinds <= REQUEST_REPLY:
            return None
        exchange = self._exchanges[dossier.flow] = _Exchange(
            self._pauses.at(dossier.flow), strict=bool(kinds & {"REQ", "REP"})
        )
        exchange.blind = dossier.blind
        return exchange.take

    def meet(self, dossier: Dossier, reply: Message) -> Listener | None:
        """Hear the messages of sockets that do not announce their types, from the first reply on."""
        exchange = self._exchanges[dossier.flow] = _Exchange(self._pauses.at(dossier.flow), strict=False)
        exchange.is_inferred = True
        exchange.blind = dossier.blind
        exchange.asker = reply.dst
        exchange.asked = 1  # its request came before
        return exchange.take

    def lose(self, dossier: Dossier) -> None:
        """What is missing may be the replies."""
        exchange = self._exchanges.get(dossier.flow)
        if exchange is not None:
            exchange.blind = True

    def problem(self, event: Problem) -> None:
        """Take what patterns found out of REQ and REP sockets."""
        if event.code != "request-unanswered" or event.src is None or event.flow is None or event.time_ns is None:
            return
        exchange = self._exchanges.get(event.flow)
        until_ns, is_worker = self._ended.entries.get(event.flow, (None, exchange is not None and exchange.is_worker))
        if is_worker:
            return
        unanswered = self._unanswered.at((host_of(event.src), str(event.dst)))
        unanswered.flows.add(event.flow)
        unanswered.seen.add(event.time_ns, event.packet, event.flow)
        unanswered.is_at_end &= event.severity == "note"
        unanswered.has_waited |= until_ns is None or until_ns - event.time_ns >= _RECENT_NS
        if len(unanswered.details) < 2:
            unanswered.details[event.detail] = None

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Add a connection to what is known of its service."""
        exchange = self._exchanges.pop(event.flow, None)
        if exchange is None or exchange.asker is None:
            return
        self._ended.put(event.flow, (until_ns, exchange.is_worker))
        server_asks = exchange.asker == event.server.address
        service = (self._asks_peers if server_asks else self._asked_by_peers).at(event.server.address)
        if exchange.answered:
            self._answering.at(event.client.address if server_asks else event.server.address)
            service.asked += exchange.asked
            service.answered += exchange.answered
            service.peers += 1
        service.last_ns = max(service.last_ns, exchange.last_ns)
        service.is_inferred |= exchange.is_inferred
        service.latencies.join(exchange.latencies)
        for slow in exchange.slowest:
            if len(service.slowest) < _SLOWEST:
                heappush(service.slowest, slow)
            else:
                heappushpop(service.slowest, slow)
        if exchange.pending and not exchange.blind and len(service.suspects) < _SUSPECTS:
            service.suspects.append(_Suspect(exchange, event, until_ns))

    # ------------------------------------------------------------------ results

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Requests without replies, workers that are silent, services that are slow."""
        told: set[int] = set()  # flows of which a finding has been made
        for service in self._asks_peers.entries.values():
            yield from self._closed_workers(service, told)
            yield from self._silent_workers(service, told)
        for (host, replier), unanswered in self._unanswered.entries.items():
            if unanswered.flows <= told or not (unanswered.has_waited or not unanswered.is_at_end):
                continue
            told |= unanswered.flows
            if self._passes_on(replier):
                continue  # the place where the way of the request ends is to blame
            yield self._claim_unanswered(host, replier, unanswered)
        for service in self._asked_by_peers.entries.values():
            yield from self._silent_service(service, told)
        for address, service in self._asked_by_peers.entries.items():
            if not self._passes_on(address):
                yield from self._slow(address, service)

    def _closed_workers(self, service: _Service, told: set[int]) -> Iterable[Claim]:
        for suspect in service.suspects:
            goes_on = service.last_ns - suspect.until_ns >= _RECENT_NS
            if not (suspect.closed and goes_on and (suspect.strict or suspect.took_turns or service.answers)):
                continue
            told.add(suspect.flow)
            missing = suspect.asked - suspect.answered
            # Of sockets that may answer in any order it is not known which of their requests is left.
            is_known = missing == 1 and suspect.strict
            which = f"the request of packet {suspect.oldest[1]}" if is_known else plural(missing, "request")
            yield Claim(
                "worker-closed",
                f"the worker {suspect.replier} of {suspect.asker} closed its connection with {which} in hand",
                f"it closes the connection first, before it replies, and {suspect.asker} goes on without it",
                self._seen(suspect, missing),
                [suspect.replier, suspect.asker],
                certainty="certain" if suspect.strict else "likely",
            )

    def _silent_workers(self, service: _Service, told: set[int]) -> Iterable[Claim]:
        for suspect in service.suspects:
            if suspect.flow in told:
                continue
            waited_ns = suspect.until_ns - suspect.oldest[0]
            others = service.answered - suspect.answered
            if waited_ns < self._timeout_ns or others <= 0 or not (suspect.strict or service.answers):
                continue
            told.add(suspect.flow)
            missing = suspect.asked - suspect.answered
            since = "" if not suspect.answered else f", after {plural(suspect.answered, 'reply')}"
            yield Claim(
                "worker-silent",
                f"the worker {suspect.replier} of {suspect.asker} answers nothing: {plural(missing, 'request')} in "
                f"{about(waited_ns)}{since}, while others gave {plural(others, 'reply')}",
                "the requests are in the capture, and no message comes back on that connection"
                + self._not_reached(suspect.flow, suspect.replier),
                self._seen(suspect, missing),
                [suspect.replier, suspect.asker],
                advice=_UNREACHED_ADVICE if (suspect.flow, suspect.replier) in self._unreached.entries else None,
            )

    def _silent_service(self, service: _Service, told: set[int]) -> Iterable[Claim]:
        for suspect in service.suspects:
            waited_ns = suspect.until_ns - suspect.oldest[0]
            others = service.answered - suspect.answered
            by_others = not suspect.answered and service.answers
            by_turns = suspect.took_turns and suspect.asked > suspect.answered
            if self._passes_on(suspect.replier):
                continue
            if suspect.strict or suspect.flow in told or waited_ns < self._timeout_ns or not (by_others or by_turns):
                continue
            missing = suspect.asked - suspect.answered
            while_others = f", while others got {plural(others, 'reply')}" if by_others else ""
            before = f", after {plural(suspect.answered, 'reply')}" if by_turns else ""
            yield Claim(
                "request-unanswered",
                f"{suspect.replier} does not answer {suspect.asker}: {plural(missing, 'request')} without a reply for "
                f"{about(waited_ns)}{while_others}{before}",
                f"no message comes back on that connection{self._not_reached(suspect.flow, suspect.replier)}"
                f"{_INFERRED if suspect.is_inferred else ''}",
                self._seen(suspect, missing),
                [suspect.replier, suspect.asker],
                certainty="likely",
                advice=_UNREACHED_ADVICE if (suspect.flow, suspect.replier) in self._unreached.entries else None,
            )

    def _not_reached(self, flow: int, replier: str) -> str:
        """A sentence if the requests do not even reach the host of the service; else ""."""
        return _UNREACHED if (flow, replier) in self._unreached.entries else ""

    def _seen(self, suspect: _Suspect, missing: int) -> Occurrences:
        seen = Occurrences()
        time_ns, packet, _ = suspect.oldest
        seen.add(time_ns, packet, suspect.flow, missing)
        return seen

    def _claim_unanswered(self, host: str, replier: str, unanswered: _Backlog) -> Claim:
        seen = unanswered.seen
        ends = [self._ended.entries[flow][0] for flow in unanswered.flows if flow in self._ended.entries]
        waited_ns = max(ends, default=0) - (seen.first_ns or 0)
        has_last_word = seen.count == len(unanswered.flows)  # else others may have been answered between them
        is_long = unanswered.has_waited and waited_ns >= _RECENT_NS
        lasted = f" for {about(waited_ns)}" if has_last_word and is_long else ""
        summary = f"{replier} does not answer {host}: {plural(seen.count, 'request')} without a reply{lasted}"
        # Programs that end do so while they wait, too.
        is_farewell = not unanswered.has_waited and seen.span_ns < _RECENT_NS and replier in self._answering.entries
        # Packets without events may have passed meanwhile, but patterns know the time only from events.
        is_at_end = unanswered.is_at_end and not (has_last_word and waited_ns >= self._timeout_ns)
        severity: Severity | None = "note" if is_at_end or is_farewell else None
        not_reached = next(filter(None, (self._not_reached(flow, replier) for flow in unanswered.flows)), "")
        known = "; ".join(unanswered.details) + not_reached
        advice = _UNREACHED_ADVICE if not_reached else None
        return Claim("request-unanswered", summary, known, seen, [replier], severity, advice=advice)

    def _slow(self, address: str, service: _Service) -> Iterable[Claim]:
        latencies = service.latencies
        if latencies.count < _LEAST_REPLIES:
            return
        severity: Severity | None = None
        median_ns = latencies.percentile(50)
        slow_ns = max(_SLOW_NS, _SLOW_TIMES * median_ns)
        slowest = sorted(service.slowest, reverse=True)
        takes = slowest[0].takes if slowest else "service"
        if median_ns > _SLOW_MEDIAN_NS:
            replies = plural(latencies.count, "reply")
            half = f"half of its {replies} took over {about(median_ns)}, the slowest {about(latencies.maximum)}"
            summary = f"{address} is slow: {half}" if takes == "service" else f"the way of {address} is slow: {half}"
        elif latencies.maximum > slow_ns:
            summary = (
                f"some replies of {address} are slow: the slowest of {latencies.count:,} took "
                f"{about(latencies.maximum)}, 1 in 100 over {about(latencies.percentile(99))}, half of them under "
                f"{about(max(median_ns, 1))}"
            )
            slowest = [one for one in slowest if one.latency_ns > slow_ns]
            few = max(latencies.above(slow_ns), len(slowest)) < _FEW_SLOW * latencies.count
            severity = "note" if few and latencies.maximum < _SLOW_MEDIAN_NS else None
        else:
            return
        seen = Occurrences()
        for slow in slowest:
            seen.add(slow.time_ns, slow.packet, slow.flow)
        if takes == "service":
            where, advice = self._where(address, slowest), None
        elif takes == "transfer":
            where, advice = _transfer(slowest[0]), _TRANSFER_ADVICE
        else:
            where, advice = f"{_RESENT}{about(slowest[0].resent_ns)} of the slowest", _LOST_ADVICE
        known = f"from the request to its reply, as captured{where}{_INFERRED if service.is_inferred else ''}"
        yield Claim("replies-slow", summary, known, seen, [address], severity, advice=advice, subject=address)

    def _where(self, address: str, slowest: list[_SlowReply]) -> str:
        """Where the time passes: on the way to the service, or in it."""
        network = self._network.entries.get(address)
        way_ns = network.percentile(50) if network is not None and network.count else None
        acked = [one for one in slowest if one.acked_ns is not None]
        if acked:
            latency_ns, acked_ns = acked[0].latency_ns, acked[0].acked_ns or 0
            told = (
                f"; its host acknowledged the request of {'the slowest' if acked[0] is slowest[0] else 'a slow one'} "
                f"after {about(max(acked_ns, 1))}, and the reply came {about(latency_ns - acked_ns)} after that"
            )
            if 2 * acked_ns < latency_ns:
                return f"{told}: the time passes in the service"
            # Else it may be an acknowledgment that was held back.
            is_far = acked_ns > _DELAYED_NS or (way_ns is not None and 2 * way_ns > acked_ns)
            return f"{told}: the time passes on the network, before the first acknowledgment" if is_far else told
        if way_ns is None:
            return ""
        where = "in the service" if way_ns * 10 < slowest[0].latency_ns else "mostly on the network"
        return f"; its host answers a SYN after {about(max(way_ns, 1))}, so the time passes {where}"


def _transfer(slow: _SlowReply) -> str:
    """How the time of a reply divides whose octets took long to come."""
    before_ns = max(slow.latency_ns - slow.transfer_ns, 1)
    lost = f", {about(slow.resent_ns)} of it until octets were sent again" if slow.resent_ns else ""
    return (
        f"; the first octets of the slowest came after {about(before_ns)}, and the others took "
        f"{about(slow.transfer_ns)}{lost}: the time passes in the transfer"
    )
