"""Problems that are findings by themselves: heartbeat-lost, protocol-violated if nothing else explains them."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from dissectors.address import host_of, port_of
from dissectors.events import Connection, Problem, Severity
from dissectors.problems import PROBLEMS
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.findings.relays import Relays
from zmtpsniff.analysis.findings.unanswered_requests import Requests
from zmtpsniff.analysis.ledger import Ledger
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
REPEATED = tuple(
    code
    for code, kind in PROBLEMS.items()
    if kind.is_outside and code not in _EXPLAINED and code not in _LOST_HEARTBEATS
)
"""The codes of problems that findings repeat."""
_AGAIN = "request-before-reply"
_MOST_PLACES = 8
_MOST_CONNECTIONS = 10_000
_MOST_SERVICES = 5  # that are told one by one


class _Breach(msgspec.Struct, eq=False):
    """The problems of one code and severity, of one service."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    severity: Severity = "note"
    detail: str = ""
    first: tuple[int, int] = (0, 0)  # flow and packet
    places: dict[tuple[str, str], None] = {}  # who sent what broke the rules, and to whom
    replies: dict[int, int | None] = {}  # of _AGAIN: that each connection had when it came there first

    def merge(self, other: "_Breach") -> None:
        """Those of another service, too."""
        if not self.seen.count:
            self.severity, self.detail, self.first = other.severity, other.detail, other.first
        self.seen.merge(other.seen)
        for place in other.places:
            if len(self.places) < _MOST_PLACES:
                self.places[place] = None
        self.replies |= other.replies


class Violations(Inquiry):
    """Problems, counted by code."""

    def __init__(self, relays: Relays, requests: Requests) -> None:
        """``relays`` knows who may be to blame in the place of another, ``requests`` which replies came."""
        self._relays = relays
        self._requests = requests
        self._breaches: Ledger[tuple[str, Severity, str], _Breach] = Ledger(_Breach)
        self._silent: Ledger[str, _Breach] = Ledger(_Breach)
        self._types: Ledger[str, list[str]] = Ledger(list)  # of sockets on connections with breaches, by address
        self._breached: set[int] = set()  # connections
        self._closed: Ledger[tuple[str, str], None] = Ledger()  # who closed such a connection first, and to whom it was

    def problem(self, event: Problem) -> None:
        """Count a problem."""
        kind = PROBLEMS.get(event.code)
        if event.severity == "note" or event.code in _EXPLAINED or (kind is not None and not kind.is_outside):
            return
        who = _LOST_HEARTBEATS.get(event.code)
        if who is not None:
            address = str(getattr(event, who))
            silence = self._silent.at(address)
            silence.seen.add(event.time_ns, event.packet, event.flow)
            silence.detail = silence.detail or event.detail
            return
        breach = self._breaches.at((event.code, event.severity, _service(event)))
        if not breach.seen.count:
            breach.severity, breach.detail = event.severity, event.detail
            breach.first = event.flow or 0, event.packet or 0
        breach.seen.add(event.time_ns, event.packet, event.flow)
        if event.flow is not None and len(self._breached) < _MOST_CONNECTIONS:
            self._breached.add(event.flow)
        if event.code == _AGAIN and event.flow is not None and len(breach.replies) < _MOST_CONNECTIONS:
            breach.replies.setdefault(event.flow, self._requests.replies(event.flow))
        if event.src is not None and len(breach.places) < _MOST_PLACES:
            breach.places[event.src, str(event.dst)] = None

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Take note of both types, and of who closed the connection."""
        if event.flow not in self._breached:
            return
        self._breached.remove(event.flow)
        for one, other in ((event.client, event.server), (event.server, event.client)):
            if one.socket_type is not None and one.lookalike is None:
                self._types.at(one.address)[:] = [one.socket_type]
            if one is event.closer:
                self._closed[one.address, other.address] = None

    def _without_delimiter(self, breach: _Breach) -> str | None:
        """The fate of the one socket whose peer sends no delimiter; None if there are several, or of odd types."""
        if len(breach.places) != 1:
            return None
        (sender, receiver) = next(iter(breach.places))
        kinds = [kind for end in (sender, receiver) for kind in self._types.get(end, ())]
        if len(kinds) != 2 or kinds[1] not in ("REQ", "REP"):
            return None
        sent = f"the {kinds[0]} at {sender} sent {breach.detail}"
        if kinds[1] == "REP":
            return f"{sent}, so the REP at {receiver} drops it"
        ends = "closes the connection" if (receiver, sender) in self._closed else "does not take it"
        return f"{sent}, so the REQ at {receiver} {ends}"

    def _repeaters(self, code: str, breach: _Breach) -> list[str]:
        """The sockets of brokers that sent requests twice, if that explains each reply too many that is evidence."""
        if code != "reply-without-request":
            return []
        found = dict.fromkeys(self._relays.repeater(one.flow, one.packet) for one in breach.seen.evidence)
        return [] if "" in found else list(found)

    def _is_in_vain(self, code: str, breach: _Breach) -> bool:
        """Whether requests were sent again, and no reply came after that which could be taken for another one."""
        if code != _AGAIN or not 0 < len(breach.replies) < _MOST_CONNECTIONS:
            return False
        return all(
            before is not None and before == self._requests.replies(flow) for flow, before in breach.replies.items()
        )

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Losses, and breaches of the protocol."""
        for address, silence in self._silent.items():
            summary = f"{address} fell silent: its heartbeats stopped{again(silence.seen.count)}"
            yield Claim("heartbeat-lost", summary, silence.detail, silence.seen, [address])
        services = Counter((code, severity) for code, severity, _ in self._breaches)
        together: dict[tuple[str, Severity], _Breach] = {}  # of more services than anybody wants to read of
        for (code, severity, _), breach in self._breaches.items():
            if services[code, severity] > _MOST_SERVICES:
                together.setdefault((code, severity), _Breach()).merge(breach)
        alone = ((key[:2], breach) for key, breach in self._breaches.items() if services[key[:2]] <= _MOST_SERVICES)
        for (code, severity), breach in (*together.items(), *alone):
            often = again(breach.seen.count)
            who = where = ""
            told = self._without_delimiter(breach) if code == "no-delimiter" else None
            origin = self._relays.origin(*breach.first)
            if (
                told is None
                and breach.places
                and not any(end in breach.detail for place in breach.places for end in place)
            ):
                senders, receivers = (_names(place[side] for place in breach.places) for side in (0, 1))
                who = f"from {listed(senders)} to {listed(receivers)}: "
            endpoints = [end for place in breach.places for end in place]
            if origin:
                where += f"; {origin} sent it first, and brokers passed it on"
                endpoints.insert(0, origin)
                if self._relays.passes_on(origin):
                    severity = "note"  # what it took and did not pass on is another finding
            elif repeaters := self._repeaters(code, breach):
                where += f"; {listed(repeaters)} sent the request twice"
                endpoints = [*repeaters, *endpoints]
            elif self._is_in_vain(code, breach):
                severity = "note"
                often += "; no reply came after that"
            elif code == "reply-without-request" and all(self._relays.passes_on(src) for src, _ in breach.places):
                severity = "note"
                where += "; that is a broker, so look for who sent the request twice"
            kind = PROBLEMS.get(code)
            yield Claim(
                "protocol-violated",
                f"{who}{told or breach.detail}{where}{often}",
                f"problem {code}: {kind.meaning.rstrip('.')}" if kind is not None else f"problem {code}",
                breach.seen,
                endpoints,
                severity,
                advice=None if kind is None else kind.advice,
                problem=code,
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
