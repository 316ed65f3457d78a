"""Claims of one cause: a socket does not answer, so the programs that wait for it do not answer either.

Theory
------

Inquiries look at one socket each, so one fault makes several claims. Five rules leave one error of them:

1. *Whoever cannot reach a service that it asks is not to blame* (:func:`excuse_who_reaches_nobody`). Its attempts to
   connect in vain show that. The claim about it becomes a note that names the address.
2. *Of two claims that say the same of a socket, one says it better* (:func:`without_repeats`). A claim that follows the
   way of a request beats one that only counts replies; one that says that a worker is silent or has closed beats one
   that says that requests wait there. The other one is left out.
3. *Whoever waits for a socket that does not answer is not to blame* (:func:`excuse_who_waits`). The claim about it
   becomes a note that names the socket. So it is if that socket has an error of its own, if its host waits there, and
   if the times fit: the cause must have begun before the effect, or hardly later.
   The capture may not show that the address from which a program asks another one is its own. Then only times tell,
   and the note says "perhaps": the program stopped to answer just when the other one went away, or each of its slow
   replies holds a slow one of the other (:func:`excuse_who_is_slow_with`).
4. *Whoever forwards octets does nothing of its own* (:func:`without_forwarded`). A claim about an address of a TCP
   proxy is left out if another one says the same of the peer behind it.
5. *Where the capture leaves open who is to blame, nobody is accused* (:func:`excuse_where_unclear`). The claim about a
   program becomes a note if its host is silent, if a slow service behind it explains the time, or if it may ask a
   service over a connection from before the capture.

If each of several services waits for the next one in a circle, no cause is left: then all claims stay as they are.
On the loopback interface all programs have one address, so there a claim never excuses another one.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from dissectors.address import host_of, is_loopback
from zmtpsniff.analysis.findings.exchanges import INFERRED
from zmtpsniff.analysis.findings.finding import NOT_ANSWERING, Claim
from zmtpsniff.analysis.findings.handshakes import SAYS_NOTHING, Handshakes
from zmtpsniff.analysis.findings.relay_places import ANSWERING
from zmtpsniff.analysis.findings.silent_endpoints import Endpoints
from zmtpsniff.analysis.findings.unanswered_requests import UNREACHED

_WAITS_ADVICE = "Mend first what the other finding says; look here only if this stays."
_APART = frozenset(
    {"endpoint-refused", "server-key-wrong", "credentials-refused", "mechanisms-differ", "sockets-mismatched"}
)
"""Findings that two programs do not come together."""
_AWAY = frozenset({"worker-closed", "service-away"})
"""Findings that a program has left."""
_SOON_NS = 1_000_000_000  # a service asks another one so soon after it was asked


def without_forwarded(claims: Collection[Claim], behind: Callable[[str], str]) -> list[Claim]:
    """The claims without those about an address of a TCP proxy that another one makes about the peer behind it.

    ``behind`` says for which peer an address of a proxy stands. The proxy forwards what that peer does, so both of its
    connections show it. What only one of them shows may be the doing of the proxy.
    """
    pairs = [(claim, (claim.code, tuple(map(behind, claim.endpoints)))) for claim in claims]
    direct = {key for claim, key in pairs if claim.place == behind(claim.place)}
    return [claim for claim, key in pairs if claim.place == behind(claim.place) or key not in direct]


def excuse_who_reaches_nobody(claim: Claim, endpoints: Endpoints, handshakes: Handshakes) -> Claim:
    """The claim, as a note if its program waits for another one that it cannot reach, as another finding says.

    Where it only is slow, or closes its connections at once, it must have waited just then.
    """
    host, place, seen = host_of(claim.place), claim.place, claim.occurrences
    first_ns, last_ns = seen.first_ns or 0, seen.last_ns or 0
    if claim.code == "replies-slow" and claim.severity != "note":
        if awaited := endpoints.waited_for(host, last_ns):
            when = "by then, where nobody listened at first"
        elif awaited := endpoints.lost_by(host, first_ns):
            when = "meanwhile, where nobody listens any more"
        else:
            return claim
        return claim._replace(severity="note", known=f"{claim.known}; {host} tried to reach {awaited} {when}")
    if claim.code in ("reconnect-storm", "handshake-failed"):
        # A TCP proxy accepts a connection, and closes it when it finds that its server is not there.
        sought = endpoints.sought_by(host, first_ns, 0) or endpoints.waited_for(host, last_ns)
        if SAYS_NOTHING not in claim.known or is_loopback(host):
            return claim
    elif claim.code not in NOT_ANSWERING or (claim.code == "not-passed-on" and claim.severity == "note"):
        return claim
    else:
        lost = endpoints.lost_by(host, first_ns)
        sought = endpoints.sought_by(host, first_ns) or handshakes.sought_by(host) or lost
    if not sought or sought == place:
        return claim
    waits = f"{host} itself waits for {sought} in vain"
    if is_loopback(host):  # there all programs have one address
        waits = f"perhaps it waits for {sought}, as a program there does in vain"
    return as_effect(claim, waits, f"another finding says why {host} and {sought} do not come together")


def excuse_who_waits(claims: Collection[Claim], has_answered: Callable[[str], bool]) -> list[Claim]:
    """The claims, with those as notes whose program waits for one that another claim accuses.

    ``has_answered`` says whether a socket has answered any request.
    """
    accused = [claim for claim in claims if claim.severity != "note"]
    silent = [claim for claim in accused if claim.code in NOT_ANSWERING]
    left = [claim for claim in accused if claim.code in _AWAY]
    apart = [claim for claim in accused if claim.code in _APART]
    found = [_excused(claim, silent, left, apart, has_answered) if claim in silent else claim for claim in claims]
    if left or apart or any(one.code in NOT_ANSWERING and one.severity != "note" for one in found):
        return found
    return list(claims)  # each waits for the next one in a circle


def _excused(
    claim: Claim,
    silent: Sequence[Claim],
    left: Sequence[Claim],
    apart: Sequence[Claim],
    has_answered: Callable[[str], bool],
) -> Claim:
    """The claim, as a note if another one explains it.

    That is of a program that is ``silent``, or has ``left``, or of what keeps two programs ``apart``.
    """
    host = host_of(claim.place)
    if is_loopback(host):
        return claim
    for cause in (*silent, *left):
        sought = [*cause.endpoints][-1] if cause.code == "worker-closed" else cause.place  # last: whose workers left
        if host in cause.waiting and host_of(sought) not in claim.waiting and _fits_in_time(claim, cause):
            waits = f"{host} itself waits for {sought} in vain"
            return as_effect(claim, waits, f"another finding says why {sought} does not answer")
    for cause in (*left, *apart):
        is_other = all(host_of(one) not in claim.waiting for one in (cause.place, *cause.endpoints))
        if is_other and not claim.subject and _stopped_with(claim, cause) and has_answered(claim.place):
            waits = f"perhaps it waits for {cause.place}"
            return as_effect(claim, waits, "another finding says that this went away just then")
    is_apart = any(host_of(one) == host for other in apart for one in other.endpoints)
    if is_apart and claim.code != "not-passed-on" and not has_answered(claim.place):
        waits = "perhaps somebody that it needs cannot come in"
        return as_effect(claim, waits, f"another finding says that a peer and {host} do not come together")
    return claim


def _fits_in_time(claim: Claim, cause: Claim) -> bool:
    """Whether a claim may be the effect of a cause, which must have begun before it, or hardly later.

    A program may lose messages at any time for other reasons. So of a claim that it does, the cause must also last
    until the last message that was lost.
    """
    seen, cause_seen = claim.occurrences, cause.occurrences
    if (cause_seen.first_ns or 0) > (seen.first_ns or 0) + _SOON_NS:
        return False
    return claim.code != "not-passed-on" or (seen.last_ns or 0) - _SOON_NS <= (cause_seen.last_ns or 0)


def _stopped_with(claim: Claim, cause: Claim) -> bool:
    """Whether a program stopped to answer just when another one went away."""
    return abs((claim.occurrences.first_ns or 0) - (cause.occurrences.first_ns or 0)) < _SOON_NS


def as_effect(claim: Claim, waits: str, known: str) -> Claim:
    """The claim as a note: its program ``waits`` for another one, and what is ``known`` tells where that stands."""
    return claim._replace(
        severity="note",
        summary=f"{claim.summary}; {waits}",
        known=f"{claim.known}; {known}",
        advice=_WAITS_ADVICE,
    )


def _places(claims: Iterable[Claim], *codes: str) -> set[str]:
    """The sockets that claims with these codes are about."""
    return {claim.place for claim in claims if claim.code in codes}


def excuse_where_unclear(claims: Collection[Claim], may_pass_on_unseen: Callable[[str], bool]) -> list[Claim]:
    """The claims, with those as notes whose program may not be to blame, as far as the capture shows.

    ``may_pass_on_unseen`` says whether a socket may ask a service over a connection from before the capture.
    """
    silent = {address for claim in claims if claim.code == "host-silent" for address in claim.endpoints}
    slow = [claim for claim in claims if claim.code == "replies-slow" and claim.severity != "note"]
    late = {address for claim in claims if claim.code == "capture-late" for address in claim.endpoints}

    def is_unclear(claim: Claim) -> bool:
        address = claim.place
        follows_no_way = not claim.waiting if claim in slow else claim.code in NOT_ANSWERING and not claim.subject
        # Its program may have another socket on its host, or ask any service there.
        has_late_neighbour = any(one != address and host_of(one) == host_of(address) for one in late)
        if follows_no_way and (has_late_neighbour or may_pass_on_unseen(address)):
            return True
        if claim in slow and INFERRED in claim.known:
            return any(host_of(address) in one.waiting for one in slow if one is not claim)
        return UNREACHED in claim.known and not silent.isdisjoint(claim.endpoints)

    return [claim._replace(severity="note") if is_unclear(claim) else claim for claim in claims]


def excuse_who_is_slow_with(claims: Collection[Claim]) -> list[Claim]:
    """The claims, with those as notes whose slow replies each hold a slow one of another service.

    Where ways show that a program passes messages on, they are believed.
    """
    slow = [claim for claim in claims if claim.code == "replies-slow" and claim.severity != "note"]

    def excused(claim: Claim) -> Claim:
        if claim.waiting and ANSWERING not in claim.summary:
            return claim
        for other in slow:
            if host_of(other.place) != host_of(claim.place) and _holds(claim, other):
                waits = f"perhaps it waits for {other.place}"
                return as_effect(claim, waits, "another finding says that this was slow in the same time")
        return claim

    return [excused(claim) if claim in slow else claim for claim in claims]


def _holds(outer: Claim, inner: Claim) -> bool:
    """Whether the slow messages of one claim each hold one of another, which takes most of the time.

    If the other claim is about more messages than it has spells of, one is enough.
    """
    held = sum(
        any(begin <= since and until <= end and 2 * (until - since) > end - begin for since, until in inner.spells)
        for begin, end in outer.spells
    )
    return 2 * held > len(outer.spells) or (held > 0 and inner.occurrences.count > len(inner.spells))


def without_repeats(claims: Collection[Claim]) -> list[Claim]:
    """The claims without those that say of a socket what another one says better."""
    unanswered = [claim for claim in claims if claim.code == "request-unanswered"]
    by_ways = {claim.subject for claim in unanswered if claim.subject}
    by_peers = {claim.place for claim in unanswered if not claim.subject and claim.severity != "note"}
    better = _places(claims, "worker-silent", "worker-closed") | by_peers
    mute = _places(claims, "worker-silent")
    # That jobs wait at a worker while others have nothing to do says that it is slow, too.
    behind = _places([claim for claim in claims if claim.certainty == "likely"], "work-uneven")

    def is_repeat(claim: Claim) -> bool:
        if claim.code == "request-unanswered":
            is_vague = not claim.subject and claim.severity == "note" and claim.place in by_ways
            return claim.subject in better or is_vague
        return (claim.code == "not-passed-on" and claim.subject in mute) or (
            claim.code == "subscriber-slow" and claim.subject in behind
        )

    return [claim for claim in claims if not is_repeat(claim)]
