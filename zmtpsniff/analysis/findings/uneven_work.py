"""Jobs that wait at one worker while another one has nothing to do: work-uneven.

Theory
------

A PUSH gives its jobs to its workers in turn, and puts each into the queue of one of them at once: up to ZMQ_SNDHWM
there, ZMQ_RCVHWM at the worker, and what the kernels hold. A job that is in a queue stays there. So a slow worker, or
one that got the long jobs, still has many when the others are done; one that comes late finds all given away.

Where the queue of a worker reaches the wire, its TCP window is closed, and the sender probes. If meanwhile no packet
came to another worker of the same PUSH for long, it had nothing to do. Queues in the memory of a worker do not show.

A PUSH that connects to its workers has another port on each connection. Connections of one host, or of one process
where that is known, may be of one socket if they were made within a second, and if no worker that is idle got much less
than the one that is behind: a PUSH gives nothing to a queue that is full. That is possible only, since a program may
send each result of its work by two sockets. A worker that binds may have jobs of others, too: it is idle only while
nothing comes to it on any connection.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from dissectors.address import host_of
from dissectors.events import Connection
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Certainty, Claim, Occurrences
from zmtpsniff.analysis.findings.inquiry import WholeCaptureInquiry
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.net.witness import Pause, Stall
from zmtpsniff.words.counts import often, plural
from zmtpsniff.words.durations import about

_LEAST_NS = 1_000_000_000
_MOST = 100  # stalls, or pauses, of one connection; here and below the last ones count
_WORKERS = 500  # of one PUSH, and connections of one PULL
_TOGETHER_NS = 1_000_000_000  # between the SYNs of one socket
_JOBS = 3  # of each worker, to tell that one socket feeds them
_SHARE = 0.8  # of the jobs of the one that is behind, for one that is not
_EVER = 1 << 62
_PIPELINES = ({"PULL", "PUSH"}, {"GATHER", "SCATTER"})
_PUSHERS = ("PUSH", "SCATTER")

_Span = tuple[int, int]
_latest_times: "partial[deque[Any]]" = partial(deque, (), _MOST)
_latest_workers: "partial[deque[Any]]" = partial(deque, (), _WORKERS)


class _Worker(NamedTuple):
    """A worker of a PUSH."""

    address: str
    pusher: str  # the address of the PUSH
    flow: int
    jobs: int
    begun_ns: int
    stalls: list[Stall]  # in which jobs waited for it
    idle: list[_Span]  # in which it got nothing


class UnevenWork(WholeCaptureInquiry):
    """The jobs of PUSH sockets, and their workers."""

    def __init__(self) -> None:
        """Start without any."""
        self._stalls: Ledger[int, deque[Stall]] = Ledger(_latest_times)
        self._pauses: Ledger[int, deque[_Span]] = Ledger(_latest_times)
        self._bound: Ledger[str, deque[_Worker]] = Ledger(_latest_workers, 1000)  # by address
        self._connected: Ledger[tuple[str, int | None], deque[_Worker]] = Ledger(_latest_workers, 1000)  # host, process
        self._of_pull: Ledger[str, deque[tuple[list[Stall], list[_Span]]]] = Ledger(_latest_workers, 1000)  # by address

    def stall(self, stall: Stall) -> None:
        """Remember when a window was closed."""
        if stall.cause == "window":
            self._stalls.at(stall.flow).append(stall)

    def pause(self, pause: Pause) -> None:
        """Remember when a worker got nothing."""
        if pause.until_ns - pause.since_ns >= _LEAST_NS:
            self._pauses.at(pause.flow).append((pause.since_ns, pause.until_ns))

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """Learn whose worker this is."""
        stalls = [*self._stalls.pop(event.flow, ())]
        idle = [*self._pauses.pop(event.flow, ())]
        client, server = event.client, event.server
        if dossier is None or dossier.blind or {client.socket_type, server.socket_type} not in _PIPELINES:
            return
        quiet = [(0, event.start_ns), *idle, (event.end_ns, _EVER)]
        if not event.is_closed:
            idle.append((event.end_ns, until_ns))
        if server.socket_type in _PUSHERS:
            workers = self._bound.at(server.address)
            worker, pusher, jobs = client, server, event.messages.server
        else:
            process = None if client.process is None else client.process.pid
            workers = self._connected.at((host_of(client.address), process))
            worker, pusher, jobs = server, client, event.messages.client
            self._of_pull.at(server.address).append((stalls, quiet))
        workers.append(_Worker(worker.address, pusher.address, event.flow, jobs, event.start_ns, stalls, idle))

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Workers at which jobs waited while others were idle."""
        if not self.is_whole:
            return
        for workers in self._bound.values():
            for busy in (one for one in workers if one.stalls):
                others = [(one, one.idle) for one in workers if one is not busy and not one.stalls]
                yield from _uneven(busy, others)
        for workers in self._connected.values():
            for busy in (one for one in workers if one.stalls):
                others = [(one, self._idle(one)) for one in workers if _is_of_one_socket(one, busy)]
                yield from _uneven(busy, others, "possible")

    def _idle(self, worker: _Worker) -> list[_Span]:
        """When nothing came to a PULL that binds, on any of its connections, while this one was there."""
        found = worker.idle
        for stalls, quiet in self._of_pull.at(worker.address):
            found = [] if stalls else _in_both(found, quiet)
        return found


def _is_of_one_socket(one: _Worker, busy: _Worker) -> bool:
    """Whether the same PUSH may have connected to two workers, of which one has room."""
    return (
        one.address != busy.address
        and not one.stalls
        and abs(one.begun_ns - busy.begun_ns) <= _TOGETHER_NS
        and min(one.jobs, busy.jobs) >= _JOBS
        and one.jobs >= busy.jobs * _SHARE
    )


def _uneven(
    busy: _Worker, others: Sequence[tuple[_Worker, list[_Span]]], certainty: Certainty = "likely"
) -> Iterator[Claim]:
    """The claim about a worker at which jobs waited while others were idle, if there is one."""
    waits = [(sum(_common(stall, span) for stall in busy.stalls for span in idle), one) for one, idle in others]
    idle = [one for wait_ns, one in waits if wait_ns >= _LEAST_NS]
    if not idle:
        return
    longest_ns = max(wait_ns for wait_ns, _ in waits)
    one_socket = "" if certainty == "likely" else "; one socket seems to feed both, which were connected together"
    yield Claim(
        "work-uneven",
        f"jobs of {busy.pusher} waited {about(longest_ns)} at the worker {busy.address} while "
        f"{plural(len(idle), 'other')} had nothing to do, such as {idle[0].address}",
        f"its TCP window was closed, {often(len(busy.stalls))}, and no packet came to the others; "
        f"it got {plural(busy.jobs, 'job')}, {idle[0].address} {idle[0].jobs:,}{one_socket}",
        Occurrences.of((stall.since_ns, stall.packet, stall.flow) for stall in busy.stalls),
        [busy.address, busy.pusher],
        certainty=certainty,
    )


def _in_both(spans: list[_Span], others: list[_Span]) -> list[_Span]:
    """The times that are in a span of both lists."""
    both = [(max(one[0], other[0]), min(one[1], other[1])) for one in spans for other in others]
    return [span for span in both if span[0] < span[1]]


def _common(stall: Stall, span: _Span) -> int:
    """The time that a stall and a span have in common."""
    return max(min(stall.until_ns, span[1]) - max(stall.since_ns, span[0]), 0)
