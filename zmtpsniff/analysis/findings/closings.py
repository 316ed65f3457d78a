"""Connections that are closed when they should not be: message-cut, handshake-timer.

Theory
------

A program that ends takes what its sockets still queue with it, unless it waits (ZMQ_LINGER). The wire does not show
what was queued. But if libzmq had to stop in the middle of a message, since the receiver had no room for all of it, the
connection ends inside that message: then messages are lost for certain. If the receiver closes, the sender did nothing
wrong: what was under way to it is lost with any connection that a receiver closes.

A peer must end its handshake within ZMQ_HANDSHAKE_IVL, 30 s. libzmq 4.3.3 and its like forget to stop that timer where
the other side speaks ZMTP 1.0 or 2.0, so that they close each such connection after 30 s, whatever passes on it.
"""

from collections.abc import Iterable

from dissectors.address import host_of
from dissectors.events import Connection, Problem
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Ledger
from zmtpsniff.words.counts import again

_CUTS = frozenset({"truncated-frame", "truncated-message"})
_TIMER_NS = (29_900_000_000, 31_000_000_000)  # from the SYN to the last packet, with the way there and back
_SURE = 3  # connections that end so


class _Closed:
    """Connections between the same two that were closed in the same way."""

    __slots__ = ("detail", "seen", "version", "who")

    def __init__(self) -> None:
        self.seen = Occurrences()
        self.who = ""
        self.detail = ""
        self.version = ""


class Closings(Inquiry):
    """How connections are closed."""

    def __init__(self) -> None:
        """Start without any."""
        self._unfinished: Ledger[int, Problem | None] = Ledger(lambda: None)  # flows that end inside a message
        self._cut: Ledger[tuple[str, str], _Closed] = Ledger(_Closed)
        self._timed: Ledger[tuple[str, str], _Closed] = Ledger(_Closed)

    def problem(self, event: Problem) -> None:
        """A side ended inside a message."""
        if event.code in _CUTS and event.flow is not None:
            self._unfinished.put(event.flow, event)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Learn who closed a connection."""
        cut = self._unfinished.entries.pop(event.flow, None)
        if event.closed_by is None or event.end not in ("fin", "rst") or dossier is None or dossier.blind:
            return
        closer, other = event.client, event.server
        if event.closed_by == "server":
            closer, other = other, closer
        first, second = (one.address if one is event.server else host_of(one.address) for one in (closer, other))
        if cut is not None and cut.src == closer.address:
            closed = self._cut.at((first, second))
            closed.who = f"the {closer.type_name or 'peer'} at {closer.address}"
            closed.detail = cut.detail
            closed.seen.add(event.end_ns, cut.packet, event.flow)
        lasted_ns = event.end_ns - event.start_ns
        if (
            event.handshake == "complete"
            and other.version in ("1.0", "2.0")
            and (closer.version is None or closer.version.startswith("3"))
            and _TIMER_NS[0] <= lasted_ns <= _TIMER_NS[1]
        ):
            closed = self._timed.at((first, second))
            closed.version = other.version
            closed.seen.add(event.end_ns, dossier.packet, event.flow)

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Connections that ended too early."""
        for (_, other), closed in self._cut.entries.items():
            often = again(closed.seen.count)
            summary = f"{closed.who} closed its connection to {other} in the middle of a message{often}"
            yield Claim("message-cut", summary, closed.detail, closed.seen, [closed.who.split()[-1], other])
        for (closer, other), closed in self._timed.entries.items():
            yield Claim(
                "handshake-timer",
                f"{closer} closes its connection to {other} 30 s after it was made{again(closed.seen.count)}",
                f"{other} speaks ZMTP {closed.version}, the handshake was done, and {closer} closes first",
                closed.seen,
                [closer, other],
                certainty="certain" if closed.seen.count >= _SURE else "likely",
            )
