"""Findings about several connections together: peers that come and go, identities used twice, peers of old versions."""

from collections import defaultdict
from typing import NamedTuple

import msgspec

from dissectors.address import host_of
from dissectors.events import Command, Connection, Greeting
from zmtpsniff.analysis.dossier import Dossier, ended_soon, ends_of, only_looks
from zmtpsniff.analysis.insertions import Problems, Subject
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.net.notices import Refusal
from zmtpsniff.words.counts import often

_STORM_CONNECTIONS = 5
_STORM_NS = 10_000_000_000
_STORM_GROWTH = 10  # a storm is reported again when it is so many times larger
_RETURN_NS = 1_000_000_000  # within this time the old connection of a returning peer closes
_SERVERS = 10_000  # whose versions are remembered


class _Storm(msgspec.Struct, eq=False):
    """Connections of the same two peers in a row that ended soon, without a message."""

    first_ns: int
    last_ns: int
    count: int = 0
    next_report: int = _STORM_CONNECTIONS


class _Claim(NamedTuple):
    """A second connection claims an identity, or a PAIR socket, that the first one has."""

    event: Subject
    first: int  # flow
    code: str
    detail: str
    is_of_one_host: bool  # both connections come from one host, as those of a program that comes back

    def may_return(self, end_ns: int) -> bool:
        """Whether the first connection was over by then, as that of a returning peer."""
        return end_ns - self.event.time_ns <= _RETURN_NS

    def comes_after(self, end_ns: int) -> bool:
        """Whether the first connection was over before the second one began."""
        return self.event.time_ns > end_ns


class ConnectionLog:
    """All connections of a capture."""

    def __init__(self, problems: Problems) -> None:
        """Start without any."""
        self._problems = problems
        self._storms: Ledger[tuple[str, str], _Storm] = Ledger()
        self._open: defaultdict[str, dict[int, str]] = defaultdict(dict)  # by address: flows, each with its peer
        # Of a ROUTER's peers: the flow of each, and when it announced that.
        self._identities: dict[tuple[str, bytes], tuple[int, int]] = {}
        # By the second flow, while the first one may still be closing, or may have closed behind missing octets.
        self._claims: dict[int, _Claim] = {}
        self._holed: Ledger[int, None] = Ledger()  # connections that lack octets
        self._newest: dict[str, str] = {}  # the newest version that clients of a server speak, by the server's address
        self._told_older: set[tuple[str, str]] = set()
        self._refused: Ledger[str, tuple[Refusal, int, bool]] = Ledger()  # the first, how many, if reported
        self._servers: Ledger[str, None] = Ledger()

    # ------------------------------------------------------------------ identities and pairs

    def begin(self, dossier: Dossier, event: Command | Greeting) -> None:
        """Both sides of a connection have announced their socket types."""
        for address, kind in dossier.types.items():
            flows = self._open[address]
            peer = event.dst if address == event.src else event.src
            first = None
            # An earlier connection of the same peer is over.
            if kind == "PAIR":
                first = next((flow for flow, other in flows.items() if other != peer), None)
                code, words = "pair-in-use", f"PAIR socket at {address}, which has a peer,"
            elif kind == "ROUTER" and (identity := dossier.identity_of_other(address)):
                mine = dossier.flow, event.time_ns
                holder, since_ns = self._identities.setdefault((address, identity), mine)
                # Events behind a hole may come here after later ones.
                if flows.get(holder, peer) != peer and since_ns <= event.time_ns:
                    first = holder
                name = identity.decode(errors="backslashreplace")
                code, words = "identity-in-use", f'ROUTER at {address} with the identity "{name}" of'
            if first is not None:
                detail = f"{peer} comes to the {words} {flows[first]} (connection {first})"
                is_of_one_host = host_of(peer) == host_of(flows[first])
                self._claims[dossier.flow] = _Claim(event, first, code, detail, is_of_one_host)
            flows[dossier.flow] = peer

    def miss(self, flow: int) -> None:
        """A connection lacks octets: those behind them come later, or never."""
        self._holed[flow] = None

    def _may_be_over(self, claim: _Claim) -> bool:
        """Whether missing octets may hide the end of the first connection."""
        return claim.first in self._holed or (claim.is_of_one_host and len(self._holed) > 0)

    def pass_time(self, now_ns: int) -> None:
        """Report claims whose first connection is still open, though a returning peer would have closed it by now."""
        for flow, claim in list(self._claims.items()):
            if not claim.may_return(now_ns) and not self._may_be_over(claim):
                del self._claims[flow]
                self._report_claim(claim, is_return=False)

    def _report_claim(self, claim: _Claim, is_return: bool) -> None:
        detail = f"{claim.detail}, which is {'closed a moment later' if is_return else 'still connected'}"
        self._problems.report(claim.code, claim.event, detail, "note" if is_return else None)

    def _end_claims(self, event: Connection) -> None:
        self.pass_time(event.end_ns)
        for flow, claim in list(self._claims.items()):
            is_first, may_be_over = event.flow == claim.first, self._may_be_over(claim)
            if not is_first and (event.flow != flow or may_be_over):
                continue
            del self._claims[flow]
            is_return = is_first and event.is_closed
            if may_be_over and claim.may_return(event.end_ns) and (not is_return or claim.comes_after(event.end_ns)):
                continue  # its end may be missing, or came before
            self._report_claim(claim, is_return=is_return and claim.may_return(event.end_ns))

    def end(self, event: Connection, dossier: Dossier | None) -> None:
        """A connection is over."""
        if self._claims:
            self._end_claims(event)
        if dossier is not None:
            for address in dossier.types:
                flows = self._open[address]
                flows.pop(event.flow, None)
                if not flows:
                    del self._open[address]
                if dossier.identities:
                    key = (address, dossier.identity_of_other(address))
                    if self._identities.get(key, (0, 0))[0] == event.flow:
                        del self._identities[key]
        if event.server.address not in self._servers:
            self._servers[event.server.address] = None
        self._look_for_storm(event)
        self._compare_versions(event)

    # ------------------------------------------------------------------ storms and refusals

    def _look_for_storm(self, event: Connection) -> None:
        ends_storm = (
            event.messages.client or event.messages.server or not ended_soon(event) or event.handshake == "not-seen"
        )
        if ends_storm and not self._storms:
            return
        pair = ends_of(event)
        if ends_storm:
            self._storms.pop(pair, None)
            return
        storm = self._storms.get(pair)
        if storm is None or event.start_ns - storm.last_ns > _STORM_NS // _STORM_CONNECTIONS:
            storm = self._storms[pair] = _Storm(event.start_ns, event.start_ns)
            self._storms.move_to_end(pair)
        storm.count += 1
        storm.last_ns = event.start_ns
        if storm.count == storm.next_report:
            storm.next_report *= _STORM_GROWTH
            seconds = (event.end_ns - storm.first_ns) / 1e9
            self._problems.report_of_none(
                "reconnect-storm",
                f"{pair[0]} connected to {pair[1]} {often(storm.count)} within {seconds:.1f} s, and each time the "
                f"connection ended without a message (the last is connection {event.flow}, "
                f"handshake {event.handshake})",
                "note" if only_looks(event) else None,
            )

    def refuse(self, event: Refusal) -> None:
        """A TCP connection was refused."""
        server = event.dst
        first, count, told = self._refused.pop(server, (event, 0, False))
        if not told and (server in self._servers or server in self._open):
            told = True
            detail = f"a connection from {event.src} to {server} was refused, where ZeroMQ had answered before"
            self._report_refusal(event, detail)
        self._refused[server] = (first, count + 1, told)

    def greet(self, event: Greeting) -> None:
        """A peer speaks ZMTP: report refused connections to it."""
        for address in (event.src, event.dst) if self._refused else ():
            if address in self._refused:
                first, count, told = self._refused.pop(address)
                if not told:
                    detail = f"connections to {address} were refused {often(count)} before ZeroMQ answered there"
                    self._report_refusal(first, detail)

    def _report_refusal(self, event: Refusal, detail: str) -> None:
        """Report a refusal with its place but without its flow, since there are no other records of that flow."""
        self._problems.report_of_none("connection-refused", detail, event=event)

    # ------------------------------------------------------------------ versions

    def _compare_versions(self, event: Connection) -> None:
        version, server = event.client.version, event.server.address
        if version is None or "." not in version or event.handshake != "complete":
            return
        newest = self._newest.get(server)
        if newest is None and len(self._newest) >= _SERVERS:
            return
        if newest is None or version > newest:
            self._newest[server] = version
        if newest is None or version == newest or (server, min(version, newest)) in self._told_older:
            return
        older, newer = sorted((version, newest))
        self._told_older.add((server, older))
        self._problems.report_of_none(
            "older-peer",
            f"{server} has peers of ZMTP {older} ({event.client.address} or one before it) and of ZMTP {newer}",
        )
