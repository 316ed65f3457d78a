"""The pump: packets in, events out. The one module that knows both the capture side and the dissectors."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dissectors.batches import MessageBatch, single_messages
from dissectors.events import AnyEvent, Capture, Command, Comment, Connection, Message, Problem
from dissectors.payloads import PayloadDissector
from dissectors.problems import PROBLEMS
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.curve import Curve
from dissectors.zmtp.curve_keys import KeyLineError, KeyRing, NoSodiumError, sodium
from dissectors.zmtp.usual import UsualConnection
from zmtpsniff.analysis.event_times import retimed, retimed_struct
from zmtpsniff.analysis.interruptions import interruption
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.payloads import Payloads
from zmtpsniff.analysis.plugins import load_dissectors
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.source import Source, tick_seconds
from zmtpsniff.engine.clock_watch import ClockWatch
from zmtpsniff.engine.flow_engine import FlowEngine
from zmtpsniff.engine.settings import Settings
from zmtpsniff.native import core
from zmtpsniff.net.addresses import addresses
from zmtpsniff.net.networks import Networks
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.witness import Acknowledge, Witness
from zmtpsniff.words.set_clocks import ForwardJumps, is_due, later

if TYPE_CHECKING:  # few runs need them
    from zmtpsniff.engine.selector import PacketSelector
    from zmtpsniff.host.local import LocalHost
    from zmtpsniff.net.tls import Tls
    from zmtpsniff.net.translator import Translator
    from zmtpsniff.net.views import Translations

_KEYS_LATE_NS = 5_000_000_000  # how much later than the packets of a connection its key may come
_KEYS_SOUGHT_NS = 15_000_000_000  # the same where the memory of programs is searched, perhaps on a busy machine
_MOST_KEY_FAULTS = 8
_SETTLE_NS = 1_000_000_000  # between two looks at what waits for packets that do not come
_STALL_NS = 500_000_000  # so much later than it should no batch of a live capture comes, if need be an empty one
_LATEST_NS = 2_000_000_000  # a capture that gives nothing has given all that is older
_RECOVERY_NS = 1_000_000_000  # in which packets come that waited meanwhile

_MESSAGES = (Message, MessageBatch)


class Collaborators(NamedTuple):
    """The objects that a Sniffer works with besides its source. Each of them is optional."""

    clock: Callable[[], int] | None = None
    """Gives the time, in nanoseconds since 1970, while packets pass. Afterwards it advances without packets, too."""
    tls: "Tls | None" = None
    """Takes decrypted octets out of TLS."""
    witness: Witness | None = None
    """Hears of attempts to connect, and of receivers that stall."""
    acknowledge: Acknowledge | None = None
    """Hears what receivers acknowledge, before the events of the same packets come."""
    host: "LocalHost | None" = None
    """Tells which processes of this machine have the connections."""
    selector: "PacketSelector | None" = None
    """Saves some of the packets, by their segments and datagrams."""
    monotonic: Callable[[], int] | None = None
    """Likewise a clock that nobody sets, which shows when the other one is set forward."""
    translations: "Translations | None" = None
    """Say which connections the files of a source have with several addresses."""
    dissectors: Callable[[], Sequence[PayloadDissector]] | None = None
    """Loads the dissectors of payloads. None: the plug-ins of settings and of packages, and the built-in ones."""


NOBODY = Collaborators()
"""For the packets of a file."""


class Sniffer:
    """Turns the packets of a source into events."""

    def __init__(self, source: Source, settings: Settings, collaborators: Collaborators = NOBODY) -> None:
        """Plug-ins are run here.

        Raises PluginError, NoSodiumError for keys without PyNaCl, and DecodeAsError for a rule that names an unknown
        protocol of payloads.
        """
        self._source = source
        self._count = settings.packets
        self._clock = collaborators.clock
        self._jumps = ForwardJumps() if collaborators.witness is None else collaborators.witness.jumps
        self._watch = ClockWatch(self._jumps, collaborators.clock, collaborators.monotonic)
        self._looked_ns = 0  # at the clock
        self._stalled_ns = 0
        self._settled_ns = 0
        self._patterns = None
        if settings.patterns:
            self._patterns = Patterns(settings.reply_seconds, settings.decode_as, settings.greeted)
        self._payloads = _make_payloads(settings, collaborators) if settings.payload else None
        self._curve = Curve(KeyRing(settings.curve_keys))
        self._host = collaborators.host
        self._selector = collaborators.selector
        if settings.host_keys:
            self._curve.patience_ns = _KEYS_SOUGHT_NS
        self.key_faults: list[str] = []  # why keys that came with the packets are not used
        self._engine = FlowEngine(
            settings, self._curve, tls=collaborators.tls, witness=collaborators.witness,
            acknowledge=collaborators.acknowledge,
        )  # fmt: skip
        self._headers = HeaderDecoder(networks=Networks(self._engine.flows.register.number_of))
        if self._selector is not None:
            self._selector.may_speak = self._engine.flows.register.may_speak
        self._translator = _make_translator(collaborators)
        if self._translator is not None:
            self._engine.refuse_whole()
        self._keeps_batches = settings.batches
        self._settled = None
        if core is not None and self._selector is None:
            from zmtpsniff.engine.settled import SettledFlows

            self._settled = SettledFlows(core, self._engine, self._patterns, collaborators.acknowledge)
        self._connections = 0
        self._sealed: set[int] = set()  # without keys: open connections that had a MESSAGE of CURVE
        self._sealed_ended = 0  # those that are over
        self._packets = 0
        self._messages = 0
        self._problems = 0
        self._first_ns: int | None = None
        self._last_ns = 0
        self._come_ns = 0  # up to when packets have come; back again if the clock is set back
        self._faults = 0
        self._interruptions = 0
        self._comments = 0
        self._finished = False

    def events(self) -> Iterator[list[AnyEvent]]:
        """Yield events in batches, as soon as they are known; the last event is the ``capture`` record.

        A batch belongs to the caller until the next is asked for. Raises CaptureError if the source is no capture.
        """
        for given in self._source.batches():
            block = given if self._count is None else given.part(0, self._count - self._packets)
            if self._source.key_lines:
                self._take_keys()
            self._watch.look()
            self._report_interruptions()
            self._take(block)
            clock_ns = None if self._clock is None else self._jumps.steady(self._clock())
            now_ns = self._come_ns if clock_ns is None else self._tell_time(clock_ns, bool(block))
            if self._clock is not None:
                self._settle(now_ns)
            if self._curve.waiting_since_ns is not None:
                self._curve.settle(now_ns)
            yield self._give()
            if self._count is not None and self._packets >= self._count:
                break
        yield self.finish()

    def finish(self) -> list[AnyEvent]:
        """End every flow. Returns the last events. No events come after that."""
        if self._finished:
            return []
        self._finished = True
        if self._patterns is not None:
            self._patterns.settle(self._last_ns)
        self._engine.finish()
        self._report_faults()
        for code, detail in self._headers.skipped():
            self._report(code, detail)
        translated = [] if self._translator is None else self._translator.problems()
        for one in (*self._engine.problems(), *translated):
            self._report(*one)
        flows = self._engine.flows.register.count
        if not flows and (others := self._headers.other_packets()):
            self._report("no-flows", f"no connection is in the capture; other packets: {others}")
        events = self._give(at_end=True)
        captured = self._jumps.captured
        events.append(
            Capture(
                packets=self._packets,
                dropped=self._source.dropped,
                flows=flows,
                zmtp_flows=self._connections,
                messages=self._messages,
                problems=self._problems,
                duration_ns=0 if self._first_ns is None else captured(self._last_ns) - captured(self._first_ns),
                end_ns=None if self._first_ns is None else captured(self._last_ns),
            )
        )
        return events

    def open_connections(self) -> Iterator[Connection]:
        """Summaries so far of the open ZMTP connections over TCP."""
        for flow in self._engine.flows.register.flows.values():
            one = flow.dissection
            whole = one.open() if isinstance(one, UsualConnection) else one
            if (
                isinstance(whole, ZmtpConnection)
                and (summary := whole.summary(flow.start_ns, flow.last_ns)) is not None
            ):
                yield retimed_struct(summary, self._jumps.captured) if self._jumps else summary

    def server(self, flow: int) -> str | None:
        """The address and port of the server of a TCP connection; None once the connection is over."""
        key = self._engine.flows.register.client_key(flow)
        return None if key is None else addresses(key)[1].text

    @property
    def curve_connections(self) -> tuple[int, int]:
        """How many connections keys have opened so far, and how many had messages that no key opens."""
        sealed = self._curve.sealed_connections + self._sealed_ended + len(self._sealed)
        return self._curve.opened_connections, sealed

    @property
    def is_mostly_sealed(self) -> bool:
        """Whether most ZMTP connections so far had messages that no key opens."""
        return 2 * self.curve_connections[1] > self._connections

    @property
    def packets(self) -> int:
        """The number of packets so far."""
        return self._packets

    @property
    def dropped(self) -> int:
        """The number of packets that are known to be lost so far."""
        return self._source.dropped

    def _tell_time(self, clock_ns: int, has_packets: bool) -> int:
        """The time up to which packets have come; while packets wait to be read, the time of the last one.

        On a busy machine this program may stand still, or the whole machine. Packets that came meanwhile wait somewhere
        on their way here, though none is in the first batch behind that. So they get some time to come.
        """
        tick_ns = int(tick_seconds((clock_ns - self._come_ns) / 1e9) * 1e9)
        if clock_ns - self._looked_ns > tick_ns + _STALL_NS:
            self._stalled_ns = clock_ns
        self._looked_ns = clock_ns
        is_late = 0 <= clock_ns - self._stalled_ns < _RECOVERY_NS
        return self._come_ns if has_packets or is_late else clock_ns

    def _settle(self, now_ns: int) -> None:
        """Pass the time on to flows and patterns, once a second."""
        if is_due(now_ns, self._settled_ns + _SETTLE_NS):
            self._settled_ns = now_ns
            self._engine.settle(now_ns)
            if self._patterns is not None:
                # Patterns report a time once they have seen the packets before: a packet shows how far the capture is.
                self._patterns.settle(max(self._come_ns, now_ns - _LATEST_NS))

    def _take_keys(self) -> None:
        """Take keys that came with the packets. Later keys may come after the boxes that they open."""
        lines = self._source.key_lines[:]
        del self._source.key_lines[: len(lines)]
        try:
            sodium()
            self._curve.patience_ns = max(self._curve.patience_ns, _KEYS_LATE_NS)
        except NoSodiumError as error:
            self._refuse_keys(str(error))
            return
        for line in lines:
            try:
                self._curve.ring.add_line(line)
            except KeyLineError as error:
                self._refuse_keys(str(error))

    def _refuse_keys(self, reason: str) -> None:
        detail = f"keys in the capture are not used: {reason}"
        if detail not in self.key_faults and len(self.key_faults) < _MOST_KEY_FAULTS:
            self.key_faults.append(detail)
            self._report("keys-not-used", detail)

    def _take(self, block: Block) -> None:
        if not block:
            return
        block = self._watch.steady(block)
        first_ns, last_ns = block.span_ns
        self._first_ns = first_ns if self._first_ns is None else min(self._first_ns, first_ns)
        self._last_ns = max(self._last_ns, last_ns)
        self._come_ns = later(self._come_ns, last_ns)
        begin = 0
        for place, packet in block.odd.items():
            self._take_plain(block.part(begin, place))
            begin = place + 1
            if packet[4] is not None:
                # A comment stands before the events of its packet, and after those of earlier packets.
                self._engine.events.append(Comment(packet[4], packet[0], self._packets + 1))
            self._dissect(Block.of([packet]))
        self._take_plain(block.part(begin) if begin else block)
        self._engine.flows.end_batch()

    def _take_plain(self, block: Block) -> None:
        """Take a block without odd packets: the packets of settled flows in columns, others as objects."""
        if self._settled is None:
            self._dissect(block)
            return
        before = self._packets
        for begin, part in self._settled.others(block, range(before + 1, before + 1 + len(block))):
            self._packets = before + begin
            self._dissect(part)
        self._packets = before + len(block)

    def _dissect(self, block: Block) -> None:
        first, size = self._packets + 1, len(block)
        segments = self._headers.segments_of(block, range(first, first + size))
        if self._translator is not None:
            segments = self._translator.translated(segments)
        self._packets += size
        steps = () if self._settled is None else self._settled.steps(first + size)
        datagrams = self._engine.take(segments, self._headers.datagrams, False, steps)
        if self._selector is not None:
            packets = (block.with_times(self._jumps.captured) if self._jumps else block).packets()
            self._selector.take(packets, first, segments, datagrams, self._headers.fragments)

    def _report(self, code: str, detail: str, by_ns: int | None = None) -> None:
        self._engine.events.append(Problem(PROBLEMS[code].severity, code, detail, by_ns=by_ns))

    def _report_faults(self) -> None:
        for fault in self._source.faults[self._faults :]:
            self._report(fault.code, fault.detail)
        self._faults = len(self._source.faults)

    def _report_interruptions(self) -> None:
        """The next packets are those of captures that do not meet the ones before."""
        for since_ns, until_ns in self._source.interruptions[self._interruptions :]:
            self._engine.events.append(interruption(since_ns, until_ns))
        self._interruptions = len(self._source.interruptions)

    def _give(self, at_end: bool = False) -> list[AnyEvent]:
        """The events since the last call, counted."""
        self._report_faults()
        events, notices = self._engine.give()
        if self._patterns is not None:
            events = self._patterns.take(
                events, self._curve.waiting_since_ns, notices, self._engine.flows.waiting.horizons
            )
            if at_end:
                events += self._patterns.finish()
        if self._payloads is not None:
            events = self._payloads.take(events)
        if self._jumps:
            events = retimed(events, self._jumps.captured)
        if not self._keeps_batches:
            events = single_messages(events)
        if comments := self._source.comments[self._comments :]:  # on the whole capture
            events = [*map(Comment, comments), *events]
            self._comments += len(comments)
        kinds = list(map(type, events))
        messages = kinds.count(Message)
        if self._host is not None:
            others = [event for event in events if type(event) not in _MESSAGES] if messages < len(kinds) else []
            self._host.take(others, self._curve.sealed())
        self._messages += messages
        if messages < len(kinds):
            self._messages += sum(len(event) for event in events if isinstance(event, MessageBatch))
            self._problems += kinds.count(Problem)
            self._connections += kinds.count(Connection)
            if not self._curve.is_wanted:
                self._count_sealed(events, kinds)
        return events

    def _count_sealed(self, events: list[AnyEvent], kinds: list[type]) -> None:
        """Count the connections that need a key, as long as there is no key at all."""
        if Command in kinds:
            self._sealed.update(
                event.flow for event in events if type(event) is Command and event.name == "MESSAGE" and event.nonce
            )
        if self._sealed and Connection in kinds:
            ended = self._sealed & {event.flow for event in events if type(event) is Connection}
            self._sealed -= ended
            self._sealed_ended += len(ended)


def _make_translator(collaborators: Collaborators) -> "Translator | None":
    translations = collaborators.translations
    if translations is None or not translations.aliases:
        return None
    from zmtpsniff.net.translator import Translator

    return Translator(translations)


def _make_payloads(settings: Settings, collaborators: Collaborators) -> Payloads:
    bodies = None
    if settings.decode_bodies:
        from zmtpsniff.analysis.bodies import bodies_of  # which takes longer to import than most captures to read

        bodies = bodies_of
    load = collaborators.dissectors
    dissectors = load_dissectors(settings.plugins) if load is None else load()
    return Payloads(dissectors, settings.decode_as, settings.limits.show_secrets, bodies)
