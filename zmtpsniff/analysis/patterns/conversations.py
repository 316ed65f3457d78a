"""The connections that last, and how each learns its socket types.

Theory
------

The rules of a connection follow from the socket types of its two sides. These become known in one of four ways:

- Both sides *announce* them, in a greeting of ZMTP 2.0 or in READY.
- The user *declares* the type of a bound port, and the peer has the usual one.
- Greetings in *older files* have them: the connection goes on from there.
- They are *inferred* from the messages, once these leave one pair of types.

Until then, events are held. Once the types are known, the rules take them, as far as the limits allow. If too much came
before, it is forgotten: then the connection counts as one of which the capture lacks something.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import NamedTuple

from dissectors.address import port_of
from dissectors.events import UNBOUNDED, Command, Connection, Greeting, Message, Subscription, at_hand
from dissectors.zmtp.sockets import PEERS, REQUEST_REPLY, USUAL_PEER
from zmtpsniff.analysis.dossier import Dossier, Guess, Guesses, SenderType
from zmtpsniff.analysis.insertions import Problems
from zmtpsniff.analysis.patterns.connection_log import ConnectionLog
from zmtpsniff.analysis.patterns.conversation import Conversation, Room, Rules
from zmtpsniff.analysis.patterns.heartbeats import Heartbeats
from zmtpsniff.analysis.patterns.inference import BoundSockets, Inference, Senders, contradicts
from zmtpsniff.analysis.patterns.lock_step import LockStep
from zmtpsniff.analysis.patterns.request_reply import RequestReply
from zmtpsniff.analysis.patterns.rulebook import Rulebook
from zmtpsniff.decode_as import DecodeAs, first_match

_EARLY_OCTETS = 65_536  # of a connection's events to keep before both sides have said their socket types
_EVENT_COST = 400  # octets of memory that an event takes beside its content


class FlowFacts(NamedTuple):
    """The facts of one flow."""

    conversation: Conversation
    on_message: Callable[[Message], None] | None
    waiting: list[Rules] | None


class Conversations(dict[int, Conversation]):
    """The conversations of connections, by flow, and the parts that take their messages."""

    def __init__(
        self,
        rulebook: Rulebook,
        log: ConnectionLog,
        problems: Problems,
        room: Room,
        rules: Sequence[DecodeAs],
        greeted: Mapping[tuple[str, str], str],
    ) -> None:
        """``rulebook`` makes the rules, ``log`` learns of handshakes, early events take ``room``.

        ``rules`` of the user may declare types; ``greeted`` has those that sockets announced in older files, by their
        own address and that of the peer.
        """
        super().__init__()
        self.on_message: dict[int, Callable[[Message], None]] = {}
        """The part that takes the messages of a flow."""
        self.waiting: dict[int, list[Rules]] = {}
        """Rules of a flow that must know that time passes."""
        self._rulebook = rulebook
        self._log = log
        self._problems = problems
        self._room = room
        self._rules_of_user = [rule for rule in rules if rule.socket_type]
        self._greeted = dict(greeted)
        self._senders = Senders()
        self._bound = BoundSockets()
        self._blinded: set[int] = set()  # connections that lack octets before either side's greeting

    def wants(self, flow: int) -> bool:
        """Whether messages of this flow mean something to each other, so that they come one by one."""
        return flow in self.on_message

    def step(self, flow: int) -> LockStep | None:
        """The lock step of a flow, if its messages mean nothing else to each other."""
        conversation = self.get(flow)
        if conversation is None or conversation.pings is not None or not isinstance(conversation.rules, LockStep):
            return None
        return conversation.rules

    def pairs(self, flow: int) -> bool:
        """Whether messages of this flow are requests and replies that are paired in columns."""
        conversation = self.get(flow)
        if conversation is None or conversation.pings is not None or flow not in self.on_message:
            return False
        if conversation.is_odd:
            return False
        return isinstance(conversation.rules, RequestReply | LockStep) and conversation.rules.in_columns

    def greet(self, event: Greeting) -> None:
        """A side of a connection greets: follow the connection from now on, and learn the type that it announces."""
        conversation = self.get(event.flow)
        if conversation is None:
            conversation = self[event.flow] = Conversation(Dossier(event.flow))
            conversation.dossier.blind = event.flow in self._blinded
            conversation.dossier.see_version(event)
            self.on_message[event.flow] = partial(self.hold_early, conversation)
            self._log.greet(event)
            if conversation.dossier.is_untyped:
                self._infer(conversation, event.src, event.dst)
        if conversation.inference is not None and event.identity:
            conversation.inference.name()
        if event.socket_type is not None:
            self.announce(conversation, event)

    def begin_late(self, flow: int, src: str, dst: str) -> None:
        """Follow a connection that began before the capture, from its first event on."""
        conversation = self[flow] = Conversation(Dossier(flow))
        conversation.dossier.blind = True
        self._infer(conversation, src, dst)

    def miss_beginning(self, flow: int) -> None:
        """The capture lacks octets of a connection from before either side's greeting."""
        self._blinded.add(flow)

    def _infer(self, conversation: Conversation, one: str, other: str) -> None:
        """Infer the socket types from the messages, unless the user has declared them."""
        for bound, peer in ((one, other), (other, one)):
            port = port_of(bound)
            rule = first_match(self._rules_of_user, "tcp", port) if port else None
            if rule is not None:
                conversation.dossier.is_declared = True
                usual = USUAL_PEER[rule.socket_type]
                self.learn(conversation, {bound: Guess(rule.socket_type), peer: Guess(usual)})
                return
        conversation.inference = Inference((one, other), self._senders)
        self._choose_takers(conversation)

    def _infer_from(self, conversation: Conversation, event: Message) -> None:
        """Infer the socket types of a connection from one more message."""
        inference = conversation.inference
        if inference is None:
            return
        self.hold_early(conversation, event)
        if conversation.dossier.flow not in self.on_message:  # too much to be remembered: what comes next is enough
            self._choose_takers(conversation)
        guesses = self._types_by_older_files(conversation, event)
        if guesses is not None:
            conversation.dossier.is_declared = True
            self.learn(conversation, guesses)
            _name_sender(conversation.dossier.sender_types, event)
            return
        guesses = self._bound.guesses(event.src, event.dst) or inference.message(event, conversation.dossier.blind)
        if guesses is None and not inference.left:
            guesses = inference.at_end()
            if guesses is None:
                self._give_up(conversation)
        if guesses is not None:
            conversation.patience_ns = inference.patience_ns
            self.learn(conversation, self._bound.settle(guesses))
            _name_sender(conversation.dossier.sender_types, event)

    def _give_up(self, conversation: Conversation) -> None:
        """The messages of a connection do not show its socket types; other connections of the sockets may."""
        conversation.inference = None
        conversation.dossier.guesses = {}
        self.on_message.pop(conversation.dossier.flow, None)
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

    def learn(self, conversation: Conversation, guesses: Guesses | None) -> None:
        """The socket types are inferred now."""
        if guesses is None:
            return
        conversation.inference = None
        conversation.dossier.guess(guesses)
        conversation.rules = self._rulebook.rules(conversation.dossier)
        self.on_message.pop(conversation.dossier.flow, None)
        self._choose_takers(conversation)
        # Frames of one side may have been found later than those of the other.
        waiting = conversation.dossier.early
        if all(0 <= early.seen < UNBOUNDED for early in waiting):
            waiting.sort(key=lambda early: early.offset + early.seen)
        self._catch_up(conversation)

    def take_heartbeat(self, conversation: Conversation, event: Command) -> None:
        """Hand over a PING or a PONG. It is held if it comes before both sides have announced their types."""
        if conversation.awaits_types:  # the capture point is late with what the other side said before
            if conversation.early_octets < _EARLY_OCTETS // 2:
                self.hold_early(conversation, event)
            else:
                conversation.dossier.blind = True
            return
        if conversation.pings is None:
            conversation.pings = Heartbeats(conversation.dossier, self._problems)
            self._choose_takers(conversation)
        conversation.pings.command(event)

    def announce(self, conversation: Conversation, event: Greeting | Command) -> None:
        """A side announces its type. Once both have done so, the rules take the events that were held."""
        dossier = conversation.dossier
        conversation.inference = None
        if not dossier.learn(event) or event.dst not in dossier.types:
            return
        for address, kind in dossier.types.items():
            self._bound.announce(address, kind if kind in PEERS else "")
        self._log.begin(dossier, event)
        conversation.rules = self._rulebook.rules(conversation.dossier)
        self._choose_takers(conversation)
        if conversation.dossier.early:
            self._catch_up(conversation)

    def hold_early(self, conversation: Conversation, event: Message | Subscription | Command) -> None:
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
        self.on_message.pop(conversation.dossier.flow, None)
        self._forget_early(conversation)

    def _catch_up(self, conversation: Conversation) -> None:
        """Take the events that came before the socket types were known. They have been given out and do not change."""
        take = self.on_message.get(conversation.dossier.flow)
        for early in conversation.dossier.early:
            if isinstance(early, Subscription):
                conversation.rules.subscription(early)
            elif isinstance(early, Command):
                self.take_heartbeat(conversation, copy(early))
                take = self.on_message.get(conversation.dossier.flow)  # heartbeats listen, too
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
            self.waiting[conversation.dossier.flow] = waiting
        if len(calls) > 1:
            self.on_message[conversation.dossier.flow] = partial(_call_each, calls)
        elif calls:
            self.on_message[conversation.dossier.flow] = calls[0]
        else:
            self.on_message.pop(conversation.dossier.flow, None)

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

    def end(self, event: Connection) -> Conversation | None:
        """A connection is over. Its summary gets the socket types that are inferred. Return its conversation."""
        flow = event.flow
        self.on_message.pop(flow, None)
        self.waiting.pop(flow, None)
        self._blinded.discard(flow)
        if self._greeted:  # the next connection of these addresses is another one
            self._greeted.pop((event.client.address, event.server.address), None)
            self._greeted.pop((event.server.address, event.client.address), None)
        conversation = self.pop(flow, None)
        if conversation is None:
            return None
        if conversation.inference is not None or conversation.dossier.guesses is not None:
            self._add_inferred_types(conversation, event)
            self._senders.end(event)
        if conversation.dossier.early:
            self._forget_early(conversation)
        return conversation

    def put_aside(self, flow: int) -> FlowFacts | None:
        """Give the facts of a flow away; None if there are none, or if they must stay here."""
        conversation = self.get(flow)
        if conversation is None or conversation.pings is not None or not conversation.rules.is_at_rest:
            return None
        del self[flow]
        return FlowFacts(conversation, self.on_message.pop(flow, None), self.waiting.pop(flow, None))

    def take_up(self, flow: int, facts: FlowFacts) -> None:
        """Take the facts of a flow back."""
        conversation, on_message, waiting = facts
        self[flow] = conversation
        if on_message is not None:
            self.on_message[flow] = on_message
        if waiting is not None:
            self.waiting[flow] = waiting


def _name_sender(kinds: Mapping[str, SenderType], event: Message) -> None:
    """Give a message the type of its sender, which does not announce it."""
    if event.socket_type is None and event.src in kinds:
        event.socket_type, event.inferred, event.lookalike = kinds[event.src]


def _call_each(calls: Sequence[Callable[[Message], None]], event: Message) -> None:
    """Let several parts take a message."""
    for call in calls:
        call(event)


def _asker_spoke_last(conversation: Conversation, event: Connection) -> bool:
    """Whether the side that seems to ask sent the last message: then it may be the one that answers."""
    asked_ns, patience_ns = conversation.rules.asked_ns, conversation.patience_ns
    if asked_ns is None or patience_ns is None:
        return False
    return event.end != "open" or event.end_ns - asked_ns > patience_ns
