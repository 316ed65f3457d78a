"""Connections that a program opens, uses once and never closes: connections-grow.

Theory
------

A program that makes a socket for each request, and forgets to close it, has one connection more each time. Each costs
memory and a descriptor on both hosts, until one of them has no more (EMFILE; ZMQ_MAX_SOCKETS is 1023).

Many connections of one host are no fault: it may have many programs, and a pool keeps some ready. The leak shows in
time. Each connection carried something, and was quiet before the next but one was opened, none was closed meanwhile,
and new ones came until the end. In a few seconds programs that start one behind the other look the same. Connections
that began before the capture do not count.
"""

from collections.abc import Iterable

import msgspec

from dissectors.events import Connection
from zmtpsniff.analysis.dossier import Dossier, ends_of
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import WholeCaptureInquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about

_LEAST = 20
_LEAST_NS = 1_000_000_000
_SURE_NS = 10_000_000_000
_MOST = 2000  # of one host to one server that are remembered
_PART = 0.9  # of them behave so
_OVERLAP = 2  # so many later a connection must be quiet
_ACK_NS = 200_000_000  # its last acknowledgment may come so much later


class _Opened(msgspec.Struct, eq=False):
    """Connections of one host to one server."""

    closed: int = 0
    opened: list[tuple[int, int, int, int, bool]] = []  # start, last packet, packet, flow, if it was used


class Growth(WholeCaptureInquiry):
    """Connections that become more and more."""

    def __init__(self) -> None:
        """Start without any."""
        self._pairs: Ledger[tuple[str, str], _Opened] = Ledger(_Opened)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Count a connection that was closed, or that is still there at the end."""
        if dossier is None or dossier.blind or event.handshake != "complete":
            return
        pair = self._pairs.at(ends_of(event))
        if event.is_closed:
            pair.closed += 1
        elif len(pair.opened) < _MOST:
            is_used = event.messages.client + event.messages.server > 0
            pair.opened.append((event.start_ns, event.end_ns, dossier.packet, event.flow, is_used))

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Hosts whose connections only grow."""
        for (host, server), pair in self._pairs.items() if self.is_whole else ():
            opened = sorted(pair.opened)
            count = len(opened)
            if count < _LEAST or pair.closed > (1 - _PART) * count:
                continue
            span_ns = opened[-1][0] - opened[0][0]
            grows = now_ns - opened[-1][0] <= max(span_ns // 4, _OVERLAP * span_ns // count)
            left = sum(
                is_used and last_ns <= later[0] + _ACK_NS
                for (_, last_ns, _, _, is_used), later in zip(opened, opened[_OVERLAP:], strict=False)
            )
            if span_ns < _LEAST_NS or not grows or left < _PART * (count - _OVERLAP):
                continue
            yield Claim(
                "connections-grow",
                f"the connections of {host} to {server} only grow: {count:,} in {about(span_ns)}, of which it closed "
                f"{pair.closed or 'none'}",
                f"{plural(left, 'connection')} carried something, and nothing more once later ones were there",
                Occurrences.of((start_ns, packet, flow) for start_ns, _, packet, flow, _ in opened),
                [server],
                None if span_ns >= _SURE_NS else "note",
                certainty="likely",
            )
