"""Pairs of requests and replies in batches of messages: the core finds most of them, objects the rest."""

from collections import Counter
from operator import attrgetter
from typing import Any

from dissectors.batches import BatchSide, MessageBatch
from dissectors.events import AnyEvent
from zmtpsniff.analysis.insertions import Problems
from zmtpsniff.analysis.patterns.batch_parts import has_patterns
from zmtpsniff.analysis.patterns.conversation import NO_RULES, Rules
from zmtpsniff.analysis.patterns.conversations import Conversations
from zmtpsniff.analysis.patterns.lock_step import LockStep
from zmtpsniff.analysis.patterns.proxies import Proxies
from zmtpsniff.analysis.patterns.request_reply import RequestReply
from zmtpsniff.native import core

_IN_PAIRS = attrgetter("in_pairs")
_FEW_LOOKS, _PART_LOOKS = 8, 1 / 16  # of a batch: a connection with more closer looks is not paired in columns again
SHORTEST_PAIRED = 16
"""Messages in a row whose pairs are found in columns; fewer are quicker as objects."""


class ColumnPairs:
    """Pairs the messages of batches, by the rules of their conversations."""

    def __init__(self, conversations: Conversations, forwarding: Proxies, problems: Problems) -> None:
        """``forwarding`` follows messages through proxies, ``problems`` gets what rules report."""
        self._conversations = conversations
        self._forwarding = forwarding
        self._problems = problems

    def take(self, batch: MessageBatch) -> list[AnyEvent | MessageBatch]:
        """Take a batch of messages. Returns it, with objects for those that patterns take one by one, and problems."""
        few = _stays_in_few if any(map(_IN_PAIRS, batch.senders)) else None
        found: list[AnyEvent | MessageBatch] = []
        for part in batch.split(has_patterns, SHORTEST_PAIRED, few):
            if isinstance(part, MessageBatch):
                found += [part] if few is None else self._pair(part)
                continue
            take = self._conversations.on_message.get(part.flow)
            if take is not None:
                take(part)
            found += [part, *(problem for _, problem in self._problems.placed(0))]
        return found

    def _pair(self, batch: MessageBatch) -> list[AnyEvent | MessageBatch]:
        """Pair the messages of a batch. Returns it, with objects for those that need a closer look, and problems."""
        assert core is not None
        forwarding = self._forwarding
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
                if message.flow in flows and (take := self._conversations.on_message.get(message.flow)) is not None:
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
        if not side.in_pairs or conversation is None or side.flow not in self._conversations.on_message:
            return None
        return NO_RULES if conversation.pings is not None else conversation.rules


def _stays_in_few(side: BatchSide) -> bool:
    """Whether messages of a side stay in columns where these are few, so that pairing them there does not pay."""
    return not side.in_pairs


def _pair_facts(rules: Rules, client: str, most: int) -> tuple[Any, ...] | None:
    """The facts of a connection before ``most`` messages; None if they need a closer look."""
    if isinstance(rules, LockStep):
        return rules.pair_facts(client)
    return rules.facts(client, most) if isinstance(rules, RequestReply) else None
