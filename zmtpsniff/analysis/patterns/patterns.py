"""The stage of patterns: it hands the events of each connection to the rules of its socket types."""

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from dissectors.batches import MessageBatch
from dissectors.events import (
    AnyEvent,
    Beacon,
    Command,
    Connection,
    Greeting,
    Message,
    Problem,
    Subscription,
    time_of,
)
from dissectors.problems import BLINDING
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.analysis.dossier import Guess
from zmtpsniff.analysis.insertions import Problems, inserted
from zmtpsniff.analysis.interruptions import Interruptions
from zmtpsniff.analysis.patterns.batch_parts import BatchParts
from zmtpsniff.analysis.patterns.beacons import BeaconPeers
from zmtpsniff.analysis.patterns.column_pairs import ColumnPairs
from zmtpsniff.analysis.patterns.connection_log import ConnectionLog
from zmtpsniff.analysis.patterns.conversation import Room
from zmtpsniff.analysis.patterns.conversations import Conversations
from zmtpsniff.analysis.patterns.pipelines import Pipelines
from zmtpsniff.analysis.patterns.rulebook import Rulebook
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.net.notices import Delay, Doubt, Notice, Refusal
from zmtpsniff.words.durations import nanoseconds
from zmtpsniff.words.set_clocks import is_due, later

_SETTLE_NS = 1_000_000_000
_NOTICES = frozenset(get_args(Notice))


NO_HORIZONS: Mapping[int, int] = {}


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
        self._problems = Problems()
        self._room = Room()
        self._interruptions = Interruptions()
        self._unseen: dict[int, int] = {}  # flows of which no event came after an interruption: when that began
        self._rulebook = Rulebook(self._problems, self._room, nanoseconds(timeout_seconds))
        self._connections = ConnectionLog(self._problems)
        self.conversations = Conversations(
            self._rulebook, self._connections, self._problems, self._room, rules, greeted or {}
        )
        self._column_pairs = ColumnPairs(self.conversations, self._rulebook.forwarding, self._problems)
        self._announced = BeaconPeers()
        self._pipelines = Pipelines()
        self._now_ns = 0
        self._settled_ns = 0
        self._takers: dict[type[AnyEvent | Notice], Callable[[Any], None]] = {  # of what is no message
            Command: self._command,
            Greeting: self.conversations.greet,
            Connection: self._take_connection,
            Subscription: self._take_subscription,
            Beacon: self._announced.beacon,
            Problem: self._take_problem,
            Refusal: self._connections.refuse,
            Doubt: self._take_doubt,
            Delay: self._take_delay,
        }

    @property
    def common(self) -> Mapping[str, Any]:
        """The objects that facts of several flows refer to, by name; publishers by their addresses."""
        parts = (vars(part) for part in (self, self.conversations, self._rulebook))
        return ChainMap({"patterns": self}, *parts, self._rulebook.publishers)

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
        on_message, takers = self.conversations.on_message, self._takers
        problems, unseen = self._problems, self._unseen
        place = passed = 0
        alone = None  # the flow of the messages before, if nothing takes those of this flow
        plain = None  # the senders of a batch whose messages nothing takes
        batch_parts = BatchParts(batch, self.conversations, self._rulebook.forwarding)
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
                    parts = self._column_pairs.take(batch_parts.known(event, place - 1))
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
        for flow, waiting in self.conversations.waiting.items():
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
        conversation = self.conversations.get(event.flow)
        if conversation is not None and len(conversation.dossier.types) < 2:
            self.conversations.hold_early(conversation, event)
            if conversation.inference is not None:
                self.conversations.learn(conversation, conversation.inference.subscription(event))
        elif conversation is not None:
            if conversation.dossier.is_guessed and conversation.dossier.types.get(event.src) == "PULL":
                self.conversations.learn(conversation, {event.src: Guess("SUB"), event.dst: Guess("PUB")})
            conversation.rules.subscription(event)

    def _interrupt(self, since_ns: int, until_ns: int) -> None:
        """Nothing was captured for a while: silence until then proves nothing."""
        for flow, waiting in self.conversations.waiting.items():
            for rules in waiting:
                rules.pass_time(since_ns)
                rules.excuse(until_ns)
            self._unseen.setdefault(flow, since_ns)

    def _take_problem(self, event: Problem) -> None:
        if self._interruptions.take(event) and event.since_ns is not None and event.time_ns is not None:
            self._interrupt(event.since_ns, event.time_ns)
        if event.code in BLINDING and event.flow is not None:
            if event.flow not in self.conversations:
                if event.code == "no-greeting":
                    self.conversations.begin_late(event.flow, event.src or "", event.dst or "")
                else:
                    self.conversations.miss_beginning(event.flow)
            self._blind(event.flow, event.since_ns or event.time_ns, only_beginning=BLINDING[event.code] == "beginning")

    def _take_doubt(self, notice: Doubt) -> None:
        self._connections.miss(notice.flow)
        self._blind(notice.flow, notice.since_ns or notice.time_ns)

    def _take_delay(self, notice: Delay) -> None:
        self._connections.miss(notice.flow)
        conversation = self.conversations.get(notice.flow)
        if conversation is not None and conversation.pings is not None:
            conversation.pings.pass_time(min(self._now_ns, notice.since_ns))
            conversation.pings.excuse(notice.time_ns)

    def _blind(self, flow: int, since_ns: int | None, *, only_beginning: bool = False) -> None:
        """The capture may lack messages of a connection from ``since_ns`` on, or only where it begins."""
        conversation = self.conversations.get(flow)
        if conversation is None:
            return
        # The result does not depend on where batches end.
        before_ns = self._now_ns if since_ns is None else min(self._now_ns, since_ns)
        for rules in (conversation.rules, None if only_beginning else conversation.pings):
            if rules is not None:
                rules.pass_time(before_ns)
                rules.lose()
        conversation.dossier.blind = True

    def _command(self, event: Command) -> None:
        conversation = self.conversations.get(event.flow)
        if conversation is None or event.name == "MESSAGE":  # which is encrypted
            return
        if event.socket_type is not None:
            self.conversations.announce(conversation, event)
        elif conversation.inference is not None:
            conversation.inference.command(event)
        if event.name in ("PING", "PONG") and not (conversation.awaits_types and conversation.dossier.blind):
            self.conversations.take_heartbeat(conversation, event)
        elif conversation.pings is not None:
            conversation.pings.command(event)
        conversation.rules.command(event)

    # ------------------------------------------------------------------ ending

    def _take_connection(self, event: Connection) -> None:
        conversation = self.conversations.end(event)
        self._unseen.pop(event.flow, None)
        self._now_ns = max(self._now_ns, event.end_ns)
        if conversation is not None:
            shown_ns = self._interruptions.shown_until(event.end_ns, self._now_ns)
            conversation.rules.finish(event, shown_ns)
            if conversation.pings is not None:
                conversation.pings.finish(event, shown_ns)
        self._connections.end(event, None if conversation is None else conversation.dossier)
        self._announced.end(event)
        if conversation is not None:
            conversation.part()
        self._pipelines.end(event)

    def finish(self) -> list[AnyEvent]:
        """The capture is over: the records that need the whole capture."""
        return [*(problem for _, problem in self._problems.placed(0)), *self._pipelines.work()]
