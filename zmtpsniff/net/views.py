"""Connections that several capture files have with different addresses, since NAT is between the capture points.

Theory
------

NAT changes addresses and ports, and keeps TCP's numbers. A segment's sequence and acknowledgment numbers count from two
numbers that both ends drew at random (RFC 6528). Two connections that have the same pair of numbers, several times in
each direction, are two *views* of one connection. Where both views have octets at the same numbers, these must be
equal, too. Small numbers prove nothing: programs that make captures up begin with these.

Each end has its own address in the view from its own side of the NAT. A segment leaves the sender's side first. So the
first view that has it names its sender, and the last one names its receiver. Which is first does not depend on clocks:
what goes there seems to take ``way + s`` if the other clock is ahead by *s*, and what comes back ``s - way``. Segments
of the two directions that come close to each other are compared, since clocks drift.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations, permutations
from statistics import median
from typing import NamedTuple

from zmtpsniff.net.addresses import are_of_other_hosts, composed, end_of, host_of_end, reverse
from zmtpsniff.net.segment import ACK, SYN, Segment

LEAST_NUMBER = 1 << 16
_LEAST = 2  # pairs of numbers in each direction
_PLAIN = 256  # numbers of a direction from which on a sample is kept
_SAMPLE = 0x0F00  # bits of a mixed number that are 0 in the sample
_MIX = 0x9E3779B1  # makes all bits of a number count (Knuth)
_OCTETS = 32  # of each segment that are compared
_MOST_VIEWS = 8  # keys of one pair of numbers, or of a connection; more are there because somebody made them up
_LEAST_ATTEMPTS = 3  # to connect, each with another number
_CERTAIN_NS = 1000  # a way that takes less says nothing of which view is first

_Numbers = dict[tuple[int, int], tuple[int, bytes]]
"""By sequence and acknowledgment number: when the first segment with both came, and its first octets."""
_Facts = tuple[int | None, int | None, int | None]
"""Those of an AddressAlias behind its key."""


class AddressAlias(NamedTuple):
    """A direction of a connection that has other addresses elsewhere."""

    key: bytes  # that of the direction as it is known everywhere
    seq: int | None  # numbers of a segment of the direction, as far as they are known
    ack: int | None
    isn: int | None  # the initial sequence number of the connection's client, if its SYN was captured


class Translations(NamedTuple):
    """The connections that files have with several addresses."""

    aliases: dict[bytes, list[AddressAlias]]  # by the keys of directions: each connection that had that key
    ends: frozenset[tuple[bytes, bytes]]  # an end of a connection in one view, and in another one


class _View:
    """A connection in a file: what a segment of each direction had for numbers."""

    def __init__(self, key: bytes, isn: int | None) -> None:
        self.keys = key, reverse(key)
        self.isn = isn
        self.numbers: tuple[_Numbers, _Numbers] = {}, {}


class ViewCollection:
    """The connections of all files."""

    def __init__(self) -> None:
        """Start without any."""
        self._views: list[_View] = []
        self._open: dict[bytes, tuple[_View, _Numbers]] = {}  # of the file that is read, by the key of a direction
        self._file = -1

    def take(self, segments: Sequence[Segment], file: int) -> None:
        """Take segments of the file at this place, in its order, and one file after the other."""
        if file != self._file:
            self._file = file
            self._open.clear()
        opened = self._open
        for time_ns, _, key, seq, ack, flags, payload, _ in segments:
            if flags & SYN and not flags & ACK:
                before = opened.get(key)
                if before is None or before[0].isn != seq:
                    self._enter(key, seq)
                continue
            if seq < LEAST_NUMBER or ack < LEAST_NUMBER:
                continue
            view_and_numbers = opened.get(key)
            if view_and_numbers is None:
                self._enter(key, None)
                view_and_numbers = opened[key]
            numbers = view_and_numbers[1]
            if len(numbers) < _PLAIN or not (seq ^ ack) * _MIX & _SAMPLE:
                found = numbers.get((seq, ack))
                if found is None or not found[1]:  # octets tell more than an acknowledgment alone
                    numbers[seq, ack] = time_ns, payload[:_OCTETS]

    def _enter(self, key: bytes, isn: int | None) -> None:
        view = _View(key, isn)
        self._views.append(view)
        for direction, numbers in zip(view.keys, view.numbers, strict=True):
            self._open[direction] = view, numbers

    def translations(self) -> Translations:
        """Which of the connections are one."""
        found = self._equal()
        known = {key for view in self._views for key in view.keys}
        table = _TranslationTable()
        done: set[int] = set()
        for first in found:
            if first not in done:
                members = self._group(first, found)
                done.update(members)
                if len({self._views[place].keys for place in members}) <= _MOST_VIEWS:
                    self._translate(members, known, table)
        self._translate_attempts((view for place, view in enumerate(self._views) if place not in done), table)
        return Translations(dict(table.aliases), frozenset(table.ends))

    def _equal(self) -> dict[int, list[tuple[int, int]]]:
        """The views of the same connections: by the place of each, those of others, and 1 if their first direction
        is the second one of that view.
        """
        index: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for place, view in enumerate(self._views):
            for side, numbers in enumerate(view.numbers):
                for pair in numbers:
                    index[pair].append((place, side))
        counts: defaultdict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0, 0])
        refused: set[tuple[int, int]] = set()
        for pair, places in index.items():
            # Many files may have the same key; one of them is enough.
            by_key = {self._views[place].keys[side]: (place, side) for place, side in reversed(places)}
            if len(by_key) > _MOST_VIEWS:
                continue
            for (one, side), (other, their_side) in combinations(sorted(by_key.values()), 2):
                view, another = self._views[one], self._views[other]
                if not are_of_other_hosts(view.keys[side], another.keys[their_side]):
                    continue
                octets, theirs = view.numbers[side][pair][1], another.numbers[their_side][pair][1]
                least = min(len(octets), len(theirs))
                if octets[:least] != theirs[:least]:
                    refused.add((one, other))
                counts[one, other, side ^ their_side][side] += 1
        found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for (one, other, turned), count in counts.items():
            if min(count) >= _LEAST and (one, other) not in refused:
                found[one].append((other, turned))
                found[other].append((one, turned))
        return found

    def _group(self, first: int, found: dict[int, list[tuple[int, int]]]) -> dict[int, tuple[int, float]]:
        """All views of one connection: whether each is turned, and how far it is behind the first one."""
        members: dict[int, tuple[int, float]] = {first: (0, 0.0)}
        for place in (known := [first]):  # which grows
            turned, at_ns = members[place]
            for other, turns in found[place]:
                if other not in members:
                    way_ns = self._way(place, other, turned, turned ^ turns)
                    members[other] = turned ^ turns, at_ns + way_ns
                    known.append(other)
        return members

    def _way(self, one: int, other: int, side: int, their_side: int) -> float:
        """How much later the other view has what goes from the sender of a direction."""
        there, back = (
            sorted(
                (before[pair][0], after[pair][0] - before[pair][0])
                for before, after in ((self._views[one].numbers[mine], self._views[other].numbers[theirs]),)
                for pair in before.keys() & after.keys()
            )
            for mine, theirs in ((side, their_side), (1 - side, 1 - their_side))
        )
        ways = []
        for time_ns, late_ns in there:
            place = min(bisect_left(back, (time_ns, 0)), len(back) - 1)
            ways.append((late_ns - back[place][1]) / 2)
        return median(ways)

    def _translate(self, members: dict[int, tuple[int, float]], known: set[bytes], table: "_TranslationTable") -> None:
        """Say which key each direction of a connection has everywhere."""
        keys = {place: self._views[place].keys[turned] for place, (turned, _) in members.items()}
        ways = {place: way_ns for place, (_, way_ns) in members.items()}
        first, last = min(ways, key=ways.__getitem__), max(ways, key=ways.__getitem__)
        chosen = next(iter(keys.values()))
        if ways[last] - ways[first] >= _CERTAIN_NS:
            own = composed(keys[first], keys[last])
            if own is not None and (own in keys.values() or own not in known):
                chosen = own
        isn = next((isn for place in members if (isn := self._views[place].isn) is not None), None)
        for place, (turned, _) in members.items():
            numbers = self._views[place].numbers
            there, back = next(iter(numbers[turned])), next(iter(numbers[1 - turned]))
            table.add(keys[place], chosen, (*there, isn), (*back, isn))
        table.add_ends(set(keys.values()))

    @staticmethod
    def _translate_attempts(views: Iterable[_View], table: "_TranslationTable") -> None:
        """Say the same of connections that are hardly more than a SYN: most were refused.

        A client's number alone proves little. Several of them prove that two ends are one server, and so do
        connections that came about.
        """
        attempts: defaultdict[int, set[bytes]] = defaultdict(set)
        for view in views:
            if view.isn is not None and view.isn >= LEAST_NUMBER:
                attempts[view.isn].add(view.keys[0])
        several = {isn: sorted(keys) for isn, keys in attempts.items() if 1 < len(keys) <= _MOST_VIEWS}
        counts = Counter(pair for keys in several.values() for pair in permutations(map(end_of, keys), 2))
        for isn, (first, *others) in several.items():
            same = [
                key for key in others
                if are_of_other_hosts(first, key)
                and ((pair := (end_of(first), end_of(key))) in table.ends or counts[pair] >= _LEAST_ATTEMPTS)
            ]  # fmt: skip
            if same and not any(alias.isn == isn for alias in table.aliases.get(first, ())):
                chosen = table.own(first, same[0])
                for key in (first, *same):
                    table.add(key, chosen, (isn, None, isn), (None, (isn + 1) % (1 << 32), isn))
                table.add_ends({first, *same})


class _TranslationTable:
    """The translations so far, and which hosts the programs themselves are on."""

    def __init__(self) -> None:
        self.aliases: defaultdict[bytes, list[AddressAlias]] = defaultdict(list)
        self.ends: set[tuple[bytes, bytes]] = set()
        self._own: set[bytes] = set()

    def add(self, key: bytes, chosen: bytes, there: _Facts, back: _Facts) -> None:
        """The direction ``key`` is that of ``chosen`` everywhere. Behind that come the facts of both directions."""
        self.aliases[key].append(AddressAlias(chosen, *there))
        self.aliases[reverse(key)].append(AddressAlias(reverse(chosen), *back))
        self._own |= {host_of_end(chosen), host_of_end(reverse(chosen))}

    def add_ends(self, keys: set[bytes]) -> None:
        """These keys are of one direction."""
        for turned in (keys, map(reverse, keys)):
            self.ends |= {(end_of(one), end_of(other)) for one, other in permutations(turned, 2)}

    def own(self, one: bytes, other: bytes) -> bytes:
        """The key with the hosts that other connections have on both sides; the first one if nobody knows."""
        keys = (one, other, composed(one, other), composed(other, one))
        return next((key for key in keys if key is not None and self._has(key)), one)

    def _has(self, key: bytes) -> bool:
        return host_of_end(key) in self._own and host_of_end(reverse(key)) in self._own
