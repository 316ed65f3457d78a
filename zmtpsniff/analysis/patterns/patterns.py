"""The stage of patterns: it hands the events of each connection to the rules of its socket types."""

from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, get_args

from dissectors.address import port_of
from dissectors.batches import BatchSide, MessageBatch
from dissectors.events import (
    UNBOUNDED,
    AnyEvent,
    Beacon,
    Command,
    Connection,
    Greeting,
    Message,
    Problem,
    Subscription,
    at_hand,
    time_of,
)
from dissectors.problems import BLINDING
from dissectors.zmtp.sockets import PEERS, REQUEST_REPLY, USUAL_PEER
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.analysis.dossier import Dossier, Guess, Guesses, SenderType
from zmtpsniff.analysis.insertions import Problems, inserted
from zmtpsniff.analysis.interruptions import Interruptions
from zmtpsniff.analysis.patterns.batch_parts import BatchParts, has_patterns
from zmtpsniff.analysis.patterns.beacons import BeaconPeers
from zmtpsniff.analysis.patterns.connection_log import ConnectionLog
from zmtpsniff.analysis.patterns.conversation import NO_RULES, Conversation, Room, Rules
from zmtpsniff.analysis.patterns.heartbeats import Heartbeats
from zmtpsniff.analysis.patterns.inference import BoundSockets, Inference, Senders, contradicts
from zmtpsniff.analysis.patterns.lock_step import LockStep
from zmtpsniff.analysis.patterns.pipelines import Pipelines
from zmtpsniff.analysis.patterns.request_reply import RequestReply
from zmtpsniff.analysis.patterns.rulebook import Rulebook
from zmtpsniff.decode_as import DecodeAs, first_match
from zmtpsniff.native import core
from zmtpsniff.net.notices import Delay, Doubt, Notice, Refusal
from zmtpsniff.words.durations import nanoseconds
from zmtpsniff.words.set_clocks import is_due, later

_SETTLE_NS = 1_000_000_000
_IN_PAIRS = attrgetter("in_pairs")
_NOTICES = frozenset(get_args(Notice))
_EARLY_OCTETS = 65_536  # of a connection's events to keep before both sides have said their socket types
_FEW_LOOKS, _PART_LOOKS = 8, 1 / 16  # of a batch: a connection with more closer looks is not paired in columns again
SHORTEST_PAIRED = 16
"""Messages in a row whose pairs are found in columns; fewer are quicker as objects."""
_EVENT_COST = 400  # octets of memory that an event takes beside its content


NO_HORIZONS: Mapping[int, int] = {}


class FlowFacts(NamedTuple):
    """The facts of one flow."""

    conversation: Conversation
    on_message: Callable[[Message], None] | None
    waiting: list[Rules] | None


class Patterns:
    """Takes all events of a capture, in order, and adds to them.

    It adds to an event only while it takes the event's batch. An event does not change after that.
    """

    def __init__(
        self,
        timeout_seconds: float = REPLY_SECONDS,
        rules: Sequence[DecodeAs] = (),
        greeted: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        """Report requests that wait for more than ``timeout_seconds``.

        ``rules`` may declare the type of a bound socket, for connections that do not announce it. ``greeted`` are the
        types that sockets announced before the first event, by their own address and that of the peer.
        """
        self._greeted = dict(greeted or {})
        self._rules_of_user = [rule for rule in rules if rule.socket_type]
        self._senders = Senders()
        self._bound = BoundSockets()
        self._problems = Problems()
        self._room = Room()
        self._conversations: dict[int, Conversation] = {}
        self._on_message: dict[int, Callable[[Message], None]] = {}  # what takes the messages of a flow
        self._waiting: dict[int, list[Rules]] = {}  # rules of a flow that must know that time passes
        self._interruptions = Interruptions()
        self._unseen: dict[int, int] = {}  # flows of which no event came after an interruption: when that began
        self._rulebook = Rulebook(self._problems, self._room, nanoseconds(timeout_seconds))
        self._blinded: set[int] = set()  # connections that lack octets before either side's greeting
        self._connections = ConnectionLog(self._problems)
        self._announced = BeaconPeers()
        self._pipelines = Pipelines()
        self._now_ns = 0
        self._settled_ns = 0
        self._takers: dict[type[AnyEvent | Notice], Callable[[Any], None]] = {  # of what is no message
            Command: self._command,
            Greeting: self._take_greeting,
            Connection: self._take_connection,
            Subscription: self._take_subscription,
            Beacon: self._announced.beacon,
            Problem: self._take_problem,
            Refusal: self._connections.refuse,
            Doubt: self._take_doubt,
            Delay: self._take_delay,
        }

    # ------------------------------------------------------------------ settled flows

    def wants(self, flow: int) -> bool:
        """Whether messages of this flow mean something to each other, so that they come one by one."""
        return flow in self._on_message

    def step(self, flow: int) -> LockStep | None:
        """The lock step of a flow, if its messages mean nothing else to each other."""
        conversation = self._conversations.get(flow)
        if conversation is None or conversation.pings is not None or not isinstance(conversation.rules, LockStep):
            return None
        return conversation.rules

    def pairs(self, flow: int) -> bool:
        """Whether messages of this flow are requests and replies that are paired in columns."""
        conversation = self._conversations.get(flow)
        if conversation is None or conversation.pings is not None or flow not in self._on_message:
            return False
        if conversation.is_odd:
            return False
        return isinstance(conversation.rules, RequestReply | LockStep) and conversation.rules.in_columns

    def _take_columns(self, batch: MessageBatch) -> list[AnyEvent | MessageBatch]:
        """Take a batch of messages. Returns it, with objects for those that patterns take one by one, and problems."""
        few = _stays_in_few if any(map(_IN_PAIRS, batch.senders)) else None
        found: list[AnyEvent | MessageBatch] = []
        for part in batch.split(has_patterns, SHORTEST_PAIRED, few):
            if isinstance(part, MessageBatch):
                found += [part] if few is None else self._pair(part)
                continue
            take = self._on_message.get(part.flow)
            if take is not None:
                take(part)
            found += [part, *(problem for _, problem in self._problems.placed(0))]
        return found

    def _pair(self, batch: MessageBatch) -> list[AnyEvent | MessageBatch]:
        """Pair the messages of a batch. Returns it, with objects for those that need a closer look, and problems."""
        assert core is not None
        forwarding = self._rulebook.forwarding
        found: list[AnyEvent | MessageBatch] = []
        looks: Counter[int] = Counter()  # by flow
        place = 0
        sides = batch.senders[::2]
        while place < len(batch):
            rules = [self._pairing(side) for side in sides]
            facts = tuple(
                None if one is None else _pair_facts(one, side.src, len(batch)) or ()
                for one, side in zip(rules, sides, strict=True)
            )
            begin = place
            place, columns, after = core.pair(
                batch.octets, batch.carried, batch.rows, batch.first_packet, batch.columns, batch.frames, place, facts,
                forwarding.announced, forwarding,
            )  # fmt: skip
            for one, side, fact in zip(rules, sides, after, strict=True):
                if fact is not None and isinstance(one, RequestReply):
                    one.go_on_from(side.src, fact)
                elif fact is not None and isinstance(one, LockStep):
                    one.go_on_from(fact)
            if columns:
                found.append(batch.with_columns(columns))
            # The facts of all connections are gathered again after each closer look. As many messages must pay for it.
            count = 1 if place - begin >= len(sides) else len(sides)
            closer = batch.part(place, place + count).messages()
            flows = {side.flow for one, side in zip(rules, sides, strict=True) if one is not None}
            for message in closer:
                if message.flow in flows and (take := self._on_message.get(message.flow)) is not None:
                    take(message)
                found += [message, *(problem for _, problem in self._problems.placed(0))]
            looks.update(message.flow for message in closer[:1])
            place += count
        for flow, count in looks.items():
            if count > max(_FEW_LOOKS, _PART_LOOKS * len(batch)) and flow in self._conversations:
                self._conversations[flow].is_odd = True
        return found

    def _pairing(self, side: BatchSide) -> Rules | None:
        """The rules that the messages of a flow go to; None if they are as they are."""
        conversation = self._conversations.get(side.flow)
        if not side.in_pairs or conversation is None or side.flow not in self._on_message:
            return None
        return NO_RULES if conversation.pings is not None else conversation.rules

    # ------------------------------------------------------------------ flows that are put aside

    def put_aside(self, flow: int) -> FlowFacts | None:
        """Give the facts of a flow away; None if there are none, or if they must stay here."""
        conversation = self._conversations.get(flow)
        if conversation is None or conversation.pings is not None or not conversation.rules.is_at_rest:
            return None
        del self._conversations[flow]
        return FlowFacts(conversation, self._on_message.pop(flow, None), self._waiting.pop(flow, None))

    def take_up(self, flow: int, facts: FlowFacts) -> None:
        """Take the facts of a flow back."""
        conversation, on_message, waiting = facts
        self._conversations[flow] = conversation
        if on_message is not None:
            self._on_message[flow] = on_message
        if waiting is not None:
            self._waiting[flow] = waiting

    @property
    def common(self) -> Mapping[str, Any]:
        """The objects that facts of several flows refer to, by name; publishers by their addresses."""
        return ChainMap({"patterns": self}, vars(self), vars(self._rulebook), self._rulebook.publishers)

    # ------------------------------------------------------------------ the hot loop

    def take(
        self,
        events: list[AnyEvent],
        horizon_ns: int | None = None,
        notices: Sequence[tuple[int, Notice]] = (),
        horizons: Mapping[int, int] = NO_HORIZONS,
    ) -> list[AnyEvent]:
        """Add to the events of a batch. Returns them with the problems found, each behind its event.

        From ``horizon_ns`` on, events may still be missing, since packets wait for others. ``horizons`` has such times
        of single flows. ``notices`` have their places among the events, as for inserted().
        """
        batch = inserted(events, notices) if notices else events
        instead: dict[int, list[Any]] = {}
        found = list(self._take_each(batch, instead))
        self._report_waiting(batch, horizon_ns, horizons)
        found += self._problems.placed(len(batch))
        if not found and not instead:
            return events
        found_and_old = [event for event in inserted(batch, found) if not isinstance(event, Notice)]
        if instead:
            return [one for event in found_and_old for one in instead.get(id(event), (event,))]
        return found_and_old

    def _take_each(
        self, batch: Sequence[AnyEvent | Notice], instead: dict[int, list[Any]]
    ) -> Iterator[tuple[int, AnyEvent]]:
        """Take the events and the notices of a batch. Yield the problems that are found, each with its place.

        ``instead`` gets, by its identity, the events that stand for each batch of messages that does not stay as it is.
        """
        on_message, takers, problems, unseen = self._on_message, self._takers, self._problems, self._unseen
        place = passed = 0
        alone = None  # the flow of the messages before, if nothing takes those of this flow
        plain = None  # the senders of a batch whose messages nothing takes
        batch_parts = BatchParts(batch, self.wants, self.step, self._rulebook.forwarding)
        for event in batch:
            place += 1
            if unseen:
                self._see(event)
            if type(event) is Message:
                if event.flow is alone:
                    continue
                take = on_message.get(event.flow)
                if take is None:
                    alone = event.flow
                    continue
                take(event)
                alone = None
            elif isinstance(event, MessageBatch):
                if event.senders is not plain:
                    parts = self._take_columns(batch_parts.known(event, place - 1))
                    if parts == [event]:
                        plain = event.senders
                    else:
                        instead[id(event)] = parts
            else:
                alone = None
                is_notice = type(event) in _NOTICES
                if type(event) is Connection and place > 1:
                    self._note_time(batch[place - 2])
                elif is_notice or (type(event) is Problem and event.code in BLINDING):
                    for earlier in batch[passed : place - 1]:
                        if isinstance(earlier, MessageBatch):
                            self._now_ns = max(self._now_ns, earlier.latest_ns)
                        self._note_time(earlier)
                    passed = place - 1
                take_other = takers.get(type(event))
                if take_other is not None:
                    take_other(event)
                if is_notice:
                    self._note_time(event)
            if problems.new:
                yield from problems.placed(place)

    def _report_waiting(
        self, batch: Sequence[AnyEvent | Notice], horizon_ns: int | None, horizons: Mapping[int, int]
    ) -> None:
        """Once a second, report requests and PINGs that have waited for too long."""
        for event in reversed(batch):
            if self._note_time(event):
                break
        now_ns = self._now_ns if horizon_ns is None else min(self._now_ns, horizon_ns)
        if not is_due(now_ns, self._settled_ns + _SETTLE_NS):
            return
        self._settled_ns = now_ns
        for flow, waiting in self._waiting.items():
            sure_ns = min(now_ns, horizons.get(flow, now_ns), self._unseen.get(flow, now_ns))
            for rules in waiting:
                rules.pass_time(sure_ns)
        self._connections.pass_time(min([now_ns, *horizons.values()]))

    def _see(self, event: AnyEvent | Notice | MessageBatch) -> None:
        """Flows of which something comes are captured again after an interruption."""
        if isinstance(event, MessageBatch):
            for side in event.senders:
                self._unseen.pop(side.flow, None)
        elif (flow := getattr(event, "flow", None)) is not None:
            self._unseen.pop(flow, None)

    def _note_time(self, event: AnyEvent | Notice | MessageBatch) -> bool:
        """Take the time of an event as the time now. Returns whether the event has one."""
        time_ns = time_of(event)
        if time_ns is None:
            return False
        is_late = isinstance(event, Connection | Problem)  # it may come long after its time
        self._now_ns = max(self._now_ns, time_ns) if is_late else later(self._now_ns, time_ns)
        return True

    def settle(self, now_ns: int) -> None:
        """It is ``now_ns``, though no event says so. The next batch, even an empty one, reports what waited so long."""
        self._now_ns = later(self._now_ns, now_ns)

    # ------------------------------------------------------------------ what is rare

    def _take_subscription(self, event: Subscription) -> None:
        conversation = self._conversations.get(event.flow)
        if conversation is not None and len(conversation.dossier.types) < 2:
            self._hold_early(conversation, event)
            if conversation.inference is not None:
                self._learn(conversation, conversation.inference.subscription(event))
        elif conversation is not None:
            if conversation.dossier.is_guessed and conversation.dossier.types.get(event.src) == "PULL":
                self._learn(conversation, {event.src: Guess("SUB"), event.dst: Guess("PUB")})
            conversation.rules.subscription(event)

    def _interrupt(self, since_ns: int, until_ns: int) -> None:
        """Nothing was captured for a while: silence until then proves nothing."""
        for flow, waiting in self._waiting.items():
            for rules in waiting:
                rules.pass_time(since_ns)
                rules.excuse(until_ns)
            self._unseen.setdefault(flow, since_ns)

    def _take_problem(self, event: Problem) -> None:
        if self._interruptions.take(event) and event.since_ns is not None and event.time_ns is not None:
            self._interrupt(event.since_ns, event.time_ns)
        if event.code in BLINDING and event.flow is not None:
            if event.flow not in self._conversations:
                if event.code == "no-greeting":
                    self._begin_late(event.flow, event.src or "", event.dst or "")
                else:
                    self._blinded.add(event.flow)
            self._blind(event.flow, event.since_ns or event.time_ns, only_beginning=BLINDING[event.code] == "beginning")

    def _take_doubt(self, notice: Doubt) -> None:
        self._connections.miss(notice.flow)
        self._blind(notice.flow, notice.since_ns or notice.time_ns)

    def _take_delay(self, notice: Delay) -> None:
        self._connections.miss(notice.flow)
        conversation = self._conversations.get(notice.flow)
        if conversation is not None and conversation.pings is not None:
            conversation.pings.pass_time(min(self._now_ns, notice.since_ns))
            conversation.pings.excuse(notice.time_ns)

    def _blind(self, flow: int, since_ns: int | None, *, only_beginning: bool = False) -> None:
        """The capture may lack messages of a connection from ``since_ns`` on, or only where it begins."""
        conversation = self._conversations.get(flow)
        if conversation is None:
            return
        # The result does not depend on where batches end.
        before_ns = self._now_ns if since_ns is None else min(self._now_ns, since_ns)
        for rules in (conversation.rules, None if only_beginning else conversation.pings):
            if rules is not None:
                rules.pass_time(before_ns)
                rules.lose()
        conversation.dossier.blind = True

    def _take_greeting(self, event: Greeting) -> None:
        conversation = self._conversations.get(event.flow)
        if conversation is None:
            conversation = self._conversations[event.flow] = Conversation(Dossier(event.flow))
            conversation.dossier.blind = event.flow in self._blinded
            conversation.dossier.see_version(event)
            self._on_message[event.flow] = partial(self._hold_early, conversation)
            self._connections.greet(event)
            if conversation.dossier.is_untyped:
                self._infer(conversation, event.src, event.dst)
        if conversation.inference is not None and event.identity:
            conversation.inference.name()
        if event.socket_type is not None:
            self._announce(conversation, event)

    def _begin_late(self, flow: int, src: str, dst: str) -> None:
        """Follow a connection that began before the capture, from its first event on."""
        conversation = self._conversations[flow] = Conversation(Dossier(flow))
        conversation.dossier.blind = True
        self._infer(conversation, src, dst)

    def _infer(self, conversation: Conversation, one: str, other: str) -> None:
        """Infer the socket types from the messages, unless the user has declared them."""
        for bound, peer in ((one, other), (other, one)):
            port = port_of(bound)
            rule = first_match(self._rules_of_user, "tcp", port) if port else None
            if rule is not None:
                conversation.dossier.is_declared = True
                usual = USUAL_PEER[rule.socket_type]
                self._learn(conversation, {bound: Guess(rule.socket_type), peer: Guess(usual)})
                return
        conversation.inference = Inference((one, other), self._senders)
        self._choose_takers(conversation)

    def _infer_from(self, conversation: Conversation, event: Message) -> None:
        """Infer the socket types of a connection from one more message."""
        inference = conversation.inference
        if inference is None:
            return
        self._hold_early(conversation, event)
        if conversation.dossier.flow not in self._on_message:  # too much to be remembered: what comes next is enough
            self._choose_takers(conversation)
        guesses = self._types_by_older_files(conversation, event)
        if guesses is not None:
            conversation.dossier.is_declared = True
            self._learn(conversation, guesses)
            _name_sender(conversation.dossier.sender_types, event)
            return
        guesses = self._bound.guesses(event.src, event.dst) or inference.message(event, conversation.dossier.blind)
        if guesses is None and not inference.left:
            guesses = inference.at_end()
            if guesses is None:
                self._give_up(conversation)
        if guesses is not None:
            conversation.patience_ns = inference.patience_ns
            self._learn(conversation, self._bound.settle(guesses))
            _name_sender(conversation.dossier.sender_types, event)

    def _give_up(self, conversation: Conversation) -> None:
        """The messages of a connection do not show its socket types; other connections of the sockets may."""
        conversation.inference = None
        conversation.dossier.guesses = {}
        self._on_message.pop(conversation.dossier.flow, None)
        self._choose_takers(conversation)
        self._forget_early(conversation)

    def _types_by_older_files(self, conversation: Conversation, event: Message) -> Guesses | None:
        """The types of the two sides of a message, as greetings in older files say.

        Frames of one side may be found later than those of the other, so sockets that answer each other must both have
        sent something: from then on a missing reply is none. A connection that lacks its first octets began after those
        files, on addresses that were used before.
        """
        if event.flow in self._blinded:
            return None
        kinds = self._greeted.get((event.src, event.dst)), self._greeted.get((event.dst, event.src))
        if kinds[0] is None or kinds[1] is None:
            return None
        answers = REQUEST_REPLY.issuperset(kinds) or "PAIR" in kinds
        if answers and all(early.src == event.src for early in conversation.dossier.early):
            return None
        return {event.src: Guess(kinds[0]), event.dst: Guess(kinds[1])}

    def _learn(self, conversation: Conversation, guesses: Guesses | None) -> None:
        """The socket types are inferred now."""
        if guesses is None:
            return
        conversation.inference = None
        conversation.dossier.guess(guesses)
        conversation.rules = self._rulebook.rules(conversation.dossier)
        self._on_message.pop(conversation.dossier.flow, None)
        self._choose_takers(conversation)
        # Frames of one side may have been found later than those of the other.
        waiting = conversation.dossier.early
        if all(0 <= early.seen < UNBOUNDED for early in waiting):
            waiting.sort(key=lambda early: early.offset + early.seen)
        self._catch_up(conversation)

    def _command(self, event: Command) -> None:
        conversation = self._conversations.get(event.flow)
        if conversation is None or event.name == "MESSAGE":  # which is encrypted
            return
        if event.socket_type is not None:
            self._announce(conversation, event)
        elif conversation.inference is not None:
            conversation.inference.command(event)
        if event.name in ("PING", "PONG") and not (conversation.awaits_types and conversation.dossier.blind):
            self._take_heartbeat(conversation, event)
        elif conversation.pings is not None:
            conversation.pings.command(event)
        conversation.rules.command(event)

    def _take_heartbeat(self, conversation: Conversation, event: Command) -> None:
        if conversation.awaits_types:  # the capture point is late with what the other side said before
            if conversation.early_octets < _EARLY_OCTETS // 2:
                self._hold_early(conversation, event)
            else:
                conversation.dossier.blind = True
            return
        if conversation.pings is None:
            conversation.pings = Heartbeats(conversation.dossier, self._problems)
            self._choose_takers(conversation)
        conversation.pings.command(event)

    def _announce(self, conversation: Conversation, event: Greeting | Command) -> None:
        dossier = conversation.dossier
        conversation.inference = None
        if not dossier.learn(event) or event.dst not in dossier.types:
            return
        for address, kind in dossier.types.items():
            self._bound.announce(address, kind if kind in PEERS else "")
        self._connections.begin(dossier, event)
        conversation.rules = self._rulebook.rules(conversation.dossier)
        self._choose_takers(conversation)
        if conversation.dossier.early:
            self._catch_up(conversation)

    def _hold_early(self, conversation: Conversation, event: Message | Subscription | Command) -> None:
        """Hold an event until the socket types are known. If there are too many, forget them."""
        octets = _EVENT_COST
        if isinstance(event, Message):
            octets += sum(map(len, map(at_hand, event.frames)))
        else:
            octets += len(at_hand(event.topic if isinstance(event, Subscription) else event.context or b""))
        if conversation.early_octets + octets <= _EARLY_OCTETS and self._room.take(octets):
            conversation.early_octets += octets
            conversation.dossier.early.append(event)
            return
        conversation.dossier.blind = True  # it may be ZMTP 1.0, whose peers never say what they are
        self._on_message.pop(conversation.dossier.flow, None)
        self._forget_early(conversation)

    def _catch_up(self, conversation: Conversation) -> None:
        """Take the events that came before the socket types were known. They have been given out and do not change."""
        take = self._on_message.get(conversation.dossier.flow)
        for early in conversation.dossier.early:
            if isinstance(early, Subscription):
                conversation.rules.subscription(early)
            elif isinstance(early, Command):
                self._take_heartbeat(conversation, copy(early))
                take = self._on_message.get(conversation.dossier.flow)  # heartbeats listen, too
            elif take is not None:
                take(copy(early))
        self._forget_early(conversation)

    def _forget_early(self, conversation: Conversation) -> None:
        conversation.dossier.early.clear()
        self._room.give(conversation.early_octets)
        conversation.early_octets = 0

    def _choose_takers(self, conversation: Conversation) -> None:
        """Choose the parts that take the messages of a connection, and the rules that must know that time passes."""
        calls: list[Callable[[Message], None]] = []
        waiting: list[Rules] = []
        if conversation.inference is not None:
            calls.append(partial(self._infer_from, conversation))
        if conversation.dossier.guesses:
            calls.append(partial(_name_sender, conversation.dossier.sender_types))
        for rules in (conversation.rules, conversation.pings):
            if rules is not None and rules.message is not None:
                calls.append(rules.message)
            if rules is not None and rules.waits:
                waiting.append(rules)
        if waiting:
            self._waiting[conversation.dossier.flow] = waiting
        if len(calls) > 1:
            self._on_message[conversation.dossier.flow] = partial(_call_each, calls)
        elif calls:
            self._on_message[conversation.dossier.flow] = calls[0]
        else:
            self._on_message.pop(conversation.dossier.flow, None)

    # ------------------------------------------------------------------ ending

    def _take_connection(self, event: Connection) -> None:
        conversation = self._conversations.pop(event.flow, None)
        self._on_message.pop(event.flow, None)
        self._waiting.pop(event.flow, None)
        self._unseen.pop(event.flow, None)
        self._blinded.discard(event.flow)
        if self._greeted:  # the next connection of these addresses is another one
            self._greeted.pop((event.client.address, event.server.address), None)
            self._greeted.pop((event.server.address, event.client.address), None)
        self._now_ns = max(self._now_ns, event.end_ns)
        if conversation is not None:
            shown_ns = self._interruptions.shown_until(event.end_ns, self._now_ns)
            if conversation.inference is not None or conversation.dossier.guesses is not None:
                self._add_inferred_types(conversation, event)
                self._senders.end(event)
            conversation.rules.finish(event, shown_ns)
            if conversation.pings is not None:
                conversation.pings.finish(event, shown_ns)
            if conversation.dossier.early:
                self._forget_early(conversation)
        self._connections.end(event, None if conversation is None else conversation.dossier)
        self._announced.end(event)
        if conversation is not None:
            conversation.part()
        self._pipelines.end(event)

    def _add_inferred_types(self, conversation: Conversation, event: Connection) -> None:
        """Add the inferred socket types to the summary, if no later message contradicts them."""
        bound = self._bound.guesses(event.client.address, event.server.address)
        if bound is not None and contradicts(bound, event, ("PULL", "SUB")):
            bound = None  # another program had the port at another time
        dossier = conversation.dossier
        known = dossier.guesses if conversation.inference is None else conversation.inference.at_end()
        guesses = self._bound.settle(known or {}) | (bound or {})
        if not dossier.is_declared and (contradicts(guesses, event) or _asker_spoke_last(conversation, event)):
            return
        for peer in (event.client, event.server):
            if peer.socket_type is None and peer.address in guesses:
                peer.socket_type, peer.lookalike = guesses[peer.address]
                peer.inferred = True

    def finish(self) -> list[AnyEvent]:
        """The capture is over: the records that need the whole capture."""
        return [*(problem for _, problem in self._problems.placed(0)), *self._pipelines.work()]


def _name_sender(kinds: Mapping[str, SenderType], event: Message) -> None:
    """Give a message the type of its sender, which does not announce it."""
    if event.socket_type is None and event.src in kinds:
        event.socket_type, event.inferred, event.lookalike = kinds[event.src]


def _call_each(calls: Sequence[Callable[[Message], None]], event: Message) -> None:
    """Let several parts take a message."""
    for call in calls:
        call(event)


def _stays_in_few(side: BatchSide) -> bool:
    """Whether messages of a side stay in columns where these are few, so that pairing them there does not pay."""
    return not side.in_pairs


def _pair_facts(rules: Rules, client: str, most: int) -> tuple[Any, ...] | None:
    """The facts of a connection before ``most`` messages; None if they need a closer look."""
    if isinstance(rules, LockStep):
        return rules.pair_facts(client)
    return rules.facts(client, most) if isinstance(rules, RequestReply) else None


def _asker_spoke_last(conversation: Conversation, event: Connection) -> bool:
    """Whether the side that seems to ask sent the last message: then it may be the one that answers."""
    asked_ns, patience_ns = conversation.rules.asked_ns, conversation.patience_ns
    if asked_ns is None or patience_ns is None:
        return False
    return event.end != "open" or event.end_ns - asked_ns > patience_ns
