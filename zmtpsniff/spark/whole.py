"""A whole series dissected by one task, file after file, with nothing but states carried over: no shuffle.

Its files are merged by time as ``read`` merges them, and what two ends say to each other is dissected in order. Memory
goes with the connections that are open at a time, not with the files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from dissectors.events import AnyEvent
from dissectors.problems import PROBLEMS
from zmtpsniff.capture.files import merged
from zmtpsniff.capture.source import Packet
from zmtpsniff.packets import HeaderDecoder
from zmtpsniff.spark.connections import Connections
from zmtpsniff.spark.groups import Groups
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.pieces import file_of, marked, marks, placed

_FLOWS = 20  # bits of a flow's number in what is numbered for all groups
_MOST_FILES = 4  # that the state of a group refers to
_SWEEP_NS = 10_000_000_000  # between two looks at what is over

_time = itemgetter(0)


class Told(NamedTuple):
    """Events, the ids of their connections by their flows, and whether they are told only because the files end."""

    events: list[AnyEvent]
    conn_ids: Mapping[int, str]
    provisional: bool = False


class Left(msgspec.Struct, array_like=True):
    """What a series is left with: the states of its groups, with the files they refer to, and when it ended."""

    end_ns: int = 0
    groups: dict[bytes, tuple[bytes, dict[int, str]]] = {}


class Fault(NamedTuple):
    """What is wrong with a file, or could not be read of it."""

    path: str
    code: str
    detail: str

    @property
    def severity(self) -> str:
        """That of its code."""
        return PROBLEMS[self.code].severity


def first_time(path: str) -> int | None:
    """When the first packet of a file came, nanoseconds since the Unix epoch; None if it has none."""
    first = _first(path)
    return None if first is None else first[0][0]


def _first(path: str) -> tuple[Packet, int] | None:
    """The first packet of a file, and the offset of its record."""
    file = File(path)
    batches = file.batches()
    try:
        packets = next(filter(None, batches), None)
        return (packets[0], file.offsets[0]) if packets else None
    finally:
        batches.close()  # type: ignore[attr-defined]  # a generator: its file is closed with it


class _Group:
    def __init__(self, connections: Connections, files: Iterable[int]) -> None:
        self.connections = connections
        self.files = dict.fromkeys(files)

    def saw(self, files: Iterable[int]) -> None:
        for file_no in files:
            self.files.pop(file_no, None)
            self.files[file_no] = None


class Series:
    """The files of a series."""

    def __init__(self, paths: Mapping[int, str], options: Options, left: Left | None = None) -> None:
        """Dissect the files ``paths``, by their numbers in the order of their names, from what was ``left``."""
        self.files = dict(paths)
        self.faults: list[Fault] = []
        self._paths = paths
        self._options = options
        self._sorted = Groups(0, options, 1)
        self._groups: dict[bytes, _Group] = {}
        self._count = 0
        self._end_ns = 0
        self._swept_ns = 0
        if left is not None:
            self._end_ns = left.end_ns
            for name, (state, files) in left.groups.items():
                self.files = files | self.files
                self._begin(name, state, files)

    def events(self) -> Iterator[Told]:
        """Yield what is told by the files, up to their end; ``faults`` and ``left`` are complete after that."""
        decoder = HeaderDecoder()
        for packets in merged([self._packets(number, path) for number, path in self._paths.items()]):
            yield from self._take(packets, decoder)  # type: ignore[arg-type]
        last = max(self._paths.values(), default="")
        self.faults += [Fault(last, code, detail) for code, detail in decoder.skipped()]

    def finish(self) -> tuple[Left, list[Told]]:
        """What more files begin with, and what is told because there are none."""
        left = Left(self._end_ns)
        told: list[Told] = []
        for name, group in self._groups.items():
            connections = group.connections
            state, final, provisional = connections.finish(self._end_ns)
            ids = connections.conn_ids()
            told += [Told(final, ids), Told(provisional, ids, provisional=True)]
            if state is not None:
                numbers = [*group.files][-_MOST_FILES:]
                left.groups[name] = state, {number: self.files[number] for number in numbers}
        self._groups.clear()
        return left, [one for one in told if one.events]

    # ------------------------------------------------------------------ packets

    def _packets(self, number: int, path: str) -> Iterator[list[tuple[Any, ...]]]:
        """The packets of a file, each as time, place, packet. It is open from when its first packet is asked for."""
        first = _first(path)
        file = File(path)
        count, latest = 0, 0
        waiting = False
        if first is not None:
            packet, offset = first
            waiting = True
            yield [(packet[0], placed(packet[0], number, marked(1, offset)), packet)]
        for packets in file.batches():
            orders = list(accumulate(map(_time, packets), max, initial=latest))[1:]
            places = map(placed, orders, repeat(number), marks(count + 1, file.offsets))
            found = list(zip(map(_time, packets), places, packets, strict=True))
            count += len(packets)
            latest = orders[-1] if orders else latest
            if waiting and found:
                found, waiting = found[1:], False
            if found:
                yield found
        self.faults += [Fault(path, fault.code, fault.detail) for fault in file.faults]
        if file.unreadable:
            self.faults.append(Fault(path, "capture-unreadable", file.unreadable))

    def _take(self, packets: Sequence[tuple[int, int, Any]], decoder: HeaderDecoder) -> Iterator[Told]:
        _, places, plain = zip(*packets, strict=True)
        segments = decoder.segments(plain, places)  # type: ignore[arg-type]  # any sequence does
        found: dict[bytes, list[Any]] = {}
        for segment in segments:
            part, name = self._sorted.of(segment[2])
            if part >= 0:
                found.setdefault(name, []).append(segment)
        if segments:
            self._end_ns = max(self._end_ns, segments[-1][0])
        for name, mine in found.items():
            group = self._of(name, mine)
            events = group.connections.take(mine)
            if events:
                yield Told(events, group.connections.conn_ids())
        for datagram in decoder.datagrams:
            _, _, protocol, key, payload, missing = datagram
            part, name = self._sorted.of(key, is_datagram=True)
            if part < 0 or not self._sorted.wants(protocol, key, payload, missing):
                continue
            group = self._of(name, [datagram])
            events = group.connections.take_datagram(datagram)
            if events:
                yield Told(events, group.connections.conn_ids())
        yield from self._sweep()

    # ------------------------------------------------------------------ groups

    def _begin(self, name: bytes, state: bytes | None = None, files: Iterable[int] = ()) -> _Group:
        connections = Connections(self._options, state, self._count << _FLOWS)
        self._count += 1
        group = self._groups[name] = _Group(connections, files)
        return group

    def _of(self, name: bytes, segments: Sequence[Any]) -> _Group:
        group = self._groups.get(name) or self._begin(name)
        group.saw({file_of(segment[1]): None for segment in segments})
        return group

    def _sweep(self) -> Iterator[Told]:
        """Let go of what is over."""
        if self._end_ns - self._swept_ns < _SWEEP_NS:
            return
        self._swept_ns = self._end_ns
        for name, group in list(self._groups.items()):
            connections = group.connections
            if connections.is_over(self._end_ns):
                _, final, provisional = connections.finish(self._end_ns)
                del self._groups[name]
                if final or provisional:
                    yield Told(final + provisional, connections.conn_ids())
