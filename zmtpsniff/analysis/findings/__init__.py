"""Findings: what is wrong in a system of programs, how that is known, and what to do about it.

`Diagnosis` hears all events of a capture and what connections show below their octets, in one pass and in bounded
memory. It hands them to its inquiries, a module for each family of findings, and asks them at the end. An inquiry says
nothing that a hole in the capture may explain.
"""

from collections.abc import Callable, Iterable, Sequence

from dissectors.events import AnyEvent, Capture, Command, Connection, Greeting, Message, Problem, Subscription
from zmtpsniff.analysis.findings.endpoints import Endpoints
from zmtpsniff.analysis.findings.finding import Finding, by_harm, finding
from zmtpsniff.analysis.findings.inquiry import Inquiry, Link, Listener
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.net.witness import Attempt, Stall

# Problems after which what is not seen may have been there all the same.
_BLINDING = frozenset(
    {
        "capture-gap",
        "packets-cut",
        "no-greeting",
        "one-direction",
        "frames-lost",
        "frames-found-again",
        "message-too-large",
    }
)
_FREQUENT = frozenset({"MESSAGE", "PING", "PONG"})  # commands of which no inquiry asks
_LINKS = 50_000


class Diagnosis:
    """Takes all events of a capture in batches, and says what is wrong. It is a witness of the flow table, too."""

    def __init__(self, rules: Sequence[DecodeAs] = ()) -> None:
        """``rules`` are those of ``-d``."""
        self._inquiries: list[Inquiry] = [Endpoints(rules)]
        self._greeting = self._hearers("greeting")
        self._command = self._hearers("command")
        self._subscription = self._hearers("subscription")
        self._problem = self._hearers("problem")
        self._lose = self._hearers("lose")
        self._end = self._hearers("end")
        self._attempt = self._hearers("attempt")
        self._stall = self._hearers("stall")
        self._links: dict[int, Link] = {}
        self._on_message: dict[int, Listener] = {}  # flow to who wants its messages
        self._now_ns = 0
        self.capture: Capture | None = None

    def _hearers(self, method: str) -> list[Callable[..., None]]:
        """The methods of those inquiries that define it."""
        unheard = getattr(Inquiry, method)
        return [getattr(one, method) for one in self._inquiries if getattr(type(one), method) is not unheard]

    def take(self, events: Iterable[AnyEvent]) -> None:
        """Look at a batch of events, of all those that a Sniffer gives."""
        on_message = self._on_message
        for event in events:
            if type(event) is Message:
                listener = on_message.get(event.flow)
                if listener is not None:
                    listener(event)
            else:
                self._take_other(event)

    def _take_other(self, event: AnyEvent) -> None:
        if isinstance(event, Command):
            if event.name in _FREQUENT:
                return
            link = self._link(event)
            if event.socket_type is not None:
                self._introduce(link, event.src, event.socket_type)
            for hear in self._command:
                hear(link, event)
        elif isinstance(event, Subscription):
            link = self._link(event)
            for hear in self._subscription:
                hear(link, event)
        elif isinstance(event, Greeting):
            link = self._link(event)
            if event.version is not None:
                link.versions[event.src] = event.version
            if event.socket_type is not None:
                self._introduce(link, event.src, event.socket_type)
            for hear in self._greeting:
                hear(link, event)
        elif isinstance(event, Problem):
            self._take_problem(event)
        elif isinstance(event, Connection):
            self._now_ns = max(self._now_ns, event.end_ns)
            self._on_message.pop(event.flow, None)
            link_or_none = self._links.pop(event.flow, None)
            for hear in self._end:
                hear(link_or_none, event)
        elif isinstance(event, Capture):
            self.capture = event

    def _take_problem(self, event: Problem) -> None:
        if event.code in _BLINDING and event.flow is not None:
            link = self._links.get(event.flow)
            if link is not None and not link.blind:
                link.blind = True
                for hear in self._lose:
                    hear(link)
        for hear in self._problem:
            hear(event)

    def _link(self, event: Greeting | Command | Subscription) -> Link:
        link = self._links.get(event.flow)
        if link is None:
            link = Link(event.flow, event.time_ns)
            if len(self._links) < _LINKS:
                self._links[event.flow] = link
        return link

    def _introduce(self, link: Link, address: str, kind: str) -> None:
        """A side says what it is; once both have, their connection begins."""
        if address in link.kinds or len(link.kinds) == 2:
            return
        link.kinds[address] = kind
        if len(link.kinds) < 2 or link.flow not in self._links:
            return
        listeners = [listener for one in self._inquiries if (listener := one.begin(link)) is not None]
        if len(listeners) == 1:
            self._on_message[link.flow] = listeners[0]
        elif listeners:

            def tell_all(event: Message) -> None:
                for listener in listeners:
                    listener(event)

            self._on_message[link.flow] = tell_all

    # ------------------------------------------------------------------ as a witness

    def attempt(self, attempt: Attempt) -> None:
        """A TCP connection was tried."""
        self._now_ns = max(self._now_ns, attempt.last_ns)
        for hear in self._attempt:
            hear(attempt)

    def stall(self, stall: Stall) -> None:
        """A receiver stopped for a while."""
        for hear in self._stall:
            hear(stall)

    # ------------------------------------------------------------------ results

    def findings(self) -> list[Finding]:
        """What is wrong, the most harmful first. To be asked once, when all events have been taken."""
        return by_harm(finding(claim) for one in self._inquiries for claim in one.claims(self._now_ns))
