"""A REQ that sends a request only after the reply to the one before: most requests are of this kind."""

from typing import Any

from dissectors.batches import DELIMITER_ONLY
from dissectors.columns import STEPS
from dissectors.events import Connection, Message
from zmtpsniff.analysis.dossier import says_ready
from zmtpsniff.analysis.patterns.conversation import Rules, latency_ns
from zmtpsniff.analysis.patterns.exchange import Exchange
from zmtpsniff.analysis.patterns.proxies import Proxies
from zmtpsniff.analysis.patterns.request_reply import RequestReply
from zmtpsniff.analysis.patterns.requests import Request, envelope_of, key_of, request_of


class LockStep(Rules):
    """One connection of a REQ socket that sends a request only after the reply to the one before, and numbers none.

    Most requests are of this kind, so this class is made to be fast. Whatever else a REQ does is left to others.
    """

    waits = True

    def __init__(self, exchange: Exchange) -> None:
        """Look at the connection from its first message on."""
        self._exchange = exchange
        self._flow = exchange.dossier.flow
        self._timeout_ns = exchange.timeout_ns
        types = exchange.dossier.types
        one, other = types
        self._requester, self._replier = (one, other) if types[one] == "REQ" else (other, one)
        self._forwarding = exchange.forwarding if types[self._replier] == "ROUTER" else None
        # About the request that waits for its reply. Packets are counted from 1.
        self._packet = 0
        self._part = 0
        self._time_ns = 0
        self._offset = 0
        self._seen = -1  # what its sender had seen of the other side
        self._asked = 0  # the packet of the last request
        self._answered = -1  # stream offset of the last reply
        self._late = False  # whether the waiting request was reported
        self._lacks = False  # whether octets since the last request are missing
        self._works = False  # whether it said that it is ready, or ever got something from a broker to do
        self._job: Request | None = None  # what a broker gave to a REQ that works for it
        self._rest: RequestReply | None = None  # what takes all messages from the first on that does not keep step
        self.message = self._take

    def _take(self, event: Message) -> None:
        frames = event.frames
        if frames[0] != b"" or len(frames) == 1 or self._rest is not None:
            self._leave(event)
            return
        if event.src == self._requester:
            if (self._packet or event.seen <= self._answered) and not self._exchange.hides_reply(event, self._seen):
                self._leave(event)
                return
            event.envelope = DELIMITER_ONLY
            if not self._asked and self._forwarding is not None and says_ready(frames):
                self._works = True
            self._seen = event.seen
            self._packet = self._asked = event.packet
            self._part = event.part
            self._time_ns = event.time_ns
            self._offset = event.offset
            self._lacks = False
            if self._forwarding is not None:
                if self._job is not None:
                    self._end_job(event, self._forwarding)
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
            self._answered = event.offset
            self._packet = 0
            self._late = False
            if self._forwarding is not None:
                leg = self._forwarding.forwarded_reply(event)
                if leg is not None:
                    event.forwards = leg.place
                elif len(frames) > 3:
                    self._begin_job(event, self._forwarding)
        elif not self._exchange.dossier.blind or (
            self._exchange.dossier.is_guessed and self._asked and not self._lacks
        ):
            self._leave(event)

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
        return self._rest is None and not self._late and self._job is None and not self._works

    def pair_facts(self, client: str) -> tuple[int, int, str, str, tuple[Any, ...]] | None:
        """The same where proxies may pass on messages, with their kind, the flow, the client and its peer."""
        if not (self.in_columns and self._asked) or self._forwarding is None:
            return None
        peer = self._replier if self._requester == client else self._requester
        return STEPS, self._flow, client, peer, self._facts(client)

    def _facts(self, client: str) -> tuple[int, int, int, int, int, int, int, int, int]:
        return (
            int(self._requester != client), self._packet, self._part, self._time_ns, self._offset, self._seen,
            self._answered, self._asked, self._timeout_ns,
        )  # fmt: skip

    def go_on_from(self, facts: tuple[int, int, int, int, int, int, int]) -> None:
        """Go on behind messages that kept the step."""
        asked = self._asked
        (
            self._packet, self._part, self._time_ns, self._offset, self._seen, self._answered, self._asked,
        ) = facts  # fmt: skip
        self._lacks = self._lacks and self._asked == asked

    # ------------------------------------------------------------------ what does not keep step

    def _leave(self, event: Message) -> None:
        """Leave this message, and all after it, to the rules for whatever may come."""
        if self._rest is None:
            waiting = self._waiting() if self._packet else None
            self._rest = RequestReply(self._exchange)
            self._rest.resume(waiting, self._asked, self._seen, self._answered, is_late=self._late)
        self._rest.take(event)

    # ------------------------------------------------------------------ a REQ that works for a broker

    def _begin_job(self, event: Message, forwarding: Proxies) -> None:
        """Take a reply that is a request of somebody else: a client's identity and its envelope are in it."""
        content = event.frames[1:]
        if forwarding.is_relayed(content):
            self._works = True
            key = key_of(content, envelope_of(content))
            if key:
                event.forwards = forwarding.forwarded(event, content)
                self._job = request_of(event, key)

    def _end_job(self, event: Message, forwarding: Proxies) -> None:
        """Take what the REQ says after a request of somebody else: the answer, if it has the same envelope in it."""
        job, self._job = self._job, None
        content = event.frames[1:]
        if job is not None and key_of(content, envelope_of(content)) == job.key:
            event.request, event.request_part, event.paired = job.packet, job.part, "envelope"
            event.latency_ns = latency_ns(event, job.time_ns)
            forwarding.begin_reply(event, content, job.forwards)

    # ------------------------------------------------------------------ waiting

    @property
    def asked_ns(self) -> int | None:  # type: ignore[override]
        """When the waiting request was sent."""
        if self._rest is not None:
            return self._rest.asked_ns
        return self._time_ns if self._packet else None

    @property
    def is_at_rest(self) -> bool:
        """Whether no request waits."""
        return not self._packet if self._rest is None else self._rest.is_at_rest

    def lose(self) -> None:
        """The missing octets may hold the request or its reply."""
        self._packet = 0
        self._lacks = True
        self._job = None
        if self._rest is not None:
            self._rest.lose()

    def pass_time(self, now_ns: int) -> None:
        """Report a request that has waited for too long, once."""
        if self._rest is not None:
            self._rest.pass_time(now_ns)
        elif self._packet and not (self._late or self._works) and now_ns - self._time_ns > self._timeout_ns:
            self._late = True
            self._exchange.report_late(self._waiting())

    def finish(self, event: Connection, now_ns: int) -> None:
        """Report a request without a reply, and requests that the REQ socket gave up."""
        self.pass_time(now_ns)
        if self._rest is not None:
            self._rest.finish(event, now_ns)
            return
        self._exchange.leave(event, [self._waiting()] if self._packet else [])
        if self._packet and not (self._late or self._works):  # a worker waits for work, not for a reply
            self._exchange.report_unanswered(self._waiting(), event.end == "open", 0)

    def _waiting(self) -> Request:
        ends = (self._flow, self._requester, self._replier)
        return Request(self._time_ns, self._packet, self._part, self._offset, 0, *ends, None)
