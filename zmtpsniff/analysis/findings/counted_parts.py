"""Parts of a batch of messages of which nothing is asked but how many requests and replies they are.

Events of other connections cut a batch into many parts. They change nothing of what is counted, so a batch is counted
at once: before an event of one of its connections comes, or another batch.
"""

from collections.abc import Callable, Mapping, Sequence

from dissectors.batches import BatchSide, MessageBatch, joined_parts
from dissectors.events import AnyEvent
from zmtpsniff.analysis.findings.inquiry import Listener
from zmtpsniff.analysis.findings.unanswered_requests import Requests


class CountedParts:
    """Parts of a batch that wait to be counted together."""

    def __init__(
        self, listeners: Mapping[int, Sequence[Listener]], requests: Requests, follows: Callable[[int], bool]
    ) -> None:
        """``listeners`` are those of each flow, ``follows`` says whether ways take its messages."""
        self._listeners = listeners
        self._requests = requests
        self._follows = follows
        self._parts: list[MessageBatch] = []
        self._senders: list[BatchSide] | None = None  # of the last part, if nothing else is asked of its messages
        self._known: dict[int, Sequence[Listener] | None] = {}  # the listeners of their flows then
        self._counted: set[int] = set()  # flows with requests

    def add(self, part: MessageBatch) -> bool:
        """Add a part. Returns False if more is asked of its messages: it is not added then."""
        is_known = part.senders is self._senders and all(
            self._listeners.get(flow) is listeners and not self._follows(flow)
            for flow, listeners in self._known.items()
        )
        if not is_known:
            self.count()
            self._senders = part.senders if self._is_plain(part.senders) else None
            if self._senders is None:
                return False
        if self._counted:
            if self._parts and self._parts[0].frames is not part.frames:
                self.count()
            self._parts.append(part)
        return True

    def _is_plain(self, senders: Sequence[BatchSide]) -> bool:
        """Whether nothing else is asked of the messages of these senders."""
        self._known = {side.flow: self._listeners.get(side.flow) for side in senders}
        self._counted = {
            flow
            for flow, listeners in self._known.items()
            if listeners is not None and len(listeners) == 1 and self._requests.counts_columns(flow)
        }
        return not any(map(self._follows, self._known)) and all(
            side.flow in self._counted or not (side.in_step or side.in_pairs or self._known[side.flow])
            for side in senders
        )

    def concerns(self, events: Sequence[AnyEvent]) -> bool:
        """Whether one of these events is of a connection of the parts that wait."""
        return bool(self._parts) and any(getattr(event, "flow", None) in self._known for event in events)

    def count(self) -> None:
        """Count the parts that wait."""
        if self._parts:
            (whole,) = joined_parts(self._parts)
            self._requests.take_columns(whole, self._counted)
            self._parts = []
