"""Problems that are findings by themselves: heartbeat-lost, protocol-violated if nothing else explains them."""

from collections import Counter
from collections.abc import Iterable

from dissectors.address import host_of, port_of
from dissectors.events import Problem, Severity
from dissectors.problems import PROBLEMS
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Ledger
from zmtpsniff.words.counts import again, listed

_LOST_HEARTBEATS = {"ping-unanswered": "dst", "heartbeat-late": "src"}  # each with the one who is silent
# Problems that other inquiries explain.
_EXPLAINED = frozenset(
    {
        "handshake-incomplete",
        "identity-in-use",
        "incompatible-socket-types",
        "mechanism-mismatch",
        "both-as-server",
        "both-hello",
        "peer-error",
        "request-unanswered",
        "reconnect-storm",
        "server-key-wrong",
        "box-not-opened",
    }
)
_MOST_PLACES = 8
_MOST_SERVICES = 5  # that are told one by one


class _Breach:
    """The problems of one code and severity, of one service."""

    __slots__ = ("detail", "places", "seen", "severity")

    def __init__(self) -> None:
        self.seen = Occurrences()
        self.severity: Severity = "note"
        self.detail = ""
        self.places: dict[tuple[str, str], None] = {}  # who sent what broke the rules, and to whom

    def merge(self, other: "_Breach") -> None:
        """Those of another service, too."""
        if not self.seen.count:
            self.severity, self.detail = other.severity, other.detail
        self.seen.merge(other.seen)
        for place in other.places:
            if len(self.places) < _MOST_PLACES:
                self.places[place] = None


class Violations(Inquiry):
    """Problems, counted by code."""

    def __init__(self) -> None:
        """Start without any."""
        self._breaches: Ledger[tuple[str, Severity, str], _Breach] = Ledger(_Breach)
        self._silent: Ledger[str, Occurrences] = Ledger(Occurrences)
        self._details: dict[str, str] = {}

    def problem(self, event: Problem) -> None:
        """Count a problem."""
        kind = PROBLEMS.get(event.code)
        if event.severity == "note" or event.code in _EXPLAINED or (kind is not None and not kind.is_outside):
            return
        who = _LOST_HEARTBEATS.get(event.code)
        if who is not None:
            address = str(getattr(event, who))
            self._silent.at(address).add(event.time_ns, event.packet, event.flow)
            self._details.setdefault(address, event.detail)
            return
        breach = self._breaches.at((event.code, event.severity, _service(event)))
        if not breach.seen.count:
            breach.severity, breach.detail = event.severity, event.detail
        breach.seen.add(event.time_ns, event.packet, event.flow)
        if event.src is not None and len(breach.places) < _MOST_PLACES:
            breach.places[event.src, str(event.dst)] = None

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Losses, and breaches of the protocol."""
        for address, seen in self._silent.entries.items():
            often = again(seen.count)
            summary = f"{address} fell silent: its heartbeats stopped{often}"
            yield Claim("heartbeat-lost", summary, self._details[address], seen, [address])
        services = Counter((code, severity) for code, severity, _ in self._breaches.entries)
        together: dict[tuple[str, Severity], _Breach] = {}  # of more services than anybody wants to read of
        for (code, severity, _), breach in self._breaches.entries.items():
            if services[code, severity] > _MOST_SERVICES:
                together.setdefault((code, severity), _Breach()).merge(breach)
        alone = (
            (key[:2], breach) for key, breach in self._breaches.entries.items() if services[key[:2]] <= _MOST_SERVICES
        )
        for (code, severity), breach in (*together.items(), *alone):
            often = again(breach.seen.count)
            where = ""
            if breach.places and not any(end in breach.detail for place in breach.places for end in place):
                senders, receivers = (_names(place[side] for place in breach.places) for side in (0, 1))
                where = f", from {listed(senders)} to {listed(receivers)}"
            endpoints = [end for place in breach.places for end in place]
            kind = PROBLEMS.get(code)
            yield Claim(
                "protocol-violated",
                f"{breach.detail}{where}{often}",
                f"problem {code}: {kind.meaning.rstrip('.')}" if kind is not None else f"problem {code}",
                breach.seen,
                endpoints,
                severity,
                advice=None if kind is None else kind.advice,
            )


def _service(event: Problem) -> str:
    """The address of the service that a problem most likely is about: the one with the lower port."""
    ends = [end for end in (event.src, event.dst) if end is not None]
    return min(ends, key=port_of, default="")


def _names(addresses: Iterable[str]) -> list[str]:
    """Addresses. For addresses of one host with a port for each connection, only the host."""
    hosts: dict[str, dict[str, None]] = {}
    for address in addresses:
        hosts.setdefault(host_of(address), {})[address] = None
    return [next(iter(every)) if len(every) == 1 else host for host, every in hosts.items()]
