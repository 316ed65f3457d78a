"""Requests that get no reply, or a late one: request-unanswered, worker-silent, worker-closed, replies-slow.

Theory
------

For REQ and REP sockets the protocol says which message answers which, and the patterns have joined them already.
DEALER and ROUTER, CLIENT and SERVER may send whatever they like. Then only examples show whether a message wants an
answer. A service answers requests if it answers its other peers about as often as they ask, or if it took turns with
this peer before. If nobody gets an answer, no finding says that a service is silent. Of two PEERs, or CHANNELs, either
may ask, so that turns alone count. Messages of drafts have no envelope: which request a reply answers, and how long it
took, is known while both sides take turns.

The side that speaks first asks. There is one exception: in a queue that gives work to the least busy worker, a worker
speaks first, to say that it is ready. Then the other side asks.

A worker that closes its connection while it has a request leaves somebody waiting, if the queue goes on without it. If
the queue stops, too, the whole system was stopped, and nobody is to blame. A broker and its worker also tell each other
that they are alive, in as many messages as each likes. So counts say nothing there, and ways of requests do
(:mod:`~zmtpsniff.analysis.findings.relays`).
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Set
from functools import partial
from struct import iter_unpack

from dissectors.address import host_of
from dissectors.batches import MessageBatch
from dissectors.events import Connection, Message, Problem, Severity
from dissectors.zmtp.sockets import REQUEST_REPLY
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.exchanges import ExchangeCount, ServiceCount, Suspect, UnansweredRequests
from zmtpsniff.analysis.findings.finding import Certainty, Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Listener
from zmtpsniff.analysis.findings.rhythms import Rhythm
from zmtpsniff.analysis.findings.silent_peers import RhythmicPeer, peer_of, silent_peers
from zmtpsniff.analysis.findings.slow_replies import slow_replies, slow_workers
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.statistics.sketch import PER_E, Sketch
from zmtpsniff.native import core
from zmtpsniff.net.witness import Attempt, Pause, Stall
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about, nanoseconds

_MUTUAL = ({"PEER"}, {"CHANNEL"})  # each of the two may ask, or only tell something
_BY_TURNS = ({"CLIENT", "SERVER"}, *_MUTUAL)  # their messages have no envelope
_ONE_WAY = {"DEALER", "ROUTER"}  # perhaps nothing that they send answers anything
_PAUSES = 256  # pauses to remember of each connection, for the replies that ended them
_PAUSED = 500  # connections whose pauses are remembered
UNREACHED = "; its host does not even acknowledge it"
"""Told of a socket whose host, or the way to it, is to blame."""
_UNREACHED_ADVICE = (
    "The service may be healthy: look at its host, which may be down, and at the network between the two, which may "
    "lose packets."
)
_RECENT_NS = 1_000_000_000  # a request may wait so long at the end of the capture without a finding
_SUSPECTS = 1000
_WORKERS = 1000  # of one socket
_UNANSWERED = 1000  # connections of one host to one address whose requests wait
_OTHERS = 0  # in place of the number of further ones
_DEALING = ("DEALER", "REQ", "CLIENT")  # they give their requests to all their peers in turn
_ALL_TIME = 1 << 62  # an interval that has all messages


class Requests(Inquiry):
    """Requests and their replies."""

    def __init__(
        self,
        passes_on: Callable[[str], bool],
        timeout_seconds: float = REPLY_SECONDS,
        waits_unseen: Callable[[str], bool] | None = None,
    ) -> None:
        """``passes_on`` says of a socket whether its program passes on what it takes, so that it waits for others.

        ``timeout_seconds`` is how long a request may wait for its reply. ``waits_unseen`` says of a socket whether its
        latencies may have such waits in them; without it, they may if it passes on what it takes.
        """
        self._passes_on = passes_on
        self._waits_unseen = waits_unseen or passes_on
        self._timeout_ns = nanoseconds(timeout_seconds)
        self._exchanges: dict[int, ExchangeCount] = {}
        self._asked_by_peers: Ledger[str, ServiceCount] = Ledger(ServiceCount)
        self._asks_peers: Ledger[str, ServiceCount] = Ledger(ServiceCount)
        self._unanswered: Ledger[tuple[str, str], UnansweredRequests] = Ledger(UnansweredRequests)
        # By flow: when it ended, whether it is that of a worker, and its replies.
        self._ended: Ledger[int, tuple[int, bool, int]] = Ledger(limit=1000)
        self._answering: Ledger[str, None] = Ledger()  # addresses that have answered
        self._network: Ledger[str, Sketch] = Ledger(Sketch)  # how long a SYN waits for its answer
        self._undelimited: Ledger[int, int] = Ledger(int)  # by flow: requests that a REP drops
        self._unreached: Ledger[tuple[int, str], None] = Ledger()  # each flow, and who is silent
        self._waiting: Ledger[tuple[int, str], None] = Ledger()  # likewise: requests waited when it ended
        self._caught_up: Ledger[int, int] = Ledger()  # by flow whose late requests have their replies: the slowest
        self._peers: Ledger[str, deque[RhythmicPeer]] = Ledger(partial(deque, (), _WORKERS))  # of each ROUTER
        self._told: set[int] = set()  # flows of which a finding has been made
        self._pauses: Ledger[int, deque[Pause]] = Ledger(partial(deque, (), _PAUSES), _PAUSED)

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
        by_turns = kinds in _BY_TURNS
        if not (kinds <= REQUEST_REPLY or by_turns):
            return None
        exchange = self._exchanges[dossier.flow] = ExchangeCount(
            self._pauses.at(dossier.flow), bool(kinds & {"REQ", "REP"}), by_turns, is_mutual=kinds in _MUTUAL
        )
        exchange.blind = dossier.blind
        exchange.ends = tuple(dossier.types)
        if kinds == _ONE_WAY:
            exchange.rhythms = Rhythm(), Rhythm()
        return exchange.take

    def meet(self, dossier: Dossier, reply: Message) -> Listener | None:
        """Hear the messages of sockets that do not announce their types, from the first reply on."""
        exchange = self._exchanges[dossier.flow] = ExchangeCount(self._pauses.at(dossier.flow), strict=False)
        exchange.is_inferred = True
        exchange.blind = dossier.blind
        exchange.asker, exchange.ends = reply.dst, (reply.src, reply.dst)
        exchange.asked = 1  # its request came before
        return exchange.take

    def open_boxes(self, flow: int, asker: str, replier: str) -> ExchangeCount:
        """Count the messages of a connection whose boxes no key opens. The caller finds them, and hands them over."""
        exchange = self._exchanges[flow] = ExchangeCount(
            self._pauses.at(flow), strict=True, ends=(asker, replier), asker=asker, is_sealed=True
        )
        return exchange

    def forget_boxes(self, flow: int) -> None:
        """Say nothing of such a connection: what its boxes hold is not clear."""
        self._exchanges.pop(flow, None)

    def tells_of(self, flow: int) -> bool:
        """Whether the last claims told of requests on a connection that got no reply."""
        return flow in self._told

    def hears(self, flow: int) -> bool:
        """Whether it takes the messages of a connection."""
        return flow in self._exchanges

    def counts_columns(self, flow: int) -> bool:
        """Whether it takes messages of a connection in columns. The first requests tell who asks."""
        exchange = self._exchanges.get(flow)
        if core is None or exchange is None:
            return False
        return exchange.asked >= (1 if exchange.strict else 2)

    def take_columns(self, batch: MessageBatch, flows: Set[int]) -> None:
        """Count the messages of these connections in a batch."""
        assert core is not None
        exchanges = {flow: self._exchanges[flow] for flow in sorted(flows)}
        places = {flow: place for place, flow in enumerate(exchanges)}
        sides = [
            1 + 2 * places[side.flow] + (side.src == exchanges[side.flow].asker) if side.flow in flows else 0
            for side in batch.senders
        ]
        sums = {side: rest for side, *rest in core.tally(batch.columns, batch.rows, _ALL_TIME, PER_E)[1]}
        facts = [exchange.facts() for exchange in exchanges.values()]
        found = core.count_exchanges(batch.columns, batch.rows, batch.first_packet, array("I", sides).tobytes(), facts)
        slow: dict[int, list[Message]] = {flow: [] for flow in flows}
        for exchange, (asked, answered, *rest, _) in zip(exchanges.values(), found, strict=True):
            if asked or answered:
                exchange.go_on_from(asked, answered, *rest)
        for flow, (*_, which) in zip(exchanges, found, strict=True):
            for (place,) in iter_unpack("=I", which):
                slow[flow] += batch.part(place, place + 1).messages()
        for side, sender in enumerate(batch.senders):
            if side in sums and sender.flow in flows:
                exchanges[sender.flow].add(slow[sender.flow], sums[side])

    def has_answered(self, address: str) -> bool:
        """Whether a socket has answered anybody."""
        return address in self._answering or any(
            one.answered and address in one.ends and address != one.asker for one in self._exchanges.values()
        )

    def waits(self, flow: int, replier: str) -> bool:
        """Whether requests waited for a side when their connection ended."""
        return (flow, replier) in self._waiting

    def replies(self, flow: int) -> int | None:
        """How many replies a connection has, or had when it ended; None if that is not known."""
        exchange = self._exchanges.get(flow)
        if exchange is not None:
            return exchange.answered
        return self._ended[flow][2] if flow in self._ended else None

    def exchange(self, flow: int) -> ExchangeCount | None:
        """The requests and replies of a connection that is not over."""
        exchange = self._exchanges.get(flow)
        is_known = exchange is not None and exchange.has_roles and not exchange.is_sealed
        return exchange if is_known else None

    def lose(self, dossier: Dossier) -> None:
        """The missing octets may be the replies."""
        exchange = self._exchanges.get(dossier.flow)
        if exchange is not None:
            exchange.blind = True

    def problem(self, event: Problem) -> None:
        """Take what patterns found out of REQ and REP sockets."""
        if event.code == "no-delimiter" and event.flow is not None:
            self._undelimited[event.flow] = self._undelimited.at(event.flow) + 1
        if event.code != "request-unanswered" or event.src is None or event.flow is None or event.time_ns is None:
            return
        exchange = self._exchanges.get(event.flow)
        until_ns, is_worker, _ = self._ended.get(event.flow, (None, exchange is not None and exchange.is_worker, 0))
        if is_worker:
            return
        unanswered = self._unanswered.at((host_of(event.src), str(event.dst)))
        is_kept = event.flow in unanswered.flows or len(unanswered.flows) < _UNANSWERED
        flow = event.flow if is_kept else _OTHERS
        unanswered.flows.setdefault(flow, Occurrences()).add(event.time_ns, event.packet, event.flow)
        unanswered.is_at_end &= event.severity == "note"
        unanswered.has_waited |= until_ns is None or until_ns - event.time_ns >= _RECENT_NS
        if len(unanswered.details) < 2:
            unanswered.details[event.detail] = None

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Add a connection to what is known of its service."""
        exchange = self._exchanges.pop(event.flow, None)
        if exchange is None or exchange.asker is None:
            return
        peer = peer_of(
            event, exchange.rhythms, exchange.asker, until_ns, 0 if dossier is None else dossier.packet, exchange.blind
        )
        if peer is not None:
            self._peers.at(peer.socket).append(peer)
        if not exchange.has_roles:
            return
        self._ended[event.flow] = (until_ns, exchange.is_worker, exchange.answered)
        server_asks = exchange.asker == event.server.address
        service = (self._asks_peers if server_asks else self._asked_by_peers).at(event.server.address)
        replier = event.client.address if server_asks else event.server.address
        if exchange.answered:
            self._answering.at(replier)
        service.take(exchange)
        told = self._unanswered.get((host_of(exchange.asker), replier))
        if told is not None and event.flow in told.flows:
            latest_ns = exchange.latest_ns(self._timeout_ns, told.flows[event.flow].count)
            if latest_ns is not None:
                self._caught_up[event.flow] = latest_ns
        is_dealt = exchange.is_sealed or event.server.socket_type in _DEALING
        if server_asks and is_dealt and len(service.workers) < _WORKERS:
            service.workers.setdefault(event.client.address, ServiceCount()).take(exchange)
        if exchange.pending and not exchange.blind and len(service.suspects) < _SUSPECTS:
            suspect = Suspect(exchange, event, until_ns)
            service.suspects.append(suspect)
            self._waiting[event.flow, suspect.replier] = None
            if suspect.strict and told is not None and event.flow in told.flows:
                told.waiting += suspect.missing - self._undelimited.get(event.flow, 0)

    # ------------------------------------------------------------------ results

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Requests without replies, workers that are silent, services that are slow."""
        told = self._told = set()
        for service in self._asks_peers.values():
            yield from self._closed_workers(service)
            yield from self._silent_workers(service)
        for router, peers in self._peers.items():
            if not self._passes_on(router):
                yield from silent_peers([one for one in peers if one.flow not in told], self._timeout_ns, "ROUTER")
        for (host, replier), unanswered in self._unanswered.items():
            if unanswered.flows.keys() <= told or not (unanswered.has_waited or not unanswered.is_at_end):
                continue
            told |= unanswered.flows.keys()
            if self._passes_on(replier):
                continue  # the place where the way of the request ends is to blame
            latest = {flow: self._latest_ns(flow, seen.count) for flow, seen in unanswered.flows.items()}
            missing = {flow: seen for flow, seen in unanswered.flows.items() if latest[flow] is None}
            if missing:
                yield self._claim_unanswered(host, replier, unanswered, missing)
            else:
                yield self._claim_late(host, replier, unanswered, max(filter(None, latest.values()), default=0))
        for address, service in self._asked_by_peers.items():
            yield from self._silent_service(service)
            if not self._waits_unseen(address):
                yield from slow_replies(address, service, self._network.get(address))
        for address, service in self._asks_peers.items():
            if service.is_sealed or not self._passes_on(address):
                workers = {one: worker for one, worker in service.workers.items() if not self._waits_unseen(one)}
                yield from slow_workers(workers)

    def _latest_ns(self, flow: int, told: int) -> int | None:
        """How long the slowest reply of a connection took, if all requests that were ``told`` got theirs in the end."""
        exchange = self._exchanges.get(flow)
        return self._caught_up.get(flow) if exchange is None else exchange.latest_ns(self._timeout_ns, told)

    def _claim_late(self, host: str, replier: str, unanswered: UnansweredRequests, latest_ns: int) -> Claim:
        seen = Occurrences.all_of(unanswered.flows.values())
        slowest = "" if seen.count == 1 else "the slowest "
        late = f"{plural(seen.count, 'request')} of {host} late, {slowest}after {about(latest_ns)}"
        known = f"{'; '.join(unanswered.details)}; the reply came after that"
        return Claim("request-unanswered", f"{replier} answered {late}", known, seen, [replier], "warning")

    def _closed_workers(self, service: ServiceCount) -> Iterable[Claim]:
        for suspect in service.suspects:
            goes_on = service.last_ns - suspect.until_ns >= _RECENT_NS
            if not (suspect.closed and goes_on and (suspect.strict or suspect.took_turns or service.answers)):
                continue
            if self._is_followed(suspect):
                continue
            self._told.add(suspect.flow)
            # Of sockets that may answer in any order it is not known which of their requests is left.
            is_known = suspect.missing == 1 and suspect.strict
            which = f"the request of packet {suspect.oldest[1]}" if is_known else plural(suspect.missing, "request")
            known = f"it closes the connection first, before it replies, and {suspect.asker} goes on without it"
            yield Claim(
                "worker-closed",
                f"the worker {suspect.replier} of {suspect.asker} closed its connection with {which} in hand",
                f"{known}{suspect.doubt}",
                suspect.seen,
                [suspect.replier, suspect.asker],
                certainty="certain" if suspect.strict and not suspect.is_sealed else "likely",
                subject=suspect.replier,
            )

    def _is_followed(self, suspect: Suspect) -> bool:
        """Whether the ways of requests tell which of them a worker has.

        A ROUTER may also tell its workers that it is alive. A DEALER cannot tell that each of them.
        """
        return not suspect.strict and suspect.asker_kind != "DEALER" and self._passes_on(suspect.asker)

    def _silent_workers(self, service: ServiceCount) -> Iterable[Claim]:
        for suspect in service.suspects:
            if suspect.flow in self._told or self._is_followed(suspect):
                continue
            others = service.answered - suspect.answered
            if suspect.waited_ns < self._timeout_ns or others <= 0 or not (suspect.strict or service.answers):
                continue
            if suspect.missing <= self._undelimited.get(suspect.flow, 0):
                continue  # it drops them, and another finding says so
            self._told.add(suspect.flow)
            since = "" if not suspect.answered else f", after {plural(suspect.answered, 'reply')}"
            yield self._silence(
                "worker-silent",
                suspect,
                f"the worker {suspect.replier} of {suspect.asker} answers nothing: "
                f"{plural(suspect.missing, 'request')} in {about(suspect.waited_ns)}{since}, while others gave "
                f"{plural(others, 'reply')}",
                "the requests are in the capture, and no message comes back on that connection",
                "likely" if suspect.is_sealed else "certain",
            )

    def _silent_service(self, service: ServiceCount) -> Iterable[Claim]:
        for suspect in service.suspects:
            by_others = not suspect.answered and service.answers
            by_turns = suspect.took_turns and suspect.missing > 0
            if suspect.strict or suspect.flow in self._told or self._passes_on(suspect.replier):
                continue
            if suspect.waited_ns < self._timeout_ns or not (by_others or by_turns):
                continue
            others = service.answered - suspect.answered
            while_others = f", while others got {plural(others, 'reply')}" if by_others else ""
            before = f", after {plural(suspect.answered, 'reply')}" if by_turns else ""
            yield self._silence(
                "request-unanswered",
                suspect,
                f"{suspect.replier} does not answer {suspect.asker}: {plural(suspect.missing, 'request')} without a "
                f"reply for {about(suspect.waited_ns)}{while_others}{before}",
                "no message comes back on that connection",
                "likely",
            )

    def _silence(self, code: str, suspect: Suspect, summary: str, known: str, certainty: Certainty) -> Claim:
        """The claim that a socket answers nothing."""
        not_reached = self._not_reached(suspect.flow, suspect.replier)
        return Claim(
            code,
            summary,
            f"{known}{not_reached}{suspect.doubt}",
            suspect.seen,
            [suspect.replier, suspect.asker],
            certainty=certainty,
            advice=_UNREACHED_ADVICE if not_reached else None,
            waiting={host_of(suspect.asker)},
        )

    def _not_reached(self, flow: int, replier: str) -> str:
        """A sentence if the requests do not even reach the host of the service; else ""."""
        return UNREACHED if (flow, replier) in self._unreached else ""

    def _claim_unanswered(
        self, host: str, replier: str, unanswered: UnansweredRequests, flows: dict[int, Occurrences]
    ) -> Claim:
        seen = Occurrences.all_of(flows.values())
        ends = [self._ended[flow][0] for flow in flows if flow in self._ended]
        waited_ns = max(ends, default=0) - (seen.first_ns or 0)
        has_last_word = seen.count == len(flows)  # else others may have been answered between them
        is_long = unanswered.has_waited and waited_ns >= _RECENT_NS
        lasted = f" for {about(waited_ns)}" if has_last_word and is_long else ""
        missing = plural(max(seen.count, unanswered.waiting), "request")
        summary = f"{replier} does not answer {host}: {missing} without a reply{lasted}"
        # Programs that end do so while they wait, too.
        is_farewell = not unanswered.has_waited and seen.span_ns < _RECENT_NS and replier in self._answering
        # Packets without events may have passed meanwhile, but patterns know the time only from events.
        is_at_end = unanswered.is_at_end and not (has_last_word and waited_ns >= self._timeout_ns)
        severity: Severity | None = "note" if is_at_end or is_farewell else None
        not_reached = next(filter(None, (self._not_reached(flow, replier) for flow in flows)), "")
        known = "; ".join(unanswered.details) + not_reached
        advice = _UNREACHED_ADVICE if not_reached else None
        return Claim("request-unanswered", summary, known, seen, [replier], severity, advice=advice, waiting={host})
