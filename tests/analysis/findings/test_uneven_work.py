"""Jobs that wait at one worker while another one has nothing to do, and workers for which nobody waits."""

from typing import NamedTuple

import pytest

from dissectors.events import Capture, Connection, Peer, Process, Sides
from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.uneven_work import UnevenWork
from zmtpsniff.net.witness import Cause, Pause, Stall

SECOND = 1_000_000_000
PUSHER = "10.0.0.1:5555"


class Worker(NamedTuple):
    """A worker of a capture of ten seconds; times are in seconds."""

    stalls: tuple[tuple[float, float], ...] = ()
    pauses: tuple[tuple[float, float], ...] = ()
    last: float = 10  # when its last packet came
    is_closed: bool = False
    pusher: str = PUSHER
    is_blind: bool = False
    kinds: tuple[str, str] = ("PULL", "PUSH")
    cause: Cause = "window"
    begun: float = 0
    jobs: int = 9
    bound: str = ""  # the address of a worker that binds, to which the PUSH connects
    process: int | None = None  # of the PUSH


BUSY = Worker(stalls=((1, 2), (3, 5)))
BOUND = BUSY._replace(bound="10.0.0.2:5555")
IDLE = Worker(bound="10.0.0.2:6666", last=0.5)


def claimed(*workers: Worker, dropped: int = 0) -> list[Claim]:
    inquiry = UnevenWork()
    for flow, one in enumerate(workers, 1):
        address = one.bound or f"10.0.0.2:{40_000 + flow}"
        pusher = f"10.0.0.1:{40_000 + flow}" if one.bound else one.pusher
        for since, until in one.stalls:
            times = round(since * SECOND), round(until * SECOND)
            inquiry.stall(Stall(flow, address, pusher, one.cause, *times, 1, 3, True))
        for since, until in one.pauses:
            inquiry.pause(Pause(flow, pusher, round(since * SECOND), round(until * SECOND), 0, 0))
        client, server = (Peer(at, socket_type=kind) for at, kind in zip((address, pusher), one.kinds, strict=True))
        if one.bound:
            client, server = server, client
            client.process = None if one.process is None else Process(one.process, "push")
        over = Connection(
            flow, "tcp", client, server, Sides(one.jobs, one.jobs), Sides(9, 9), round(one.begun * SECOND),
            round(one.last * SECOND),
            "fin" if one.is_closed else "open",
        )  # fmt: skip
        inquiry.end(Dossier(flow, blind=one.is_blind), over, 10 * SECOND)
    inquiry.totals(Capture(1, dropped, 1, 1, 0, 0, 10 * SECOND))
    return list(inquiry.claims(10 * SECOND))


def test_jobs_wait_at_a_slow_worker() -> None:
    (found,) = diagnose(FIXTURES / "work" / "rec_waiting_work.pcap")  # it has no second finding of the slow worker
    assert found.summary.startswith("jobs of 127.0.0.1:5560 waited ")
    assert " while 1 other had nothing to do, such as 127.0.0.1:" in found.summary
    assert diagnose(FIXTURES / "work" / "rec_waiting_work_ok.pcap") == []


@pytest.mark.parametrize(
    ("idle", "waited"),
    [
        (Worker(last=0.5), "3.0 s"),  # both times, to the end
        (Worker(last=4), "1.0 s"),
        (Worker(pauses=((0, 4.5),)), "2.5 s"),
        (Worker(last=0.5, kinds=("GATHER", "SCATTER")), "3.0 s"),
    ],
)
def test_the_time_that_both_have_in_common_counts(idle: Worker, waited: str) -> None:
    (claim,) = claimed(BUSY._replace(kinds=idle.kinds), idle)
    assert claim.summary == (
        f"jobs of {PUSHER} waited {waited} at the worker 10.0.0.2:40001 while 1 other had nothing to do, such as "
        "10.0.0.2:40002"
    )


@pytest.mark.parametrize(
    "workers",
    [
        (BUSY,),
        (BUSY, Worker()),  # it worked all the time
        (BUSY, Worker(pauses=((5, 10),))),  # it was idle at another time
        (BUSY, Worker(pauses=((4.5, 9),))),  # for a moment
        (BUSY, Worker(last=0.5, stalls=((0, 0.1),))),  # jobs wait for that one, too
        (BUSY, Worker(last=0.5, is_closed=True)),  # it had gone
        (BUSY, Worker(last=0.5, is_blind=True)),  # its jobs may be in the hole
        (BUSY._replace(is_blind=True), Worker(last=0.5)),
        (BUSY, Worker(last=0.5, pusher="10.0.0.1:6666")),
        (BUSY, Worker(last=0.5, kinds=("SUB", "PUB"))),
        (BUSY._replace(cause="unacknowledged"), Worker(last=0.5)),
    ],
)
def test_nobody_waits(workers: tuple[Worker, ...]) -> None:
    assert claimed(*workers) == []


def test_a_push_that_connects_to_its_workers() -> None:
    found = [one for one in diagnose(FIXTURES / "work" / "rec_waiting_work_bound.pcap") if one.code == "work-uneven"]
    assert [(one.severity, one.certainty) for one in found] == [("warning", "possible")]
    assert " waited 2.3 s at the worker 127.0.0.1:5560 while 1 other had nothing to do, such as " in found[0].summary
    assert diagnose(FIXTURES / "work" / "rec_waiting_work_bound_ok.pcap") == []


@pytest.mark.parametrize(
    ("workers", "waited"),
    [
        ((BOUND, IDLE), "3.0 s"),
        ((BOUND, IDLE._replace(begun=0.9)), "3.0 s"),
        ((BOUND, IDLE, IDLE._replace(begun=3, last=3.5)), "2.5 s"),  # another PUSH has jobs for it, for a while
    ],
)
def test_a_worker_that_binds_waits_for_all(workers: tuple[Worker, ...], waited: str) -> None:
    (claim,) = claimed(*workers)
    assert claim.summary == (
        f"jobs of 10.0.0.1:40001 waited {waited} at the worker 10.0.0.2:5555 while 1 other had nothing to do, such as "
        "10.0.0.2:6666"
    )


@pytest.mark.parametrize(
    "workers",
    [
        (BOUND, IDLE._replace(begun=1.5, last=2)),  # it connected later: another socket
        (BOUND, IDLE._replace(jobs=5)),  # a PUSH gives no more to whoever is behind
        (BOUND._replace(jobs=2), IDLE),
        (BOUND._replace(process=7), IDLE._replace(process=8)),
        (BOUND, IDLE._replace(bound=BOUND.bound)),
        (BOUND, IDLE, IDLE._replace(last=9)),  # jobs come to it from another PUSH
        (BOUND, IDLE, IDLE._replace(stalls=((6, 7),))),
        (BOUND, IDLE._replace(is_blind=True)),
        (BOUND, Worker(last=0.5)),  # another pattern of the same host
    ],
)
def test_another_socket_or_a_worker_of_others(workers: tuple[Worker, ...]) -> None:
    assert claimed(*workers) == []


def test_packets_that_were_dropped_may_have_been_its_jobs() -> None:
    assert claimed(BUSY, Worker(last=0.5), dropped=1) == []


def test_many_workers_that_come_and_go_hide_nothing() -> None:
    """Of all that ended the last ones are compared, and of a worker the last times at which it had no room."""
    gone = [Worker(last=0.1, is_closed=True)] * 1500
    early = tuple((number / 1000, number / 1000 + 0.0005) for number in range(200))
    assert claimed(*gone, BUSY._replace(stalls=early + BUSY.stalls), Worker(last=0.5))
