"""Receivers that take nothing, or slowly, and hosts that are not heard: subscriber-slow, host-silent, network-one-way.

TCP says so itself (:mod:`zmtpsniff.net.stalls`). A program that does not receive lets its queue (ZMQ_RCVHWM) fill,
then the buffer of its kernel, and then the window is closed: the sender must wait, and asks again and again whether it
may go on. Where octets are not even acknowledged, the receiver's host is gone, or the network loses them. Where
they are acknowledged and sent again all the same, packets pass in one direction only: no program is at fault.

A closed window says that the receiver's kernel has no room. It opens only once there is room for much, so a program
that takes a few messages a second may keep it closed for seconds. So one long time alone does not show that a program
stopped, and the words say only that there was no room, and for how long.

A window may also be closed for a moment, again and again. A sender that waits goes on as soon as it opens, without a
probe. Once that is nothing. It costs something if the sender waits for a tenth of the time: then messages pile up there
faster than the receiver takes them.

Messages waited, whatever the sockets: a publisher queues up to ZMQ_SNDHWM of them and drops the rest, PUSH and DEALER
wait. So this is a warning.
"""

from collections.abc import Generator, Iterable
from typing import get_args

import msgspec

from dissectors.address import host_of
from dissectors.events import Connection, Problem
from dissectors.problems import BLINDING
from dissectors.zmtp.sockets import SUBSCRIBERS
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.closings import Closings
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.idleness import IdleConnections
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.findings.unanswered_requests import Requests
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.net.witness import Cause, Stall
from zmtpsniff.words.counts import listed, often, plural
from zmtpsniff.words.durations import about

_LEAST_NS = 1_000_000_000
_LONGER = 3  # so many times as long as ever before is another thing than being slow
_MOMENTS = 5  # so often a window is closed for a moment by more than chance
_SHARE = 0.1  # this part of the time a sender waits for a receiver that is too slow
_SEVERAL = 2  # so many connections that are silent together show that it is their host, or the way to it
_OF_CUT_PACKETS = frozenset({"packets-cut", "frames-found-again", "frames-lost"})  # the acknowledgments are all there
_UNREACHED = (
    "Its program may be healthy: look at its host, which may be down or asleep, and at the network between the two, "
    "which may lose packets. ZMQ_HEARTBEAT_IVL ends such a connection sooner. Until then PUB queues up to ZMQ_SNDHWM "
    "messages for it and drops the rest."
)


class _Receiver(msgspec.Struct, eq=False):
    """The stalls of one side of a connection, of one cause."""

    kind: str = ""  # the type of its socket, known once its connection is over, if that is ZMTP
    is_inferred: bool = False  # from its messages
    seen: Occurrences = msgspec.field(default_factory=Occurrences)
    sender: str = ""
    attempts: int = 0  # to go on
    total_ns: int = 0
    last_ns: int = 0  # of that, the last time
    before_ns: int = 0  # and the longest time before that
    is_open: bool = True  # whether it went on in the end

    @property
    def did(self) -> str:
        """How it let the sender wait, in words."""
        if self.seen.count == 1 and self.is_open:
            return f"made no room for messages for {about(self.total_ns)}, then went on"
        if not self.is_open and self.last_ns >= max(_LEAST_NS, _LONGER * self.before_ns):
            return f"has made no room for messages for the last {about(self.last_ns)}"
        return "takes messages too slowly"


class Receivers(Inquiry):
    """Receivers that stop for a while."""

    def __init__(self, idle: IdleConnections, closings: Closings, requests: Requests) -> None:
        """The others know connections that something between their hosts forgot, receivers that closed while messages
        waited, and those for which requests wait.
        """
        self._idle = idle
        self._closings = closings
        self._requests = requests
        # By cause of a stall, then by flow and receiver.
        self._stalled: dict[Cause, Ledger[tuple[int, str], _Receiver]] = {
            cause: Ledger(_Receiver) for cause in get_args(Cause)
        }
        self._gaps: Ledger[int, None] = Ledger()  # connections of which octets are missing

    def stall(self, stall: Stall) -> None:
        """Count a stall."""
        lasted_ns = stall.until_ns - stall.since_ns
        if stall.cause == "unacknowledged" and lasted_ns < _LEAST_NS:
            return  # a network that loses packets now and then
        receiver = self._stalled[stall.cause].at((stall.flow, stall.receiver))
        receiver.sender = stall.sender
        receiver.attempts += stall.attempts
        receiver.total_ns += lasted_ns
        receiver.before_ns = max(receiver.before_ns, receiver.last_ns)
        receiver.last_ns = lasted_ns
        receiver.is_open = stall.is_open
        receiver.seen.add(stall.since_ns, stall.packet, stall.flow)

    def problem(self, event: Problem) -> None:
        """Learn what the capture lacks."""
        if event.flow is not None and BLINDING.get(event.code) == "rest" and event.code not in _OF_CUT_PACKETS:
            self._gaps[event.flow] = None

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Learn which types the sockets have that stopped."""
        for peer in (event.client, event.server):
            key = event.flow, peer.address
            if event.flow in self._gaps or self._idle.is_forgotten(event.flow):
                self._stalled["unacknowledged"].pop(key, None)  # not its fault, or the capture lacks them
            for receiver in (one[key] for one in self._stalled.values() if key in one):
                receiver.kind, receiver.is_inferred = peer.type_name or "receiver", peer.inferred

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Receivers that stopped for long, and ways on which packets pass in one direction only."""
        yield from self._ways()
        full = self._stalled["window"]
        for key, receiver in full.items():
            if not receiver.kind or receiver.total_ns < _LEAST_NS:
                continue  # of another protocol, or only for a moment
            if self._closings.tells_of(*key) and 2 * receiver.last_ns >= receiver.total_ns:
                continue  # one finding says it
            known = f"its TCP window was closed, {often(receiver.seen.count)}, while there was more to send"
            yield _claim(key[1], receiver, receiver.did, known)
        for key, receiver in self._stalled["moment"].items():
            is_told = key in full and full[key].total_ns >= _LEAST_NS
            if receiver.kind and not is_told and receiver.seen.count >= _MOMENTS:
                yield from _claims_of_moments(key[1], receiver)
        told = yield from self._silent_hosts()
        for key, receiver in self._stalled["unacknowledged"].items():
            if not receiver.kind or (key in told and receiver.kind not in SUBSCRIBERS):
                continue
            did, came = "acknowledges nothing any more", ", and never acknowledged"
            if receiver.is_open:
                did, came = "acknowledged nothing for a while", " before it acknowledged them"
            known = f"the same octets were sent again {often(receiver.attempts)}{came}"
            yield _claim(key[1], receiver, did, known, _UNREACHED)

    def _silent_hosts(self) -> Generator[Claim, None, set[tuple[int, str]]]:
        """Hosts that acknowledge nothing any more on several connections, or no request. Returns the receivers."""
        hosts: dict[str, list[tuple[int, str]]] = {}
        ways = {(host_of(key[1]), host_of(one.sender)) for key, one in self._stalled["unheard"].items()}
        unreached = self._stalled["unacknowledged"]
        for key, receiver in unreached.items():
            is_told = (host_of(receiver.sender), host_of(key[1])) in ways  # what the sender sends does not arrive
            if receiver.kind and not receiver.is_open and not is_told:
                hosts.setdefault(host_of(key[1]), []).append(key)
        told: set[tuple[int, str]] = set()
        for host, keys in hosts.items():
            if len(keys) < _SEVERAL and not self._requests.waits(*keys[0]):
                continue
            told.update(keys)
            receivers = [unreached[key] for key in keys]
            waiting = dict.fromkeys(host_of(receiver.sender) for receiver in receivers)
            waited_ns = max(receiver.total_ns for receiver in receivers)
            send = "sends" if len(waiting) == 1 else "send"
            where = f" on {plural(len(keys), 'connection')}" if len(keys) > 1 else ""
            each = " on each of them" if where else ""
            yield Claim(
                "host-silent",
                f"{host} acknowledges nothing that {listed(waiting)} {send} any more, for {about(waited_ns)}{where}",
                f"the same octets were sent again and again{each}, and never acknowledged",
                Occurrences.all_of(receiver.seen for receiver in receivers),
                [address for _, address in keys],
            )
        return told

    def _ways(self) -> Iterable[Claim]:
        """Packets from one host to another do not arrive, on any connection between the two."""
        ways: dict[tuple[str, str], list[tuple[str, _Receiver]]] = {}
        for (_, address), receiver in self._stalled["unheard"].items():
            if receiver.kind:
                ways.setdefault((host_of(address), host_of(receiver.sender)), []).append((address, receiver))
        for (host, other), receivers in ways.items():
            addresses = list(dict.fromkeys(receiver.sender for _, receiver in receivers))
            copies = sum(receiver.attempts for _, receiver in receivers)
            lasted_ns = max(receiver.total_ns for _, receiver in receivers)
            is_over = all(receiver.is_open for _, receiver in receivers)
            yield Claim(
                "network-one-way",
                f"what {host} sends {'did' if is_over else 'does'} not reach {listed(addresses)}"
                f"{' for a while' if is_over else ''}: octets that it had acknowledged were sent again "
                f"{often(copies)} in {about(lasted_ns)}",
                f"the acknowledgments of {host} are in the capture, but {other} does not know of them",
                Occurrences.all_of(receiver.seen for _, receiver in receivers),
                [address for one, receiver in receivers for address in (one, receiver.sender)],
                "warning" if is_over else None,
            )


def _claims_of_moments(address: str, receiver: _Receiver) -> Iterable[Claim]:
    """The claim that a receiver let its sender wait for a moment so often that it matters."""
    lasted_ns = receiver.seen.span_ns + receiver.last_ns
    if receiver.total_ns < max(_LEAST_NS, _SHARE * lasted_ns):
        return
    each_ns = receiver.total_ns // receiver.seen.count
    known = (
        f"its TCP window was closed {often(receiver.seen.count)}, for {about(each_ns)} on average in "
        f"{about(lasted_ns)}, and each time more came as soon as it opened"
    )
    yield _claim(address, receiver, "takes messages too slowly", known)


def _claim(address: str, receiver: _Receiver, did: str, known: str, advice: str | None = None) -> Claim:
    kind = receiver.kind
    remark = f"; that it is a {kind} is inferred from its messages" if receiver.is_inferred else ""
    return Claim(
        "subscriber-slow",
        f"the {kind} at {address} {did}: {receiver.sender} waited {about(receiver.total_ns)} for it",
        f"{known}{remark}",
        receiver.seen,
        [address, receiver.sender],
        advice=advice,
        subject=address,
    )
