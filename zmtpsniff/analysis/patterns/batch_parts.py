"""Parts of batches of messages, with what is known of their senders when the parts come.

The core makes batches before patterns have taken earlier events of the same block. So handshakes and requests may have
come meanwhile that say more of the senders than the batch does.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, islice, takewhile
from operator import attrgetter
from typing import Any

from dissectors.batches import BatchSide, MessageBatch
from zmtpsniff.analysis.patterns.conversations import Conversations
from zmtpsniff.analysis.patterns.lock_step import LockStep
from zmtpsniff.analysis.patterns.proxies import Proxies
from zmtpsniff.native import core

has_patterns = attrgetter("has_patterns")


class BatchParts:
    """The parts of batches among some events."""

    def __init__(self, events: Sequence[object], conversations: Conversations, forwarding: Proxies) -> None:
        """``conversations`` know which messages mean something to each other."""
        self._events = events
        self._conversations = conversations
        self._forwarding = forwarding
        self._frames: bytes | None = None  # of the batch whose part came last
        self._in_step: dict[int, MessageBatch] = {}  # instead of its parts, by their identities
        self._senders: list[BatchSide] = []  # of the last part: parts that share their senders are quicker to take

    def known(self, part: MessageBatch, place: int) -> MessageBatch:
        """The part of a batch that is at ``place``, as its senders are known now."""
        if all(map(has_patterns, part.senders)):
            return part
        if part.frames is not self._frames:
            self._frames = part.frames
            later = (one for one in islice(self._events, place, None) if isinstance(one, MessageBatch))
            self._in_step = self._keep_steps([*takewhile(lambda one: one.frames is part.frames, later)])
        part = self._in_step.get(id(part), part)
        senders = [
            side if side.has_patterns or self._conversations.wants(side.flow) else side.as_paired()
            for side in part.senders
        ]
        if senders == part.senders:
            return part
        if senders != self._senders:
            self._senders = senders
        return part.with_senders(self._senders)

    def _keep_steps(self, parts: Sequence[MessageBatch]) -> dict[int, MessageBatch]:
        """Pair all messages between a REQ and a REP that keep step. Returns the parts that have them, by the old ones.

        No other events of these flows come between the parts, and those of other flows change nothing. So all parts are
        taken together.
        """
        assert core is not None
        whole, senders = parts[0], parts[0].senders
        steps = [None if side.has_patterns else self._direct_step(side.flow) for side in senders[::2]]
        facts = tuple(
            None if step is None else step.pair_facts(side.src) for step, side in zip(steps, senders[::2], strict=True)
        )
        if not any(facts):
            return {}
        columns, stop, after = b"", -1, list[Any]()
        while stop < len(whole):
            if stop >= 0:  # a message needs a closer look: its part, and those behind it, come one by one
                parts = parts[: bisect_right([*accumulate(map(len, parts))], stop)]
            whole = whole.with_columns(b"".join(part.columns for part in parts))
            stop, columns, after = core.pair(
                whole.octets, whole.carried, whole.rows, whole.first_packet, whole.columns, whole.frames, 0, facts,
                self._forwarding.announced, self._forwarding,
            )  # fmt: skip
        for step, fact in zip(steps, after, strict=True):
            if step is not None and fact is not None:
                step.go_on_from(fact)
        in_step = [side if facts[place // 2] is None else side.as_step() for place, side in enumerate(senders)]
        found, begin = {}, 0
        for part in parts:
            end = begin + len(part.columns)
            found[id(part)] = part.with_columns(columns[begin:end]).with_senders(in_step)
            begin = end
        return found

    def _direct_step(self, flow: int) -> LockStep | None:
        """The lock step of a flow that no proxy passes on."""
        step = self._conversations.step(flow) if self._conversations.wants(flow) else None
        return step if step is not None and step.is_direct else None
