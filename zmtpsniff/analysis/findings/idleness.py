"""Connections on which nothing passes for minutes: connection-forgotten, connection-idle.

Theory
------

Firewalls, NAT and load balancers between two hosts remember each TCP connection, and forget it when nothing has passed
for some minutes. Neither side learns of that. A subscriber sends nothing, so it waits for ever; the publisher learns it
when it sends again: what it sends is never acknowledged, or a RST answers that the other host's program did not send.
Some boxes send that RST by themselves, after a round time.

PING (ZMQ_HEARTBEAT_IVL) and the probes of TCP (ZMQ_TCP_KEEPALIVE) are packets, so a connection that has them is never
quiet for long. Between two programs on one host there is nothing that forgets.
"""

from collections.abc import Iterable

import msgspec

from dissectors.address import host_of
from dissectors.events import Connection
from zmtpsniff.analysis.dossier import Dossier, ends_of
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import WholeCaptureInquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.net.witness import Pause, Stall
from zmtpsniff.words.counts import often, plural
from zmtpsniff.words.durations import about

_LEAST_NS = 60_000_000_000  # a shorter silence is nobody's reason to forget a connection
_RISK_NS = 240_000_000_000  # load balancers of clouds forget after 4 to 6 minutes
_AT_ONCE_NS = 1_000_000_000  # octets that come again, and a RST that answers, come so soon
_ROUND_NS = 60_000_000_000
_ODD_NS = 1_000_000_000  # a timer is so exact


class _Idle(msgspec.Struct, eq=False):
    """Connections between the same two that were quiet for long."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    longest_ns: int = 0


class IdleConnections(WholeCaptureInquiry):
    """Connections that were quiet for long, and what became of them."""

    def __init__(self) -> None:
        """Start without any."""
        self._pauses: Ledger[int, Pause] = Ledger()  # the last long one of each flow
        self._stalls: Ledger[int, Stall] = Ledger()  # behind it
        self._forgotten: list[Claim] = []
        self._dead: Ledger[int, None] = Ledger()
        self._idle: Ledger[tuple[str, str], _Idle] = Ledger(_Idle)

    def is_forgotten(self, flow: int) -> bool:
        """Whether a connection that is over died of a silence, so that its receiver is not to blame."""
        return flow in self._dead

    def pause(self, pause: Pause) -> None:
        """Remember a long silence."""
        if pause.until_ns - pause.since_ns >= _LEAST_NS:
            self._pauses[pause.flow] = pause

    def stall(self, stall: Stall) -> None:
        """Take note of octets that nobody acknowledges any more, right behind a silence."""
        pause = self._pauses.get(stall.flow)
        if stall.cause != "unacknowledged" or stall.is_open or pause is None or pause.sender != stall.sender:
            return
        if 0 <= stall.since_ns - pause.until_ns <= _AT_ONCE_NS:
            self._stalls[stall.flow] = stall

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Look at what came behind a silence."""
        pause = self._pauses.pop(event.flow, None)
        stall = self._stalls.pop(event.flow, None)
        client, server = event.client, event.server
        if dossier is None or dossier.blind or host_of(client.address) == host_of(server.address):
            return
        quiet_ns = 0 if pause is None else pause.until_ns - pause.since_ns
        what = "" if pause is None else _death(pause, stall, event)
        if pause is not None and what:
            sender, other = (client, server) if pause.sender == client.address else (server, client)
            packet = dossier.packet if stall is None else stall.packet
            self._dead.at(event.flow)
            if len(self._forgotten) < 100:
                self._forgotten.append(
                    Claim(
                        "connection-forgotten",
                        f"the connection between the {sender.type_name or 'peer'} at {sender.address} and the "
                        f"{other.type_name or 'peer'} at {other.address} did not outlive {about(quiet_ns)} of silence",
                        f"nothing had passed for {about(quiet_ns)}, no PING and no probe of TCP; then {what}",
                        Occurrences.of([(pause.until_ns, packet, event.flow)]),
                        [sender.address, other.address],
                        certainty="likely",
                    )
                )
            return
        if not event.is_closed:
            quiet_ns = max(quiet_ns, until_ns - event.end_ns)
        if quiet_ns >= _RISK_NS:
            idle = self._idle.at(ends_of(event))
            idle.longest_ns = max(idle.longest_ns, quiet_ns)
            idle.seen.add(event.end_ns if pause is None else pause.since_ns, dossier.packet, event.flow)

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Connections that died in silence, and those that may."""
        if not self.is_whole:
            return
        yield from self._forgotten
        for (host, server), idle in self._idle.items():
            yield Claim(
                "connection-idle",
                f"nothing passes for up to {about(idle.longest_ns)} on {plural(idle.seen.count, 'connection')} of "
                f"{host} to {server}",
                "no message, no PING and no probe of TCP in that time",
                idle.seen,
                [server],
            )


def _death(pause: Pause, stall: Stall | None, event: Connection) -> str:
    """How a connection ended behind a silence, in words; empty if that says nothing of who forgot it."""
    if stall is not None:
        return f"{stall.sender} sent the same octets {often(stall.attempts)} more, and nobody acknowledged them"
    if event.end != "rst" or event.end_ns - pause.until_ns > _AT_ONCE_NS or event.closer is None:
        return ""
    if event.closer.address != pause.sender:
        return f"a RST answered what {pause.sender} sent"
    quiet_ns = pause.until_ns - pause.since_ns
    if min(quiet_ns % _ROUND_NS, -quiet_ns % _ROUND_NS) <= _ODD_NS:
        return "a RST came by itself, after whole minutes"
    return ""
