"""Problems that are findings as they stand: heartbeat-lost, and protocol-violated for what nothing else explains."""

from collections.abc import Iterable

from dissectors.events import Problem, Severity
from dissectors.problems import PROBLEMS
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Ledger, some, times

_LOST_HEARTBEATS = {"ping-unanswered": "dst", "heartbeat-late": "src"}  # each with the one who is silent
# Problems that other inquiries explain, or that say the same of the capture.
_EXPLAINED = frozenset(
    {
        "handshake-incomplete",
        "incompatible-socket-types",
        "mechanism-mismatch",
        "both-as-server",
        "both-hello",
        "peer-error",
        "request-unanswered",
        "reconnect-storm",
        "server-key-wrong",
        "box-not-opened",
        "capture-gap",
        "packets-cut",
        "frames-lost",
        "frames-found-again",
        "message-too-large",
        "multicast-lost",
        "saving-ended",
    }
)
_MOST_PLACES = 8


class _Breach:
    """The problems of one code and severity."""

    __slots__ = ("detail", "places", "seen", "severity")

    def __init__(self) -> None:
        self.seen = Occurrences()
        self.severity: Severity = "note"
        self.detail = ""
        self.places: dict[str, None] = {}  # pairs of addresses


class Violations(Inquiry):
    """Problems, counted by code."""

    def __init__(self) -> None:
        """Start without any."""
        self._breaches: Ledger[tuple[str, Severity], _Breach] = Ledger(_Breach)
        self._silent: Ledger[str, Occurrences] = Ledger(Occurrences)
        self._details: dict[str, str] = {}

    def problem(self, event: Problem) -> None:
        """Count a problem."""
        if event.severity == "note" or event.code in _EXPLAINED:
            return
        who = _LOST_HEARTBEATS.get(event.code)
        if who is not None:
            address = str(getattr(event, who))
            self._silent.at(address).add(event.time_ns, event.packet, event.flow)
            self._details.setdefault(address, event.detail)
            return
        if event.flow is None and event.time_ns is None:
            return  # of the capture
        breach = self._breaches.at((event.code, event.severity))
        if not breach.seen.count:
            breach.severity, breach.detail = event.severity, event.detail
        breach.seen.add(event.time_ns, event.packet, event.flow)
        if event.src is not None and len(breach.places) < _MOST_PLACES:
            breach.places[f"{event.src} to {event.dst}"] = None

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """What was lost, and what was broken."""
        for address, seen in self._silent.entries.items():
            often = "" if seen.count == 1 else f", {times(seen.count, 'time')}"
            summary = f"{address} fell silent: its heartbeats stopped{often}"
            yield Claim("heartbeat-lost", summary, self._details[address], seen, [address])
        for (code, severity), breach in self._breaches.entries.items():
            often = "" if breach.seen.count == 1 else f", {breach.seen.count:,} times"
            where = f", from {some(breach.places, 2)}" if breach.places else ""
            endpoints = [end for place in breach.places for end in place.split(" to ")]
            kind = PROBLEMS.get(code)
            yield Claim(
                "protocol-violated",
                f"{breach.detail}{where}{often}",
                f"problem {code}{'' if kind is None else f': {kind.meaning}'}",
                breach.seen,
                endpoints,
                severity,
                advice=None if kind is None else kind.advice,
            )
