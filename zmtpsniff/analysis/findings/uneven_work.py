"""Jobs that wait at one worker while another one has nothing to do: work-uneven.

Theory
------

A PUSH gives its jobs to its workers in turn, and puts each into the queue of one of them at once: up to ZMQ_SNDHWM
there, ZMQ_RCVHWM at the worker, and what the kernels hold. A job that is in a queue stays there. So a slow worker, or
one that got the long jobs, still has many when the others are done; one that comes late finds all given away.

Where the queue of a worker reaches the wire, its TCP window is closed, and the sender probes. If meanwhile no packet
came to another worker of the same PUSH for long, it had nothing to do. Queues in the memory of a worker do not show.
"""

from collections.abc import Iterable
from typing import NamedTuple

from dissectors.events import Capture, Connection
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import Inquiry, Ledger
from zmtpsniff.net.witness import Pause, Stall
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about

_LEAST_NS = 1_000_000_000
_MOST = 1000  # stalls, or pauses, of one connection
_WORKERS = 1000  # of one PUSH

_Span = tuple[int, int]


class _Worker(NamedTuple):
    """A worker of a PUSH."""

    address: str
    flow: int
    jobs: int
    stalls: list[Stall]  # in which jobs waited for it
    idle: list[_Span]  # in which it got nothing


class UnevenWork(Inquiry):
    """The jobs of PUSH sockets that bind, and their workers."""

    def __init__(self) -> None:
        """Start without any."""
        self._stalls: Ledger[int, list[Stall]] = Ledger(list)
        self._pauses: Ledger[int, list[_Span]] = Ledger(list)
        self._pushers: Ledger[str, list[_Worker]] = Ledger(list, 1000)
        self._is_whole = True

    def stall(self, stall: Stall) -> None:
        """Remember when a window was closed."""
        stalls = self._stalls.at(stall.flow)
        if stall.cause == "window" and len(stalls) < _MOST:
            stalls.append(stall)

    def pause(self, pause: Pause) -> None:
        """Remember when a worker got nothing."""
        if pause.until_ns - pause.since_ns >= _LEAST_NS:
            pauses = self._pauses.at(pause.flow)
            if len(pauses) < _MOST:
                pauses.append((pause.since_ns, pause.until_ns))

    def totals(self, event: Capture) -> None:
        """Packets that were dropped may be jobs of others."""
        self._is_whole = not event.dropped

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Learn whose worker this is."""
        stalls = self._stalls.entries.pop(event.flow, [])
        idle = self._pauses.entries.pop(event.flow, [])
        client, server = event.client, event.server
        if dossier is None or dossier.blind or (client.socket_type, server.socket_type) != ("PULL", "PUSH"):
            return
        if event.end not in ("fin", "rst"):
            idle.append((event.end_ns, until_ns))
        workers = self._pushers.at(server.address)
        if len(workers) < _WORKERS:
            workers.append(_Worker(client.address, event.flow, event.messages.server, stalls, idle))

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Workers at which jobs waited while others were idle."""
        for pusher, workers in self._pushers.entries.items() if self._is_whole else ():
            for busy in workers:
                if not busy.stalls:
                    continue
                others = [one for one in workers if one is not busy and not one.stalls]
                waits = [
                    (sum(_common(stall, span) for stall in busy.stalls for span in one.idle), one) for one in others
                ]
                idle = [one for wait_ns, one in waits if wait_ns >= _LEAST_NS]
                if not idle:
                    continue
                longest_ns = max(wait_ns for wait_ns, _ in waits)
                seen = Occurrences()
                for stall in busy.stalls:
                    seen.add(stall.since_ns, stall.packet, stall.flow)
                yield Claim(
                    "work-uneven",
                    f"jobs of {pusher} waited {about(longest_ns)} at the worker {busy.address} while "
                    f"{plural(len(idle), 'other')} had nothing to do, such as {idle[0].address}",
                    f"its TCP window was closed, {plural(len(busy.stalls), 'time')}, and no packet came to the others; "
                    f"it got {plural(busy.jobs, 'job')}, {idle[0].address} {idle[0].jobs:,}",
                    seen,
                    [busy.address, pusher],
                    certainty="likely",
                )


def _common(stall: Stall, span: _Span) -> int:
    """The time that a stall and a span have in common."""
    return max(min(stall.until_ns, span[1]) - max(stall.since_ns, span[0]), 0)
