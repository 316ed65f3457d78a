"""The flows that are followed, by their numbers and by the addresses of their directions."""

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

from msgspec import field

from dissectors.snapshots import LATER, Live, Part
from zmtpsniff.net.addresses import addresses, reverse, split_zone
from zmtpsniff.net.flow import Commons, Flow, FlowDirection, WholeFlow
from zmtpsniff.net.segment import ACK, Segment
from zmtpsniff.net.witness import Acknowledgment
from zmtpsniff.words.set_clocks import SET_BACK_NS


class FlowRegister(Part):
    """The flows that are followed. Of two with the same addresses, the older one is retired.

    A connection that came whole is over, and little is kept of it. It becomes a flow once a packet asks for it.
    """

    commons: Live[Commons]
    count: int = 0  # flows so far
    flows: Live[dict[int, Flow]] = field(default_factory=dict)  # by their numbers, also those that are retired
    directions: Live[dict[bytes, FlowDirection]] = field(default_factory=dict)  # by their keys, but for the retired
    retired: Live[dict[bytes, Flow]] = LATER  # flows that another one follows on the same addresses
    _whole: Live[dict[int, WholeFlow]] = field(default_factory=dict)  # by their numbers
    _whole_numbers: Live[dict[bytes, int]] = field(default_factory=dict)  # by the keys of their clients
    _counted_packet: int = 0  # the packet up to which the kept octets are counted
    wake: Live[Callable[[bytes], None] | None] = None  # takes flows up that were put aside, by the key of a direction

    def __post_init__(self) -> None:
        """Begin without flows."""
        self.retired = self.commons.retired

    def number(self) -> int:
        """Count a flow, also one that is none of TCP, and return its number."""
        self.count += 1
        return self.count

    def add(self, key: bytes, time_ns: int, answers: bool | None) -> FlowDirection:
        """Begin a flow with a segment of the direction ``key``, which is the server's if it ``answers``.

        Without a SYN nobody knows that (None): then the server is the side with the lower port.
        """
        back = reverse(key)
        server = key[-4:-2] < key[-2:] if answers is None else answers
        flow = Flow.between(self.commons, self.number(), *((back, key) if server else (key, back)), time_ns)
        self.enter(flow)
        return self.directions[key]

    def enter(self, flow: Flow, is_retired: bool = False) -> None:
        """Follow a flow, which another one follows on the same addresses if it ``is_retired``."""
        self.flows[flow.number] = flow
        for direction in flow.directions:
            if is_retired:
                self.retired[direction.key] = flow
            else:
                self.directions[direction.key] = direction

    def add_whole(self, whole: WholeFlow) -> None:
        """Add a connection that came whole, with a number of its own."""
        self._whole[whole.number] = whole
        self._whole_numbers[whole.key] = whole.number

    def find(self, key: bytes) -> FlowDirection | None:
        """The direction with this key."""
        if key not in self.directions:
            number = self._whole_numbers.get(key) or self._whole_numbers.get(reverse(key)) if self._whole else None
            if number is not None:
                self._follow(number)
            else:
                self._at_hand(key)
        zone, plain = split_zone(key)
        if zone and key not in self.directions:
            self._move(zone, plain)
        return self.directions.get(key)

    def number_of(self, key: bytes) -> int | None:
        """The sequence number that follows in the direction with this key; None if that is not known."""
        direction = self._at_hand(key)
        return None if direction is None else direction.next

    def _at_hand(self, key: bytes) -> FlowDirection | None:
        """The direction with this key, of a flow that did not come whole."""
        if key not in self.directions and self.wake is not None:
            self.wake(key)
        return self.directions.get(key)

    def _move(self, zone: bytes, plain: bytes) -> None:
        """The first packet of the other side shows that a flow is in another network than it seemed."""
        direction = self._at_hand(plain)
        if direction is None or direction.seen or direction.flow.first_fin or direction.flow.first_reset:
            return
        flow = direction.flow
        if flow.early:
            flow.early = [(*one[:2], zone + one[2], *one[3:]) for one in flow.early]
        for one in flow.directions:
            del self.directions[one.key]
            one.key = zone + one.key
            self.directions[one.key] = one

    def follow_all(self) -> None:
        """Make flows of the connections that came whole."""
        for number in list(self._whole):
            self._follow(number)

    def _follow(self, number: int) -> None:
        whole = self._whole.pop(number)
        del self._whole_numbers[whole.key]
        self.enter(Flow.of_whole(self.commons, whole))

    def forget_whole(self, now_ns: int, linger_ns: int) -> None:
        """Forget connections that came whole, and ended longer ago, or before the clock was set back."""
        over = takewhile(lambda whole: not -SET_BACK_NS <= now_ns - whole.last_ns <= linger_ns, self._whole.values())
        for whole in list(over):
            del self._whole[whole.number], self._whole_numbers[whole.key]

    def at(self, number: int) -> Flow | WholeFlow | None:
        """The connection with this number."""
        return self.flows.get(number) or self._whole.get(number)

    @property
    def size(self) -> int:
        """How many connections are known."""
        return len(self.flows) + len(self._whole)

    def client_key(self, number: int) -> bytes | None:
        """The key of the client's direction of a connection; None if it is not known."""
        flow, whole = self.flows.get(number), self._whole.get(number)
        return flow.client.key if flow is not None else whole.key if whole is not None else None

    def retire(self, flow: Flow, time_ns: int) -> None:
        """Another flow begins on the same addresses; packets of this one may still come."""
        flow.retired_ns = time_ns
        for direction in flow.directions:
            del self.directions[direction.key]
            self.retired[direction.key] = flow

    def remove(self, flow: Flow) -> None:
        """Follow a flow no longer."""
        del self.flows[flow.number]
        for direction in flow.directions:
            if self.directions.get(direction.key) is direction:
                del self.directions[direction.key]
            elif self.retired.get(direction.key) is flow:
                del self.retired[direction.key]
            direction.part()

    def idle(self, count: int) -> list[Flow]:
        """So many flows that have been idle for longest, of those that may be put aside between two packets."""
        busy, retired = self.commons.waiting, self.retired
        flows = (flow for flow in self.flows.values() if not (flow.watched or flow.number in busy))
        alone = (flow for flow in flows if flow.client.key not in retired)
        return sorted(alone, key=lambda flow: flow.last_ns)[:count]

    def put_aside(self, flow: Flow) -> None:
        """Forget a flow that has been saved. It has the events that it would have if the capture ended now."""
        flow.finish(flow.closed or "open")
        self.remove(flow)

    def forget_recent(self, limit: int) -> None:
        """Count the octets kept of delivered segments; if they are many, forget those of the flows idle for longest.

        Only flows with segments since the last count are counted again: where there are many flows, most have none.
        """
        kept = 0
        flows = self.flows.values()
        for flow in flows:
            if flow.last_packet > self._counted_packet:
                flow.count_recent()
            kept += flow.recent_octets
        if kept > limit // 2:
            for flow in sorted(flows, key=lambda flow: flow.last_packet):
                if kept <= limit // 4:
                    break
                kept -= flow.recent_octets
                flow.forget_recent()
        self.commons.holdings.recent_octets = kept
        self._counted_packet = max((flow.last_packet for flow in flows), default=0)

    def may_speak(self, key: bytes) -> bool:
        """Whether somebody wants the octets of the flow with this key, or may still report its end."""
        direction = self.directions.get(key)
        return direction is not None and (direction.flow.ended or not direction.flow.unwanted)

    def acknowledgments(self, segments: Iterable[Segment]) -> Iterator[Acknowledgment]:
        """The acknowledgments in these segments, which have been taken, of flows that are dissected."""
        for time_ns, _, key, _, ack, flags, _, _ in segments:
            if not flags & ACK or not self.may_speak(key):
                continue
            direction = self.directions[key]
            if not direction.flow.begun:
                continue
            offset = direction.other.place(ack)
            if offset is not None:
                yield time_ns, direction.flow.number, addresses(direction.other.key)[0].text, offset

    def forget(self) -> None:
        """Forget all flows without a word, and leave no cycles of them."""
        for flow in self.flows.values():
            flow.client.part()
            flow.server.part()
        self.flows.clear()
        self._whole.clear()
        self._whole_numbers.clear()
        self.directions.clear()
        self.retired.clear()
