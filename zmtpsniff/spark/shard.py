"""A shard of a series: its files, in order, dissected by one task, with nothing but states carried over.

The files are merged by time as ``read`` merges them. Their packets go to ``Connections``, in order, and all events to
the stages that ``read`` has. Packets of settled flows go to columns of messages at once. Pairs of messages may depend
on all connections. So each shard dissects all of them, and makes the rows of its own: two shards take 1.4 times the
time of processors that one takes for few connections with many messages, 1.6 times for many short connections.
Memory grows with the number of open connections, not with the files.
"""

from array import array
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

from dissectors.batches import MessageBatch
from dissectors.events import AnyEvent, Capture, Problem
from dissectors.problems import PROBLEMS
from dissectors.zmtp.curve import Curve
from dissectors.zmtp.curve_keys import KeyLineError, KeyRing, NoSodiumError
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.capture.merge import merged_runs
from zmtpsniff.engine.flow_engine import StateError, Told
from zmtpsniff.engine.settled import SettledFlows
from zmtpsniff.native import core
from zmtpsniff.net.flow import FlowDirection
from zmtpsniff.net.notices import Notice
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Datagram, Segment
from zmtpsniff.spark.connections import NO_STATE, Connections, FlowCount, Last
from zmtpsniff.spark.groups import DATAGRAMS, Groups, ShardSpec
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.message_rows import BatchOrigin
from zmtpsniff.spark.open_states import NEVER, SeriesState, ShardStates, State
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.packet_names import PacketNames
from zmtpsniff.spark.row_columns import RowOrigin
from zmtpsniff.spark.rows import Batch, CaptureRow, Rows
from zmtpsniff.spark.stages import Stages

_TOGETHER = 256  # packets of several files that are taken together
_MOST_IDS = 100_000  # of connections that are remembered
_KEPT_IDS = 16_384  # for the next run
_SWEEP_NS = 10_000_000_000  # between two looks at what is over
_MOST_GROUPS = 4096  # in memory
_MOST_HELD = 128 << 20  # octets that these hold at most: all that came of them, or as counted since
_MUCH = 1 << 20  # octets of a group after which its memory is counted
_MOST_EVENTS = 16_384  # that rows are made of at once
_MOST_OCTETS = 4 << 20  # of packets of these events
_LEAST_OTHERS = 4096  # events of a kind, but messages, that become rows: each batch of rows has its price
_MOST_WAITS = 8  # times that fewer events wait for more

_packet, _key, _payload = itemgetter(1), itemgetter(2), itemgetter(6)


class Events(NamedTuple):
    """Events, and whether they are there only because the files end.

    ``octets`` were read since the events before. Batches of messages are of ``origin``.
    """

    events: list[AnyEvent]
    provisional: bool = False
    octets: int = 0
    origin: BatchOrigin | None = None


class _Settling:
    """The flows of all groups, as the native core asks for them, and what it took of a piece."""

    def __init__(
        self, name_of: Callable[[bytes], bytes | None], group_of: Callable[[bytes], Connections], pause_ns: int
    ):
        self.pause_ns = pause_ns
        self.groups: dict[bytes, Connections] = {}  # that the core was told of
        self.now_ns = 0
        self.octets = 0
        self._name_of = name_of
        self._group_of = group_of
        ignored = SimpleNamespace(unwanted=True, last_ns=0, directions=(None, None), server=None)
        self._ignored: Any = SimpleNamespace(flow=ignored)  # a direction of a port that nobody wants

    def settled(self, key: bytes) -> FlowDirection | None:
        name = self._name_of(key)
        if name is None:
            self._ignored.flow.last_ns = self.now_ns  # without a pause
            return self._ignored  # type: ignore[no-any-return]
        group = self._group_of(name)
        direction = group.settled(key)
        if direction is not None:
            self.groups[name] = group
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
        self.has_unreadable_states = False
        self._options = options
        self._settings = options.settings
        self._states = states
        kept, self.stages = self._begin()
        self._paths = dict(enumerate(paths, self.spec.first_file))
        self.files = kept.files | self._paths  # by number, also those of runs before
        self.packets = PacketNames(kept.packets, kept.runs, lambda file: File(self.files[file]).offsets())
        self.captures: list[CaptureRow] = []
        self.conn_ids = kept.conn_ids  # by the numbers of flows
        self._dropped = kept.dropped
        self._flows = FlowCount(kept.flows)
        self._horizons = kept.horizons  # of groups with flows that lack octets
        self._curve = Curve(KeyRing(options.curve_keys))
        self._sorted = Groups(options)
        self._decoder = HeaderDecoder()
        self._told: Told = [], []  # of the packets at hand
        self._touched: dict[bytes, Connections] = {}  # by these packets
        self._settling = _Settling(self._sorted.of, self._of, self._connections(None).pause_ns)
        self._settled = None
        if core is not None:
            stages = self.stages
            self._settled = SettledFlows(core, self._settling, self._told[0], stages.patterns, stages.acknowledge)
        self._groups: dict[bytes, Connections] = {}  # the one with the latest packet is the last one
        self._held_octets = 0
        self._octets = 0
        self.end_ns = self.spec.end_ns  # time of the last segment
        self._now_ns = self.spec.end_ns  # of the last packet
        self._swept_ns = 0

    def _begin(self) -> tuple[SeriesState, Stages]:
        """The state of the series, and its stages."""
        try:
            kept = self._states.series()
            return kept, self._stages(kept.stages)
        except StateError:
            self.has_unreadable_states = True
            return SeriesState(), self._stages()

    def _stages(self, state: bytes = b"") -> Stages:
        return Stages(self._settings, state, self._is_first, self._options.ways and self._is_first)

    @property
    def _is_first(self) -> bool:
        """Whether it has the findings, and keeps the states, which one shard does for all."""
        return self.spec.number == 0

    def _connections(self, state: bytes | None) -> Connections:
        return Connections(self._settings, state, self._flows, self._curve, self.stages.witness, self._told)

    def events(self) -> Iterator[Events]:
        """Yield the events of the files, up to their end; ``captures`` is complete after that."""
        taken = [0] * len(self._paths)  # of each file
        for block, runs in merged_runs([self._blocks(*path) for path in self._paths.items()], _TOGETHER):
            first = self.packets.count + 1
            for at, count in runs:
                self.packets.add(self.spec.first_file + at, taken[at] + 1, count)
                taken[at] += count
            self._now_ns = max(self._now_ns, block.span_ns[1])
            numbers = range(first, first + len(block))
            if self._settled is None or block.odd or len(runs) > 1:
                self._dissect(self._decoder.segments_of(block, numbers))
                yield from self._give()
            else:
                for begin, end in self._settled.others(block, numbers):
                    self._dissect(self._decoder.segments_of(block.part(begin, end), numbers[begin:end]))
                self._end_settling()
                (at, count), *_ = runs
                of_file = array("q", range(taken[at] - count + 1, taken[at] + 1))
                yield from self._give(BatchOrigin(self.spec.first_file + at, of_file.tobytes(), block.base))
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
        provisional: list[Last] = []
        final: list[Last] = []
        told = set(self._groups)
        # Stalls are told in the order of their flows, as in `read`.
        for name, group in sorted(self._groups.items(), key=lambda item: item[1].first_flow):
            self._end(name, group, final, provisional)
        self._groups.clear()
        over = dict.fromkeys(self._states.over(self.end_ns))
        # All open connections have rows, or only those that may be over.
        for name in self._states.over(NEVER - 1) if self._options.tells_open else over:
            if name in told:
                continue
            state = self._kept(name)
            if state is None or not state.is_silent:
                self._end(name, self._group(state), final, provisional, is_changed=False)
            elif name in over:
                self._states.put(name, None)
        yield from self._tell(final)
        faults = [problem for capture in self.captures for problem in capture.problems]
        self.stages.learn([Problem(PROBLEMS[code].severity, code, detail) for _, code, detail in faults])
        self._dropped += sum(capture.dropped for capture in self.captures)
        self._keep()
        yield from self._tell(provisional, provisional=True)
        if self._options.tells_open:
            yield Events(self.stages.finish(self._now_ns), provisional=True)
        yield Events(self.stages.last_ways(self._now_ns), provisional=True)  # type: ignore[arg-type]
        totals = Capture(self.packets.count, self._dropped, self._flows.value, 0, 0, 0, 0, self._now_ns)
        yield Events(self.stages.findings(totals), provisional=True)  # type: ignore[arg-type]

    def _keep(self) -> None:
        """Keep the state that all groups share for the next run; all shards have the same one."""
        if not self._is_first:
            return
        conn_ids = dict(list(self.conn_ids.items())[-_KEPT_IDS:])
        runs = self.packets.runs()
        files = {file: self.files[file] for _, file, _ in runs}
        self._states.put_series(
            SeriesState(
                self.packets.count, self._dropped, self._flows.value, runs, files, conn_ids, self._horizons,
                self.stages.state(),
            )
        )  # fmt: skip

    def _end(
        self, name: bytes, group: Connections, final: list[Last], provisional: list[Last], is_changed: bool = True
    ) -> None:
        """Add the last events of a group, and keep its state for the next run if it goes on."""
        over_ns, is_silent = group.over_ns, group.is_silent
        octets, last, open_yet = group.finish(self.end_ns)
        is_datagrams = name.startswith(DATAGRAMS)  # a group that has no end
        state = State(NO_STATE) if is_datagrams else None if octets is None else State(octets, is_silent)
        if is_changed or state is None:
            self._states.put(name, state, NEVER if state is not None and state.connections == NO_STATE else over_ns)
        if state is None:
            self._horizons.pop(name, None)
        final += last
        if is_datagrams or self._options.tells_open:
            provisional += open_yet
        self._remember(group)
        group.close()

    def _tell(self, last: Sequence[Last], provisional: bool = False) -> Iterator[Events]:
        """Give the last events and notices of groups to the stages, in the order of their flows."""
        events: list[AnyEvent] = []
        notices: list[tuple[int, Notice]] = []
        for one in sorted(last, key=lambda one: getattr(one, "flow", None) or 0):
            if isinstance(one, Notice):
                notices.append((len(events), one))
            else:
                events.append(one)
        if events or notices:
            yield Events(self._staged(events, notices), provisional)

    def _staged(self, events: list[AnyEvent], notices: Sequence[tuple[int, Notice]]) -> list[AnyEvent]:
        horizons = {flow: ns for some in self._horizons.values() for flow, ns in some.items()}
        return self.stages.take(events, notices, self._curve.waiting_since_ns, horizons)

    # ------------------------------------------------------------------ packets

    def _blocks(self, number: int, path: str) -> Iterator[Block]:
        """The packets of a file, which is open from when its second packet is asked for."""
        beginning = File(path)
        first = beginning.beginning()
        problems = self._take_keys(beginning)
        if first is not None:
            self.packets.see(number, 1, first.part(0, 1))
            yield first.part(0, 1)
        file = File(path)
        for block in file.blocks():
            if file.key_lines:
                problems |= self._take_keys(file)
            self.packets.see(number, file.count + 1 - len(block), block)
            yield block.part(1) if first is not None and file.count == len(block) else block
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
        for name, group in self._touched.items():
            group.end_batch()
            if horizons := group.horizons:
                self._horizons[name] = horizons
            else:
                self._horizons.pop(name, None)
            self._remember(group)
        self._touched.clear()
        events, notices = self._told[0][:], self._told[1][:]
        self._told[0].clear()
        self._told[1].clear()
        if events or notices or self.stages.acknowledge is not None:
            octets, self._octets = self._octets, 0
            yield Events(self._staged(events, notices), octets=octets, origin=origin)
        yield from self._sweep()
        self._put_aside()
        if len(self.conn_ids) > _MOST_IDS:
            self.conn_ids = dict(list(self.conn_ids.items())[_MOST_IDS // 2 :])

    def _end_settling(self) -> None:
        """Go on from what the core took."""
        groups, self._settling.groups = self._settling.groups, {}
        octets, self._settling.octets = self._settling.octets, 0
        self.end_ns = max(self.end_ns, self._settling.now_ns)
        for group in groups.values():
            group.octets += octets // len(groups)
        self._touched |= groups
        self._held_octets += octets
        self._octets += octets

    def _dissect(self, segments: list[Segment]) -> None:
        """Take the segments of some packets, and the datagrams that the decoder found among them."""
        if segments:
            self.end_ns = max(self.end_ns, segments[-1][0])
        begin = 0
        taken: list[tuple[Connections, list[Segment]]] = []
        for datagram in self._decoder.datagrams:
            end = bisect(segments, datagram[1], begin, key=_packet)
            taken += self._take_segments(segments[begin:end])
            begin = end
            self._take_datagram(datagram)
        taken += self._take_segments(segments[begin:] if begin else segments)
        if self.stages.acknowledge is not None:
            for group, mine in taken:
                self.stages.acknowledge(group.acknowledgments(mine))

    def _take_segments(self, segments: Sequence[Segment]) -> Iterator[tuple[Connections, list[Segment]]]:
        """Take segments. Yields them by their groups."""
        of = self._sorted.of
        for name, run in groupby(segments, lambda segment: of(segment[2])):
            if name is not None:
                mine = list(run)
                group = self._touch(name, sum(map(len, map(_payload, mine))))
                group.take(mine)
                yield group, mine

    def _take_datagram(self, datagram: Datagram) -> None:
        _, _, protocol, key, payload, missing = datagram
        name = self._sorted.of(key, is_datagram=True)
        if name is not None and self._sorted.wants(protocol, key, payload, missing):
            self._touch(name, len(payload)).take([], [datagram])

    def _remember(self, connections: Connections) -> None:
        """Remember the ids of connections for rows that name them."""
        self.conn_ids |= connections.conn_ids

    # ------------------------------------------------------------------ groups

    def _touch(self, name: bytes, octets: int) -> Connections:
        group = self._touched.get(name)
        if group is None:
            group = self._touched[name] = self._of(name)
        group.octets += octets
        self._held_octets += octets
        self._octets += octets
        return group

    def _of(self, name: bytes) -> Connections:
        group = self._groups.pop(name) if name in self._groups else self._group(self._kept(name))
        self._groups[name] = group
        return group

    def _kept(self, name: bytes) -> State | None:
        """The state of a group; None if there is none, or it cannot be read."""
        try:
            return self._states.get(name)
        except StateError:
            self.has_unreadable_states = True
            return None

    def _group(self, state: State | None) -> Connections:
        """A group restored from a state, or a new one."""
        try:
            if state is not None and state.connections != NO_STATE:
                return self._restored(state)
        except StateError:
            self.has_unreadable_states = True
        return self._connections(None)

    def _restored(self, state: State) -> Connections:
        group = self._connections(state.connections)
        group.octets = len(state.connections)
        self._held_octets += group.octets
        return group

    def _put_aside(self) -> None:
        """Put the groups aside that have been idle for longest, if there are many, or if they hold much."""
        if self._held_octets > _MOST_HELD:
            self._count_held()
        if len(self._groups) <= _MOST_GROUPS and self._held_octets <= _MOST_HELD:
            return
        for name, group in list(self._groups.items()):
            if len(self._groups) <= _MOST_GROUPS // 2 and self._held_octets <= _MOST_HELD // 2:
                break
            octets = group.state()
            if octets is None:
                continue
            self._states.put(name, State(octets, group.is_silent), group.over_ns)
            self._forget(name)

    def _count_held(self) -> None:
        """Count how much the large groups hold; most of their octets have gone on."""
        for group in self._groups.values():
            if group.octets > _MUCH:
                held = len(group.state() or b"")
                self._held_octets += held - group.octets
                group.octets = held

    def _forget(self, name: bytes) -> None:
        group = self._groups.pop(name)
        self._held_octets -= group.octets
        group.close()

    def _sweep(self) -> Iterator[Events]:
        """Finish the groups whose connections are over."""
        if self.end_ns - self._swept_ns < _SWEEP_NS and len(self._groups) <= _MOST_GROUPS:
            return
        self._swept_ns = self.end_ns
        for name, group in list(self._groups.items()):
            if group.is_over(self.end_ns):
                _, final, provisional = group.finish(self.end_ns)
                self._remember(group)
                self._forget(name)
                self._states.put(name, None)
                self._horizons.pop(name, None)
                yield from self._tell(final + provisional)


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
        self._origin = RowOrigin(series, shard.files, shard.packets, shard.conn_ids)
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
        kinds, events = self._kinds, self._own(one.events)
        if kinds is not None:
            events = [event for event in events if isinstance(event, kinds)]
        origin = self._origin = self._origin._replace(conn_ids=self._shard.conn_ids)
        self._backlogs[one.provisional and not self._stays].take(events, origin, one.origin)
        self._events += sum(len(event) if isinstance(event, MessageBatch) else 1 for event in events)
        self._octets += one.octets
        if self._events >= _MOST_EVENTS or self._octets >= _MOST_OCTETS:
            self._events = self._octets = 0
            self._waits = (self._waits + 1) % _MOST_WAITS
            yield from self._make(_LEAST_OTHERS if self._waits else 1)

    def _own(self, events: list[AnyEvent]) -> list[AnyEvent]:
        """The events whose rows are of this shard."""
        spec = self._shard.spec
        if spec.count == 1:
            return events
        found: list[AnyEvent] = []
        for event in events:
            if isinstance(event, MessageBatch):
                own = [spec.has(side.flow) for side in event.senders]
                if all(own):
                    found.append(event)
                elif any(own) and len(mine := event.of_senders(own)):
                    found.append(mine)  # type: ignore[arg-type]
            elif spec.has(getattr(event, "flow", None)):
                found.append(event)
        return found

    def _make(self, least: int = 1) -> Iterator[Batch]:
        for provisional, backlog in enumerate(self._backlogs):
            yield from self._rows.of_events(backlog, self._origin, bool(provisional), least)


def _problem(code: str, detail: str) -> tuple[str, str, str]:
    return PROBLEMS[code].severity, code, detail
