"""Workers of a PUSH inside CURVE that no key opens, and that stop while others do not: worker-silent, worker-closed.

Theory
------

libzmq's PUSH and PULL announce 20 octets each in the handshake of CURVE. So do XPUB, XSUB and PAIR, but of these both
sides speak. If one side alone has spoken, the other one is taken for a PULL, and its host for a worker if that sends
on what it gets: if it pushes, too. A worker that pushed something after every few jobs, and then pushes nothing while
twice as many come as ever before, has stopped, if others of the same PUSH go on
(:mod:`~zmtpsniff.analysis.findings.silent_peers`).

On loopback nobody can tell the programs apart. A host with several such PULLs may use one for control, and one whose
octets are missing may have spoken: of these nothing is said.
"""

from collections import deque
from collections.abc import Iterable
from functools import partial

import msgspec

from dissectors.address import host_of, is_loopback
from dissectors.events import Command, Connection
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.inquiry import Inquiry
from zmtpsniff.analysis.findings.rhythms import Rhythm
from zmtpsniff.analysis.findings.sealed_requests import Announcements
from zmtpsniff.analysis.findings.silent_peers import RhythmicPeer, silent_peers
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.words.durations import nanoseconds

_PUSH = 20  # octets that it announces, and a PULL
_MOST = 10_000  # connections at a time
_WORKERS = 1000  # of one PUSH


class _Pipe(msgspec.Struct, eq=False):
    """A connection of a PUSH and a PULL, as it seems."""

    sender: str = ""
    receiver: str = ""
    given: Rhythm = msgspec.field(default_factory=Rhythm)


class _Worker(msgspec.Struct, eq=False):
    """A host with a PULL."""

    flow: int  # of its PULL
    spoken: Rhythm = msgspec.field(default_factory=Rhythm)
    is_clear: bool = True


class SealedWorkers(Inquiry):
    """Workers whose jobs and results are in boxes."""

    def __init__(self, timeout_seconds: float = REPLY_SECONDS) -> None:
        """``timeout_seconds`` is how long a worker may say nothing."""
        self._timeout_ns = nanoseconds(timeout_seconds)
        self._announcements = Announcements()
        self._pipes: dict[int, _Pipe] = {}
        self._workers: Ledger[str, _Worker] = Ledger(limit=_MOST)  # by host
        # By the host of a PUSH: its workers whose connections are over.
        self._peers: Ledger[str, deque[RhythmicPeer]] = Ledger(partial(deque, (), _WORKERS))

    def command(self, dossier: Dossier, event: Command) -> None:
        """Learn how much a side announces."""
        announced = self._announcements.of_both(dossier, event)
        if announced is not None and {*announced.values()} == {_PUSH} and len(self._pipes) < _MOST:
            self._pipes[event.flow] = _Pipe()

    def sealed(self, event: Command) -> None:
        """Take a MESSAGE, if it is a job or a result."""
        pipe = self._pipes.get(event.flow)
        if pipe is None or is_loopback(event.src):
            return
        if not pipe.sender:
            pipe.sender, pipe.receiver = event.src, event.dst
            self._meet(event)
        elif event.src != pipe.sender:
            self._stop(event.flow)
            return
        pipe.given.say(event.time_ns, event.offset)
        worker = self._workers.get(host_of(event.src))
        source = None if worker is None else self._pipes.get(worker.flow)
        if worker is not None and source is not None:
            worker.spoken.say(event.time_ns, event.offset)
            worker.spoken.run = 0
            source.given.hear(event.time_ns)

    def _meet(self, event: Command) -> None:
        """A host gets its first job on a connection."""
        worker = self._workers.get(host_of(event.dst))
        if worker is not None and worker.flow in self._pipes:
            worker.is_clear = False
        else:
            self._workers[host_of(event.dst)] = _Worker(event.flow)

    def _stop(self, flow: int) -> None:
        """Say nothing of a connection, and of the hosts at its ends."""
        pipe = self._pipes.pop(flow, None)
        for address in () if pipe is None else (pipe.sender, pipe.receiver):
            worker = self._workers.get(host_of(address)) if address else None
            if worker is not None:
                worker.is_clear = False

    def lose(self, dossier: Dossier) -> None:
        """The missing octets may be jobs or results."""
        self._stop(dossier.flow)

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Keep what a worker did until its connection was over."""
        self._announcements.end(event.flow)
        pipe = self._pipes.pop(event.flow, None)
        worker = None if pipe is None or not pipe.sender else self._workers.get(host_of(pipe.receiver))
        if pipe is None or worker is None or worker.flow != event.flow or not worker.spoken.said:
            return
        closer = event.closer
        closed = closer is not None and closer.address == pipe.receiver
        packet = 0 if dossier is None else dossier.packet
        self._peers.at(host_of(pipe.sender)).append(
            RhythmicPeer(
                pipe.receiver,
                pipe.sender,
                pipe.given,
                worker.spoken,
                event.flow,
                packet,
                event.start_ns,
                until_ns,
                not event.is_closed,
                closed,
                not worker.is_clear,
            )
        )

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Each worker that stopped."""
        for peers in self._peers.values():
            yield from silent_peers(peers, self._timeout_ns, "PUSH")
