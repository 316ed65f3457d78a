"""A shard of a series: its files, in order, dissected by one task, with nothing but states carried over.

The files are merged by time as ``read`` merges them. Their packets go to an engine, as those of ``read`` do, and all
events to the stages that ``read`` has. Unlike ``read``, the shard puts connections aside that have had no packets for
longest, with what only they need of the stages. So memory hardly grows with those that stay open. Pairs of messages may
depend on all connections. So each shard dissects all of them, and makes the rows of its own: two shards take 1.4 times
the time of processors that one takes for few connections with many messages, 1.6 times for many short connections.
"""

from array import array
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from typing import NamedTuple

from msgspec.msgpack import encode

from dissectors.batches import MessageBatch
from dissectors.events import AnyEvent, Capture, Problem
from dissectors.problems import PROBLEMS
from dissectors.zmtp.curve import Curve
from dissectors.zmtp.curve_keys import KeyLineError, KeyRing, NoSodiumError
from zmtpsniff.analysis.insertions import inserted
from zmtpsniff.analysis.interruptions import INTERRUPTED, interruption
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.capture.merge import APART_NS, merged_runs
from zmtpsniff.capture.source import Interruption
from zmtpsniff.engine.flow_engine import FlowEngine, StateError
from zmtpsniff.engine.settled import SettledFlows
from zmtpsniff.native import core
from zmtpsniff.net.addresses import Address, reverse
from zmtpsniff.net.flow import Flow
from zmtpsniff.net.networks import Networks
from zmtpsniff.net.notices import CaptureProblem, Notice
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Step
from zmtpsniff.spark.connection_ids import ConnectionId, local_id, shared_id
from zmtpsniff.spark.inputs import File
from zmtpsniff.spark.message_rows import BatchOrigin
from zmtpsniff.spark.open_states import SeriesState, ShardStates, State, StateRow
from zmtpsniff.spark.options import Options, ShardSpec
from zmtpsniff.spark.packet_names import PacketNames
from zmtpsniff.spark.row_columns import RowOrigin
from zmtpsniff.spark.rows import Batch, ReadFile, Rows, capture_rows
from zmtpsniff.spark.stages import Stages, loaded_events, saved_events

_TOGETHER = 256  # packets of several files that are taken together
_MOST_IDS = 100_000  # ids of connections that are remembered
_KEPT_IDS = 16_384  # ids that are kept for the next run
_MOST_FLOWS = 4096  # flows at hand, each with some kilobytes; FlowLimits bound what they hold together
_OPEN_TOGETHER = 512  # open flows that the stages take up at once, to end them
_MOST_EVENTS = 16_384  # so many events become rows at once
_MOST_OCTETS = 4 << 20  # likewise, by the octets of their packets
_LEAST_OTHERS = 4096  # fewer events of a kind, other than messages, wait for more: each batch of rows has its price
_MOST_WAITS = 8  # so often at most

_packet = itemgetter(1)
Last = AnyEvent | Notice
"""An event at the end of a connection, or a notice among them."""


class Events(NamedTuple):
    """Events, and whether they are there only because the files end.

    ``octets`` were read since the events before. Batches of messages are of ``origin``.
    """

    events: list[AnyEvent]
    provisional: bool = False
    octets: int = 0
    origin: BatchOrigin | None = None


class Shard:
    """One shard of a series."""

    def __init__(self, paths: Sequence[str], options: Options, states: ShardStates, spec: ShardSpec) -> None:
        """Dissect the files ``paths``, in the order of their names, from ``states`` on, which are changed.

        A connection whose state cannot be read begins anew, and ``has_unreadable_states`` says so.
        """
        self.spec = spec
        self.has_unreadable_states = False
        self._options = options
        self._states = states
        self._curve = Curve(KeyRing(options.curve_keys))
        kept, self.stages, self._engine = self._begin()
        self._flows = self._engine.flows
        self._paths = dict(enumerate(paths, self.spec.first_file))
        self.files = kept.files | self._paths  # by number, also those of runs before
        self.packets = PacketNames(kept.packets, kept.runs, lambda file: File(self.files[file]).offsets())
        self.captures: list[ReadFile] = []
        self.conn_ids = kept.conn_ids  # by the numbers of flows
        self._dropped = kept.dropped
        self._sent = kept.sent  # the decoder changes it
        self._networks = kept.networks
        self._decoder = HeaderDecoder(None, Networks(self._flows.register.number_of, kept.networks), kept.sent)
        self._datagram_ns = 0  # time of the last datagram
        self._datagram_flows: set[int] = set()
        self._settled = None
        if core is not None:
            stages = self.stages
            wants = options.wants if options.ports else None
            self._settled = SettledFlows(core, self._engine, stages.patterns, stages.acknowledge, wants)
        self._waiting: list[bytes] = []  # names of states that lack octets
        for name in kept.waiting:
            self._resume_between(name)
        self._horizons = self._flows.waiting.horizons
        self._octets = 0
        self._now_ns = self.spec.end_ns  # of the last packet
        self._shared = b""  # the state of the engine that all connections share, once the files end

    def _begin(self) -> tuple[SeriesState, Stages, FlowEngine]:
        """The state of the series, its stages and its engine."""
        try:
            return self._begin_from(self._states.series())
        except StateError:
            self.has_unreadable_states = True
            return self._begin_from(SeriesState())

    def _begin_from(self, kept: SeriesState) -> tuple[SeriesState, Stages, FlowEngine]:
        settings, options = self._options.settings, self._options
        stages = Stages(settings, kept.stages, self._is_first, options.ways and self._is_first)
        engine = FlowEngine(
            settings, self._curve, witness=stages.witness, begin=self._name_flow, wake=self._resume_between,
            acknowledge=stages.acknowledge,
        )  # fmt: skip
        if kept.engine:
            engine.restore(kept.engine)
        return kept, stages, engine

    @property
    def _is_first(self) -> bool:
        """Whether it has the findings, and keeps the states, which one shard does for all."""
        return self.spec.number == 0

    def events(self) -> Iterator[Events]:
        """Yield the events of the files, up to their end; ``captures`` is complete after that."""
        taken = [0] * len(self._paths)  # of each file
        interruptions: list[Interruption] = []
        is_new_run = True  # no packet came in this run
        for block, runs in merged_runs([self._blocks(*path) for path in self._paths.items()], interruptions, _TOGETHER):
            begin_ns = block.times_ns[0]
            if is_new_run and self.spec.end_ns and begin_ns - self.spec.end_ns >= APART_NS:
                interruptions.append((self.spec.end_ns, begin_ns))
            is_new_run = False
            if interruptions:
                yield self._interrupted(*interruptions.pop())
            first = self.packets.count + 1
            for at, count in runs:
                self.packets.add(self.spec.first_file + at, taken[at] + 1, count)
                taken[at] += count
            self._now_ns = max(self._now_ns, block.span_ns[1])
            self._octets += block.captured
            numbers = range(first, first + len(block))
            if self._settled is None or block.odd or len(runs) > 1:
                self._dissect(block, numbers)
                yield from self._taken_events()
            else:
                for begin, part in self._settled.others(block, numbers):
                    self._dissect(part, numbers[begin : begin + len(part)])
                (at, count), *_ = runs
                of_file = array("q", range(taken[at] - count + 1, taken[at] + 1))
                begin_ns, end_ns = block.span_ns
                yield from self._taken_events(
                    BatchOrigin(self.spec.first_file + at, of_file.tobytes(), block.base, end_ns - begin_ns)
                )
        if skipped := self._decoder.skipped():
            max(self.captures).problems.update(dict.fromkeys(_problem(code, detail) for code, detail in skipped))

    def _interrupted(self, since_ns: int, until_ns: int) -> Events:
        """Nothing was captured for a while. The stages know; like all that concerns whole files, it has no row."""
        events = self._staged([interruption(since_ns, until_ns)], ())
        return Events([one for one in events if not (isinstance(one, Problem) and one.code == INTERRUPTED)])

    def last_events(self) -> Iterator[Events]:
        """Yield the last events: of connections that are over when the files end, and provisional ones of open ones.

        The states are complete after that.
        """
        end_ns = max(self.spec.end_ns, self._flows.now_ns)
        final, datagrams = self._end_flows(end_ns)
        unfinished = iter(self._states.unfinished(end_ns, self._options.tells_open))
        while some := list(islice(unfinished, _MOST_FLOWS)):
            for name in some:
                self._resume_between(name)
            final += self._end_flows(end_ns)[0]
        yield from self._staged_last(final)
        self._take_faults(CaptureProblem(*one[1:]) for capture in self.captures for one in capture.problems)
        self._dropped += sum(capture.file.dropped for capture in self.captures)
        self._keep_series()
        yield from self._staged_last(datagrams, provisional=True)
        if self._options.tells_open:
            yield from self._last_of_open()
        # These are of all files together, also of those to come: no state has them, and no row.
        self._take_faults(self._engine.problems())
        if self._options.tells_open:
            yield Events(self.stages.finish(self._now_ns), provisional=True)
        yield Events(self.stages.last_ways(self._now_ns), provisional=True)  # type: ignore[arg-type]
        flows = self._flows.register.count
        totals = Capture(self.packets.count, self._dropped, flows, 0, 0, 0, 0, self._now_ns)
        yield Events(self.stages.findings(totals), provisional=True)  # type: ignore[arg-type]

    def _take_faults(self, faults: Iterable[CaptureProblem]) -> None:
        """Give problems of whole files to the stages."""
        self.stages.learn(
            [Problem(PROBLEMS[one.code].severity, one.code, one.detail, by_ns=one.by_ns) for one in faults]
        )

    def _end_flows(self, end_ns: int) -> tuple[list[Last], list[Last]]:
        """End all flows at hand. The states keep those of TCP that are open, with their last events.

        Return the last events of TCP flows that are over, and those of datagrams, whose flows have no end.
        """
        self._flows.register.follow_all()
        between: dict[bytes, list[Flow]] = {}
        for flow in sorted(self._flows.register.flows.values(), key=attrgetter("number")):
            between.setdefault(_name_of(flow), []).append(flow)
        self._waiting += [name for name, some in between.items() if any(map(self._flows.waiting.has, some))]
        first = {flow.number: some[0].number for some in between.values() for flow in some}
        going_on = {*self._flows.open_flows(end_ns)}
        facts = self.stages.put_aside(going_on)
        rows = {some[0].number: self._row(some, facts) for some in between.values() if self._over_ns(some) > end_ns}
        self._shared = self._shared or self._engine.snapshot()  # the next line tells what open flows would be if over
        self._engine.finish(end_ns)
        final: list[Last] = []
        datagrams: list[Last] = []
        open_yet: dict[int, list[Last]] = {}
        for one in inserted(*self._engine.give()):
            number = one.flow  # type: ignore[union-attr]
            if number in going_on:
                open_yet.setdefault(first[number], []).append(one)
            else:
                (datagrams if number in self._datagram_flows else final).append(one)
        for number, row in rows.items():
            self._keep_state(row, open_yet.get(number, []))
        return final, datagrams

    def _last_of_open(self) -> Iterator[Events]:
        """The last events of open connections, behind the stages, in the order of their flows."""
        open_rows = self._states.told()
        while rows := list(islice(open_rows, _OPEN_TOGETHER)):
            for row in rows:
                self._take_up(row.content)
            yield from self._staged_last(
                [one for row in rows for one in loaded_events(row.last or b"")], provisional=True
            )

    def _row(self, flows: Sequence[Flow], facts: Mapping[int, bytes]) -> StateRow:
        """The state of connections with the same ends as a row, without their last events."""
        known = {flow.number: self.conn_ids[flow.number] for flow in flows if flow.number in self.conn_ids}
        own = {flow.number: facts[flow.number] for flow in flows if flow.number in facts}
        state = State([self._engine.save(flow) for flow in flows], known, own)
        return StateRow(_name_of(flows[0]), self._over_ns(flows), flows[0].number, None, encode(state))

    def _over_ns(self, flows: Sequence[Flow]) -> int:
        """The time from which on a packet with these ends belongs to a new flow."""
        return max(map(self._flows.over_ns, flows))

    def _keep_series(self) -> None:
        """Keep the state that all connections share for the next run. One shard does it, since all have the same."""
        if not self._is_first:
            return
        if self._datagram_flows:
            self._states.lose_datagrams()
        runs = self.packets.runs()
        self._states.put_series(
            SeriesState(
                self.packets.count, self._dropped, runs, {file: self.files[file] for _, file, _ in runs},
                dict(list(self.conn_ids.items())[-_KEPT_IDS:]), dict(list(self._sent.items())[-_KEPT_IDS:]),
                self._waiting, self._networks, self._shared, self.stages.state(),
            )
        )  # fmt: skip

    def _staged_last(self, last: Sequence[Last], provisional: bool = False) -> Iterator[Events]:
        """Last events and notices, behind the stages, in the order of their flows."""
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
        """Events as they are behind the stages, with what analysis adds."""
        return self.stages.take(events, notices, self._curve.waiting_since_ns, self._horizons)

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
        self.captures.append(ReadFile(number, file, problems))

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

    def _taken_events(self, origin: BatchOrigin | None = None) -> Iterator[Events]:
        """The events of the packets that were taken since the last call, behind the stages."""
        self._flows.end_batch()
        self._horizons = self._flows.waiting.horizons
        events, notices = self._engine.give()
        if events or notices or self.stages.acknowledge is not None:
            octets, self._octets = self._octets, 0
            yield Events(self._staged(events, notices), octets=octets, origin=origin)
        self._put_aside()

    def _dissect(self, block: Block, numbers: Sequence[int]) -> None:
        """Give packets of flows that are not settled to the engine, with datagrams at their places."""
        segments = self._decoder.segments_of(block, numbers)
        if self._options.ports:
            segments = [segment for segment in segments if self._options.wants(segment[2])]
        begin = 0
        for datagram in self._decoder.datagrams:
            if self._options.wants(datagram[3]):
                end = bisect(segments, datagram[1], begin, key=_packet)
                self._engine.take(segments[begin:end], (), False, self._steps(datagram[1]))
                begin, self._datagram_ns = end, datagram[0]
                self._engine.take([], [datagram], is_last=False)
        self._engine.take(segments[begin:] if begin else segments, (), False, self._steps(numbers[-1] + 1))

    def _steps(self, end: int) -> Sequence[Step]:
        """The steps of whole connections at packets before the number ``end``."""
        return () if self._settled is None else self._settled.steps(end)

    def _name_flow(self, number: int, transport: str, client: Address, server: Address) -> None:
        """Give a new flow its id."""
        flow = self._flows.register.at(number)
        if flow is None:
            self._datagram_flows.add(number)
        if flow is not None and (numbers := flow.initial_numbers):
            found = shared_id(*numbers)
        else:
            start_ns = self._datagram_ns if flow is None else flow.start_ns
            found = local_id(transport, client.text, server.text, start_ns)
        self._remember({number: found._replace(server=server.text)})

    def _remember(self, conn_ids: Mapping[int, ConnectionId]) -> None:
        """Remember the ids of connections for rows that name them: of the last ones, and of all at hand."""
        self.conn_ids |= conn_ids
        if len(self.conn_ids) > _MOST_IDS:
            old = list(self.conn_ids.items())
            at_hand = [one for one in old if one[0] in self._flows.register.flows]
            self.conn_ids = dict([*old[_MOST_IDS // 2 :], *at_hand])

    # ------------------------------------------------------------------ connections that are put aside

    def _resume_between(self, key: bytes) -> None:
        """Take the connections between two ends up again that were put aside, if there are any."""
        try:
            state = self._states.pop(min(key, reverse(key)))
            if state is not None:
                self._engine.resume(state.flows)
                self._take_up(state)
        except StateError:
            self.has_unreadable_states = True

    def _take_up(self, state: State) -> None:
        """Give the facts of connections that are taken up back to the ids and the stages."""
        self._remember(state.conn_ids)
        self.stages.take_up(state.facts)

    def _put_aside(self) -> None:
        """Put connections aside that have been idle for longest, if there are many."""
        many = len(self._flows.register.flows)
        if many > _MOST_FLOWS:
            idle = self._flows.register.idle(many - _MOST_FLOWS // 2)
            facts = self.stages.put_aside(flow.number for flow in idle)
            for flow in idle:
                row = self._row([flow], facts)
                last = self._engine.put_aside(flow)
                self._keep_state(row, None if last is None else inserted(*last))

    def _keep_state(self, row: StateRow, last: Sequence[Last] | None) -> None:
        """Keep a state for later, with the last events if these are known."""
        self._states.put(row._replace(last=None if last is None else saved_events(last)))


class ShardRows:
    """The events of a shard as rows."""

    def __init__(
        self, series: str, shard: Shard, options: Options, kinds: tuple[type, ...] | None, stays: bool = False
    ) -> None:
        """Make rows of the events of a shard, or of some ``kinds``. No row is provisional if everything ``stays``."""
        self._series = series
        self._shard = shard
        self._kinds = kinds
        self._stays = stays
        self._origin = RowOrigin(series, shard.files, shard.packets, shard.conn_ids)
        self._rows = Rows(options.max_bytes, options.bodies)
        self._provisional_rows = Rows(options.max_bytes, options.bodies, provisional=True)
        self._events = self._octets = self._waits = 0

    def all(self, files: Mapping[str, FileInfo]) -> Iterator[Batch]:
        """Dissect the shard; yields its rows, the first shard also those about ``files``: their sizes and times."""
        for source in (self._shard.events(), self._shard.last_events()):
            for one in source:
                yield from self._add_events(one)
        yield from self._make_rows()
        if self._shard.spec.number == 0:
            for capture in self._shard.captures:
                listed = files[capture.file.path]
                yield from capture_rows(capture, listed, self._series, self._shard.spec.count)

    def _add_events(self, one: Events) -> Iterator[Batch]:
        """Add events to those of which rows will be made. If there are enough, yield the rows."""
        kinds, events = self._kinds, self._own(one.events)
        if kinds is not None:
            events = [event for event in events if isinstance(event, kinds)]
        origin = self._origin = self._origin._replace(conn_ids=self._shard.conn_ids)
        rows = self._provisional_rows if one.provisional and not self._stays else self._rows
        rows.take(events, origin, one.origin)
        self._events += sum(len(event) if isinstance(event, MessageBatch) else 1 for event in events)
        self._octets += one.octets
        if self._events >= _MOST_EVENTS or self._octets >= _MOST_OCTETS:
            self._events = self._octets = 0
            self._waits = (self._waits + 1) % _MOST_WAITS
            yield from self._make_rows(_LEAST_OTHERS if self._waits else 1)

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

    def _make_rows(self, least: int = 1) -> Iterator[Batch]:
        """The rows of all events so far, but for kinds with fewer than ``least`` of them."""
        yield from self._rows.made(self._origin, least)
        yield from self._provisional_rows.made(self._origin, least)


def _problem(code: str, detail: str) -> tuple[str, str, str]:
    return PROBLEMS[code].severity, code, detail


def _name_of(flow: Flow) -> bytes:
    """The name of the state of a flow: the lesser key of its directions."""
    return min(flow.client.key, flow.server.key)
