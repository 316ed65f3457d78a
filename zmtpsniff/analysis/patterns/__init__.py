"""Patterns: what messages mean to each other. They add to events, and find problems that one message does not show."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from itertools import islice

from dissectors.events import (
    AnyEvent,
    Beacon,
    Command,
    Connection,
    Greeting,
    Message,
    Problem,
    Share,
    Subscription,
    Work,
    at_hand,
)
from dissectors.problems import BLINDING
from dissectors.zmtp.sockets import PEERS, PUBLISHERS, SUBSCRIBERS, may_talk
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.analysis.patterns.beacons import BeaconPeers
from zmtpsniff.analysis.patterns.connections import ConnectionLog, Refusal
from zmtpsniff.analysis.patterns.conversation import Conversation, Doubt, Findings, Room, Rules
from zmtpsniff.analysis.patterns.heartbeats import Heartbeats
from zmtpsniff.analysis.patterns.inference import BoundSockets, Guess, Guesses, Inference, Senders, contradicts
from zmtpsniff.analysis.patterns.proxies import Proxies
from zmtpsniff.analysis.patterns.publish_subscribe import Publisher, PublishSubscribe
from zmtpsniff.analysis.patterns.request_reply import SOCKET_TYPES as REQUEST_REPLY
from zmtpsniff.analysis.patterns.request_reply import Exchange, request_reply
from zmtpsniff.analysis.patterns.single_frame import SINGLE_FRAME, RadioDish, SingleFrame
from zmtpsniff.decode_as import DecodeAs, first_match

_SETTLE_NS = 1_000_000_000
_EARLY_OCTETS = 65_536  # of a connection's events before both sides have said what they are
_EVENT_COST = 400  # octets that an event takes beside its own
_WORKERS = 1000  # that are told of each by itself
_PIPELINES = 1000
_PUBLISHERS = 10_000
_LONGEST_IDENTITY = 255


# The peers of a socket whose type the user declares.
_USUAL_PEERS = {
    "REP": "REQ", "REQ": "REP", "ROUTER": "DEALER", "DEALER": "ROUTER", "PUB": "SUB", "XPUB": "SUB", "SUB": "PUB",
    "XSUB": "PUB", "PUSH": "PULL", "PULL": "PUSH", "PAIR": "PAIR",
}  # fmt: skip
Notice = tuple[int, Refusal | Doubt]
"""What flows tell that is no event, and how many events of its batch come before it."""


class Patterns:
    """Takes all events of a capture, in order.

    An event gets what it means to others while its batch is taken, and never later: once given out it is not changed.
    """

    def __init__(self, timeout_seconds: float = REPLY_SECONDS, rules: Sequence[DecodeAs] = ()) -> None:
        """``timeout_seconds`` is how long a request may wait for its reply.

        ``rules`` may declare the type of a bound socket, for connections that do not say it.
        """
        self._rules_of_user = [rule for rule in rules if rule.socket_type]
        self._senders = Senders()
        self._bound = BoundSockets()
        self._timeout_ns = int(min(timeout_seconds, 1e9) * 1e9)
        self._findings = Findings()
        self._room = Room()
        self._conversations: dict[int, Conversation] = {}
        self._on_message: dict[int, Callable[[Message], None]] = {}  # flow to who wants its messages
        self._waiting: dict[int, list[Rules]] = {}  # flow to those who want to know that time passes
        self._forwarding = Proxies()
        self._publishers: OrderedDict[str, Publisher] = OrderedDict()
        self._connections = ConnectionLog(self._findings)
        self._announced = BeaconPeers()
        self._pipelines: dict[str, Pipeline] = {}
        self._now_ns = 0
        self._settled_ns = 0

    # ------------------------------------------------------------------ the hot loop

    def take(
        self, events: list[AnyEvent], horizon_ns: int | None = None, notices: Sequence[Notice] = ()
    ) -> list[AnyEvent]:
        """Look at a batch of events and add to them; returns them with the problems found, each behind its event.

        Of events from ``horizon_ns`` on some may still be missing: packets wait for what the capture has later.
        ``notices`` are in the order of their places.
        """
        findings = self._findings
        found: list[tuple[int, list[AnyEvent]]] = []
        begin = 0
        for place, notice in notices:
            self._look(events, begin, place, found)
            for earlier in islice(events, begin, place):
                self._pass(earlier)
            begin = place
            self._take_notice(notice)
            if findings.events:
                found.append((place, findings.take()))
        self._look(events, begin, len(events), found)
        self._settle(events, horizon_ns)
        if findings.events:
            found.append((len(events), findings.take()))
        return _inserted(events, found) if found else events

    def _look(self, events: list[AnyEvent], begin: int, end: int, found: list[tuple[int, list[AnyEvent]]]) -> None:
        """Look at some events of a batch; adds what is found to ``found``, with how many events come before it."""
        on_message = self._on_message
        findings = self._findings
        place = passed = begin
        for event in islice(events, begin, end):
            place += 1
            if type(event) is Message:
                take = on_message.get(event.flow)
                if take is None:
                    continue
                take(event)
            else:
                if type(event) is Connection and place > 1:
                    self._pass(events[place - 2])
                elif type(event) is Problem and event.code in BLINDING:
                    for earlier in events[passed : place - 1]:
                        self._pass(earlier)
                    passed = place
                self._take_other(event)
            if findings.events:
                found.append((place, findings.take()))

    def _settle(self, events: list[AnyEvent], horizon_ns: int | None) -> None:
        """Once a second, look for what has waited for too long."""
        for event in reversed(events):
            if self._pass(event):
                break
        now_ns = self._now_ns if horizon_ns is None else min(self._now_ns, horizon_ns)
        if now_ns - self._settled_ns < _SETTLE_NS:
            return
        self._settled_ns = now_ns
        for waiting in self._waiting.values():
            for rules in waiting:
                rules.pass_time(now_ns)
        self._connections.pass_time(now_ns)

    def _pass(self, event: AnyEvent) -> bool:
        """Take the time from an event, if it has one."""
        time_ns = event.end_ns if isinstance(event, Connection) else getattr(event, "time_ns", None)
        if time_ns is None:
            return False
        self._now_ns = max(self._now_ns, time_ns)
        return True

    def settle(self, now_ns: int) -> None:
        """It is ``now_ns``, though no event says so; what that means comes with the next batch, be it empty."""
        self._now_ns = max(self._now_ns, now_ns)

    # ------------------------------------------------------------------ what is rare

    def _take_other(self, event: AnyEvent) -> None:
        if isinstance(event, Command):
            if event.name != "MESSAGE":  # encrypted
                self._command(event)
        elif isinstance(event, Greeting):
            self._greeting(event)
        elif isinstance(event, Connection):
            self._end(event)
        elif isinstance(event, Subscription):
            conversation = self._conversations.get(event.flow)
            if conversation is not None and len(conversation.types) < 2:
                self._keep(conversation, event)
                if conversation.inference is not None:
                    self._learn(conversation, conversation.inference.subscription(event))
            elif conversation is not None:
                if conversation.is_guessed and conversation.types.get(event.src) == "PULL":
                    self._learn(conversation, {event.src: Guess("SUB"), event.dst: Guess("PUB")})
                conversation.rules.subscription(event)
        elif isinstance(event, Beacon):
            self._announced.beacon(event)
        elif isinstance(event, Problem) and event.code in BLINDING and event.flow is not None:
            if event.code == "no-greeting" and event.flow not in self._conversations:
                self._meet(event.flow, event.src or "", event.dst or "")
            self._blind(event.flow, event.since_ns or event.time_ns)

    def _take_notice(self, notice: Refusal | Doubt) -> None:
        if isinstance(notice, Refusal):
            self._connections.refuse(notice)
        else:
            self._blind(notice.flow, notice.since_ns or notice.time_ns)
        self._now_ns = max(self._now_ns, notice.time_ns)

    def _blind(self, flow: int, since_ns: int | None) -> None:
        """What is not seen of a connection from ``since_ns`` on may have been there all the same."""
        conversation = self._conversations.get(flow)
        if conversation is None:
            return
        # What was late before is so wherever batches end.
        before_ns = self._now_ns if since_ns is None else min(self._now_ns, since_ns)
        for rules in (conversation.rules, conversation.pings):
            if rules is not None:
                rules.pass_time(before_ns)
                rules.lose()
        conversation.blind = True

    def _greeting(self, event: Greeting) -> None:
        conversation = self._conversations.get(event.flow)
        if conversation is None:
            conversation = self._conversations[event.flow] = Conversation(event.flow)
            conversation.websocket = event.version == "ZWS2.0"
            self._on_message[event.flow] = partial(self._keep, conversation)
            self._connections.greet(event)
            if event.version in (None, "1.0") or (conversation.websocket and event.mechanism is None):
                self._infer(conversation, event.src, event.dst)
        if conversation.inference is not None and event.identity:
            conversation.inference.name()
        if event.socket_type is not None:
            self._announce(conversation, event)

    def _meet(self, flow: int, src: str, dst: str) -> None:
        """A connection that began before the capture did."""
        conversation = self._conversations[flow] = Conversation(flow)
        conversation.blind = True
        self._infer(conversation, src, dst)

    def _infer(self, conversation: Conversation, one: str, other: str) -> None:
        """Find out which sockets they are by what they send, unless the user says it."""
        for bound, peer in ((one, other), (other, one)):
            port = bound.rpartition(":")[2]
            rule = first_match(self._rules_of_user, "tcp", int(port)) if port.isdecimal() else None
            if rule is not None:
                conversation.is_declared = True
                usual = _USUAL_PEERS[rule.socket_type]
                self._learn(conversation, {bound: Guess(rule.socket_type), peer: Guess(usual)})
                return
        conversation.inference = Inference(one, other, self._senders)
        self._on_message[conversation.flow] = partial(self._look_at, conversation)

    def _look_at(self, conversation: Conversation, event: Message) -> None:
        """Take a message of a connection whose socket types are to be found out."""
        inference = conversation.inference
        if inference is None:
            return
        self._keep(conversation, event)
        if conversation.flow not in self._on_message:  # too much to be remembered: what comes next is enough
            self._on_message[conversation.flow] = partial(self._look_at, conversation)
        guesses = self._bound.guesses(event.src, event.dst) or inference.message(event, conversation.blind)
        if guesses is None and not inference.left:
            guesses = inference.at_end()
            if guesses is None:
                self._give_up(conversation)
        if guesses is not None:
            conversation.patience_ns = inference.patience_ns
            self._learn(conversation, self._bound.settle(guesses))

    def _give_up(self, conversation: Conversation) -> None:
        """Nothing that a connection carries will tell what its sockets are; another one of them may."""
        conversation.inference = None
        conversation.guesses = {}
        self._on_message.pop(conversation.flow, None)
        self._forget_early(conversation)

    def _learn(self, conversation: Conversation, guesses: Guesses | None) -> None:
        """What they are is known now, though they did not say it. Nobody is accused of what was guessed."""
        if guesses is None:
            return
        conversation.inference = None
        conversation.blind = True
        conversation.types = {address: guess.kind for address, guess in guesses.items()}
        conversation.guesses = guesses
        conversation.rules = self._rules(conversation)
        self._on_message.pop(conversation.flow, None)
        self._listen(conversation)
        self._catch_up(conversation)

    def _command(self, event: Command) -> None:
        conversation = self._conversations.get(event.flow)
        if conversation is None:
            return
        if event.socket_type is not None:
            self._announce(conversation, event)
        elif event.name in ("PING", "PONG") and conversation.pings is None and len(conversation.types) == 2:
            conversation.pings = Heartbeats(conversation, self._findings)
            self._listen(conversation)
        elif conversation.inference is not None:
            conversation.inference.command(event)
        if conversation.pings is not None:
            conversation.pings.command(event)
        conversation.rules.command(event)

    def _announce(self, conversation: Conversation, event: Greeting | Command) -> None:
        if event.src in conversation.types:
            return
        conversation.inference = None
        kind, identity = event.socket_type, event.identity
        conversation.types[event.src] = kind if kind in PEERS else ""
        if isinstance(identity, bytes) and 0 < len(identity) <= _LONGEST_IDENTITY:
            conversation.identities[event.src] = identity
        if len(conversation.types) < 2 or event.dst not in conversation.types:
            return
        for address, announced in conversation.types.items():
            self._bound.announce(address, announced)
        self._connections.begin(conversation, event)
        conversation.rules = self._rules(conversation)
        self._listen(conversation)
        if conversation.early:
            self._catch_up(conversation)

    def _keep(self, conversation: Conversation, event: Message | Subscription) -> None:
        """Keep what cannot be understood yet; what is too much of it is not understood at all."""
        octets = sum(map(len, map(at_hand, event.frames))) if isinstance(event, Message) else len(at_hand(event.topic))
        octets += _EVENT_COST
        if conversation.early_octets + octets <= _EARLY_OCTETS and self._room.take(octets):
            conversation.early_octets += octets
            conversation.early.append(event)
            return
        conversation.blind = True  # it may be ZMTP 1.0, whose peers never say what they are
        self._on_message.pop(conversation.flow, None)
        self._forget_early(conversation)

    def _catch_up(self, conversation: Conversation) -> None:
        """Understand what came too early; as it was given out, it stays as it is."""
        take = self._on_message.get(conversation.flow)
        for early in conversation.early:
            if isinstance(early, Subscription):
                conversation.rules.subscription(early)
            elif take is not None:
                take(copy(early))
        self._forget_early(conversation)

    def _forget_early(self, conversation: Conversation) -> None:
        conversation.early.clear()
        self._room.give(conversation.early_octets)
        conversation.early_octets = 0

    def _rules(self, conversation: Conversation) -> Rules:
        types = conversation.types
        kinds = frozenset(types.values())
        if not may_talk(*types.values()):
            return Rules()
        if kinds <= REQUEST_REPLY:
            for address, kind in types.items():
                if kind == "ROUTER":
                    for identity in (i for other, i in conversation.identities.items() if other != address):
                        self._forwarding.learn(identity, conversation.flow)
            return request_reply(Exchange(conversation, self._findings, self._forwarding, self._room, self._timeout_ns))
        if kinds & PUBLISHERS and kinds & SUBSCRIBERS:
            address = next(address for address, kind in types.items() if kind in PUBLISHERS)
            return PublishSubscribe(conversation, self._findings, self._room, self._publisher(address))
        if kinds == {"RADIO", "DISH"}:
            return RadioDish(conversation, self._findings, self._room)
        if kinds <= SINGLE_FRAME:
            return SingleFrame(self._findings)
        return Rules()

    def _publisher(self, address: str) -> Publisher:
        publisher = self._publishers.setdefault(address, Publisher())
        self._publishers.move_to_end(address)
        if len(self._publishers) > _PUBLISHERS:
            self._publishers.popitem(last=False)
        return publisher

    def _listen(self, conversation: Conversation) -> None:
        """Choose what is called with each message of the connection, and who is told that time passes."""
        wanted = [rules for rules in (conversation.rules, conversation.pings) if rules is not None]
        calls = [rules.message for rules in wanted if rules.message is not None]
        waiting = [rules for rules in wanted if rules.waits]
        if waiting:
            self._waiting[conversation.flow] = waiting
        if len(calls) > 1:
            first, second = calls

            def both(event: Message) -> None:
                first(event)
                second(event)

            self._on_message[conversation.flow] = both
        elif calls:
            self._on_message[conversation.flow] = calls[0]
        else:
            self._on_message.pop(conversation.flow, None)

    # ------------------------------------------------------------------ ending

    def _end(self, event: Connection) -> None:
        conversation = self._conversations.pop(event.flow, None)
        self._on_message.pop(event.flow, None)
        self._waiting.pop(event.flow, None)
        self._now_ns = max(self._now_ns, event.end_ns)
        if conversation is not None:
            self._tell_types(conversation, event)
            conversation.rules.finish(event, self._now_ns)
            if conversation.pings is not None:
                conversation.pings.finish(event, self._now_ns)
            if conversation.early:
                self._forget_early(conversation)
        self._connections.end(event, conversation)
        self._announced.end(event)
        if conversation is not None:
            conversation.part()
        self._count_work(event)

    def _tell_types(self, conversation: Conversation, event: Connection) -> None:
        """Say which sockets they were, if that was inferred and nothing that came later contradicts it."""
        if conversation.inference is None and conversation.guesses is None:
            return
        bound = self._bound.guesses(event.client.address, event.server.address)
        if bound is not None and contradicts(bound, event, ("PULL", "SUB")):
            bound = None  # another program had the port at another time
        known = conversation.guesses if conversation.inference is None else conversation.inference.at_end()
        guesses = self._bound.settle(known or {}) | (bound or {})
        if not conversation.is_declared and (contradicts(guesses, event) or _has_last_word(conversation, event)):
            return
        for peer in (event.client, event.server):
            if peer.socket_type is None and peer.address in guesses:
                peer.socket_type, peer.lookalike = guesses[peer.address]
                peer.inferred = True

    def _count_work(self, event: Connection) -> None:
        """Count what a PUSH socket gave to one of its workers.

        Only of one that is connected to: of one that connects itself each connection has an address of its own, so it
        cannot be told which belong together.
        """
        if event.server.socket_type != "PUSH" or event.client.socket_type != "PULL":
            return
        address = event.server.address
        if address not in self._pipelines and len(self._pipelines) >= _PIPELINES:
            return
        pipeline = self._pipelines.setdefault(address, Pipeline())
        pipeline.messages += event.messages.server
        worker = event.client.address
        if worker in pipeline.workers or len(pipeline.workers) < _WORKERS:
            pipeline.workers[worker] = pipeline.workers.get(worker, 0) + event.messages.server

    def finish(self) -> list[AnyEvent]:
        """The capture is over: what only all of it tells."""
        events = self._findings.take()
        for address, pipeline in self._pipelines.items():
            total = pipeline.messages
            if len(pipeline.workers) > 1 and total:
                shares = [Share(worker, count, round(count / total, 4)) for worker, count in pipeline.workers.items()]
                events.append(Work(address, total, sorted(shares, key=lambda share: -share.messages)))
        return events


def _has_last_word(conversation: Conversation, event: Connection) -> bool:
    """Whether the side that is taken to ask was not answered in the end: it may be the one that answers."""
    asked_ns, patience_ns = conversation.rules.asked_ns, conversation.patience_ns
    if asked_ns is None or patience_ns is None:
        return False
    return event.end != "open" or event.end_ns - asked_ns > patience_ns


class Pipeline:
    """What a PUSH socket has sent."""

    __slots__ = ("messages", "workers")

    def __init__(self) -> None:
        """Start with nothing."""
        self.messages = 0
        self.workers: dict[str, int] = {}  # messages by address


def _inserted(events: list[AnyEvent], found: list[tuple[int, list[AnyEvent]]]) -> list[AnyEvent]:
    """The events with what was found behind the places given."""
    out: list[AnyEvent] = []
    begin = 0
    for place, problems in found:
        out += events[begin:place]
        out += problems
        begin = place
    out += events[begin:]
    return out
