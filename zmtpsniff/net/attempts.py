"""Attempts to connect, and the RSTs that refuse them."""

from collections.abc import Callable

from zmtpsniff.net.addresses import addresses, reverse
from zmtpsniff.net.flow import Flow, FlowDirection, WholeFlow
from zmtpsniff.net.notices import Notice, Refusal
from zmtpsniff.net.reassembly import MODULO
from zmtpsniff.net.segment import ACK, Segment
from zmtpsniff.net.witness import Attempt, Outcome, Witness

_MOST_REFUSALS = 1000  # RSTs that wait for their SYN


class AttemptLog:
    """Tells ``notify`` of each refusal, and ``witness`` of each attempt once its outcome is known."""

    def __init__(self, notify: Callable[[Notice], None] | None, witness: Witness | None) -> None:
        """Either may be None: then it is not told."""
        self._notify = notify
        self._witness = witness
        self._refusals: dict[bytes, Segment] = {}  # RSTs that may stand before their SYNs, by their keys

    def keep(self, segment: Segment) -> None:
        """Keep a RST of no flow if it answers a SYN (RFC 9293, section 3.10.7.1), which may be late."""
        if segment[3] == 0 and segment[5] & ACK:
            key = segment[2]
            before = self._refusals.pop(key, None)
            self._refusals[key] = segment
            if before is not None and before[4] != segment[4]:
                self._tell_lone(before)
            if len(self._refusals) > _MOST_REFUSALS:
                self._tell_lone(self._refusals.pop(next(iter(self._refusals))))

    @property
    def has_refusals(self) -> bool:
        """Whether RSTs wait for their SYNs."""
        return bool(self._refusals)

    def refusal(self, key: bytes, isn: int) -> list[Segment]:
        """The kept RST of the direction ``key`` that answers a SYN with this number, if any; it is kept no longer."""
        refusal = self._refusals.pop(key, None) if self._refusals else None
        return [refusal] if refusal is not None and refusal[4] == (isn + 1) % MODULO else []

    def refuse(self, direction: FlowDirection, segment: Segment) -> None:
        """Tell that a RST refuses a connection, if it answers a SYN and nothing else has been sent."""
        time_ns, packet, key, _, ack, flags, _, _ = segment
        flow, other = direction.flow, direction.other
        if other.isn is None or not flags & ACK or direction.isn is not None or direction.next is not None:
            return
        if other.offset == 0 and ack == (other.isn + 1) % MODULO:
            if self._notify is not None:
                server, client = addresses(key)
                self._notify(Refusal(time_ns, packet, flow.number, client.text, server.text))
            self._tell("refused", flow.number, other.key, flow.syns, flow.start_ns, time_ns, packet)

    def tell(self, flow: Flow, answer_ns: int | None = None) -> None:
        """Tell of an attempt to connect that was accepted at the time ``answer_ns``, or that nobody answered."""
        if flow.client.isn is None:
            return
        if answer_ns is None and (flow.early is not None or flow.closing):
            return  # packets of one side are missing, or it was refused
        outcome: Outcome = "silent" if answer_ns is None else "accepted"
        took_ns = None if answer_ns is None or flow.count > 2 else answer_ns - flow.start_ns
        times = flow.start_ns, flow.last_ns
        self._tell(outcome, flow.number, flow.client.key, flow.syns, *times, flow.last_packet, took_ns)

    def tell_whole(self, whole: WholeFlow, answer_ns: int, packet: int) -> None:
        """Tell of the attempt that began a connection which came whole; this packet answered it."""
        times = whole.start_ns, answer_ns
        self._tell("accepted", whole.number, whole.key, 1, *times, packet, answer_ns - whole.start_ns)

    def tell_earlier(self, flow: Flow) -> None:
        """Tell of a connection that ends, if it was made before the capture began."""
        if flow.client.isn is not None or flow.server.isn is not None:
            return
        for direction in flow.directions:
            # A host where nobody listens sends RSTs, too, but nothing else.
            has_spoken = direction.fin is not None or direction.offset > 0 or flow.closing != "rst"
            if direction.seen and has_spoken:
                times = flow.start_ns, flow.last_ns
                self._tell("before", flow.number, direction.other.key, 0, *times, flow.last_packet)

    def finish(self) -> None:
        """Tell of the RSTs whose SYNs the capture does not have."""
        for refusal in self._refusals.values():
            self._tell_lone(refusal)
        self._refusals.clear()

    def _tell_lone(self, segment: Segment) -> None:
        """Tell of a RST that answers a SYN which the capture does not have."""
        time_ns, packet, key, *_ = segment
        self._tell("refused", 0, reverse(key), 0, time_ns, time_ns, packet)

    def _tell(
        self,
        outcome: Outcome,
        flow: int,
        key: bytes,
        syns: int,
        first_ns: int,
        last_ns: int,
        packet: int,
        answer_ns: int | None = None,
    ) -> None:
        """Tell of an attempt, as in :class:`Attempt`; ``key`` is that of the client's direction."""
        if self._witness is not None:
            client, server = (address.text for address in addresses(key))
            self._witness.attempt(Attempt(outcome, flow, client, server, syns, first_ns, last_ns, packet, answer_ns))
