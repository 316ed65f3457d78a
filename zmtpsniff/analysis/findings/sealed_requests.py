"""Requests inside CURVE that get no reply, though no key opens their boxes: request-unanswered.

Theory
------

CURVE hides contents, but neither senders nor lengths. In the handshake each side announces its socket type. libzmq's
REQ announces 32 octets, its type and an empty identity; its REP announces 19, its type alone. No other pair of sockets
that may talk to each other has these lengths: PUB and SUB announce 19 each, and the others more. REQ and REP also put
an empty frame in front of each message, whose box has 17 octets. No heartbeat and no subscription is that short. A REQ
waits after it has asked. So its first box of 17 octets is a request, and the first one of a REP that had seen it is
the reply.

A REQ that talks to a ROUTER may be a worker: it says that it is ready, then waits for work for hours. So there is no
finding about it.
"""

from collections.abc import Iterable

import msgspec

from dissectors.address import host_of, is_loopback
from dissectors.events import Command, Connection, at_hand
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about, nanoseconds

_AUTHENTICATOR = 16  # octets of a box beside its content
_IDENTIFIED = 128  # octets of INITIATE's box before the metadata: the client's key, and the vouch
_REQ, _REP = 32, 19  # octets that they announce
_DELIMITER = _AUTHENTICATOR + 1  # octets of the box of an empty frame: only its flags are in it
_MOST = 10_000  # connections at a time
_KNOWN = (
    "CURVE hides what is said, but not how long it is: the two sides announce as much as a REQ and a REP, and their "
    "messages have the empty frame in front; none comes back after this request"
)


class _Turns(msgspec.Struct, eq=False):
    """The boxes of a REQ and a REP."""

    requester: str
    replier: str
    answered: int = 0
    asked_ns: int = 0  # when the last request came; its packet, and its offset in the stream of its sender
    packet: int = 0
    offset: int = -1
    heard: int = 0  # the replier had read so much of the requester's stream when it last sent something

    @property
    def is_waiting(self) -> bool:
        """Whether the last request has no reply."""
        return self.packet > 0 and self.heard <= self.offset

    def take(self, event: Command) -> None:
        """Take a MESSAGE."""
        if len(at_hand(event.box or b"")) != _DELIMITER:
            return
        if event.src == self.replier:
            self.heard = max(self.heard, event.seen)
        elif not self.is_waiting:  # else a frame of the same request
            self.answered += self.packet > 0
            self.asked_ns, self.packet, self.offset = event.time_ns, event.packet, event.offset


class _Silence(msgspec.Struct, eq=False):
    """Requests of one host that one REP does not answer."""

    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    answered: int = 0
    longest_ns: int = 0


class SealedRequests(Inquiry):
    """Requests and replies in boxes."""

    def __init__(self, timeout_seconds: float) -> None:
        """``timeout_seconds`` is how long a request may wait for its reply."""
        self._timeout_ns = nanoseconds(timeout_seconds)
        self._announced: Ledger[int, dict[str, int]] = Ledger(dict)  # by flow: octets that each side announces
        self._turns: dict[int, _Turns] = {}
        self._silences: Ledger[tuple[str, str], _Silence] = Ledger(_Silence, 1000)
        self._met: Ledger[int, None] = Ledger()  # flows with a MESSAGE
        self._ends: Ledger[str, list[str]] = Ledger(list)  # by host: two addresses that it has on such flows

    def may_ask(self, address: str) -> bool:
        """Whether the host of a socket has another one whose messages no key opens: it may wait for a third."""
        return any(end != address for end in self._ends.get(host_of(address), ()))

    def command(self, dossier: Dossier, event: Command) -> None:
        """Learn how much a side announces."""
        if event.name not in ("INITIATE", "READY") or not isinstance(event.box, bytes) or dossier.blind:
            return
        announced = self._announced.at(event.flow)
        announced[event.src] = len(event.box) - _AUTHENTICATOR - (_IDENTIFIED if event.name == "INITIATE" else 0)
        if sorted(announced.values()) == [_REP, _REQ] and len(self._turns) < _MOST:
            replier, requester = sorted(announced, key=announced.__getitem__)
            self._turns[event.flow] = _Turns(requester, replier)

    def sealed(self, event: Command) -> None:
        """Take a MESSAGE, if it is of a REQ or a REP."""
        turns = self._turns.get(event.flow)
        if turns is not None:
            turns.take(event)
        if event.flow not in self._met:
            self._met.at(event.flow)
            for end in (event.src, event.dst):
                ends = self._ends.at(host_of(end))
                if len(ends) < 2 and end not in ends and not is_loopback(end):  # programs share loopback
                    ends.append(end)

    def lose(self, dossier: Dossier) -> None:
        """The missing octets may be the reply."""
        self._turns.pop(dossier.flow, None)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Look whether a request waits."""
        self._announced.pop(event.flow, None)
        turns = self._turns.pop(event.flow, None)
        if turns is None or not turns.is_waiting or until_ns - turns.asked_ns < self._timeout_ns:
            return
        silence = self._silences.at((host_of(turns.requester), turns.replier))
        silence.seen.add(turns.asked_ns, turns.packet, event.flow)
        silence.answered += turns.answered
        silence.longest_ns = max(silence.longest_ns, until_ns - turns.asked_ns)

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Each REP that does not answer a host."""
        for (host, replier), silence in self._silences.items():
            after = f", after {plural(silence.answered, 'reply')}" if silence.answered else ""
            requests = f"{plural(silence.seen.count, 'request')} under CURVE"
            summary = f"{replier} does not answer {host}: {requests} without a reply for "
            summary += f"{about(silence.longest_ns)}{after}"
            yield Claim("request-unanswered", summary, _KNOWN, silence.seen, [replier], certainty="likely")
