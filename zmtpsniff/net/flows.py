"""All TCP connections of a capture: to which one a segment belongs, and when each begins and ends.

The function ``connect`` chooses who takes the octets of a flow. A flow that nobody wants costs one look-up a packet.
"""

from collections import deque
from collections.abc import Callable, Sequence

from msgspec import field

from dissectors.snapshots import LATER, Live, Part
from zmtpsniff.net.addresses import Address, addresses, is_own
from zmtpsniff.net.attempts import AttemptLog
from zmtpsniff.net.flow import Commons, Flow, FlowDirection, Notify, Patience, WholeFlow
from zmtpsniff.net.flow_dissection import End, FlowDissection
from zmtpsniff.net.flow_register import FlowRegister
from zmtpsniff.net.lifetime import (
    SilenceLimits,
    begins_another,
    begins_behind,
    has_successor,
    is_followed,
    is_of_another,
    is_of_predecessor,
    separate,
    succession,
    take_far,
)
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.notices import CaptureProblem, Delay
from zmtpsniff.net.reassembly import (
    ATTENTION,
    LATEST_ACK,
    MODULO,
    RECENT_SEGMENTS,
    SEGMENT_COST,
    TELLING_FLAGS,
    WINDOW,
    Holdings,
)
from zmtpsniff.net.segment import ACK, FIN, RST, SYN, Segment
from zmtpsniff.net.translation import TranslationLog
from zmtpsniff.net.waiting_flows import LONGEST_NS, WaitingFlows
from zmtpsniff.net.waits import PAUSE_NS, WaitWatch
from zmtpsniff.net.witness import Witness
from zmtpsniff.words.set_clocks import SET_BACK_NS, is_due

_SWEEP_NS = 1_000_000_000  # how often the table looks for flows that are over, in time of the capture
_SWEEP_PART = 4096  # flows that it looks at in one go
_MOST_AGAIN = 32  # segments that a flow gathers while others are taken again; bounds how often each is taken
_LIVE_WAIT_NS = (
    1_000_000_000  # that a segment waits in a live capture, where others were received or nobody can know that
)
_LATE_NS = 250_000_000  # octets that others wait for so long are late; TCP mends most losses sooner

Connect = Callable[[int, Address, Address, tuple[bool, bool]], FlowDissection | None]
"""Called with a flow's number, client, server and whether the beginning of each side's stream is known."""


class FlowTable(Part):
    """All TCP connections of a capture.

    ``connect`` says who takes the octets of each flow, within ``limits``. The table tells ``notify`` of each SYN that a
    RST answers, whatever protocol its sender wanted to speak, and of octets that are late or presumed lost. It reports
    to ``witness`` every attempt to connect, and receivers that stop taking octets.
    """

    connect: Live[Connect]
    limits: Live[FlowLimits] = FlowLimits()
    notify: Live[Notify | None] = None
    witness: Live[Witness | None] = None
    commons: Commons = field(default_factory=Commons)
    register: FlowRegister = LATER
    pause_ns: Live[int] = 0  # after a longer pause a flow needs a closer look
    holdings: Live[Holdings] = LATER
    patience: Live[Patience] = LATER
    now_ns: int = 0  # time of the last segment
    _next_sweep: int = 0
    _sweeping: Live[list[int]] = field(default_factory=list)
    waiting: Live[WaitingFlows] = LATER
    _attempts: Live[AttemptLog] = LATER
    _waits: Live[WaitWatch | None] = None
    _silence: Live[SilenceLimits] = LATER
    _translations: Live[TranslationLog] = field(default_factory=TranslationLog)
    begun_behind: Live[list[Segment] | None] = None
    """Segments that came before their flow began; None if nobody asks for them. The reader empties it."""
    _again: Live[deque[Segment]] = field(default_factory=deque)  # segments that turned out to be of another connection

    def __post_init__(self) -> None:
        """Begin without flows."""
        commons, limits = self.commons, self.limits
        commons.notify = self.notify
        self.register = FlowRegister(commons)
        self.holdings, self.patience = commons.holdings, commons.patience
        self._attempts = AttemptLog(self.notify, self.witness)
        self._waits = None if self.witness is None else WaitWatch(self.witness)
        self._silence = silence = SilenceLimits(limits)
        self.waiting = WaitingFlows(commons.waiting, silence.linger_ns)
        self.pause_ns = silence.least_ns if self.witness is None else min(silence.least_ns, PAUSE_NS)

    def problems(self) -> list[CaptureProblem]:
        """The problems of the capture as a whole."""
        translated = (CaptureProblem(*one) for one in self._translations.problems())
        return [*self.patience.problems(), *self.holdings.clocks.problems(), *translated]

    # ------------------------------------------------------------------ the hot loop

    def take(self, segments: list[Segment], is_last: bool = True) -> None:
        """Take segments in the order of the capture; ``is_last``: they end a batch, so that it is time to make room."""
        if not segments:
            return
        directions = self.register.directions
        now_ns = segments[-1][0]
        pause_ns = self.pause_ns
        recent_octets = 0
        stale_ns = now_ns - pause_ns  # a flow used since then has had no pause; for most this one comparison is enough
        for segment in segments:
            time_ns, packet, key, seq, ack, flags, payload, missing = segment
            direction = directions.get(key)
            if (
                direction is None
                or flags & TELLING_FLAGS != direction.usual
                or (direction.flow.last_ns < stale_ns and time_ns - direction.flow.last_ns > pause_ns)
            ):
                self._examine(segment)
                continue
            flow = direction.flow
            flow.last_ns = time_ns
            flow.last_packet = packet
            if flow.unwanted:
                if flags & FIN:
                    self._examine(segment)
                continue
            other = direction.other
            seen = other.offset
            if ack != other.next:
                unseen = (other.next - ack) % MODULO  # type: ignore[operator]
                if unseen < LATEST_ACK:
                    seen -= unseen
                elif unseen == MODULO - 1 and other.fin == seen:
                    pass  # it acknowledges a FIN, which is no octet
                elif other.absent and MODULO - unseen <= WINDOW:
                    seen = other.go_along(ack, MODULO - unseen)
                else:
                    self._examine(segment)
                    continue
            if payload:
                if (
                    seq == direction.next
                    and not missing
                    and (direction.receiver is not None or (flow.dissection is None and self._dissect(flow)))
                ):
                    length = len(payload)
                    direction.next = (seq + length) % MODULO
                    begin = direction.offset
                    direction.offset = offset = begin + length
                    recent_octets += length + SEGMENT_COST
                    recent = direction.recent
                    recent.append((begin, payload, time_ns, seen))
                    if len(recent) > RECENT_SEGMENTS:
                        del recent[0]
                    if offset > direction.recent_until:
                        direction.thin()
                    direction.receiver.feed(payload, time_ns, packet, begin, seen)  # type: ignore[union-attr]
                    if flow.dissection.rejected:  # type: ignore[union-attr]
                        flow.drop()
                else:
                    if not flow.unwanted and (missing or flags & FIN or not direction.repeats(seq, payload, time_ns)):
                        self._examine(segment)
                    continue
            elif missing:
                self._examine(segment)
                continue
            else:
                direction.acked_ns = time_ns
                if seen > direction.acknowledges:
                    direction.acknowledges = seen
            if flags & FIN:
                if payload or seq == direction.next:  # such a payload was the next one
                    flow.close(direction, direction.offset, ack)
                    if flow.closing:
                        self._close_if_over(flow)
                else:
                    self._examine(segment)
        self.pass_time(now_ns, recent_octets, is_last)

    def pass_time(self, now_ns: int, recent_octets: int, is_last: bool) -> None:
        """Segments up to ``now_ns`` have been taken. So many ``recent_octets`` of them are kept.

        With the last ones of a batch, forget what is over, and delivered segments if they are too many.
        """
        self.now_ns = now_ns
        self.holdings.recent_octets += recent_octets
        if not is_last:
            return
        if self.holdings.recent_octets > self.limits.recent_octets:
            self.register.forget_recent(self.limits.recent_octets)
        if not 0 < self._next_sweep - now_ns <= SET_BACK_NS:  # is_due(), without a call
            self.sweep(now_ns)

    def end_batch(self) -> None:
        """All segments of a batch have been taken."""
        self.pass_time(self.now_ns, 0, is_last=True)

    def settled(self, key: bytes) -> FlowDirection | None:
        """The direction with this key, if both directions of its flow are synchronised and in order."""
        direction = self.register.directions.get(key)
        if direction is None or direction.usual != ACK or direction.other.usual != ACK:
            return None
        return direction

    # ------------------------------------------------------------------ connections that come whole

    def is_new(self, room: int, key: bytes, isn: int, time_ns: int) -> bool:
        """Whether a connection, by its client's key and initial number, and its time, is of no known flow.

        False also if something may wait for its SYN, if there is no room for so many flows, or if another connection
        may be the same before NAT.
        """
        register = self.register
        if is_own(key) or self._translations.begin(key, isn, time_ns):
            return False
        has_room = register.size + room < self.limits.flows
        if key in register.retired or self._attempts.has_refusals or not has_room:
            return False
        old = register.find(key)
        if old is None:
            return True
        return is_followed(old, isn) and not self._silence.is_too_long(old.flow, time_ns)

    def add_whole(self, key: bytes, start_ns: int, facts: tuple[int, ...]) -> WholeFlow:
        """Add a connection from SYN to FINs, which was in order. The caller takes the octets.

        The facts are the fields of a WholeFlow from ``isn`` on.
        """
        if (old := self.register.find(key)) is not None:
            self._retire(old.flow, start_ns)
        whole = WholeFlow(self.register.number(), key, start_ns, *facts)
        self.register.add_whole(whole)
        self.holdings.recent_octets += whole.sent + whole.received + whole.segments * SEGMENT_COST
        return whole

    def answer_whole(self, whole: WholeFlow, time_ns: int, packet: int) -> None:
        """The server of a connection that comes whole answers its SYN."""
        self._attempts.tell_whole(whole, time_ns, packet)

    # ------------------------------------------------------------------ whatever is not the common case

    def _examine(self, segment: Segment) -> None:
        """Take a segment that begins, ends or changes something, or that belongs to a flow with waiting segments."""
        self._assign(segment)
        self._take_again()

    def _take_again(self) -> None:
        """Take segments again that turned out to belong to another connection."""
        while self._again:
            self._assign(self._again.popleft())

    def _retake(self, segments: Sequence[Segment]) -> None:
        """Have segments taken again, before those that are to be taken again already: they were captured earlier."""
        self._again.extendleft(reversed(segments))

    def _assign(self, segment: Segment) -> None:
        """Find a segment's flow, or begin it, and let it take the segment."""
        direction = self._find(segment)
        if direction is None or direction.flow.ended:
            return
        time_ns, packet, _, _, _, flags, _, _ = segment
        flow, other = direction.flow, direction.other
        if self._waits is not None:
            self._waits.see(direction, segment)
        flow.see(direction, time_ns, packet)
        if flow.begun:
            self._retake(self._take(direction, segment))
            if direction.usual == ATTENTION or direction.waiting or other.acked > other.offset:
                flow.attend()
        elif flags & RST and not flow.early and not direction.skips(segment):
            self._take_reset(direction, segment)
        else:
            self._gather(direction, segment)

    def _find(self, segment: Segment) -> FlowDirection | None:
        """The direction that takes a segment; its flow may begin with it. None if the segment means nothing yet."""
        time_ns, _, key, _, _, flags, _, _ = segment
        if is_own(key):
            return None
        direction = self.register.find(key)
        if (
            direction is not None
            and time_ns - direction.flow.last_ns > LONGEST_NS
            and self.waiting.is_overdue(direction.flow, time_ns)
        ):
            self._hurry(direction.flow)  # nothing that waits goes with what comes now
            direction = self.register.directions.get(key)
        if direction is not None:
            if key in self.register.retired:
                direction = self._of_predecessor(direction, segment) or direction
            if self._silence.is_too_long(direction.flow, time_ns):
                self._discard(direction.flow, "timeout")
                direction = None
            elif (direction.pending or direction.other.pending) and has_successor(direction, segment):
                self._succeed(direction, segment)
                direction = self.register.directions[key]
        if flags & SYN:
            return self._synchronise(direction, segment)
        if direction is None:
            if flags & RST:
                self._attempts.keep(segment)
                return None
            return self._open(key, time_ns)
        if direction.reset is not None and not direction.awaits_reset and is_of_another(direction, segment):
            self._end(direction.flow, "rst")  # it was open for what may come late
        return self._follow(direction, segment) if direction.flow.ended else direction

    def _gather(self, direction: FlowDirection, segment: Segment) -> None:
        """Gather a segment of a flow that has not begun, or begin the flow."""
        time_ns, _packet, _, _, _, flags, payload, _ = segment
        flow = direction.flow
        if payload or not flags & SYN:
            flow.gather(direction, segment)
            if flow.client.isn is None:
                self._translations.see_first(segment)
        if direction.isn is not None and direction.other.isn is not None:
            self._attempts.tell(flow, time_ns)
            self._begin(flow)
        elif flow.early and (
            flow.early_octets > self.limits.waiting_octets_per_direction
            or self.holdings.waiting_octets > self.limits.waiting_octets
            or (self._again and len(flow.early) >= _MOST_AGAIN)
            or flow.gathers_too_long(time_ns)
        ):
            self._begin(flow)

    def _begin(self, flow: Flow) -> None:
        """Begin a flow: say where its streams begin, and take the gathered segments."""
        early = flow.begin()
        if flow.initial_numbers is None:
            self._translations.begin_late(flow.client.key, early)
        if self.begun_behind is not None:
            self.begun_behind += early
        for place, segment in enumerate(early, 1):
            direction = flow.direction(segment[2])
            if flow.ended:
                if segment[6] and is_of_another(direction, segment):
                    self._retake(early[place - 1 :])
                    return
                continue
            others = self._take(direction, segment)
            if self.register.directions.get(direction.key) is not direction:  # the rest belongs to another connection
                others = [*others, *early[place:]]
                # One less each time, so that the loop ends.
                self._retake(others[1:] if len(others) >= len(early) else others)
                return
            self._retake(others)
        flow.attend()

    def _take(self, direction: FlowDirection, segment: Segment) -> Sequence[Segment]:
        """Take a segment of a flow that has begun; returns segments that turned out to be another connection's."""
        time_ns, packet, _, seq, ack, flags, payload, missing = segment
        flow, other = direction.flow, direction.other
        if (direction.waiting or other.waiting) and self.notify and time_ns - flow.since_ns > _LATE_NS:
            self.notify(Delay(time_ns, flow.number, flow.sure_ns))
        if direction.acked > direction.offset or other.acked > other.offset:
            flow.give_up_late(time_ns, packet)
        if flags & RST:
            self._take_reset(direction, segment)
            return ()
        offset = direction.place(seq + (flags & SYN > 0))
        if direction.reset is not None and offset is not None and not other.is_far(ack):
            flow.doubt_reset(direction, segment)
        if (payload or missing) and not flow.unwanted:
            if offset is None or (offset + len(payload) + missing <= direction.offset and other.is_far(ack)):
                far = take_far(direction, segment)
                if far.successor:
                    self._retire(flow, time_ns)
                elif far.offset is None and self.holdings.waiting_octets > self.limits.waiting_octets:
                    self._shed_all()
                if far.offset is None:
                    return far.successor
                offset = far.offset
            if flow.dissection is None and not self._dissect(flow):
                return ()
            flow.insert(direction, offset, segment)
        elif flags & ACK and (offset is not None or not other.is_far(ack)):  # else it may belong to another connection
            other.acknowledge(ack, time_ns, packet)
        if flags & FIN and offset is not None:
            flow.close(direction, direction.end_at(offset + len(payload) + missing), ack if flags & ACK else None)
        if flow.unwanted or flow.dissection is None:
            if flow.closing:
                self._close_if_over(flow)
            return ()
        if direction.waiting or other.waiting:
            flow.advance(direction, time_ns, packet)
            if direction.waiting_octets > self.limits.waiting_octets_per_direction:
                while direction.waiting_octets > self.limits.waiting_octets_per_direction * 3 // 4:
                    flow.give_up_first(time_ns, packet)
            elif self.holdings.waiting_octets > self.limits.waiting_octets:
                self._shed_all()
                if flow.unwanted:
                    return ()
        if flow.dissection.rejected:
            flow.drop()
        elif flow.closing:
            self._close_if_over(flow)
        return ()

    # ------------------------------------------------------------------ beginning

    def _synchronise(self, direction: FlowDirection | None, segment: Segment) -> FlowDirection | None:
        """Take a SYN, which begins a flow, or repeats or answers the first SYN (RFC 9293, section 3.5)."""
        time_ns, _, key, seq, ack, flags, _, _ = segment
        answers = bool(flags & ACK)
        if direction is not None and direction.flow.gathers_too_long(time_ns):
            self._begin(direction.flow)  # a SYN that comes so late is of another connection, however near its number is
            direction = self.register.directions.get(key)
        if direction is None:
            direction = self._open(key, time_ns, answers)
        elif begins_another(direction, segment):
            flow = direction.flow
            if flow.dissection is not None and not flow.closing:
                direction.pending = segment  # the connection is in use, and anybody can forge a SYN
                if direction.is_behind_hole((seq + 1) % MODULO) or (answers and direction.other.is_behind_hole(ack)):
                    self._succeed(direction, segment)  # what follows this SYN was captured before it
                else:
                    flow.attend()
                return None
            self._retake(separate(direction, seq, ack - 1 if answers else None))
            direction = self._open(key, time_ns, answers)
        if direction.isn is None and not answers:
            self._translations.begin(key, seq, time_ns)
            self._retake(self._attempts.refusal(direction.other.key, seq))
        direction.flow.synchronise(direction, segment)
        return direction

    def _succeed(self, direction: FlowDirection, segment: Segment) -> None:
        """Another connection follows on the addresses of a flow: SYNs that did not fit, and a segment, belong to it."""
        syns, segments = succession(direction, segment)
        self._retake(segments)
        self._retire(direction.flow, segment[0])
        for syn in syns:
            self._assign(syn)

    def _retire(self, flow: Flow, time_ns: int) -> None:
        """Another connection begins on the addresses of a flow; packets of the old one may still come."""
        flow.client.pending = flow.server.pending = None
        if (retired := self.register.retired.get(flow.client.key)) is not None:
            self._discard(retired, "open")
        self._begin_at_last(flow)
        if self.register.directions.get(flow.client.key) is not flow.client:
            return  # its segments turned out to be of two connections
        if not (flow.ended or flow.dissection is not None):
            self._discard(flow, "open")
            return
        self.register.retire(flow, time_ns)

    def _begin_at_last(self, flow: Flow) -> None:
        """Begin a flow that has not begun: no packet can tell more about its beginning."""
        if not flow.begun:
            self._attempts.tell(flow)
            self._begin(flow)

    def _of_predecessor(self, direction: FlowDirection, segment: Segment) -> FlowDirection | None:
        """The direction of the previous flow on the same addresses, if the segment still belongs to it."""
        time_ns, key = segment[0], segment[2]
        predecessor = self.register.retired[key]
        is_over = self.patience.is_over(predecessor.retired_ns, 0, time_ns, direction.flow.count)
        if is_over or self._silence.is_too_long(predecessor, time_ns):
            self._discard(predecessor, "open")
            return None
        before = predecessor.direction(key)
        return before if is_of_predecessor(before, direction, segment) else None

    def _follow(self, direction: FlowDirection, segment: Segment) -> FlowDirection | None:
        """A segment on the addresses of an ended flow: a late one of that flow, or the first one of another flow."""
        early = begins_behind(direction, segment)
        if early is None:
            return None
        self._retake(early)
        return self._open(segment[2], segment[0])

    def _open(self, key: bytes, time_ns: int, answers: bool | None = None) -> FlowDirection:
        """Begin a flow with a segment of the direction ``key``; an old flow on the same addresses is over."""
        if (old := self.register.find(key)) is not None:
            self._retire(old.flow, time_ns)
        if self.register.size >= self.limits.flows:
            self._evict()
        return self.register.add(key, time_ns, answers)

    def _dissect(self, flow: Flow) -> bool:
        """Find somebody who takes the octets of a flow, now that the first ones come."""
        dissection = None
        if not self._translations.is_translated(flow, self.register.find):
            client, server = addresses(flow.client.key)
            from_start = (flow.client.isn is not None, flow.server.isn is not None)
            dissection = self.connect(flow.number, client, server, from_start)
        if dissection is None:
            flow.drop()
            return False
        flow.dissect(dissection)
        return True

    # ------------------------------------------------------------------ ending

    def _take_reset(self, direction: FlowDirection, segment: Segment) -> None:
        """Take a RST."""
        client = direction.flow.client  # behind NAT, it is the refusal of a SYN that was refused before NAT, too
        if client.isn is None or not self._translations.before(client.key, client.isn):
            self._attempts.refuse(direction, segment)
        if direction.flow.reset(direction, segment):
            self._close_if_over(direction.flow)

    def _close_if_over(self, flow: Flow) -> None:
        """End a flow once everything up to its FINs, or its RST, has been delivered."""
        if flow.is_over:
            self._retake(flow.behind_end())
            self._end(flow, flow.closing or "open")
        else:
            flow.attend()

    def _end(self, flow: Flow, end: End) -> None:
        """Finish a flow. It stays known for a while, so that late segments do not begin another."""
        if not flow.ended:
            if self._waits is not None:
                self._waits.end(flow)
                self._attempts.tell_earlier(flow)
            flow.finish(end)

    def _discard(self, flow: Flow, end: End) -> None:
        """End a flow and forget it; ``end`` says how, if the wire does not."""
        if (retired := self.register.retired.get(flow.client.key)) is not None and retired is not flow:
            self._discard(retired, "open")
        self._begin_at_last(flow)
        if flow.number not in self.register.flows:
            return  # its segments turned out to be of two connections
        self._end(flow, flow.closed or end)
        self.register.remove(flow)

    def _shed_all(self) -> None:
        """Give up holes until there is room again, first the holes behind which most octets wait."""
        flows = sorted(self.waiting.flows, key=lambda flow: flow.waiting_octets)
        while flows and self.holdings.waiting_octets > self.limits.waiting_octets * 3 // 4:
            self._hurry(flows.pop())
        if self.holdings.waiting_octets > self.limits.waiting_octets * 3 // 4:  # segments in doubt are what is left
            for flow in self.register.flows.values():
                flow.trust()

    def sweep(self, now_ns: int) -> None:
        """End idle flows and forget those that are over, some at a time.

        This only makes room. A segment that comes too late for its flow does not find the flow in any case.
        """
        self._next_sweep = now_ns + _SWEEP_NS
        self.register.forget_whole(now_ns, self._silence.linger_ns)
        if not self._sweeping:
            self._sweeping = list(self.register.flows)
        for number in self._sweeping[-_SWEEP_PART:]:
            flow = self.register.flows.get(number)
            if flow is not None and self._silence.is_over(flow, now_ns):
                self._discard(flow, "timeout")
        del self._sweeping[-_SWEEP_PART:]
        self._take_again()
        self._let_go(now_ns)

    def settle(self, now_ns: int) -> None:
        """It is ``now_ns``, and no packet comes: end idle flows, and give up octets that do not come."""
        self.now_ns = max(self.now_ns, now_ns)
        self._let_go(now_ns, max(_LIVE_WAIT_NS, self.patience.time_ns))
        if is_due(now_ns, self._next_sweep):
            self.sweep(now_ns)

    def _let_go(self, now_ns: int, longest_ns: int = LONGEST_NS) -> None:
        """Let nothing wait for longer than ``longest_ns``, except for what the network lost."""
        for flow in self.waiting.flows:
            if self.waiting.is_overdue(flow, now_ns, longest_ns):
                self._hurry(flow)
        self._take_again()

    def _hurry(self, flow: Flow) -> None:
        """Deliver the waiting octets of a flow now, and give up its holes, though segments may follow."""
        if not flow.begun:
            self._begin(flow)
        if flow.dissection is not None:
            flow.give_up(flow.last_ns, flow.last_packet)
            if flow.dissection.rejected:
                flow.drop()
            elif flow.closing:
                self._close_if_over(flow)
        flow.attend()

    def _evict(self) -> None:
        """Make room: forget those flows that have been idle for longest."""
        self.register.follow_all()
        flows = sorted(self.register.flows.values(), key=lambda flow: (not flow.ended, flow.last_ns))
        for flow in flows[: max(len(flows) // 16, 1)]:
            self._discard(flow, "timeout")

    def over_ns(self, flow: Flow) -> int:
        """The time from which on no segment belongs to a flow."""
        return flow.last_ns + self._silence.longest_ns(flow) + 1

    def open_flows(self, now_ns: int) -> list[int]:
        """The numbers of the flows that may still get segments at ``now_ns``."""
        flows = self.register.flows.values()
        return [flow.number for flow in flows if not (flow.ended or self._silence.is_too_long(flow, now_ns))]

    def finish(self, now_ns: int | None = None) -> None:
        """The capture is over, and with it every flow; at ``now_ns``, if packets came after the last segment."""
        self._attempts.finish()
        if now_ns is not None:
            self.now_ns = now_ns
        while self.register.flows:  # a flow that was two connections leaves another
            for flow in list(self.register.flows.values()):
                if not flow.ended:
                    self._discard(flow, "timeout" if self._silence.is_too_long(flow, self.now_ns) else "open")
            self.register.forget()  # nothing more is to be said of these
            self._take_again()
        self._translations.forget()
