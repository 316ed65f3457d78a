"""Patterns: what messages mean to each other. They add to events, and find problems that one message does not show."""

from collections import defaultdict
from functools import partial

from dissectors.events import (
    AnyEvent,
    Command,
    Connection,
    Greeting,
    Message,
    Octets,
    Problem,
    Share,
    Subscription,
    Work,
    at_hand,
)
from dissectors.zmtp.sockets import PUBLISHERS, SUBSCRIBERS
from zmtpsniff.patterns.connections import Connections
from zmtpsniff.patterns.conversation import Conversation, Findings, Rules
from zmtpsniff.patterns.heartbeats import Heartbeats
from zmtpsniff.patterns.publish_subscribe import Publisher, PublishSubscribe
from zmtpsniff.patterns.request_reply import SOCKET_TYPES as REQUEST_REPLY
from zmtpsniff.patterns.request_reply import Forwarding, request_reply
from zmtpsniff.patterns.single_frame import SINGLE_FRAME, RadioDish, SingleFrame

DEFAULT_TIMEOUT_SECONDS = 5.0
_SETTLE_NS = 1_000_000_000
_EARLY_OCTETS = 65_536  # of a connection's events before both sides have said what they are
_EVENT_COST = 200  # octets that an event takes beside its own
_WORKERS = 1000  # that are told of each by itself
# Problems after which what is not seen may have been there all the same.
_BLINDING = frozenset(
    {
        "capture-gap",
        "packets-cut",
        "no-greeting",
        "one-direction",
        "frames-lost",
        "frames-found-again",
        "message-too-large",
    }
)


class Patterns:
    """Takes all events of a capture, in order."""

    def __init__(self, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """``timeout_seconds`` is how long a request may wait for its reply."""
        self._timeout_ns = int(timeout_seconds * 1e9)
        self._findings = Findings()
        self._conversations: dict[int, Conversation] = {}
        self._on_message = {}  # type: ignore[var-annotated]  # flow to the method that wants its messages
        self._forwarding = Forwarding()
        self._publishers: defaultdict[str, Publisher] = defaultdict(Publisher)
        self._connections = Connections(self._findings)
        self._pipelines: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._now_ns = 0
        self._settled_ns = 0

    # ------------------------------------------------------------------ the hot loop

    def take(self, events: list[AnyEvent]) -> list[AnyEvent]:
        """Look at a batch of events and add to them; returns them with the problems found, each behind its event."""
        on_message = self._on_message
        findings = self._findings
        found: list[tuple[int, list[AnyEvent]]] = []
        place = 0
        for event in events:
            place += 1
            if type(event) is Message:
                take = on_message.get(event.flow)
                if take is None:
                    continue
                take(event)
            else:
                self._take_other(event)
            if findings.events:
                found.append((place, findings.take()))
        if events:
            self._pass_time(events)
            if findings.events:
                found.append((place, findings.take()))
        return _inserted(events, found) if found else events

    def _pass_time(self, events: list[AnyEvent]) -> None:
        """Once a second, look for what has waited for too long."""
        for event in reversed(events):
            time_ns = getattr(event, "time_ns", None)
            if time_ns is not None:
                self._now_ns = max(self._now_ns, time_ns)
                break
        self.settle(self._now_ns)

    def settle(self, now_ns: int) -> None:
        """It is ``now_ns``, though no event may say so."""
        self._now_ns = max(self._now_ns, now_ns)
        if self._now_ns - self._settled_ns < _SETTLE_NS:
            return
        self._settled_ns = self._now_ns
        for conversation in self._conversations.values():
            conversation.rules.pass_time(self._now_ns)

    # ------------------------------------------------------------------ what is rare

    def _take_other(self, event: AnyEvent) -> None:
        kind = type(event)
        if kind is Subscription:
            conversation = self._conversations.get(event.flow)  # type: ignore[union-attr,arg-type]
            if conversation is not None and len(conversation.types) < 2:
                _keep(conversation, event)  # type: ignore[arg-type]
            elif conversation is not None:
                conversation.rules.subscription(event)  # type: ignore[arg-type]
        elif isinstance(event, Command):
            self._command(event)
        elif isinstance(event, Greeting):
            self._greeting(event)
        elif isinstance(event, Connection):
            self._end(event)
        elif isinstance(event, Problem) and event.flow is not None and event.code in _BLINDING:
            conversation = self._conversations.get(event.flow)
            if conversation is not None:
                conversation.blind = True

    def _greeting(self, event: Greeting) -> None:
        conversation = self._conversations.get(event.flow)
        if conversation is None:
            conversation = self._conversations[event.flow] = Conversation(event.flow)
            self._on_message[event.flow] = partial(_keep, conversation)
        if event.socket_type is not None:
            self._announce(conversation, event, event.socket_type, event.identity)

    def _command(self, event: Command) -> None:
        conversation = self._conversations.get(event.flow)
        if conversation is None:
            return
        properties = event.properties
        if properties is not None and event.name in ("READY", "INITIATE"):
            names = {name.lower(): value for name, value in properties.items()}
            socket_type = names.get("socket-type")
            if isinstance(socket_type, bytes):
                kind = socket_type.decode("ascii", "replace")
                self._announce(conversation, event, kind, names.get("identity"))
        elif event.name in ("PING", "PONG") and conversation.pings is None:
            conversation.pings = Heartbeats(conversation, self._findings)
            self._listen(conversation)
        if conversation.pings is not None:
            conversation.pings.command(event)
        conversation.rules.command(event)

    def _announce(
        self, conversation: Conversation, event: Greeting | Command, kind: str, identity: Octets | None
    ) -> None:
        if event.src in conversation.types:
            return
        conversation.types[event.src] = kind
        if isinstance(identity, bytes) and identity:
            conversation.identities[event.src] = identity
        if len(conversation.types) == 2:
            self._connections.begin(conversation, event)
            conversation.rules = self._rules(conversation)
            self._listen(conversation)
            take = self._on_message.get(conversation.flow)
            for early in conversation.early:
                if isinstance(early, Subscription):
                    conversation.rules.subscription(early)
                elif take is not None:
                    take(early)
            conversation.early.clear()

    def _rules(self, conversation: Conversation) -> Rules:
        types = conversation.types
        kinds = frozenset(types.values())
        if kinds <= REQUEST_REPLY:
            return request_reply(conversation, self._findings, self._forwarding, self._timeout_ns)
        if kinds & PUBLISHERS and kinds & SUBSCRIBERS:
            address = next(address for address, kind in types.items() if kind in PUBLISHERS)
            return PublishSubscribe(conversation, self._findings, self._publishers[address])
        if kinds == {"RADIO", "DISH"}:
            return RadioDish(conversation, self._findings)
        if kinds <= SINGLE_FRAME:
            return SingleFrame(self._findings)
        return Rules()

    def _listen(self, conversation: Conversation) -> None:
        """Choose what is called with each message of the connection."""
        calls = [rules.message for rules in (conversation.rules, conversation.pings) if rules and rules.message]
        if len(calls) > 1:
            first, second = calls

            def both(event: Message) -> None:
                first(event)
                second(event)

            self._on_message[conversation.flow] = both
        elif calls:
            self._on_message[conversation.flow] = calls[0]
        elif len(conversation.types) == 2:
            self._on_message.pop(conversation.flow, None)

    # ------------------------------------------------------------------ ending

    def _end(self, event: Connection) -> None:
        conversation = self._conversations.pop(event.flow, None)
        self._on_message.pop(event.flow, None)
        self._now_ns = max(self._now_ns, event.end_ns)
        if conversation is not None:
            conversation.rules.finish(event, self._now_ns)
            if conversation.pings is not None:
                conversation.pings.finish(event, self._now_ns)
        self._connections.end(event, conversation)
        self._count_work(event)

    def _count_work(self, event: Connection) -> None:
        """Count what a PUSH socket gave to one of its workers.

        Only of one that is connected to: of one that connects itself each connection has an address of its own, so it
        cannot be told which belong together.
        """
        if event.server.socket_type == "PUSH" and event.client.socket_type == "PULL":
            workers = self._pipelines[event.server.address]
            if event.client.address in workers or len(workers) < _WORKERS:
                workers[event.client.address] = workers.get(event.client.address, 0) + event.messages.server

    def refuse(self, server: str) -> None:
        """Take note that a TCP connection to ``server`` was refused."""
        self._connections.refuse(server)

    def finish(self) -> list[AnyEvent]:
        """The capture is over: what only all of it tells."""
        self._connections.finish()
        events = self._findings.take()
        for address, workers in self._pipelines.items():
            total = sum(workers.values())
            if len(workers) > 1 and total:
                shares = [Share(worker, count, round(count / total, 4)) for worker, count in workers.items()]
                events.append(Work(address, total, sorted(shares, key=lambda share: -share.messages)))
        return events


def _keep(conversation: Conversation, event: Message | Subscription) -> None:
    """Keep what cannot be understood yet; what is too much of it is not understood at all."""
    octets = sum(map(len, map(at_hand, event.frames))) if isinstance(event, Message) else len(at_hand(event.topic))
    conversation.early_octets += _EVENT_COST + octets
    if conversation.early_octets <= _EARLY_OCTETS:
        conversation.early.append(event)
    elif not conversation.blind:  # it may be ZMTP 1.0, which never says it
        conversation.blind = True
        conversation.early.clear()


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
