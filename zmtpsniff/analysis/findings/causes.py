"""Claims of one cause: a socket does not answer, so the programs that wait for it do not answer either.

A claim is left out if another one says the same of its socket, and better. It is a note if another one says why: its
program waits for somebody that does not answer, or somebody that it needs cannot come in.
"""

from collections.abc import Callable, Collection, Sequence

from dissectors.address import host_of, is_loopback
from zmtpsniff.analysis.findings.exchanges import INFERRED
from zmtpsniff.analysis.findings.finding import NOT_ANSWERING, Claim
from zmtpsniff.analysis.findings.requests import UNREACHED

_WAITS_ADVICE = "Mend first what the other finding says; look here only if this stays."
_APART = frozenset(
    {"endpoint-refused", "server-key-wrong", "credentials-refused", "mechanisms-differ", "sockets-mismatched"}
)
"""Findings that two programs do not come together."""
_AWAY = frozenset({"worker-closed", "service-away"})
"""Findings that a program has left."""
_SOON_NS = 1_000_000_000  # a service asks another one so soon after it was asked


def in_turn(claims: Collection[Claim], has_answered: Callable[[str], bool]) -> list[Claim]:
    """The claims; notes of those who do not answer because somebody else does not come or answer.

    ``has_answered`` says whether a socket has answered anybody.
    """
    silent = [claim for claim in claims if claim.code in NOT_ANSWERING and claim.severity != "note"]
    left = [claim for claim in claims if claim.code in _AWAY and claim.severity != "note"]
    apart = [claim for claim in claims if claim.code in _APART and claim.severity != "note"]
    found = [_in_turn(claim, [*silent, *left], apart, has_answered) if claim in silent else claim for claim in claims]
    if left or apart or any(one.code in NOT_ANSWERING and one.severity != "note" for one in found):
        return found
    return list(claims)  # each waits for the next one in a circle


def _in_turn(
    claim: Claim, silent: Sequence[Claim], apart: Sequence[Claim], has_answered: Callable[[str], bool]
) -> Claim:
    address = next(iter(claim.endpoints), "")
    host = host_of(address)
    if is_loopback(host):  # there all programs have one address
        return claim
    for other in silent:
        sought = [*other.endpoints][-1 if other.code == "worker-closed" else 0]  # the socket whose workers left is last
        if host in other.waiting and host_of(sought) not in claim.waiting and _is_in_turn(claim, other):
            waits = f"{host} itself waits for {sought} in vain"
            return as_effect(claim, waits, f"another finding says why {sought} does not answer")
        if claim.certainty == "possible" and sought != address and _began_before(other, claim):
            return as_effect(claim, f"perhaps it waits for {sought}", "another finding tells of that, since before")
    is_apart = any(host_of(one) == host for other in apart for one in other.endpoints)
    if is_apart and claim.code != "not-passed-on" and not has_answered(address):
        waits = "perhaps somebody that it needs cannot come in"
        return as_effect(claim, waits, f"another finding says that a peer and {host} do not come together")
    return claim


def _is_in_turn(claim: Claim, other: Claim) -> bool:
    """Whether a claim may come of another one, by their times. A program that loses messages may do so at any time."""
    seen, cause = claim.occurrences, other.occurrences
    if (cause.first_ns or 0) > (seen.first_ns or 0) + _SOON_NS:
        return False
    return claim.code != "not-passed-on" or (seen.last_ns or 0) - _SOON_NS <= (cause.last_ns or 0)


def _began_before(cause: Claim, claim: Claim) -> bool:
    """Whether a claim is of the time of another one that began long before."""
    since_ns, until_ns = cause.occurrences.first_ns or 0, cause.occurrences.last_ns or 0
    return since_ns + _SOON_NS < (claim.occurrences.first_ns or 0) < until_ns + _SOON_NS


def as_effect(claim: Claim, waits: str, known: str) -> Claim:
    """The claim as a note: its program ``waits`` for another one, and what is ``known`` tells where that stands."""
    return claim._replace(
        severity="note",
        summary=f"{claim.summary}; {waits}",
        known=f"{claim.known}; {known}",
        advice=_WAITS_ADVICE,
    )


def of_one_cause(claims: Collection[Claim]) -> list[Claim]:
    """The claims without those that say of a socket what another one says better."""
    workers = {next(iter(claim.endpoints), "") for claim in claims if claim.code in ("worker-silent", "worker-closed")}
    unanswered = [claim for claim in claims if claim.code == "request-unanswered"]
    by_ways = {claim.subject for claim in unanswered if claim.subject}
    by_peers = {
        next(iter(claim.endpoints), "") for claim in unanswered if not claim.subject and claim.severity != "note"
    }
    needless = [
        claim
        for claim in unanswered
        if (claim.subject in workers | by_peers)
        or (not claim.subject and claim.severity == "note" and next(iter(claim.endpoints), "") in by_ways)
    ]
    mute = {next(iter(claim.endpoints), "") for claim in claims if claim.code == "worker-silent"}
    needless += [claim for claim in claims if claim.code == "not-passed-on" and claim.subject in mute]
    # That jobs wait at a worker while others have nothing to do says that it is slow, too.
    behind = {
        next(iter(claim.endpoints)) for claim in claims if claim.code == "work-uneven" and claim.certainty == "likely"
    }
    needless += [claim for claim in claims if claim.code == "subscriber-slow" and claim.subject in behind]
    silent = {address for claim in claims if claim.code == "host-silent" for address in claim.endpoints}
    slow = [claim for claim in claims if claim.code == "replies-slow" and claim.severity != "note"]
    late = {address for claim in claims if claim.code == "capture-late" for address in claim.endpoints}

    def is_effect(claim: Claim) -> bool:
        """Whether the host is to blame and not the program, or in a late capture the service that it asks."""
        address = next(iter(claim.endpoints), "")
        follows_no_way = not claim.waiting if claim in slow else claim.code in NOT_ANSWERING and not claim.subject
        # Its program may have another socket on its host, or ask any service there.
        if follows_no_way and any(one != address and host_of(one) == host_of(address) for one in late):
            return True
        if claim in slow and INFERRED in claim.known:
            return any(host_of(address) in one.waiting for one in slow if one is not claim)
        return UNREACHED in claim.known and not silent.isdisjoint(claim.endpoints)

    return [claim._replace(severity="note") if is_effect(claim) else claim for claim in claims if claim not in needless]
