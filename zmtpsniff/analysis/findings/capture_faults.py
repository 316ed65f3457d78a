"""Faults of the capture itself, and how to capture better: capture-lossy, capture-late."""

from collections.abc import Iterable
from typing import NamedTuple

from dissectors.address import port_of
from dissectors.events import Capture, Connection, Problem
from dissectors.problems import PROBLEMS
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.catalogue import AGAIN, FINDINGS
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.net.witness import Attempt
from zmtpsniff.words.counts import listed, often, plural

_FLOWS = 10_000  # those that are no ZMTP have no end here


class _Loss(NamedTuple):
    """The meaning of a problem of a capture, and a remedy."""

    words: str
    advice: str


_BUFFER = (
    "Capture with a larger buffer (`-B 64`, tcpdump: `-B 65536`), without tcpdump's `--immediate-mode`, and with a "
    "filter on the port (`-f 'tcp port 5555'`)."
)
_WHOLE = "Capture whole packets (`-s 0`)."
_BOTH = "Capture on one of the two hosts, or mirror both directions."
_ORDER = "Nothing is lost: zmtpsniff puts the octets in order. Times stay as captured."
_FILE = "Copy the file again; a capturing program that is killed leaves its last record unfinished."
_LONGER = "Capture longer, or give the type of the bound socket: `-d tcp.port==5555,zmtp/REP`."
_DISORDER, _CLOCKS = "capture-disorder", "clocks-differ"  # hide nothing, and are told with what does
_LOSSES = {
    "capture-gap": _Loss("octets are missing", _BUFFER),
    "packets-cut": _Loss("packets are cut short", _WHOLE),
    "frames-lost": _Loss("zmtpsniff found no frame behind missing octets", ""),
    "frames-found-again": _Loss("zmtpsniff had to find frames again behind missing octets", ""),
    "message-too-large": _Loss("messages have more frames than zmtpsniff keeps", ""),
    "websocket-compression": _Loss("zmtpsniff cannot read compressed messages", "Turn permessage-deflate off."),
    "one-direction": _Loss("one direction of a connection is missing", _BOTH),
    "packets-dropped": _Loss("packets were dropped", _BUFFER),
    "fragments-dropped": _Loss("fragments are missing", _BUFFER),
    "segments-left-out": _Loss("segments were left out", "Capture behind the access point, or without aggregation."),
    "multicast-lost": _Loss("datagrams of a multicast sender are missing", _BUFFER),
    "tls-gap": _Loss("octets inside TLS are missing, or have no key", f"{_BUFFER} Give tshark the keys of all."),
    "capture-truncated": _Loss("the file was cut short", _FILE),
    "capture-corrupt": _Loss("the file is damaged, and the rest of it was not read", _FILE),
    "capture-unreadable": _Loss("a file cannot be read", _FILE),
    "capture-ended": _Loss("the capture ended by itself", "Look at the interface."),
    "interface-down": _Loss("an interface was down", "Look at the interface."),
    _DISORDER: _Loss("packets are out of order, or clocks differ", ""),
    _CLOCKS: _Loss("the clocks of two capture points differ", PROBLEMS[_CLOCKS].advice),
}


class Vantage(Inquiry):
    """The view of the capture point."""

    def __init__(self) -> None:
        """Start with a capture that has everything."""
        self._losses: Ledger[str, Occurrences] = Ledger(Occurrences)
        self._begun: Ledger[int, None] = Ledger(limit=_FLOWS)  # flows whose beginning is in the capture
        self._late = Occurrences()
        self._late_servers: dict[str, None] = {}
        self._is_named = True  # -d would tell no type of a bound socket of these connections
        self._holed: Ledger[int, None] = Ledger(limit=_FLOWS)  # flows of which octets are missing
        self._unsure = Occurrences()  # sides without a hole, and with too few octets to find frames
        self._zmtp = 0
        self._dropped = 0
        self._clocks = ""  # by how much they differ, in words

    def problem(self, event: Problem) -> None:
        """Count what is missing."""
        kind = PROBLEMS.get(event.code)
        if kind is None or kind.is_outside:
            return
        if event.code == _CLOCKS:
            self._clocks = event.detail
        if event.code == "frames-lost" and event.flow is not None and event.flow not in self._holed:
            self._unsure.add(event.time_ns, event.packet, event.flow)
        elif kind.blinds == "rest" or event.code in (_DISORDER, _CLOCKS):  # "beginning": capture-late tells that
            if event.flow is not None and kind.blinds == "rest":
                self._holed[event.flow] = None
            self._losses.at(event.code).add(event.time_ns, event.packet, event.flow)

    def attempt(self, attempt: Attempt) -> None:
        """Remember who connected while the capture ran: a missing handshake then has other reasons."""
        if attempt.outcome != "before":
            self._begun[attempt.flow] = None

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Count connections that were made before the capture began."""
        self._zmtp += 1
        has_begun = event.flow in self._begun
        self._begun.pop(event.flow, None)
        if event.handshake == "not-seen" and not has_begun:
            self._is_named = self._is_named and event.server.socket_type is not None and event.server.lookalike is None
            self._late.add(event.start_ns, None if dossier is None else dossier.packet, event.flow)
            if len(self._late_servers) < 100:
                self._late_servers[event.server.address] = None

    def totals(self, event: Capture) -> None:
        """The capture is over."""
        self._dropped = event.dropped

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Things that cannot be told, and why."""
        seen = Occurrences()
        words = []
        advice: dict[str, None] = {}
        if self._dropped:
            words.append(f"{plural(self._dropped, 'packet')} dropped while capturing")
            advice[_BUFFER] = None
            seen.add(None, None, None, self._dropped)
        for code, losses in self._losses.items():
            loss = _LOSSES[code]
            words.append(loss.words if losses.count == 1 else f"{loss.words} ({often(losses.count)})")
            advice[loss.advice] = None
            seen.add(losses.first_ns, None, None, losses.count)
            for one in losses.evidence:
                seen.add(losses.last_ns, one.packet, one.flow, 0)
        if words:
            summary = f"the capture does not have everything: {'; '.join(words)}"
            if not self._dropped and self._losses.keys() <= {_DISORDER, _CLOCKS}:
                summary = "the capture is out of order, or its clocks differ"
                if self._clocks:
                    summary = f"the clocks of the capture differ: {self._clocks}"
            known = "the capture file and TCP's sequence numbers say so"
            yield Claim("capture-lossy", summary, known, seen, [], advice=" ".join(filter(None, advice)) or _ORDER)
        port = str(port_of(next(iter(self._late_servers), "0.0.0.0:5555")))
        if self._unsure.count:
            summary = (
                f"too few octets to be sure where frames begin: {plural(self._unsure.count, 'side')} of connections "
                "that were open before the capture, of which nothing is shown"
            )
            known = "the capture has all their octets since it began, and nothing proves which are frames"
            longer = "Capture longer." if self._is_named else _LONGER.replace("5555", port)
            yield Claim("capture-lossy", summary, known, self._unsure, [], advice=longer)
        if self._late.count:
            summary = (
                f"the capture begins after {self._late.count:,} of {plural(self._zmtp, 'connection')} "
                f"{'was' if self._late.count == 1 else 'were'} made, with {listed(self._late_servers)}"
            )
            if self._dropped or "packets-dropped" in self._losses:
                summary += ", or their handshakes are among the packets that were dropped"
            known = "their handshakes are not in it"
            late_words = AGAIN if self._is_named else FINDINGS["capture-late"].advice
            advice_here = late_words.replace("5555", port)
            yield Claim("capture-late", summary, known, self._late, self._late_servers, advice=advice_here)
