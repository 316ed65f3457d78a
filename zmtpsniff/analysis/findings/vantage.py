"""What the capture itself cannot show, and how to capture better: capture-lossy, capture-late."""

from collections.abc import Iterable

from dissectors.events import Capture, Connection, Problem
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Contact, Inquiry, Ledger, some, times
from zmtpsniff.net.witness import Attempt

_FLOWS = 50_000
# Problems of a capture, each with what it says of it.
_LOSSES = {
    "capture-gap": "octets are missing",
    "packets-cut": "packets are cut short",
    "frames-lost": "zmtpsniff found no frame behind missing octets",
    "frames-found-again": "zmtpsniff had to find frames again behind missing octets",
    "one-direction": "one direction of a connection is missing",
    "packets-dropped": "packets were dropped",
    "fragments-dropped": "fragments are missing",
    "multicast-lost": "datagrams of a multicast sender are missing",
    "capture-disorder": "packets are out of order, or clocks differ",
    "file-cut": "the file was cut short",
}


class Vantage(Inquiry):
    """What the capture point saw."""

    def __init__(self) -> None:
        """Start with a capture that has everything."""
        self._losses: Ledger[str, Occurrences] = Ledger(Occurrences)
        self._begun: Ledger[int, None] = Ledger(lambda: None, _FLOWS)  # flows whose beginning is in the capture
        self._late = Occurrences()
        self._late_servers: dict[str, None] = {}
        self._zmtp = 0
        self._dropped = 0

    def problem(self, event: Problem) -> None:
        """Count what is missing."""
        if event.code in _LOSSES:
            self._losses.at(event.code).add(event.time_ns, event.packet, event.flow)

    def attempt(self, attempt: Attempt) -> None:
        """Remember who connected while the capture ran: if the handshake is not in it, that has other reasons."""
        self._begun.at(attempt.flow)

    def end(self, contact: Contact | None, event: Connection, until_ns: int) -> None:
        """Count connections that were made before the capture began."""
        self._zmtp += 1
        if event.handshake == "not-seen" and event.flow not in self._begun.entries:
            self._late.add(event.start_ns, None if contact is None else contact.packet, event.flow)
            if len(self._late_servers) < 100:
                self._late_servers[event.server.address] = None

    def totals(self, event: Capture) -> None:
        """The capture is over."""
        self._dropped = event.dropped

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """What cannot be told, and why."""
        seen = Occurrences()
        words = []
        if self._dropped:
            words.append(f"{times(self._dropped, 'packet')} dropped while capturing")
            seen.add(None, None, None, self._dropped)
        for code, losses in self._losses.entries.items():
            words.append(f"{_LOSSES[code]} ({times(losses.count, 'time')})")
            seen.add(losses.first_ns, None, None, losses.count)
            for one in losses.evidence:
                seen.add(losses.last_ns, one.packet, one.flow, 0)
        if words:
            summary = f"the capture does not have everything: {'; '.join(words)}"
            yield Claim("capture-lossy", summary, "the capture file and TCP's sequence numbers say so", seen, [])
        if self._late.count:
            summary = (
                f"the capture begins after {self._late.count:,} of {times(self._zmtp, 'connection')} "
                f"{'was' if self._late.count == 1 else 'were'} made, with {some(self._late_servers)}"
            )
            yield Claim("capture-late", summary, "their handshakes are not in it", self._late, self._late_servers)
