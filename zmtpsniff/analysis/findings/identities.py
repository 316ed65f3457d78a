"""Peers of a ROUTER that share one identity: identity-shared.

Theory
------

A ROUTER knows its peers by their identities. If a second one comes with an identity that is in use, libzmq leaves both
connected, and only one of them is its peer: the first, or with ZMQ_ROUTER_HANDOVER the last. It never reads what the
other one sends, and sends it nothing. Neither program learns of it. The messages that each sent and got show which of
them it is.

A program that closes its socket and makes a new one at once may come back before the ROUTER has let go of the old
connection. Then the ROUTER ignores the new one: nothing that it sends goes on, while the messages of others do. Where
brokers pass messages on, their ways show that.

The patterns find a second peer, and wait until the first had time to close its connection, as a program that comes
back does (:mod:`zmtpsniff.analysis.patterns.connection_log`).
"""

from collections.abc import Iterable

import msgspec

from dissectors.events import Connection, Problem
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Listener
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.counts import again, listed, plural

_RETURN_NS = 1_000_000_000  # so soon after the old connection ended
_MANY = 10
_RETURN_ADVICE = (
    "Set ZMQ_ROUTER_HANDOVER on the ROUTER, or no routing id on a socket that is closed and made again; or let it wait "
    "before it connects."
)

_Key = tuple[str, bytes]  # the address of a ROUTER, and the identity of one of its peers


class _Holder(msgspec.Struct, eq=False):
    """A peer that has an identity."""

    peer: str
    use: str = ""  # the messages that it sent and got, in words; empty if some may be missing


class _Member(msgspec.Struct, eq=False):
    """A peer of a ROUTER, with an identity."""

    key: _Key
    own: _Holder
    first: _Holder | None  # the one who had the identity when this one came


class _Sharers(msgspec.Struct, eq=False):
    """The peers that came with an identity in use."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    detail: str = ""
    member: _Member | None = None


class _Return(msgspec.Struct, eq=False):
    """A peer that came back with its identity, until the ROUTER takes one of its messages."""

    key: _Key
    peer: str
    ignored: Occurrences = msgspec.field(default_factory=Occurrences)


class Identities(Inquiry):
    """Identities that several peers of a ROUTER have."""

    def __init__(self) -> None:
        """Start without any."""
        self._members: Ledger[int, _Member] = Ledger()  # by flow; those of connections that are over
        self._open: Ledger[_Key, dict[int, _Member]] = Ledger(dict)
        self._sharers: Ledger[_Key, _Sharers] = Ledger(_Sharers)
        self._ended_ns: Ledger[_Key, int] = Ledger(int)  # when the last connection with an identity ended
        self._returns: Ledger[int, _Return] = Ledger()  # by flow

    def begin(self, dossier: Dossier) -> Listener | None:
        """Remember who has which identity."""
        (one, kind), (other, other_kind) = dossier.types.items()
        for router, peer, is_router in ((one, other, kind == "ROUTER"), (other, one, other_kind == "ROUTER")):
            identity = dossier.identity_of_other(router)
            if is_router and identity:
                members = self._open.at((router, identity))
                ended_ns = self._ended_ns.get((router, identity))
                if members or (ended_ns is not None and dossier.start_ns < ended_ns + _RETURN_NS):
                    self._returns[dossier.flow] = _Return((router, identity), peer)
                first = next(iter(members.values()), None)
                member = _Member((router, identity), _Holder(peer), None if first is None else first.own)
                members[dossier.flow] = member
                self._members[dossier.flow] = member
        return None

    def has_returned(self, flow: int) -> bool:
        """Whether a peer came back on this connection, and the ROUTER may ignore it."""
        return flow in self._returns

    def see(self, flows: Iterable[int]) -> None:
        """The ROUTERs took messages of these connections."""
        if self._returns:
            for flow in flows:
                self._returns.pop(flow, None)

    def ignore(self, flow: int, time_ns: int, packet: int) -> None:
        """The ROUTER did not take a message of a connection of one that came back."""
        returned = self._returns.get(flow)
        if returned is not None:
            returned.ignored.add(time_ns, packet, flow)

    def problem(self, event: Problem) -> None:
        """Count what the patterns saw. A note tells of a peer that came back."""
        member = None if event.flow is None else self._members.get(event.flow)
        if event.code != "identity-in-use" or event.severity == "note" or member is None:
            return
        sharers = self._sharers.at(member.key)
        if sharers.member is None:
            sharers.detail, sharers.member = event.detail, member
        sharers.seen.add(event.time_ns, event.packet, event.flow)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Learn what became of a peer."""
        member = self._members.get(event.flow)
        if member is None:
            return
        members = self._open.at(member.key)
        members.pop(event.flow, None)
        self._ended_ns[member.key] = event.end_ns
        if not members:
            del self._open[member.key]
        if dossier is not None and not dossier.blind:
            sent, got = event.messages.client, event.messages.server
            own = member.own
            if own.peer == event.server.address:
                sent, got = got, sent
            own.use = f"{own.peer} sent {plural(sent, 'message')} and got {got or 'none'}"

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Identities of several peers."""
        for (router, _), sharers in self._sharers.items():
            member = sharers.member
            assert member is not None
            both = [member.own] if member.first is None else [member.first, member.own]
            uses = [one.use for one in both if one.use]
            yield Claim(
                "identity-shared",
                sharers.detail + again(sharers.seen.count),
                "; ".join(["both announce that identity, and are connected at the same time", *uses]),
                sharers.seen,
                [router, *(one.peer for one in both)],
            )
        ignored: dict[_Key, list[_Return]] = {}
        for returned in self._returns.values():
            if returned.ignored.count and returned.key not in self._sharers:  # else it is known why
                ignored.setdefault(returned.key, []).append(returned)
        for (router, identity), several in ignored.items():
            seen = Occurrences.all_of(one.ignored for one in several)
            name = identity.decode(errors="backslashreplace")
            peers = [one.peer for one in several]
            yield Claim(
                "identity-shared",
                f"{router} ignored {plural(seen.count, 'message')} of {listed(peers)}, which came back with the "
                f'identity "{name}" before the ROUTER had let go of the old connection',
                "nothing that it sent on the new connection went on from there, while messages of others did",
                seen,
                peers,
                None if seen.count >= _MANY else "note",  # most programs give up, and come again
                certainty="likely",
                advice=_RETURN_ADVICE,
            )
