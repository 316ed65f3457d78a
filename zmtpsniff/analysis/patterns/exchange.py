"""The facts and reports that all rules for the requests of one connection share."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from dissectors.events import UNBOUNDED, Connection, Envelope, Message
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.insertions import Problems
from zmtpsniff.analysis.patterns.conversation import Room
from zmtpsniff.analysis.patterns.proxies import Proxies
from zmtpsniff.analysis.patterns.requests import Request, envelope_of
from zmtpsniff.analysis.patterns.returning import Peer, ReturningPeers


class Exchange(msgspec.Struct, eq=False):
    """The connection of requests, and the problems that any rules report of them."""

    dossier: Dossier
    problems: Problems
    forwarding: Proxies
    room: Room
    timeout_ns: int  # a request that waits for longer is reported
    _returning: ReturningPeers
    has_answers: bool = False  # whether a reply on this connection answered a request on it
    has_envelopes: bool = False  # one of these had the envelope of identities that its request has
    _peer: Peer | None = None

    def __post_init__(self) -> None:
        """The peer has come."""
        self._peer = self._returning.come(self.dossier)

    @property
    def may_inherit(self) -> bool:
        """Whether replies to requests of an earlier connection may come on this one."""
        return self._peer is not None and self._returning.has_left(self._peer, self.dossier.flow)

    def inherited(self, now_ns: int) -> list[Request]:
        """Requests of earlier connections whose replies may come on this one from now on; each is told once."""
        return self._returning.inherit(self._peer, now_ns)

    def leave(self, event: Connection, waiting: Iterable[Request]) -> None:
        """The connection is over, and these requests wait."""
        if self._peer is not None:
            by_peer = event.closer is not None and event.closer.address != self._peer[0]
            self._returning.go(self._peer, event.flow, waiting, by_peer=by_peer)

    def report_late(self, request: Request) -> None:
        """Report a request that has waited for too long; a reply may still come."""
        self._report_unanswered(request, f"within {self.timeout_ns / 1e9:g} s")

    def report_unanswered(self, request: Request, is_open: bool, more: int) -> None:
        """Report a request without a reply at the end, a note if the reply may have come a moment later."""
        what = "the capture ended" if is_open else "the connection was closed"
        others = f", nor to {more:,} after it" if more else ""
        self._report_unanswered(request, f"before {what}{others}", "note" if is_open else None)

    def report_given_up(self, request: Request) -> None:
        """Report a request that its sender gave up."""
        self._report_unanswered(request, "before its sender gave it up and asked again", "note")

    def report_passed_over(self, request: Request) -> None:
        """Report a request that a REP did not answer, though it answered a later one."""
        self._report_unanswered(request, "but to a later one", comma=",")

    def _report_unanswered(
        self, request: Request, so_far: str, severity: Literal["note"] | None = None, comma: str = ""
    ) -> None:
        if not self.dossier.blind:
            detail = f"no reply to this request{comma} {so_far}"
            self.problems.report("request-unanswered", request, detail, severity)

    def report_unasked(self, event: Message) -> None:
        """Report a reply that answers nothing. The first one may answer a request on an earlier connection."""
        if self.has_answers and not (self.dossier.blind or event.incomplete):
            self.problems.report("reply-without-request", event, "a reply to which no request was seen")

    def report_again(self, event: Message, before: int) -> None:
        """Report a request that comes before the reply to the one in packet ``before``."""
        if not (self.dossier.blind or event.seen == UNBOUNDED):
            detail = f"a REQ socket asks again before the reply to its request in packet {before} came"
            self.problems.report("request-before-reply", event, detail)

    def hides_reply(self, event: Message, seen: int) -> bool:
        """Whether the capture may lack the reply to the request before ``event``, whose sender had seen ``seen``."""
        return self.dossier.blind and event.seen > seen

    def envelope(self, event: Message) -> Envelope | None:
        """The envelope of a message that must have one."""
        envelope = envelope_of(event.frames)
        if envelope is None and not event.incomplete and self.dossier.is_guessed:
            self.dossier.guesses = {}  # the sender is no REQ or REP
        elif envelope is None and not event.incomplete:
            detail = "a message without the empty frame that a REQ or REP socket needs"
            if b"" in event.frames:
                detail = "a message in which nothing follows the empty frame that a REQ or REP socket needs"
            self.problems.report("no-delimiter", event, detail)
        return envelope
