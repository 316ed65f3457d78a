"""A shard of a series: its files, in order, dissected by one task, with nothing but states carried over.

The files are merged by time as ``read`` merges them. Each shard keeps the packets between ends whose hash is its
number, and gives these to ``Connections``, in order. Packets of settled flows go to columns of messages at once. Memory
grows with the number of open connections, not with the files.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from dissectors.batches import MessageBatch
from dissectors.events import AnyEvent
from dissectors.problems import PROBLEMS
from dissectors.zmtp.curve import Curve
from dissectors.zmtp.curve_keys import KeyLineError, KeyRing, NoSodiumError
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.engine.settled import SettledFlows
from zmtpsniff.native import core
from zmtpsniff.net.flow import FlowDirection
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.spark.connections import NO_STATE, ConnectionId, Connections
from zmtpsniff.spark.groups import DATAGRAMS, Groups, ShardSpec
from zmtpsniff.spark.inputs import File, FilePiece, in_order
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.rows import Batch, BatchOrigin, CaptureRow, RowOrigin, Rows
from zmtpsniff.spark.state_log import NEVER, ShardStates, State

_FLOWS = 20  # bits of a flow's number in what is numbered for all groups
_LEAST_PIECE = 64  # packets; of fewer, those of several files are taken together
_MOST_WAITING = 256 << 10  # octets of these packets
_MOST_FILES = 4  # that the state of a group refers to
_SWEEP_NS = 10_000_000_000  # between two looks at what is over
_MOST_GROUPS = 4096  # in memory
_MOST_HELD = 128 << 20  # octets that these hold at most: all that came of them, or as counted since
_MUCH = 1 << 20  # octets of a group after which its memory is counted
_MOST_EVENTS = 16_384  # that rows are made of at once
_MOST_OCTETS = 4 << 20  # of packets of these events
_LEAST_OTHERS = 4096  # events of a kind, but messages, that become rows: each batch of rows has its price
_MOST_WAITS = 8  # times that fewer events wait for more

_payload = itemgetter(6)


class Events(NamedTuple):
    """Events, the ids of their connections by their flows, and whether they are there only because the files end.

    ``octets`` were read since the events before. Batches of messages are of ``origin``.
    """

    events: list[AnyEvent]
    conn_ids: Mapping[int, ConnectionId]
    provisional: bool = False
    octets: int = 0
    origin: BatchOrigin | None = None


class _Group:
    def __init__(self, number: int, connections: Connections, files: Iterable[int] = (), octets: int = 0) -> None:
        self.number = number
        self.connections = connections
        self.files = dict.fromkeys(files)
        self.octets = octets  # that the group may hold

    def saw(self, files: Iterable[int]) -> None:
        for file_no in files:
            self.files.pop(file_no, None)
            self.files[file_no] = None


class _Settling:
    """The flows of all groups, as the native core asks for them, and what it took of a piece."""

    def __init__(self, group_of: Callable[[bytes, int], _Group | None], pause_ns: int) -> None:
        self.pause_ns = pause_ns
        self.file = 0  # that the piece is of
        self.groups: dict[int, _Group] = {}  # that the core was told of, by their numbers
        self.now_ns = 0
        self.octets = 0
        self._group_of = group_of

    def settled(self, key: bytes) -> FlowDirection | None:
        group = self._group_of(key, self.file)
        direction = None if group is None else group.connections.settled(key)
        if group is not None and direction is not None:
            self.groups[group.number] = group
        return direction

    def pass_time(self, now_ns: int, recent_octets: int, is_last: bool) -> None:
        self.now_ns = now_ns
        self.octets += recent_octets


class Shard:
    """One shard of a series."""

    def __init__(self, paths: Sequence[str], options: Options, states: ShardStates, spec: ShardSpec) -> None:
        """Dissect the files ``paths``, in the order of their names, from ``states`` on, which are changed.

        If there are many groups, those are put aside that have had no packets for longest. A group whose state cannot
        be read begins anew, and ``has_unreadable_states`` says so.
        """
        self.spec = spec
        self._paths = dict(enumerate(paths, self.spec.first_file))
        self.files = dict(self._paths)  # by number, also those that states refer to
        self.captures: list[CaptureRow] = []
        self._options = options
        self._settings = options.settings
        self._curve = Curve(KeyRing(options.curve_keys))
        self._sorted = Groups(options, spec)
        self._decoder = HeaderDecoder()
        self._events: list[AnyEvent] = []  # of the packets at hand
        self._conn_ids: dict[int, ConnectionId] = {}  # of these
        self._settling = _Settling(self._settling_group, Connections(self._settings).pause_ns)
        self._settled = None if core is None else SettledFlows(core, self._settling, self._events)
        self._groups: dict[bytes, _Group] = {}  # the one with the latest packet is the last one
        self._states = states
        self._held_octets = 0
        self._octets = 0
        self._next_group = self.spec.first_group + self.spec.number
        self.end_ns = self.spec.end_ns  # time of the last segment
        self._swept_ns = 0
        self.has_unreadable_states = False

    def events(self) -> Iterator[Events]:
        """Yield the events of the files, up to their end; ``captures`` is complete after that."""
        few: list[tuple[int, FilePiece]] = []
        waiting = 0
        for at, piece in in_order([self._pieces(*path) for path in self._paths.items()]):
            file = self.spec.first_file + at
            if piece.size < _LEAST_PIECE and waiting < _MOST_WAITING:  # as of files that are merged
                few.append((file, piece))
                waiting += piece.block.captured
                continue
            yield from self._together(few)
            yield from self._settle(file, piece)
            few, waiting = [], 0
        yield from self._together(few)
        skipped = self._decoder.skipped()
        if skipped:
            last = max(range(len(self.captures)), key=lambda at: self.captures[at].number)
            self.captures[last] = self.captures[last]._replace(
                problems=(*self.captures[last].problems, *(_problem(code, detail) for code, detail in skipped))
            )

    def last_events(self) -> Iterator[Events]:
        """Yield the last events: of connections that are over when the files end, and provisional ones of open ones.

        The states are complete after that.
        """
        told = set(self._groups)
        for name in [*self._groups]:
            yield from self._end(name, self._groups.pop(name))
        over = dict.fromkeys(self._states.over(self.end_ns))
        # All open connections have rows, or only those that may be over.
        for name in self._states.over(NEVER - 1) if self._options.tells_open else over:
            if name in told:
                continue
            state = self._kept(name)
            if state is None or not state.is_silent:
                yield from self._end(name, self._group(state), is_changed=False)
            elif name in over:
                self._states.put(name, None)

    def _end(self, name: bytes, group: _Group, is_changed: bool = True) -> Iterator[Events]:
        connections = group.connections
        over_ns, is_silent = connections.over_ns, connections.is_silent
        octets, final, provisional = connections.finish(self.end_ns)
        is_datagrams = name.startswith(DATAGRAMS)  # a group that has no end
        state = (
            State(0, NO_STATE) if is_datagrams else None if octets is None else self._state(group, octets, is_silent)
        )
        if is_changed or state is None:
            self._states.put(name, state, NEVER if state is not None and state.connections == NO_STATE else over_ns)
        if final:
            yield Events(final, connections.conn_ids)
        if provisional and (is_datagrams or self._options.tells_open):
            yield Events(provisional, connections.conn_ids, provisional=True)
        connections.close()

    def _state(self, group: _Group, octets: bytes, is_silent: bool) -> State:
        files = {number: self.files[number] for number in [*group.files][-_MOST_FILES:]}
        return State(group.number, octets, files, is_silent)

    # ------------------------------------------------------------------ packets

    def _pieces(self, number: int, path: str) -> Iterator[FilePiece]:
        """The packets of a file, without those known to be of other shards.

        The file is open from when its second packet is asked for.
        """
        beginning = File(path)
        first = beginning.first_piece()
        problems = self._take_keys(beginning)
        if first is not None:
            yield first.part(0, 1)
        file = File(path, None if self._sorted.takes_all else lambda key: self._sorted.of(key) is not None)
        for piece in file.pieces():
            if file.key_lines:
                problems |= self._take_keys(file)
            is_told = first is not None and piece.numbers[0] == 1
            if piece.size > is_told:
                yield piece.part(1) if is_told else piece
        problems |= dict.fromkeys(_problem(fault.code, fault.detail) for fault in file.faults)
        if file.unreadable:
            problems[_problem("capture-unreadable", file.unreadable)] = None
        self.captures.append(
            CaptureRow(
                path, number, file.count, file.dropped, file.first_ns, file.last_ns,
                tuple(file.comments), tuple(problems), file.condition, file.error,
            )
        )  # fmt: skip

    def _take_keys(self, file: File) -> "dict[tuple[str, str, str], None]":
        """Take the keys that were read from a file. Returns the problems with them, in order."""
        problems: dict[tuple[str, str, str], None] = {}
        for line in file.key_lines:
            try:
                self._curve.ring.add_line(line)
            except (KeyLineError, NoSodiumError) as error:
                problems[_problem("keys-not-used", f"keys in {file.path} are not used: {error}")] = None
        file.key_lines.clear()
        return problems

    def _give(self, origin: BatchOrigin | None = None) -> Iterator[Events]:
        """The events of packets that have been taken."""
        events, self._events[:] = self._events[:], []
        conn_ids, self._conn_ids = self._conn_ids, {}
        if events:
            octets, self._octets = self._octets, 0
            yield Events(events, conn_ids, octets=octets, origin=origin)
        yield from self._sweep()
        self._put_aside()

    def _together(self, pieces: Sequence[tuple[int, FilePiece]]) -> Iterator[Events]:
        """Take small pieces of several files."""
        packets = [packet for _, piece in pieces for packet in piece.block.packets()]
        places = [place for file, piece in pieces for place in piece.places(file)[:]]
        self._dissect(packets, places, sorted({file for file, _ in pieces}))
        yield from self._give()

    def _settle(self, file: int, piece: FilePiece) -> Iterator[Events]:
        """Take a large piece: packets of settled flows in columns, others as objects."""
        block, places = piece.block, piece.places(file)
        if self._settled is None or block.odd:
            self._dissect(block.packets(), places[:], [file])
        else:
            self._settling.file = file
            for begin, end in self._settled.others(block, places):
                self._dissect(block.packets(begin, end), places[begin:end], [file])
            self._end_settling()
        yield from self._give(BatchOrigin(file, array("q", piece.numbers).tobytes(), block.base))

    def _end_settling(self) -> None:
        """Go on from what the core took."""
        groups, self._settling.groups = self._settling.groups, {}
        octets, self._settling.octets = self._settling.octets, 0
        self.end_ns = max(self.end_ns, self._settling.now_ns)
        for group in groups.values():
            self._events += group.connections.end_batch()
            self._conn_ids |= group.connections.conn_ids
            group.octets += octets // len(groups)
        self._held_octets += octets
        self._octets += octets

    def _dissect(self, packets: list[Packet], places: list[int], files: Sequence[int]) -> None:
        """Take packets as objects."""
        segments = self._decoder.segments(packets, places)
        found: defaultdict[bytes | None, list[Any]] = defaultdict(list)
        group_of = self._sorted.of
        for segment in segments:
            found[group_of(segment[2])].append(segment)
        if segments:
            self.end_ns = max(self.end_ns, segments[-1][0])
        for name, mine in found.items():
            if name is not None:
                group = self._of(name, files, sum(map(len, map(_payload, mine))))
                self._events += group.connections.take(mine)
                self._conn_ids |= group.connections.conn_ids
        for datagram in self._decoder.datagrams:
            _, _, protocol, key, payload, missing = datagram
            name = self._sorted.of(key, is_datagram=True)
            if name is None or not self._sorted.wants(protocol, key, payload, missing):
                continue
            group = self._of(name, files, len(payload))
            self._events += group.connections.take_datagram(datagram)
            self._conn_ids |= group.connections.conn_ids

    # ------------------------------------------------------------------ groups

    def _of(self, name: bytes, files: Sequence[int], octets: int) -> _Group:
        group = self._groups.pop(name) if name in self._groups else self._group(self._kept(name))
        self._groups[name] = group
        group.saw(files)
        group.octets += octets
        self._held_octets += octets
        self._octets += octets
        return group

    def _settling_group(self, key: bytes, file: int) -> _Group | None:
        name = self._sorted.of(key)
        return None if name is None else self._of(name, (file,), 0)

    def _kept(self, name: bytes) -> State | None:
        """The state of a group; None if there is none, or it cannot be read."""
        try:
            return self._states.get(name)
        except StateError:
            self.has_unreadable_states = True
            return None

    def _group(self, state: State | None) -> _Group:
        """A group restored from a state, or a new one."""
        try:
            if state is not None and state.connections != NO_STATE:
                return self._restored(state)
        except StateError:
            self.has_unreadable_states = True
        number = self._next_group
        self._next_group += self.spec.count
        return _Group(number, Connections(self._settings, None, number << _FLOWS, self._curve))

    def _restored(self, state: State) -> _Group:
        connections = Connections(self._settings, state.connections, curve=self._curve)
        for number, path in state.files.items():
            self.files.setdefault(number, path)
        self._held_octets += len(state.connections)
        return _Group(state.number, connections, state.files, len(state.connections))

    def _put_aside(self) -> None:
        """Put the groups aside that have been idle for longest, if there are many, or if they hold much."""
        if self._held_octets > _MOST_HELD:
            self._count_held()
        if len(self._groups) <= _MOST_GROUPS and self._held_octets <= _MOST_HELD:
            return
        for name, group in list(self._groups.items()):
            if len(self._groups) <= _MOST_GROUPS // 2 and self._held_octets <= _MOST_HELD // 2:
                break
            octets = group.connections.state()
            if octets is None:
                continue
            self._states.put(name, self._state(group, octets, group.connections.is_silent), group.connections.over_ns)
            self._forget(name)

    def _count_held(self) -> None:
        """Count how much the large groups hold; most of their octets have gone on."""
        for group in self._groups.values():
            if group.octets > _MUCH:
                held = len(group.connections.state() or b"")
                self._held_octets += held - group.octets
                group.octets = held

    def _forget(self, name: bytes) -> None:
        group = self._groups.pop(name)
        self._held_octets -= group.octets
        group.connections.close()

    def _sweep(self) -> Iterator[Events]:
        """Finish the groups whose connections are over."""
        if self.end_ns - self._swept_ns < _SWEEP_NS and len(self._groups) <= _MOST_GROUPS:
            return
        self._swept_ns = self.end_ns
        for name, group in list(self._groups.items()):
            connections = group.connections
            if connections.is_over(self.end_ns):
                _, final, provisional = connections.finish(self.end_ns)
                self._forget(name)
                self._states.put(name, None)
                if final or provisional:
                    yield Events(final + provisional, connections.conn_ids)


class ShardRows:
    """The events of a shard as rows."""

    def __init__(
        self, series: str, shard: Shard, options: Options, kinds: tuple[type, ...] | None = None, stays: bool = False
    ) -> None:
        """Make rows of the events of a shard, or of some ``kinds``. No row is provisional if everything ``stays``."""
        self._series = series
        self._shard = shard
        self._kinds = kinds
        self._stays = stays
        self._rows = Rows(options.max_bytes, options.bodies)
        self._origin = RowOrigin(series, shard.files)
        self._backlogs = self._rows.backlog(), self._rows.backlog()  # that stay, that are provisional
        self._events = self._octets = self._waits = 0

    def all(self, files: Mapping[str, FileInfo] | None = None) -> Iterator[Batch]:
        """Dissect the shard; yields its rows, the first shard also those about ``files``: their sizes and times."""
        for source in (self._shard.events(), self._shard.last_events()):
            for one in source:
                yield from self._take(one)
        yield from self._make()
        if self._shard.spec.number == 0:
            for capture in self._shard.captures:
                listed = (files or {}).get(capture.file, FileInfo(capture.file, 0, 0))
                yield from self._rows.of_capture(capture, listed, self._series, self._shard.spec.count)

    def _take(self, one: Events) -> Iterator[Batch]:
        kinds = self._kinds
        events = one.events if kinds is None else [event for event in one.events if isinstance(event, kinds)]
        self._backlogs[one.provisional and not self._stays].take(events, one.conn_ids, one.origin)
        self._events += sum(len(event) if isinstance(event, MessageBatch) else 1 for event in events)
        self._octets += one.octets
        if self._events >= _MOST_EVENTS or self._octets >= _MOST_OCTETS:
            self._events = self._octets = 0
            self._waits = (self._waits + 1) % _MOST_WAITS
            yield from self._make(_LEAST_OTHERS if self._waits else 1)

    def _make(self, least: int = 1) -> Iterator[Batch]:
        for provisional, backlog in enumerate(self._backlogs):
            yield from self._rows.of_events(backlog, self._origin, bool(provisional), least)


def _problem(code: str, detail: str) -> tuple[str, str, str]:
    return PROBLEMS[code].severity, code, detail
