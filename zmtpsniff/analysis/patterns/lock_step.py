"""A REQ that sends a request only after the reply to the one before: most requests are of this kind.

Theory
------

The connection is in one of these states:

- *idle*: no request waits. The next message of the REQ is a request.
- *waiting*: a request waits. The next message of its peer that had seen it is the reply.
- *dispatched*, behind a ROUTER: the reply was a request of a client that a broker gave to this REQ, which is its
  worker. The next message of the REQ answers that, and is a request for more work at the same time.
- *general*: a message came that keeps no step: another request while one waits, an odd envelope, a reply too many.
  From then on, :class:`~zmtpsniff.analysis.patterns.request_reply.RequestReply` takes all. There is no way back.

Invariant: outside *general*, at most one request waits, and all before it have their replies, or were lost in a gap.
"""

from typing import Any

from dissectors.batches import DELIMITER_ONLY
from dissectors.columns import DIRECT_STEPS, STEPS
from dissectors.events import Connection, Message
from zmtpsniff.analysis.dossier import says_ready
from zmtpsniff.analysis.patterns.conversation import Rules, latency_ns
from zmtpsniff.analysis.patterns.exchange import Exchange
from zmtpsniff.analysis.patterns.proxies import Proxies
from zmtpsniff.analysis.patterns.request_reply import RequestReply
from zmtpsniff.analysis.patterns.requests import Request, envelope_of, key_of, request_of


class LockStep(Rules):
    """One connection of a REQ socket that sends a request only after the reply to the one before, and numbers none.

    Most requests are of this kind, so this class is made to be fast.
    """

    waits = True

    def __init__(self, exchange: Exchange) -> None:
        """Follow the connection from its first message on."""
        self._exchange = exchange
        self._flow = exchange.dossier.flow
        self._timeout_ns = exchange.timeout_ns
        types = exchange.dossier.types
        one, other = types
        self._requester, self._replier = (one, other) if types[one] == "REQ" else (other, one)
        self._forwarding = exchange.forwarding if types[self._replier] == "ROUTER" else None
        # The request that waits for its reply. Packets are counted from 1; 0: none waits.
        self._packet = 0
        self._part = 0
        self._time_ns = 0
        self._offset = 0
        self._seen_at_request = -1  # how far its sender had seen the other side then
        self._asked_packet = 0  # the packet of the last request
        self._answered_offset = -1  # where the last reply is in its stream
        self._is_reported = False  # the request that waits is reported as late
        self._has_gap = False  # octets since the last request are missing
        self._is_worker = False  # the REQ said that it is ready, or got a request from a broker
        self._dispatched: Request | None = None  # the request that a broker gave to this REQ
        self._general: RequestReply | None = None  # takes all messages in the state "general"
        self.message = self._take

    def _take(self, event: Message) -> None:
        """Take a message, by the states above."""
        frames = event.frames
        if frames[0] != b"" or len(frames) == 1 or self._general is not None:
            self._take_generally(event)
            return
        if event.src == self._requester:
            if (self._packet or event.seen <= self._answered_offset) and not self._exchange.hides_reply(
                event, self._seen_at_request
            ):
                self._take_generally(event)
                return
            event.envelope = DELIMITER_ONLY
            if not self._asked_packet and self._forwarding is not None and says_ready(frames):
                self._is_worker = True
            self._seen_at_request = event.seen
            self._packet = self._asked_packet = event.packet
            self._part = event.part
            self._time_ns = event.time_ns
            self._offset = event.offset
            self._has_gap = False
            if self._forwarding is not None:
                if self._dispatched is not None:
                    self._end_dispatched(event, self._forwarding)
                self._forwarding.begin(event, alone=True)
        elif self._packet and event.seen > self._offset:
            event.envelope = DELIMITER_ONLY
            latency = event.time_ns - self._time_ns
            event.request = self._packet
            event.request_part = self._part
            if latency >= 0:
                event.latency_ns = latency
                if latency > self._timeout_ns:
                    self.pass_time(event.time_ns)
            self._answered_offset = event.offset
            self._packet = 0
            self._is_reported = False
            if self._forwarding is not None:
                leg = self._forwarding.forwarded_reply(event)
                if leg is not None:
                    event.forwards = leg.place
                elif len(frames) > 3:
                    self._begin_dispatched(event, self._forwarding)
        elif not self._exchange.dossier.blind or (
            self._exchange.dossier.is_guessed and self._asked_packet and not self._has_gap
        ):
            self._take_generally(event)

    # ------------------------------------------------------------------ settled flows

    def facts(self, client: str) -> tuple[int, int, int, int, int, int, int, int, int] | None:
        """The facts of this step, of a connection from this ``client``; None if messages need a closer look.

        They are: which side asks (0: the client); packet, part, time and offset of the request that waits, and what its
        sender had seen; the offset of the last reply; the packet of the last request; and how long one may wait.
        """
        return None if self._forwarding is not None or not self.in_columns else self._facts(client)

    @property
    def in_columns(self) -> bool:
        """Whether its messages may be paired in columns."""
        return self._general is None and not self._is_reported and self._dispatched is None and not self._is_worker

    def pair_facts(self, client: str) -> tuple[int, int, str, str, tuple[Any, ...]] | None:
        """The same also where proxies may pass on messages, with their kind, the flow, the client and its peer."""
        is_direct = self._forwarding is None
        if not (self.in_columns and (is_direct or self._asked_packet)):
            return None
        peer = self._replier if self._requester == client else self._requester
        return DIRECT_STEPS if is_direct else STEPS, self._flow, client, peer, self._facts(client)

    @property
    def is_direct(self) -> bool:
        """Whether the REQ asks a REP, so that no proxy passes its messages on, and other connections do not matter."""
        return self._forwarding is None

    def _facts(self, client: str) -> tuple[int, int, int, int, int, int, int, int, int]:
        return (
            int(self._requester != client), self._packet, self._part, self._time_ns, self._offset,
            self._seen_at_request, self._answered_offset, self._asked_packet, self._timeout_ns,
        )  # fmt: skip

    def go_on_from(self, facts: tuple[int, int, int, int, int, int, int]) -> None:
        """Go on behind messages that kept the step."""
        asked = self._asked_packet
        (
            self._packet, self._part, self._time_ns, self._offset, self._seen_at_request,
            self._answered_offset, self._asked_packet,
        ) = facts  # fmt: skip
        self._has_gap = self._has_gap and self._asked_packet == asked

    # ------------------------------------------------------------------ what does not keep step

    def _take_generally(self, event: Message) -> None:
        """Leave this message, and all after it, to the general rules."""
        if self._general is None:
            waiting = self._waiting() if self._packet else None
            self._general = RequestReply(self._exchange)
            self._general.resume(
                waiting, self._asked_packet, self._seen_at_request, self._answered_offset, is_late=self._is_reported
            )
        self._general.take(event)

    # ------------------------------------------------------------------ a REQ that works for a broker

    def _begin_dispatched(self, event: Message, forwarding: Proxies) -> None:
        """A reply comes that is the request of a client: the client's identity and envelope stand in it."""
        content = event.frames[1:]
        if forwarding.is_relayed(content):
            self._is_worker = True
            key = key_of(content, envelope_of(content))
            if key:
                event.forwards = forwarding.forwarded(event, content)
                self._dispatched = request_of(event, key)

    def _end_dispatched(self, event: Message, forwarding: Proxies) -> None:
        """The REQ sends its next message: if the envelope of the client's request is in it, it is the reply to that."""
        dispatched, self._dispatched = self._dispatched, None
        content = event.frames[1:]
        if dispatched is not None and key_of(content, envelope_of(content)) == dispatched.key:
            event.request, event.request_part, event.paired = dispatched.packet, dispatched.part, "envelope"
            event.latency_ns = latency_ns(event, dispatched.time_ns)
            forwarding.begin_reply(event, content, dispatched.forwards)

    # ------------------------------------------------------------------ waiting

    @property
    def asked_ns(self) -> int | None:  # type: ignore[override]
        """When the waiting request was sent."""
        if self._general is not None:
            return self._general.asked_ns
        return self._time_ns if self._packet else None

    @property
    def is_at_rest(self) -> bool:
        """Whether no request waits."""
        return not self._packet if self._general is None else self._general.is_at_rest

    def lose(self) -> None:
        """Octets are missing, perhaps with a request or its reply: none is known to wait."""
        self._packet = 0
        self._has_gap = True
        self._dispatched = None
        if self._general is not None:
            self._general.lose()

    def pass_time(self, now_ns: int) -> None:
        """Report once that a request has waited for too long."""
        if self._general is not None:
            self._general.pass_time(now_ns)
        elif self._packet and not (self._is_reported or self._is_worker) and now_ns - self._time_ns > self._timeout_ns:
            self._is_reported = True
            self._exchange.report_late(self._waiting())

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report a request without a reply, and requests that the REQ socket gave up."""
        self.pass_time(now_ns)
        if self._general is not None:
            self._general.finish(event, now_ns)
            return
        self._exchange.leave(event, [self._waiting()] if self._packet else [])
        if self._packet and not (self._is_reported or self._is_worker):  # a worker waits for work, not for a reply
            self._exchange.report_unanswered(self._waiting(), event.end == "open", 0)

    def _waiting(self) -> Request:
        ends = (self._flow, self._requester, self._replier)
        return Request(self._time_ns, self._packet, self._part, self._offset, 0, *ends, None)
