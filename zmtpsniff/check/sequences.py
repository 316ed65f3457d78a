"""Checks the numbers by which a sender counts its messages: holes, repeats, and wrong order.

A sequence is what one counter counted, as far as one receiver can tell. A publisher sends each receiver a copy, so
each connection has a sequence of its own. Other sockets send each message once, and may share them among their
receivers, so all connections of the same bound socket are one sequence. In such a sequence only holes and repeats are
faults: nobody knows in which order packets of different connections were sent.

A hole in the capture ends a sequence, and the next number begins another one.
"""

from collections import defaultdict
from typing import NamedTuple

import msgspec

from dissectors.address import host_of
from dissectors.events import AnyEvent, Connection, Message, Problem, Subscription, at_hand
from dissectors.problems import BLINDING
from dissectors.zmtp.sockets import PUBLISHERS, WITH_TOPICS
from zmtpsniff.check.model import Offence, Outcome, Rule, not_checked
from zmtpsniff.check.numbers import NotAtHandError
from zmtpsniff.check.span import Span
from zmtpsniff.check.trials import Shower, Trial
from zmtpsniff.words.counts import plural

_MOST_SEQUENCES = 50_000
_MOST_HOLES = 1000  # of one sequence that are told apart
_KEPT_OFFENCES = 100
_Key = tuple[int, str, bytes]  # flow (0: all of the sender), sender, topic


class Hole(NamedTuple):
    """Numbers that are missing, from the first to the last of them."""

    first: int
    last: int
    offence: Offence | None

    @property
    def size(self) -> int:
        """How many numbers are missing."""
        return self.last - self.first + 1


class Sequence(msgspec.Struct, eq=False):
    """The numbers of one counter."""

    first: int
    last: int
    is_shared: bool  # its numbers come by several connections
    holes: list[Hole] = []
    is_cut: bool = False  # there were more holes than are told apart
    certain: bool = True  # False: the receiver may not be meant to get all numbers
    open_flows: set[int] = set()
    latest: dict[int, int] = {}  # the last number by each connection that was not closed

    def has(self, value: int) -> bool:
        """Whether a number was seen."""
        return self.first <= value <= self.last and not any(hole.first <= value <= hole.last for hole in self.holes)

    def fill(self, value: int) -> bool:
        """Take a number out of the hole that it is in; whether there is one."""
        for place, hole in enumerate(self.holes):
            if hole.first <= value <= hole.last:
                parts = [hole._replace(last=value - 1), hole._replace(first=value + 1)]
                self.holes[place : place + 1] = [part for part in parts if part.size]
                return True
        return False

    def is_passed(self, hole: Hole) -> bool:
        """Whether no connection can still bring what is missing: each one brings its numbers in order."""
        return all(latest > hole.last for latest in self.latest.values())

    def tear(self, hole: Hole) -> None:
        """Numbers are missing."""
        if len(self.holes) < _MOST_HOLES:
            self.holes.append(hole)
        else:
            self.is_cut = True


class Sequences(Trial):
    """Whether the numbers in messages have no hole and no repeat, and are in order."""

    def __init__(self, rule: Rule, shower: Shower) -> None:
        """The rule says where the numbers are, and who counts: the sender, its connections or its topics."""
        super().__init__(rule, shower)
        assert rule.sequence is not None
        self._sequence = rule.sequence
        self._where = rule.filters[0] if rule.filters else None
        self._running: dict[_Key, Sequence] = {}
        self._of_flow: defaultdict[int, set[_Key]] = defaultdict(set)
        self._ended: list[tuple[_Key, Sequence]] = []
        self._everything: set[int] = set()  # flows whose receiver has subscribed to all topics
        self._numbers = 0
        self._without = 0
        self._repeats = 0
        self._disorder = 0
        self._kept: list[Offence] = []  # of repeats and disorder
        self._made = 0  # offences made for holes, which may close again
        self._is_cut = False

    def take(self, event: AnyEvent) -> None:
        """Look at a record."""
        if type(event) is Message:
            self._take_message(event)
        elif isinstance(event, Subscription):
            if event.action == "subscribe":
                if event.topic == b"":
                    self._everything.add(event.flow)
            else:  # what is not subscribed to is not sent
                self._everything.discard(event.flow)
                self._forget(event.flow)
        elif isinstance(event, Problem) and BLINDING.get(event.code) == "rest" and event.flow is not None:
            self._forget(event.flow)

    def end(self, connection: Connection) -> None:
        """No more numbers come by this connection. A socket's sequence ends with its last connection."""
        self._everything.discard(connection.flow)
        for key in self._of_flow.pop(connection.flow, ()):
            sequence = self._running.get(key)
            if sequence is not None:
                sequence.open_flows.discard(connection.flow)
                if connection.is_closed:
                    sequence.latest.pop(connection.flow, None)
                if not sequence.open_flows:
                    self._ended.append((key, self._running.pop(key)))

    def _take_message(self, event: Message) -> None:
        if event.incomplete:
            self._forget(event.flow)
            return
        if self._where is not None and not self._where(event):
            return
        try:
            value = self._sequence.read(event)
        except NotAtHandError:
            self._forget(event.flow)
            return
        if value is None:
            self._without += 1
            return
        self._numbers += 1
        key = self._key(event)
        sequence = self._running.get(key)
        if sequence is None:
            sequence = self._begin(key, value)
            if sequence is None:
                return
        else:
            self._go_on(sequence, value, event)
        sequence.open_flows.add(event.flow)
        sequence.latest[event.flow] = value
        self._of_flow[event.flow].add(key)
        if event.socket_type is None or event.inferred or self._is_filtered(event):
            sequence.certain = False

    def _key(self, event: Message) -> _Key:
        topic = at_hand(event.frames[0]) if self._sequence.by == "topic" and event.frames else b""
        is_unknown = event.socket_type is None or event.inferred
        own = self._sequence.by == "connection" or is_unknown or event.socket_type in WITH_TOPICS
        return event.flow if own else 0, event.src, topic

    def _is_filtered(self, event: Message) -> bool:
        """Whether the receiver may have subscribed to only a part of the counted messages."""
        if event.socket_type not in PUBLISHERS:
            return False
        return self._sequence.by != "topic" and event.flow not in self._everything

    def _begin(self, key: _Key, value: int) -> Sequence | None:
        if len(self._running) + len(self._ended) >= _MOST_SEQUENCES:
            self._is_cut = True
            return None
        sequence = self._running[key] = Sequence(value, value, is_shared=key[0] == 0)
        return sequence

    def _go_on(self, sequence: Sequence, value: int, event: Message) -> None:
        if value == sequence.last + 1:
            sequence.last = value
        elif value > sequence.last:
            sequence.tear(self._hole(sequence.last + 1, value - 1, event))
            sequence.last = value
        elif sequence.fill(value):
            if not sequence.is_shared:
                self._disorder += 1
                self._keep(event, f"{value} after {sequence.last}")
        elif value < sequence.first and sequence.is_shared:
            if value < sequence.first - 1:
                sequence.tear(self._hole(value + 1, sequence.first - 1, event))
            sequence.first = value
        elif value < sequence.first:
            self._disorder += 1
            self._keep(event, f"{value} after {sequence.last}")
            sequence.first = sequence.last = value  # its sender counts from here on again
            sequence.holes = []
        elif not sequence.is_cut:
            self._repeats += 1
            self._keep(event, f"{value} again")

    def _hole(self, first: int, last: int, event: Message) -> Hole:
        offence = None
        if self._made < self.shown + _KEPT_OFFENCES:
            self._made += 1
            missing = f"{first} is missing" if first == last else f"{first} to {last} are missing"
            offence = self.shower.offence(event, f"{missing} before")
        return Hole(first, last, offence)

    def _keep(self, event: Message, remark: str) -> None:
        if len(self._kept) < self.shown:
            self._kept.append(self.shower.offence(event, remark))

    def _forget(self, flow: int) -> None:
        """Octets of a connection are missing, and perhaps numbers with them."""
        for key in self._of_flow.pop(flow, ()):
            sequence = self._running.pop(key, None)
            if sequence is None:
                continue
            if sequence.is_shared:
                sequence.holes = []  # what is missing in them may have been there
            self._ended.append((key, sequence))

    def finish(self, span: Span) -> Outcome:
        """The outcome."""
        every = [*self._ended, *self._running.items()]
        if not self._numbers:
            return not_checked(self.rule, f"no message has a number at {self._sequence.text}")
        missing, offences, unsure = self._missing(every)
        faults = missing + self._repeats + self._disorder
        counted = f"{plural(self._numbers, 'number')} of {plural(len({key[1] for key, _ in every}), 'sender')}"
        parts = [(missing, "missing"), (self._repeats, "repeated"), (self._disorder, "out of order")]
        told = ", ".join(f"{count:,} {words}" for count, words in parts if count)
        most = self.rule.bounds.most or 0
        if faults > most:
            self.offences = [*offences, *self._kept][: self.shown]
            self.more = max(faults - len(self.offences), 0)
            return self.outcome(False, f"{counted}: {told}")
        if unsure:
            return not_checked(self.rule, unsure)
        return self.outcome(True, f"{counted}: {told or 'none is missing, repeated or out of order'}")

    def _missing(self, every: list[tuple[_Key, Sequence]]) -> tuple[int, list[Offence], str]:
        """How many numbers are missing, where, and why that may not be all."""
        unsure = "there are more sequences than are told apart" if self._is_cut else ""
        others: defaultdict[tuple[str, bytes], list[Sequence]] = defaultdict(list)
        for (_, sender, topic), sequence in every:
            others[host_of(sender), topic].append(sequence)
        count, offences = 0, []
        for (flow, sender, topic), sequence in every:
            if not sequence.certain:
                unsure = unsure or f"what {sender} sends is not all meant for each receiver"
            siblings = others[host_of(sender), topic]
            for hole in sequence.holes:
                if not sequence.certain:
                    continue
                if not sequence.is_passed(hole):
                    continue  # it may be on its way by another connection
                if not flow and any(other is not sequence and _shares(other, hole) for other in siblings):
                    unsure = unsure or f"{sender} may share what it sends among several connections"
                    continue
                count += hole.size
                if hole.offence is not None:
                    offences.append(hole.offence)
        return count, offences, unsure


def _shares(other: Sequence, hole: Hole) -> bool:
    """Whether a number that one sequence lacks is in another sequence of the same host."""
    return other.has(hole.first) or other.has(hole.last)
