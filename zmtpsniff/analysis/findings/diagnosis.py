"""Asks all inquiries what is wrong in a system of programs.

Theory
------

A *listener* takes the messages of a connection. Most messages need no listener, and are only counted elsewhere. So a
connection has listeners only as long as an inquiry wants its messages:

- *opening*: its socket types are not known. The first messages are held, since their meaning depends on the types.
- *begun*: both types are known. Each inquiry says by ``begin()`` whether it listens; the held messages come first.
- *met*: the types were not announced, but a reply has its request. Inquiries listen from that reply on (``meet()``).
- *late*: the capture lacks the handshake. Only the first message is looked at: it may show that its sender is a worker.
- *earlier*: a later connection shows that a host passes messages on. Then its other connections are followed, too, from
  that moment on (``earlier()``). Live, a connection is let go again if its process passes nothing on.

Messages come one by one or in columns. Listeners take messages one by one; the counts of requests and the ways of
messages also take columns, and a batch goes to them as columns where nobody else listens.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from dissectors.batches import MessageBatch, has_batches
from dissectors.events import (
    AnyEvent,
    Capture,
    Command,
    Connection,
    Greeting,
    Message,
    Problem,
    Subscription,
    at_hand,
)
from dissectors.problems import BLINDING
from dissectors.zmtp.sockets import PUBLISHERS
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.analysis.dossier import Dossier, Dossiers
from zmtpsniff.analysis.event_times import retimed, retimed_struct
from zmtpsniff.analysis.findings.capture_faults import Vantage
from zmtpsniff.analysis.findings.catalogue import FINDINGS
from zmtpsniff.analysis.findings.causes import (
    excuse_where_unclear,
    excuse_who_is_slow_with,
    excuse_who_reaches_nobody,
    excuse_who_waits,
    without_forwarded,
    without_repeats,
)
from zmtpsniff.analysis.findings.closings import Closings
from zmtpsniff.analysis.findings.copies import Copies
from zmtpsniff.analysis.findings.counted_parts import CountedParts
from zmtpsniff.analysis.findings.finding import Claim, Finding, by_harm, finding
from zmtpsniff.analysis.findings.growth import Growth
from zmtpsniff.analysis.findings.handshakes import Handshake, Handshakes
from zmtpsniff.analysis.findings.identities import Identities
from zmtpsniff.analysis.findings.idleness import IdleConnections
from zmtpsniff.analysis.findings.inquiry import Inquiry, Listener
from zmtpsniff.analysis.findings.late_subscribers import LateSubscribers
from zmtpsniff.analysis.findings.numbering import Numbering, NumberPlace
from zmtpsniff.analysis.findings.receivers import Receivers
from zmtpsniff.analysis.findings.relays import Relays
from zmtpsniff.analysis.findings.resubscriptions import Resubscriptions
from zmtpsniff.analysis.findings.sealed_requests import SealedRequests
from zmtpsniff.analysis.findings.sealed_workers import SealedWorkers
from zmtpsniff.analysis.findings.silent_endpoints import Endpoints
from zmtpsniff.analysis.findings.topics import Topics
from zmtpsniff.analysis.findings.unanswered_requests import Requests
from zmtpsniff.analysis.findings.uneven_work import UnevenWork
from zmtpsniff.analysis.findings.violations import Violations
from zmtpsniff.analysis.findings.workload import Workload
from zmtpsniff.analysis.interruptions import Interruptions
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.statistics.stats_records import PeerRow, QueueRow, worth_telling
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.net.witness import Attempt, Pause, Stall
from zmtpsniff.words.set_clocks import ForwardJumps, later

_HEARTBEATS = frozenset({"PING", "PONG"})  # of which no inquiry asks
_PEERS = 5  # of one service that a finding has
_COMPARING = (Copies, Growth, Identities, Relays, Resubscriptions, Topics, UnevenWork)  # connections with others
_EARLY = 1000  # subscriptions that are held of one connection while its types are not known
_EARLY_MESSAGES = 64  # messages that are held of one
_EARLY_OCTETS = 65_536  # octets of these
_LOOKED_AT = 1000  # messages of a late connection that may show what its sockets are
_SIGNS_IN = 8  # requests of a peer that its ROUTER answers, before the ROUTER asks the peer
_EARLY_FLOWS = 1000  # connections of which messages are held


class Diagnosis:
    """Takes all events of a capture in batches, and says what is wrong. It is a witness of the flow table, too."""

    def __init__(
        self,
        rules: Sequence[DecodeAs] = (),
        timeout_seconds: float = REPLY_SECONDS,
        sequence: NumberPlace | None = None,
        sampled: bool = False,
    ) -> None:
        """``rules`` are those of ``-d``, ``timeout_seconds`` is how long a request may wait for its reply.

        ``sequence`` is the place where publishers number their messages; without it, that is found out. With
        ``sampled``, most connections do not come here, so findings that compare connections are left out.
        """
        self.jumps = ForwardJumps()  # of the clock of the capture; all times in here are without them
        idle, closings, endpoints = IdleConnections(), Closings(), Endpoints(rules)
        handshakes, identities = Handshakes(), Identities()
        relays = Relays(identities, timeout_seconds)
        self._endpoints, self._handshakes = endpoints, handshakes
        self._relays = relays
        self.know_processes = relays.know_processes
        self._numbering, self._copies = Numbering(sequence), Copies()
        self._requests = Requests(self._may_ask_others, timeout_seconds, self._may_wait_unseen)
        self._sealed = SealedRequests(self._requests, timeout_seconds)
        self._workload = Workload(self._requests.exchange)
        self.know_queues = self._workload.know_queues
        self.inquiries: list[Inquiry] = [
            self._workload,  # before requests, which forget a connection that is over
            endpoints,
            handshakes,
            self._requests,
            relays,
            self._sealed,
            SealedWorkers(timeout_seconds),
            idle,
            Receivers(idle, closings, self._requests),
            Topics(),
            LateSubscribers(),
            self._copies,
            self._numbering,
            identities,
            closings,
            Growth(),
            Resubscriptions(),
            UnevenWork(),
            Violations(relays, self._requests),
            Vantage(),
        ]
        # By flow: how many replies a ROUTER gave, while it asked nothing.
        self._asked_first: Ledger[int, int] = Ledger(int)
        self._compares = not sampled
        if sampled:
            self.inquiries = [one for one in self.inquiries if not isinstance(one, _COMPARING)]
        self._beginning = [one for one in self.inquiries if type(one).begin is not Inquiry.begin]
        # By the name of an Inquiry's method: that method of each inquiry that overrides it.
        self._hearers: dict[str, list[Callable[..., Any]]] = {
            name: [getattr(one, name) for one in self.inquiries if getattr(type(one), name) is not method]
            for name, method in vars(Inquiry).items()
            if callable(method)
        }
        self._dossiers = Dossiers()
        self._listeners: dict[int, Sequence[Listener]] = {}  # by flow
        self._early: Ledger[int, list[Message]] = Ledger(list, _EARLY_FLOWS)  # by flow, until all types are known
        self._looked_at: Ledger[int, int] = Ledger(int)  # by late flow: messages in which a publisher is looked for
        self._now_ns = 0
        self._interruptions = Interruptions()
        self.capture: Capture | None = None

    def take(self, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Take a batch of all events that a Sniffer gives.

        Return the rare ones: events other than messages, and replies that have a request unless they are in columns.
        A caller that needs these need not look at all messages again.
        """
        if self.jumps:
            events = retimed(events, self.jumps.steady)
        self._pass_time(events)
        self._follow_processes()
        if not has_batches(events):
            return self._take_plain(events)
        rare = []
        begin = 0
        counted = CountedParts(self._listeners, self._requests, self._relays.follows)
        for place, event in enumerate(events):
            if isinstance(event, MessageBatch):
                between = events[begin:place]
                begin = place + 1
                if between:
                    if counted.concerns(between):
                        counted.count()
                    rare += self._take_plain(between)
                if not counted.add(event):
                    rare += self._take_batch(event)
        counted.count()
        return rare + self._take_plain(events[begin:])

    def _follow_processes(self) -> None:
        """Live: stop following connections whose processes pass nothing on, and follow those whose processes do."""
        for flow in self._relays.let_go(self._now_ns):
            self._remove_listener(flow, self._relays.take)
        self._follow_earlier()

    def _follow_earlier(self) -> None:
        """Follow connections that had begun before it was known that their host passes messages on."""
        for flow in self._relays.earlier():
            self._add_listener(flow, self._relays.take)

    def _add_listener(self, flow: int, listener: Listener) -> None:
        self._listeners[flow] = (*self._listeners.get(flow, ()), listener)

    def _remove_listener(self, flow: int, listener: Listener) -> None:
        left = [one for one in self._listeners.pop(flow, ()) if one != listener]
        if left:
            self._listeners[flow] = left

    def _look_for_relay(self, messages: Sequence[Message]) -> None:
        """The first messages of a connection have come. If they show a program that passes messages on, follow it.

        If they have no envelope, ids may show that a ROUTER asks.
        """
        flow = messages[0].flow
        self._remove_listener(flow, self._look_for_relay)
        is_followed = self._relays.follows(flow)
        has_worker = self._relays.find_worker(messages[0])
        if has_worker or (messages[0].socket_type is not None and self._relays.find_split(messages[0])):
            self._follow_earlier()
            if not is_followed and self._relays.follows(flow):
                self._relays.take(messages)
            if has_worker and self._relays.may_be_split(flow):
                self._add_listener(flow, self._look_for_work)
                self._look_for_work(messages[1:])
        elif b"" not in messages[0].frames and not self._relays.is_settled(flow):
            self._add_listener(flow, self._look_for_ids)
            self._look_for_ids(messages[1:])

    def _look_for_work(self, messages: Sequence[Message]) -> None:
        """Messages between a broker and its worker have come. The first job shows where the broker took it."""
        for message in messages:
            if message.socket_type == "ROUTER":
                self._remove_listener(message.flow, self._look_for_work)
                if self._relays.find_split(message):
                    self._follow_earlier()
                return

    def _look_for_ids(self, messages: Sequence[Message]) -> None:
        """Messages of a ROUTER without envelopes have come. If an id pairs one with a request, the ROUTER asks.

        Its program may ask for others, so it is followed from then on. The peer may ask first, to sign in: the replies
        of the ROUTER to so few requests tell nothing.
        """
        for message in messages:
            if message.paired != "id":
                continue
            flow = message.flow
            if message.socket_type == "ROUTER" and self._asked_first.at(flow) < _SIGNS_IN:
                self._asked_first[flow] += 1
                continue
            self._stop_looking_for_ids(flow)
            if not self._relays.follows(flow) and message.socket_type != "ROUTER":
                self._relays.add_asker(message)
                self._follow_earlier()
            return

    def _stop_looking_for_ids(self, flow: int) -> None:
        if self._look_for_ids in self._listeners.get(flow, ()):
            self._remove_listener(flow, self._look_for_ids)
            self._asked_first.pop(flow, None)

    def _take_batch(self, batch: MessageBatch) -> list[AnyEvent]:
        """Take messages in columns. Listeners get those that they want one by one. The result is that of take()."""
        listeners_of, requests, relays = self._listeners, self._requests, self._relays
        flows = {side.flow for side in batch.senders}
        for flow in flows:
            self._stop_looking_for_ids(flow)  # where ids may be found, messages come one by one
        followed = {flow for flow in flows if relays.follows(flow)}
        listeners = {flow: len(listeners_of.get(flow, ())) - (flow in followed) for flow in flows}
        counted = {flow for flow in flows if listeners[flow] == 1 and requests.counts_columns(flow)}
        if counted:
            requests.take_columns(batch, counted)
        if followed:
            relays.take_columns(batch, followed)
        # Until it is known whether sockets without types ask and reply, their replies must come one by one.
        unmet = {side.flow for side in batch.senders if side.socket_type is None and (side.in_step or side.in_pairs)}
        taken = counted | {flow for flow in followed - unmet if not listeners[flow]}
        wanted = batch.split(
            lambda side: side.flow in taken or not (side.in_step or side.in_pairs or side.flow in listeners_of)
        )
        found = self._take_plain([one for one in wanted if isinstance(one, Message)], followed)
        return [one for one in found if not isinstance(one, Message)]

    def _take_plain(self, events: Sequence[AnyEvent], followed: Container[int] = ()) -> list[AnyEvent]:
        """Take events without batches, and hand messages over to their listeners, in runs of one connection.

        The result is that of take(). The messages of the connections ``followed`` have gone to the ways already, in
        columns.
        """
        rare: list[AnyEvent] = []
        flow = -1
        run: list[Message] = []
        listeners: Sequence[Listener] | None = None
        for event in events:
            if type(event) is Message:
                if event.flow != flow:
                    _hand_over(listeners, run)
                    run = []
                    flow = event.flow
                    listeners = self._listeners_beside(flow, followed)
                if event.latency_ns is not None:
                    rare.append(event)
                    if listeners is None or (event.inferred and not self._requests.hears(flow)):
                        _hand_over(listeners, [*run, event])
                        run = []
                        self._take_first_reply(event)
                        listeners = self._listeners_beside(flow, followed)
                        continue
                if listeners is not None:
                    run.append(event)
            else:
                _hand_over(listeners, run)
                run = []
                flow = -1  # the event may change the listeners
                rare.append(event)
                self._take_other(event)
        _hand_over(listeners, run)
        return rare

    def _listeners_beside(self, flow: int, followed: Container[int]) -> Sequence[Listener] | None:
        """The listeners of a connection, without the ways if these have followed its messages already."""
        listeners = self._listeners.get(flow)
        return [one for one in listeners or () if one != self._relays.take] if flow in followed else listeners

    def _pass_time(self, events: Sequence[AnyEvent]) -> None:
        """Learn from a batch what time it is: the time of the last event that was made when it happened.

        A problem may come late, and a connection or a capture may have ended long before its event.
        """
        for event in reversed(events):
            time_ns = event.end_ns if isinstance(event, Connection | Capture) else getattr(event, "time_ns", None)
            if time_ns is not None and not isinstance(event, Connection | Capture | Problem):
                self._now_ns = later(self._now_ns, time_ns)
                break
            self._now_ns = max(self._now_ns, time_ns or 0)

    def _tell(self, name: str, *facts: Any) -> None:
        """Call a method of all inquiries that override it."""
        for hear in self._hearers[name]:
            hear(*facts)

    def _take_other(self, event: AnyEvent) -> None:
        if isinstance(event, Command):
            if event.name == "MESSAGE":
                self._tell("sealed", event)
            elif event.name not in _HEARTBEATS:
                self._tell("command", self._learn(event), event)
        elif isinstance(event, Subscription):
            dossier = self._dossiers.at(event)
            self._copies.change_late(event.flow)
            if len(dossier.types) == 2:
                self._tell("subscription", dossier, event)
            elif len(dossier.early) < _EARLY:
                dossier.early.append(event)  # its meaning depends on the types
        elif isinstance(event, Greeting):
            self._tell("greeting", self._learn(event), event)
        elif isinstance(event, Problem):
            self._take_problem(event)
        elif isinstance(event, Connection):
            self._listeners.pop(event.flow, None)
            self._early.pop(event.flow, None)
            shown_ns = self._interruptions.shown_until(event.end_ns, self._now_ns)
            until_ns = event.end_ns if event.end in ("fin", "rst") else shown_ns
            self._tell("end", self._dossiers.pop(event.flow), event, until_ns)
        elif isinstance(event, Capture):
            self.capture = event
            self._tell("totals", event)

    def _take_problem(self, event: Problem) -> None:
        self._interruptions.take(event)
        blinded = event.flow if event.code in BLINDING else None
        dossier = None if blinded is None else self._dossiers.get(blinded)
        if dossier is not None and not dossier.blind:
            dossier.blind = True
            self._tell("lose", dossier)
        self._tell("problem", event)
        if blinded is not None and (dossier is None or len(dossier.types) < 2):
            self._begin_late(blinded)

    def _begin_late(self, flow: int) -> None:
        """The capture lacks the handshake of a connection. Its first message may show that the others matter."""
        self._follow_earlier()
        if not self._relays.follows(flow):
            self._remove_listener(flow, self._look_for_relay)
            self._add_listener(flow, self._look_for_relay)
        if self._compares and self._look_for_publisher not in self._listeners.get(flow, ()):
            self._add_listener(flow, self._look_for_publisher)
        dossier = self._dossiers.get(flow)
        if dossier is not None and dossier.is_untyped:
            self._remove_listener(flow, self._hold)
            _hand_over(self._listeners.get(flow), self._early.pop(flow, []))

    def _look_for_publisher(self, messages: Sequence[Message]) -> None:
        """Compare copies once the messages of a late connection show that their sender is a publisher."""
        flow = messages[0].flow
        looked = self._looked_at[flow] = self._looked_at[flow] + len(messages)
        for place, message in enumerate(messages):
            if message.socket_type is None:
                continue
            self._remove_listener(flow, self._look_for_publisher)
            if message.socket_type in PUBLISHERS and message.lookalike in (None, "XPUB", "RADIO"):
                listener = self._copies.begin_late(message)
                self._add_listener(flow, listener)
                listener(messages[place:])
            return
        if looked >= _LOOKED_AT:
            self._remove_listener(flow, self._look_for_publisher)

    def _may_ask_others(self, address: str) -> bool:
        """Whether the program of a socket may wait for others before it answers: it passes on, or asks under CURVE."""
        return self._relays.may_pass_on(address) or self._sealed.may_ask(address)

    def _may_wait_unseen(self, address: str) -> bool:
        """Whether the time that the program of a socket takes may hold waits for others that nobody sees."""
        return self._relays.may_pass_on(address) or self._sealed.hides_waits(address)

    def _take_first_reply(self, reply: Message) -> None:
        """A reply has its request, though the sockets have not both announced their types: inquiries may listen now."""
        dossier = self._dossiers.at(reply)
        if self._dossiers.get(reply.flow) is None:
            return
        for meet in self._hearers["meet"]:
            listener = meet(dossier, reply)
            if listener is not None:
                self._add_listener(dossier.flow, listener)
                listener([reply])

    def _learn(self, event: Greeting | Command) -> Dossier:
        """Take an announcement. The connection begins once both types are known."""
        dossier = self._dossiers.at(event)
        if dossier.learn(event):
            if self._dossiers.get(event.flow) is not None:
                self._begin(dossier)
        elif isinstance(event, Greeting) and dossier.is_untyped and not dossier.types:
            # The first greeting of ZMTP 1.0 tells enough. A later peer may send it no more than its signature, which is
            # a greeting only once it has said more.
            if len(dossier.greeted_ns) == (2 if dossier.websocket else 1):
                self._relays.begin_untyped(event)
                self._begin_late(event.flow)  # the first message may show that the others matter
            elif dossier.websocket:
                self._listeners.setdefault(event.flow, [self._hold])
        elif isinstance(event, Greeting) and (len(dossier.types) == 1 or dossier.is_untyped):  # ZMTP 2.0
            self._listeners.setdefault(event.flow, [self._hold])
        return dossier

    def _hold(self, messages: Sequence[Message]) -> None:
        """Hold messages until both sides have greeted. A peer of ZMTP 2.0 may send some as soon as it has."""
        flow = messages[0].flow
        early = self._early.at(flow)
        early += messages
        octets = sum(len(at_hand(frame)) for message in early for frame in message.frames)
        if len(early) > _EARLY_MESSAGES or octets > _EARLY_OCTETS:
            del self._early[flow]
            self._remove_listener(flow, self._hold)

    def _begin(self, dossier: Dossier) -> None:
        """Both sides have announced their types: ask the inquiries for listeners, and hand over what was held."""
        listeners = []
        for one in self._beginning:
            listener = one.begin(dossier)
            if listener is not None:
                listeners.append(listener)
                for flow in one.earlier():
                    self._add_listener(flow, listener)
        if self._relays.may_show_relay(dossier):
            listeners.append(self._look_for_relay)
        self._remove_listener(dossier.flow, self._hold)
        if listeners:
            self._listeners[dossier.flow] = listeners
        _hand_over(listeners, self._early.pop(dossier.flow, []))
        early, dossier.early = dossier.early, []
        for event in early:
            self._tell("subscription", dossier, event)

    # ------------------------------------------------------------------ flows that are put aside

    def put_aside(self, flow: int) -> tuple[Handshake | None, Dossier | None]:
        """Give those facts of a flow away that nothing else refers to: inquiries keep dossiers with both types."""
        dossier = self._dossiers.get(flow)
        is_free = dossier is not None and len(dossier.types) < 2 and flow not in self._listeners
        return self._handshakes.put_aside(flow), self._dossiers.pop(flow) if is_free else None

    def take_up(self, flow: int, facts: tuple[Handshake | None, Dossier | None]) -> None:
        """Take the facts of a flow back."""
        handshake, dossier = facts
        self._handshakes.take_up(flow, handshake)
        self._dossiers.put(dossier)

    # ------------------------------------------------------------------ as a witness

    def attempt(self, attempt: Attempt) -> None:
        """A TCP connection was tried."""
        self._now_ns = max(self._now_ns, attempt.last_ns)
        self._tell("attempt", attempt)

    def stall(self, stall: Stall) -> None:
        """A receiver stopped for a while."""
        self._tell("stall", stall)

    def pause(self, pause: Pause) -> None:
        """Nothing came on a connection for a while, even if the capture was interrupted: its octets lack nothing."""
        self._tell("pause", pause)

    # ------------------------------------------------------------------ results

    @property
    def has_sequence(self) -> bool:
        """Whether a publisher's message had a number at the place that ``sequence`` names."""
        return self._numbering.has_numbers

    def peers(self, going_on: Iterable[Connection] = ()) -> list[PeerRow]:
        """The work of each peer of a bound socket, with the connections that are not over."""
        return self._workload.rows(going_on)

    def queues(self) -> list[QueueRow]:
        """The queues of programs that pass messages on, complete once findings() was asked."""
        return self._relays.queues()

    def findings(self) -> list[Finding]:
        """The faults so far, the most harmful first. Some are known only once a connection, or the capture, is over."""
        claims: dict[tuple[str, str], Claim] = {}
        for one in self.inquiries:
            for claim in one.claims(self._now_ns):
                # Two inquiries may find the same fault of the same socket: the first one knows it better.
                key = claim.code, claim.subject or claim.summary
                first = claims.setdefault(key, excuse_who_reaches_nobody(claim, self._endpoints, self._handshakes))
                if claim.waiting and not first.waiting:
                    claims[key] = first._replace(waiting=claim.waiting)
        own = without_forwarded(claims.values(), self._relays.behind_proxy)
        accused = excuse_who_waits(own, self._requests.has_answered)
        told = excuse_where_unclear(without_repeats(accused), self._relays.may_pass_on_unseen)
        told = excuse_who_is_slow_with(told)
        found = by_harm(map(finding, told))
        concerned = [one for one in found if FINDINGS[one.code].of_peers]
        peers = worth_telling(self.peers()) if concerned else []
        for each in concerned:
            each.peers = _concerned(peers, each.endpoints)
        return [retimed_struct(one, self.jumps.captured) for one in found] if self.jumps else found


def _concerned(peers: Sequence[PeerRow], endpoints: Sequence[str]) -> list[PeerRow]:
    """The peers of the services that a finding names: first those that it names, too, then the busiest."""
    services = {row.service for row in peers if row.service in endpoints and row.peer in endpoints}
    rows = [row for row in peers if row.service in services]
    return sorted(rows, key=lambda row: (row.peer not in endpoints, -row.taken - row.given))[:_PEERS]


def _hand_over(listeners: Sequence[Listener] | None, run: list[Message]) -> None:
    """Hand messages of one connection over to its listeners."""
    if run:
        for listener in listeners or ():
            listener(run)
