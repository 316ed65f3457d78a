"""Conversations to show in a report: for each kind of connection one with problems and the busiest one, in parts."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dissectors.events import (
    AnyEvent,
    Command,
    Connection,
    Greeting,
    Message,
    Problem,
    Severity,
    Subscription,
)
from zmtpsniff.analysis.statistics.severities import Severities, add_severities, worst
from zmtpsniff.analysis.statistics.stats_records import record_of
from zmtpsniff.render.steps import step_words
from zmtpsniff.report.results import ReportConversation, ReportStep

_FOLLOWED = 500  # connections at a time
_FIRST = 20  # steps of a connection
_LAST = 8
_FAULTS = 8  # beyond these
_KINDS = 200  # of connections
_TOLD = 12
_OCTETS = 60  # of a frame
_CHARACTERS = 200  # of a step
_RANKS: dict[Severity | None, int] = {"error": 3, "warning": 2, "note": 0, None: 0}

_StepEvent = Message | Command | Greeting | Subscription | Problem


@dataclass(slots=True)
class _Trace:
    """The state of a connection while it lasts."""

    count: int = 0
    first: list[tuple[int, _StepEvent]] = field(default_factory=list)
    last: deque[tuple[int, _StepEvent]] = field(default_factory=lambda: deque(maxlen=_LAST))
    faults: list[tuple[int, _StepEvent]] = field(default_factory=list)
    problems: Severities = field(default_factory=dict)

    def add(self, event: _StepEvent) -> None:
        """Keep an event if it is among the first, the last, or the faults."""
        self.count += 1
        if isinstance(event, Problem):
            add_severities(self.problems, {event.severity: 1})
        if self.count <= _FIRST:
            self.first.append((self.count, event))
        elif isinstance(event, Problem) and len(self.faults) < _FAULTS:
            self.faults.append((self.count, event))
        else:
            self.last.append((self.count, event))


@dataclass(slots=True)
class _Candidates:
    """The connections of one kind that the report may show."""

    faulty: ReportConversation | None = None
    busy: ReportConversation | None = None

    def offer(self, conversation: ReportConversation) -> None:
        """Take a conversation if it says more than the one that there is."""
        if _faultiness(conversation) > (0, 0) and (
            self.faulty is None or _faultiness(conversation) > _faultiness(self.faulty)
        ):
            self.faulty = conversation
        if self.busy is None or conversation.messages > self.busy.messages:
            self.busy = conversation


class ChosenConversations:
    """Takes all events of captures in batches, and keeps a few conversations of them."""

    def __init__(self, show_secrets: bool = False) -> None:
        """Start with none; passwords are left out unless ``show_secrets``."""
        self._show_secrets = show_secrets
        self._traces: dict[int, _Trace] = {}
        self._kinds: dict[tuple[str, str | None, str | None], _Candidates] = {}

    def take(self, events: Sequence[AnyEvent], keep: Callable[[AnyEvent], bool] | None = None) -> None:
        """Follow a batch of events; with ``keep`` only those for which it is true."""
        for event in events:
            if isinstance(event, Connection):
                trace = self._traces.pop(event.flow, None)
                if trace is not None:
                    self._end(event, trace)
            elif isinstance(event, _StepEvent) and event.flow is not None and (keep is None or keep(event)):
                trace = self._traces.get(event.flow)
                if trace is None:
                    if len(self._traces) >= _FOLLOWED:
                        continue
                    trace = self._traces[event.flow] = _Trace()
                trace.add(event)

    def told(self, most: int = _TOLD) -> list[ReportConversation]:
        """The conversations to show: for each kind the one with the worst problems first, or the busiest."""
        first = [kind.faulty or kind.busy for kind in self._kinds.values()]
        second = [kind.busy for kind in self._kinds.values() if kind.busy is not kind.faulty and kind.faulty]
        chosen: list[ReportConversation] = []
        for row in (first, second):
            found = [conversation for conversation in row if conversation is not None]
            chosen += sorted(found, key=lambda one: (_RANKS[worst(one.problems)], one.messages), reverse=True)
        return chosen[:most]

    def _end(self, event: Connection, trace: _Trace) -> None:
        kind = (event.server.address, event.client.type_name, event.server.type_name)
        candidates = self._kinds.get(kind)
        if candidates is None:
            if len(self._kinds) >= _KINDS:
                return
            candidates = self._kinds[kind] = _Candidates()
        candidates.offer(self._conversation(event, trace))

    def _conversation(self, event: Connection, trace: _Trace) -> ReportConversation:
        conversation = record_of(
            ReportConversation,
            event,
            client=event.client.address,
            server=event.server.address,
            messages=event.messages.client + event.messages.server,
            client_socket_type=event.client.type_name,
            server_socket_type=event.server.type_name,
            problems=trace.problems,
        )
        before = 0
        for place, step in sorted([*trace.first, *trace.faults, *trace.last], key=lambda each: each[0]):
            conversation.steps.append(self._step(event, step, place - before - 1))
            before = place
        return conversation

    def _step(self, connection: Connection, event: _StepEvent, left_out: int) -> ReportStep:
        text = step_words(event, _OCTETS, self._show_secrets) or ""
        is_from_client = event.src == connection.client.address if event.src is not None else None
        return ReportStep(
            time_ns=connection.start_ns if event.time_ns is None else event.time_ns,
            kind=event.__struct_config__.tag,  # type: ignore[arg-type]  # one of those that step_words() knows
            text=text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…",
            packet=event.packet,
            is_from_client=is_from_client,
            left_out=left_out,
            severity=event.severity if isinstance(event, Problem) else None,
        )


def _faultiness(conversation: ReportConversation) -> tuple[int, int]:
    rank = _RANKS[worst(conversation.problems)]
    return rank, sum(conversation.problems.values()) if rank else 0
