"""A whole series dissected by one task, file after file, with nothing but states carried over.

Its files are merged by time as ``read`` merges them, and what two ends say to each other is dissected in order. Memory
goes with the connections that are open at a time, not with the files.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import msgspec

from dissectors.events import AnyEvent
from dissectors.problems import PROBLEMS
from zmtpsniff import __version__
from zmtpsniff.capture.files import merged
from zmtpsniff.capture.source import Packet
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.spark.connections import NO_STATE, Connections
from zmtpsniff.spark.groups import Groups
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.listing import Listed
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.places import marked, marks, placed
from zmtpsniff.spark.rows import PROVISIONAL, Batch, Capture, Origin, Places, Rows, places_of

_FLOWS = 20  # bits of a flow's number in what is numbered for all groups
_MOST_FILES = 4  # that the state of a group refers to
_SWEEP_NS = 10_000_000_000  # between two looks at what is over
_MOST_GROUPS = 4096  # in memory, if they can be put aside
_MOST_HELD = 64 << 20  # octets that these hold at most: those that came of them
_MOST_EVENTS = 16_384  # that rows are made of at once
_MOST_OCTETS = 4 << 20  # that these are told of

_time = itemgetter(0)


class Told(NamedTuple):
    """Events, the ids of their connections by their flows, and whether they are told only because the files end.

    ``octets`` were read since what was told before.
    """

    events: list[AnyEvent]
    conn_ids: Mapping[int, str]
    provisional: bool = False
    octets: int = 0


class State(msgspec.Struct, array_like=True):
    """What is kept of a group: its number in the series, its connections as octets, and the files they refer to.

    It is good for the version that wrote it.
    """

    number: int
    connections: bytes
    files: dict[int, str] = {}
    version: str = __version__

    @property
    def is_good(self) -> bool:
        """Whether a group can go on from it."""
        return self.connections != NO_STATE and self.version == __version__


class Left(msgspec.Struct, array_like=True):
    """What a series is left with: when it ended, how many groups there have been, and the states of those open."""

    end_ns: int = 0
    count: int = 0
    groups: dict[bytes, State] = {}


class Keeper(Protocol):
    """Who keeps the groups of a series that nothing comes for."""

    def get(self, name: bytes) -> State | None:
        """What is kept of a group."""
        ...

    def put(self, name: bytes, state: State | None, over_ns: int = 0) -> None:
        """Keep this of a group, of which nothing is that comes from ``over_ns`` on; or nothing."""
        ...


def first_time(path: str) -> int | None:
    """When the first packet of a file came, nanoseconds since the Unix epoch; None if it has none."""
    first = _first(path)
    return None if first is None else first[0][0]


def _first(path: str, copy: str | None = None) -> tuple[Packet, int] | None:
    """The first packet of a file, and the offset of its record."""
    file = File(path, copy)
    batches = file.batches()
    try:
        packets = next(filter(None, batches), None)
        return (packets[0], file.offsets[0]) if packets else None
    finally:
        batches.close()  # type: ignore[attr-defined]  # a generator: its file is closed with it


class _Group:
    def __init__(self, number: int, connections: Connections, files: Iterable[int] = (), octets: int = 0) -> None:
        self.number = number
        self.connections = connections
        self.files = dict.fromkeys(files)
        self.octets = octets  # that it may hold

    def saw(self, files: Iterable[int]) -> None:
        for file_no in files:
            self.files.pop(file_no, None)
            self.files[file_no] = None


class Ended(NamedTuple):
    """A group when the files end: what more of them begins with, what is over, what is told because they end."""

    name: bytes
    state: State | None
    over_ns: int  # nothing is of it that comes from then on
    final: Told
    provisional: Told


class Series:
    """The files of a series."""

    def __init__(
        self,
        paths: Mapping[int, str],
        options: Options,
        left: Left | None = None,
        keeper: Keeper | None = None,
        copies: Mapping[str, str] = {},
    ) -> None:
        """Dissect the files ``paths``, by their numbers in the order of their names, from what was ``left``.

        With a ``keeper``, groups are asked for when something of them comes, and those are put aside for which nothing
        has come for longest, if there are many. ``copies`` says of files that only Spark can open where local ones with
        what they hold are.
        """
        self.files = dict(paths)
        self.captures: list[Capture] = []
        self._paths = paths
        self._copies = copies
        self._options = options
        self._sorted = Groups(options)
        self._groups: dict[bytes, _Group] = {}  # with a keeper: that of which something came last is the last one
        self._keeper = keeper
        self._held_octets = 0
        self._octets = 0
        left = left or Left()
        self.count = left.count  # groups so far
        self.end_ns = left.end_ns  # when the last segment came
        self._swept_ns = 0
        for name, state in left.groups.items():
            self._groups[name] = self._restored(state)

    def events(self) -> Iterator[Told]:
        """Yield what is told by the files, up to their end; ``captures`` and ``finish`` are complete after that."""
        decoder = HeaderDecoder()
        for packets in merged([self._packets(number, path) for number, path in self._paths.items()]):
            yield from self._take(packets, decoder)  # type: ignore[arg-type]
        skipped = decoder.skipped()
        if skipped:
            last = max(range(len(self.captures)), key=lambda at: self.captures[at].file)
            self.captures[last] = self.captures[last]._replace(
                problems=(*self.captures[last].problems, *(_problem(code, detail) for code, detail in skipped))
            )

    def finish(self) -> tuple[Left, list[Told]]:
        """What more files begin with, and what is told because there are none."""
        left = Left(self.end_ns, self.count)
        told: list[Told] = []
        for ended in self.ended():
            told += [ended.final, ended.provisional]
            if ended.state is not None:
                left.groups[ended.name] = ended.state
        return left, [one for one in told if one.events]

    def ended(self) -> Iterator[Ended]:
        """End all groups that are not put aside, one by one."""
        for name in [*self._groups]:
            yield self._end(name, self._groups.pop(name))

    def end(self, name: bytes) -> Ended:
        """End a group that is kept; no packets come after that."""
        return self._end(name, self._fetch(name))

    def _end(self, name: bytes, group: _Group) -> Ended:
        connections = group.connections
        over_ns = connections.over_ns
        octets, final, provisional = connections.finish(self.end_ns)
        ids = connections.conn_ids
        state = None if octets is None else self._state(group, octets)
        return Ended(name, state, over_ns, Told(final, ids), Told(provisional, ids, provisional=True))

    def _state(self, group: _Group, octets: bytes) -> State:
        return State(group.number, octets, {number: self.files[number] for number in [*group.files][-_MOST_FILES:]})

    # ------------------------------------------------------------------ packets

    def _packets(self, number: int, path: str) -> Iterator[list[tuple[Any, ...]]]:
        """The packets of a file, each as time, place, number of the file, packet.

        It is open from when its first packet is asked for.
        """
        first = _first(path, self._copies.get(path))
        file = File(path, self._copies.get(path))
        count, latest, least = 0, 0, None
        waiting = False
        if first is not None:
            packet, offset = first
            waiting = True
            yield [(packet[0], placed(packet[0], number, marked(1, offset)), number, packet)]
        for packets in file.batches():
            times = list(map(_time, packets))
            orders = list(accumulate(times, max, initial=latest))[1:]
            places = map(placed, orders, repeat(number), marks(count + 1, file.offsets))
            found = list(zip(times, places, repeat(number), packets, strict=False))
            count += len(packets)
            if orders:
                latest = orders[-1]
                least = min(times) if least is None else min(least, min(times))
            if waiting and found:
                found, waiting = found[1:], False
            if found:
                yield found
        problems = [_problem(fault.code, fault.detail) for fault in file.faults]
        if file.unreadable:
            problems.append(_problem("capture-unreadable", file.unreadable))
        self.captures.append(
            Capture(
                path,
                0,
                0,
                count,
                file.dropped,
                least,
                None if least is None else latest,
                tuple(file.comments),
                tuple(problems),
                file.error,
            )
        )

    def _take(self, packets: Sequence[tuple[int, int, int, Any]], decoder: HeaderDecoder) -> Iterator[Told]:
        _, places, numbers, plain = zip(*packets, strict=True)
        files = sorted(set(numbers))
        segments = decoder.segments(plain, places)  # type: ignore[arg-type]  # any sequence does
        found: dict[bytes, list[Any]] = {}
        for segment in segments:
            name = self._sorted.of(segment[2])
            if name is not None:
                found.setdefault(name, []).append(segment)
        if segments:
            self.end_ns = max(self.end_ns, segments[-1][0])
        for name, mine in found.items():
            group = self._of(name, files, sum(len(segment[6]) for segment in mine))
            yield from self._tell(group, group.connections.take(mine))
        for datagram in decoder.datagrams:
            _, _, protocol, key, payload, missing = datagram
            name = self._sorted.of(key, is_datagram=True)
            if name is None or not self._sorted.wants(protocol, key, payload, missing):
                continue
            group = self._of(name, files, len(payload))
            yield from self._tell(group, group.connections.take_datagram(datagram))
        yield from self._sweep()
        if self._keeper is not None:
            self._put_aside(self._keeper)

    def _tell(self, group: _Group, events: list[AnyEvent]) -> Iterator[Told]:
        if events:
            octets, self._octets = self._octets, 0
            yield Told(events, group.connections.conn_ids, octets=octets)

    # ------------------------------------------------------------------ groups

    def _new(self) -> _Group:
        number = self.count
        self.count += 1
        return _Group(number, Connections(self._options, numbers=number << _FLOWS))

    def _restored(self, state: State) -> _Group:
        for number, path in state.files.items():
            self.files.setdefault(number, path)
        connections = Connections(self._options, state.connections)
        return _Group(state.number, connections, state.files, len(state.connections))

    def _of(self, name: bytes, files: Sequence[int], octets: int) -> _Group:
        if self._keeper is None:
            group = self._groups.get(name) or self._groups.setdefault(name, self._new())
        else:
            group = self._groups.pop(name) if name in self._groups else self._fetch(name)
            self._groups[name] = group
        group.saw(files)
        group.octets += octets
        self._held_octets += octets
        self._octets += octets
        return group

    def _fetch(self, name: bytes) -> _Group:
        """A group that is kept, or a new one."""
        assert self._keeper is not None
        state = self._keeper.get(name)
        if state is None or not state.is_good:
            return self._new()
        group = self._restored(state)
        self._held_octets += group.octets
        return group

    def _put_aside(self, keeper: Keeper) -> None:
        """Have those groups kept of which nothing came for longest, if they are many or hold much."""
        if len(self._groups) <= _MOST_GROUPS and self._held_octets <= _MOST_HELD:
            return
        found = False
        for name, group in list(self._groups.items()):
            if len(self._groups) <= _MOST_GROUPS // 2 and self._held_octets <= _MOST_HELD // 2:
                break
            octets = group.connections.state()
            if octets is None:  # it is tried again when more has come of it
                self._held_octets -= group.octets
                group.octets = 0
                continue
            keeper.put(name, self._state(group, octets), group.connections.over_ns)
            self._forget(name)
            found = True
        if found:
            gc.collect()  # flows are cycles, old ones, which spare_collector() leaves lying about

    def _forget(self, name: bytes) -> None:
        self._held_octets -= self._groups.pop(name).octets

    def _sweep(self) -> Iterator[Told]:
        """Let go of what is over."""
        if self.end_ns - self._swept_ns < _SWEEP_NS:
            return
        self._swept_ns = self.end_ns
        for name, group in list(self._groups.items()):
            connections = group.connections
            if connections.is_over(self.end_ns):
                _, final, provisional = connections.finish(self.end_ns)
                self._forget(name)
                if self._keeper is not None:
                    self._keeper.put(name, None)
                if final or provisional:
                    yield Told(final + provisional, connections.conn_ids)


class ToldRows:
    """What a series tells as rows."""

    def __init__(self, name: str, series: Series, options: Options, kinds: tuple[type, ...] | None = None) -> None:
        """Make rows of the events of a series, or those of some ``kinds``."""
        self._name = name
        self._series = series
        self._kinds = kinds
        self._rows = Rows(options.max_bytes)
        self._events: list[AnyEvent] = []
        self._ids: dict[int, str] = {}
        self._octets = 0

    def take(self, told: Told, kept_in: str = "") -> list[Batch]:
        """Take events, all of one kind of file since the last flush; rows, if there is enough for some."""
        kinds = self._kinds
        found = told.events if kinds is None else [event for event in told.events if isinstance(event, kinds)]
        self._octets += told.octets
        if found:
            self._events += found
            self._ids |= told.conn_ids
        enough = len(self._events) >= _MOST_EVENTS or self._octets >= _MOST_OCTETS
        return self.flush(kept_in) if enough else []

    def flush(self, kept_in: str = "") -> list[Batch]:
        """Rows of all that was taken."""
        events, ids = self._events, self._ids
        self._events, self._ids, self._octets = [], {}, 0
        if not events:
            return []
        return self._rows.of_events(events, Origin(self._name, ids, self._place), kept_in)

    def of_captures(self, listed: Mapping[str, Listed] | None = None) -> list[Batch]:
        """Rows on the files, once they have been read; ``listed`` says of each how large and old it is."""
        out: list[Batch] = []
        for capture in self._series.captures:
            if listed is not None:
                _, size, modified_ns = listed[capture.file]
                capture = capture._replace(size=size, modified_ns=modified_ns)
            out += self._rows.of_capture(capture, self._name)
        return out

    def _place(self, packets: Sequence[int]) -> Places:
        return places_of(packets, self._series.files)


def rows_of(
    name: str,
    files: Sequence[Listed],
    options: Options,
    copies: Mapping[str, str] = {},
    first_no: int = 1,
    stays: bool = False,
) -> Iterator[Batch]:
    """The rows of a series of which nothing is known but these files, which are numbered from ``first_no``.

    Those on what is open at the end are provisional, unless all of it ``stays``.
    """
    series = Series({first_no + at: file.path for at, file in enumerate(files)}, options, copies=copies)
    told, provisional = (ToldRows(name, series, options) for _ in range(2))
    for one in series.events():
        yield from told.take(one)
    for one in series.finish()[1]:
        yield from provisional.take(one, PROVISIONAL) if one.provisional and not stays else told.take(one)
    yield from told.flush()
    yield from provisional.flush(PROVISIONAL)
    yield from told.of_captures({file.path: file for file in files})


def _problem(code: str, detail: str) -> tuple[str, str, str]:
    return PROBLEMS[code].severity, code, detail
