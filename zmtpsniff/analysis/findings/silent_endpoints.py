"""Addresses where nobody answers: endpoint-refused, endpoint-silent, service-away.

Theory
------

libzmq connects in the background and tries again for ever, so a program whose service is not there only hangs. On the
wire there are SYNs, each answered by a RST (nobody listens there) or by nothing (nobody is there, or a firewall drops
them). Nothing in them says that ZeroMQ was meant. That is certain if ZMTP was seen at the address, or if the user
named its port. It is likely if the attempts have libzmq's rhythm: it waits for ZMQ_RECONNECT_IVL, 100 ms by default,
and a random part of it more, so that attempts come 100 to 200 ms apart, and of several sockets closer. It is likely,
too, if the host that tries speaks ZMTP with others. Otherwise it is possible. Then it is a note, unless the capture
has no ZMTP at all: then it is the best explanation.

Where the capture has one direction only, the SYNs are missing. But a RST that has an acknowledgment and the sequence
number 0 answers a SYN. Every other segment has an acknowledgment number, which the RST would take as its sequence
number (RFC 9293, section 3.10.7.1). So each such RST is the refusal of one attempt.

A service that goes away and comes back cuts its connections, refuses attempts, and accepts them again. Its peers lose
what they had sent and what it had queued.

A service that starts after its clients is refused at first. That is normal, and a note. A service that stops a moment
before its clients is a note, too. That it was there may be known only from a connection of before the capture. Without
its beginning nothing shows that it is ZMTP, but whoever sent more than a RST had accepted it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from dissectors.address import host_of, port_of
from dissectors.events import Connection, Severity
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Certainty, Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.decode_as import DecodeAs, first_match
from zmtpsniff.net.witness import Attempt
from zmtpsniff.words.counts import listed, plural
from zmtpsniff.words.durations import about

_LEAST_ATTEMPTS = 3
_LEAST_REFUSED_NS = 1_000_000_000
_LEAST_STOPPED_NS = 3_000_000_000
_LEAST_SILENT_NS = 2_500_000_000  # a SYN is sent again after 1 s, and then after 1 or 2 s more
_RHYTHM_ATTEMPTS = 5
_RHYTHM_NS = (10_000_000, 250_000_000)  # attempts come no slower than the second, on average no faster than the first
_HOSTS = 16
_ACCEPTED = 256  # times at which an address answered, to remember
_OUTAGES = 64
_CUT = 64  # connections that ended at an address, to remember
_CUT_NS = 1_000_000_000  # those of a service that goes away end so long before the first attempt is refused, at most
_LATE_ADVICE = (
    "Nothing, if the services started after their clients: libzmq tries again by itself. Only what PUB sent until then "
    "is lost."
)
_STOPPED_ADVICE = "Nothing, if the services were stopped. Otherwise look at why they ended, and start them again."
_SOON_NS = 1_000_000_000  # after an address answers, what waited for it goes on


class _Tries(msgspec.Struct, eq=False):
    """Attempts to connect to an address since a service last answered there. All had the same outcome."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    connections: int = 0  # that were tried, each with one SYN or more
    hosts: dict[str, None] = {}
    lone: int = 0  # of the connections: the capture has only the RST
    longest_ns: int = 0  # between two attempts

    def add(self, attempt: Attempt) -> None:
        self.connections += 1
        self.lone += not attempt.syns
        if len(self.hosts) < _HOSTS:
            self.hosts[host_of(attempt.client)] = None
        if self.seen.last_ns is not None:
            self.longest_ns = max(self.longest_ns, attempt.first_ns - self.seen.last_ns)
        self.seen.since(attempt.first_ns)
        self.seen.add(attempt.last_ns, attempt.packet, attempt.flow, max(attempt.syns, 1))

    @property
    def has_rhythm(self) -> bool:
        """Whether attempts come as libzmq's do."""
        count = self.connections
        fastest, slowest = _RHYTHM_NS
        return count >= _RHYTHM_ATTEMPTS and self.longest_ns <= slowest and self.seen.span_ns >= fastest * (count - 1)


class _Endpoint(msgspec.Struct, eq=False):
    """One address that somebody tried to connect to."""

    accepted: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=_ACCEPTED))  # when somebody answered
    refused: _Tries = msgspec.field(default_factory=_Tries)  # since then
    silent: _Tries = msgspec.field(default_factory=_Tries)
    # Those refused before that, by the time when it answered again.
    earlier: Ledger[int, _Tries] = msgspec.field(default_factory=lambda: Ledger(_Tries, _OUTAGES))
    # End, begin, flow and host of connections.
    ends: deque[tuple[int, int, int, str]] = msgspec.field(default_factory=lambda: deque(maxlen=_CUT))

    def accept(self, time_ns: int) -> None:
        """The address answers."""
        self.accepted.append(time_ns)
        if self.refused.seen.count:
            self.earlier[time_ns] = self.refused
            self.refused = _Tries()
        self.silent = _Tries()

    def refuse(self, attempt: Attempt) -> None:
        """The address refuses an attempt. That may be told late; the times of one host can be compared."""
        back_ns = min((one for one in self.accepted if one > attempt.last_ns), default=0)
        (self.earlier[back_ns] if back_ns else self.refused).add(attempt)


class Endpoints(Inquiry):
    """Attempts to connect to addresses."""

    def __init__(self, rules: Sequence[DecodeAs] = ()) -> None:
        """``rules`` are those of the user, which name ports of ZMTP."""
        self._rules = rules
        self._endpoints: Ledger[str, _Endpoint] = Ledger(_Endpoint)
        self._servers: Ledger[str, None] = Ledger()  # addresses where ZMTP was spoken
        self._hosts: Ledger[str, None] = Ledger()  # hosts that spoke it
        self._connected: Ledger[str, None] = Ledger()  # addresses with connections of before the capture

    def attempt(self, attempt: Attempt) -> None:
        """Count an attempt."""
        if attempt.outcome == "before":
            self._connected[attempt.server] = None
            return
        endpoint = self._endpoints.at(attempt.server)
        if attempt.outcome == "accepted":
            endpoint.accept(attempt.last_ns)
        elif attempt.outcome == "refused":
            endpoint.refuse(attempt)
        elif attempt.syns >= _LEAST_ATTEMPTS:  # else an answer may have been on its way
            endpoint.silent.add(attempt)

    def _tried_by(self, host: str, when_ns: int) -> Iterator[tuple[str, _Endpoint, Occurrences]]:
        """The addresses that a host tries in vain, and had not given up by then: its program may have ended before."""
        for address, one in self._endpoints.items():
            for tries in (one.refused, one.silent):
                seen = tries.seen
                # The next attempt may come later than any before; a SYN that nobody answers comes ever more rarely.
                next_ns = _SOON_NS + (2 * tries.longest_ns if tries is one.refused else seen.span_ns)
                if host in tries.hosts and (seen.last_ns or 0) + next_ns >= when_ns:
                    yield address, one, seen

    def sought_by(self, host: str, when_ns: int, least_ns: int = _LEAST_SILENT_NS) -> str:
        """An address that a host tries in vain then, for so long at least; an empty one if there is none."""
        tried = self._tried_by(host, when_ns)
        return next((address for address, _, seen in tried if seen.span_ns >= least_ns), "")

    def lost_by(self, host: str, when_ns: int) -> str:
        """An address that answered once, and that a host tries in vain since then or longer; else an empty one."""
        for address, one, seen in self._tried_by(host, when_ns):
            if one.accepted and seen.first_ns is not None and seen.first_ns <= when_ns + _SOON_NS:
                return address
        return ""

    def waited_for(self, host: str, until_ns: int) -> str:
        """An address that a host tried in vain, about then; an empty one if there is none."""
        for address, one in self._endpoints.items():
            for back_ns, tries in one.earlier.items():
                since_ns = tries.seen.first_ns
                if (
                    since_ns is not None
                    and host in tries.hosts
                    and since_ns - _SOON_NS < until_ns <= back_ns + _SOON_NS
                ):
                    return address
        return ""

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Remember who speaks ZMTP."""
        self._servers[event.server.address] = None
        if event.is_closed:
            host = host_of(event.client.address)
            self._endpoints.at(event.server.address).ends.append((event.end_ns, event.start_ns, event.flow, host))
        self._hosts[host_of(event.server.address)] = None
        self._hosts[host_of(event.client.address)] = None

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """The addresses where nobody answered."""
        late: dict[str, _Tries] = {}
        away: dict[str, list[_Absence]] = {}
        stopped: dict[str, _Tries] = {}
        # By their addresses: the order in which attempts are told depends on how a capture is cut into blocks.
        for address, endpoint in sorted(self._endpoints.items()):
            tries = endpoint.refused
            absences = list(_absences(address, endpoint))
            if absences:
                away.setdefault(host_of(address), []).extend(absences)
            if not tries.seen.count:
                if endpoint.earlier and not absences:
                    late[address] = next(iter(endpoint.earlier.values()))
            elif address in self._servers and _is_short(tries, _LEAST_STOPPED_NS):
                stopped[address] = tries
            else:
                yield self._refused(address, endpoint)
            if endpoint.silent.seen.count and endpoint.silent.seen.span_ns >= _LEAST_SILENT_NS:
                yield self._silent(address, endpoint.silent)
        for absences in away.values():
            yield _away(absences)
        if late:
            it = "it" if len(late) == 1 else "they"
            yield _together(late, "nobody listened at {} at first: {}, before " + it + " answered", _LATE_ADVICE)
        if stopped:
            yield _together(stopped, "nobody listens at {} any more: {}", _STOPPED_ADVICE)

    def _refused(self, address: str, endpoint: _Endpoint) -> Claim:
        tries = endpoint.refused
        seen = tries.seen
        certainty, why = self._certainty(address, tries)
        # Before the capture, perhaps.
        answered = endpoint.accepted or address in self._servers or address in self._connected
        any_more = " any more" if answered else ""
        summary = f"nobody listens at {address}{any_more}: {_tries(tries)} by {listed(tries.hosts)}"
        # Programs that end together end one after the other.
        least_ns = _LEAST_STOPPED_NS if answered else _LEAST_REFUSED_NS
        severity = "note" if _is_short(tries, least_ns) else self._severity(certainty)
        known = f"{_refusals(tries, address)}; {why}"
        return Claim("endpoint-refused", summary, known, seen, [address], severity, certainty)

    def _silent(self, address: str, tries: _Tries) -> Claim:
        seen = tries.seen
        certainty, why = self._certainty(address, tries)
        often = f"{plural(seen.count, 'SYN')} in {about(seen.span_ns)}"
        summary = f"{address} does not answer: {often} by {listed(tries.hosts)}"
        severity = self._severity(certainty)
        return Claim("endpoint-silent", summary, f"no packet comes back; {why}", seen, [address], severity, certainty)

    def _severity(self, certainty: Certainty) -> Severity:
        """The severity: a note, unless the attempts meant ZeroMQ, or nothing else in the capture can have."""
        if certainty == "possible":
            return "note" if self._servers else "warning"
        return "error"

    def _certainty(self, address: str, tries: _Tries) -> tuple[Certainty, str]:
        if address in self._servers:
            return "certain", "ZMTP was spoken there"
        port = port_of(address)
        if port and first_match(self._rules, "tcp", port) is not None:
            return "certain", "-d names its port"
        if tries.has_rhythm:
            return "likely", "the attempts have the rhythm of libzmq, 100 to 200 ms apart"
        speakers = [host for host in tries.hosts if host in self._hosts]
        if speakers:
            return "likely", f"{listed(speakers)} speaks ZMTP elsewhere, but nobody did there"
        return "possible", f"nothing proves that it is ZeroMQ; if it is, say -d tcp.port=={port},zmtp"


class _Absence(NamedTuple):
    """One time in which a service that had answered did not, until it answered again."""

    address: str
    since_ns: int
    until_ns: int
    cut: dict[int, str]  # its connections that ended then: by flow, the host of the other side
    tries: _Tries


def _absences(address: str, endpoint: _Endpoint) -> Iterator[_Absence]:
    """The times in which a service was away that had answered before; not that in which it had not come yet."""
    for back_ns, tries in endpoint.earlier.items():
        first_ns = tries.seen.first_ns or 0
        cut = [one for one in endpoint.ends if one[1] < first_ns and first_ns - _CUT_NS <= one[0] <= back_ns]
        # One direction does not show that a connection is over.
        if cut or (tries.lone and endpoint.accepted[0] < first_ns):
            since_ns = min(first_ns, *(end_ns for end_ns, *_ in cut)) if cut else first_ns
            yield _Absence(address, since_ns, back_ns, {flow: host for _, _, flow, host in cut}, tries)


def _away(absences: list[_Absence]) -> Claim:
    """One finding for all addresses of a host whose service was away, perhaps several times."""
    seen = Occurrences.all_of(one.tries.seen for one in absences)
    hit: dict[str, None] = {}
    times: list[tuple[int, int]] = []  # since and until when
    for one in sorted(absences, key=lambda one: one.since_ns):
        seen.since(one.since_ns)
        seen.add(one.until_ns, None, None, 0)
        hit |= dict.fromkeys(one.cut.values()) | one.tries.hosts
        is_same = times and one.since_ns <= times[-1][1]
        since_ns, until_ns = times.pop() if is_same else (one.since_ns, 0)
        times.append((since_ns, max(until_ns, one.until_ns)))
    lengths_ns = [until_ns - since_ns for since_ns, until_ns in times]
    count = sum(len(one.cut) for one in absences)
    cut = f"{plural(count, 'connection')} cut, " if count else ""
    known = "its connections ended, a RST answered SYNs after that" if count else "a RST answered SYNs"
    addresses = list(dict.fromkeys(one.address for one in absences))
    often = f"{len(times)} times, " if len(times) > 1 else ""
    return Claim(
        "service-away",
        f"{listed(addresses)} {'was' if len(addresses) == 1 else 'were'} away {often}for "
        f"{listed(map(about, lengths_ns))}, and came back: {cut}{plural(seen.count, 'attempt')} refused, of "
        f"{listed(hit)}",
        f"{known}, and then one was accepted",
        seen,
        addresses,
        "note" if max(lengths_ns) < _LEAST_REFUSED_NS else None,
        waiting=hit,
    )


def _is_short(tries: _Tries, least_ns: int) -> bool:
    return tries.seen.count < _LEAST_ATTEMPTS or tries.seen.span_ns < least_ns


def _together(endpoints: dict[str, _Tries], words: str, advice: str) -> Claim:
    """One note for all addresses where somebody answered only later, or answered until a moment before."""
    every = _Tries()
    for tries in endpoints.values():
        every.seen.merge(tries.seen)
        every.hosts.update(tries.hosts)
    summary = words.format(listed(endpoints), f"{_tries(every)} by {listed(every.hosts)}")
    known = "a RST answers each of these SYNs; ZMTP was spoken there"
    return Claim("endpoint-refused", summary, known, every.seen, endpoints, "note", advice=advice)


def _refusals(tries: _Tries, address: str) -> str:
    """The evidence that attempts were refused."""
    if not tries.lone:
        return f"a RST answers each SYN to {address}"
    which = "the" if tries.lone == tries.connections else "some"
    return f"RSTs of {address} have the sequence number 0, so they answer SYNs; the capture lacks {which} SYNs"


def _tries(tries: _Tries) -> str:
    """How many there were in which time."""
    attempts = plural(tries.seen.count, "attempt")
    return attempts if tries.seen.count == 1 else f"{attempts} in {about(tries.seen.span_ns)}"
