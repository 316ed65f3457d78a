"""Requests under CURVE without a reply, seen by the lengths of their boxes: a REQ and a REP that stops to answer."""

from collections import Counter
from collections.abc import Iterable

import pytest
from msgspec import structs

import zmtpsniff
from dissectors.events import AnyEvent, Command, Connection, Greeting, Peer, Problem, Sides, at_hand
from tests.analysis.findings.diagnoses import alarms, diagnose_events
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.findings.sealed_requests import SealedRequests
from zmtpsniff.analysis.findings.unanswered_requests import Requests

EVENTS = list(zmtpsniff.open(FIXTURES / "shop" / "silent-vault.pcap.gz"))
BOXES = [event for event in EVENTS if isinstance(event, Command) and event.name == "MESSAGE"]
SERVER = "127.0.0.1:5564"
FIRST = BOXES[0]
MS = 1_000_000
GAP = Problem("error", "capture-gap", "octets", FIRST.time_ns, FIRST.packet, FIRST.flow, FIRST.src, FIRST.dst)


def _unanswered(events: Iterable[AnyEvent], timeout_seconds: float = 5) -> list[Finding]:
    diagnosis = Diagnosis(timeout_seconds=timeout_seconds)
    diagnosis.take(list(events))
    return [one for one in diagnosis.findings() if one.code == "request-unanswered"]


def test_a_rep_that_stops_to_answer() -> None:
    (found,) = _unanswered(EVENTS)
    assert (found.severity, found.certainty, found.count) == ("error", "likely", 1)
    assert found.summary == (
        f"{SERVER} does not answer 127.0.0.1: 1 request under CURVE without a reply for 14 s, after 12 replies"
    )
    assert [one.packet for one in found.evidence] == [BOXES[-1].packet]
    assert not _unanswered(EVENTS, timeout_seconds=15)


def test_a_request_of_several_frames_is_one() -> None:
    """The REQ says no more, but its last request has empty frames in it."""
    again = [structs.replace(BOXES[-2], offset=BOXES[-1].offset + 100 * number) for number in (1, 2)]
    place = EVENTS.index(BOXES[-1]) + 1
    (found,) = _unanswered([*EVENTS[:place], *again, *EVENTS[place:]])
    assert found.count == 1
    assert "after 12 replies" in found.summary


def _without(events: list[AnyEvent], *gone: AnyEvent) -> list[AnyEvent]:
    return [event for event in events if not any(event is one for one in gone)]


def _lengthened(name: str, octets: int) -> list[AnyEvent]:
    """The side that sends this command announces more."""
    return [
        structs.replace(event, box=bytes(len(at_hand(event.box or b"")) + octets))
        if isinstance(event, Command) and event.name == name
        else event
        for event in EVENTS
    ]


def _answered_first() -> list[AnyEvent]:
    """The reply to the last request stands before it, as in captures that are out of order."""
    reply = next(event for event in reversed(BOXES) if event.src == SERVER and len(at_hand(event.box or b"")) == 17)
    answer = structs.replace(reply, offset=reply.offset + 1000, seen=BOXES[-1].offset + 1)
    place = EVENTS.index(BOXES[-2])
    return [*EVENTS[:place], answer, *EVENTS[place:]]


def _heartbeats_last() -> list[AnyEvent]:
    """The last box is as long as a PING."""
    pings = [structs.replace(event, box=bytes(24)) for event in BOXES[-2:]]
    return [*_without(EVENTS[:-2], *BOXES[-2:]), *pings, *EVENTS[-2:]]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(_without(EVENTS, *BOXES[-2:]), id="all are answered"),
        pytest.param(_without(EVENTS, *BOXES), id="nothing was asked"),
        pytest.param(_answered_first(), id="the reply came first"),
        pytest.param(_lengthened("READY", 16), id="a REQ that is the worker of a ROUTER"),
        pytest.param(EVENTS[EVENTS.index(BOXES[0]) :], id="the handshake is not in the capture"),
        pytest.param(_heartbeats_last(), id="heartbeats of one side come last"),
        pytest.param([*EVENTS[:20], GAP, *EVENTS[20:]], id="octets are missing"),
    ],
)
def test_what_is_healthy_or_unknown(events: list[AnyEvent]) -> None:
    assert any(isinstance(event, Connection) for event in events)
    assert not _unanswered(events)


def test_a_dealer_that_waits_as_a_req_does() -> None:
    (found,) = _unanswered(_lengthened("INITIATE", 3))
    assert "announce as much as a DEALER and a REP" in found.known


def test_a_host_with_another_socket_under_curve_may_wait_for_a_third() -> None:
    requests = SealedRequests(Requests(lambda _: False))
    requests.sealed(structs.replace(FIRST, src="10.0.0.2:40000", dst="10.0.0.3:6000"))
    assert requests.may_ask("10.0.0.2:5555")
    assert not requests.may_ask("10.0.0.3:6000")  # the same socket
    requests.sealed(FIRST)
    assert not requests.may_ask("127.0.0.1:1")  # of another program of this machine, perhaps


REP, REQ, DEALER, ROUTER = 19, 32, 35, 35  # octets that they announce
CLIENT, SERVICE, STORE, DEALING = "10.0.0.1:40001", "10.0.0.2:5000", "10.0.0.3:6000", "10.0.0.9:7000"
ASKS = "10.0.0.2:41000"  # a REQ of the service
WORKERS = ["10.0.0.11:42001", "10.0.0.12:42002", "10.0.0.13:42003"]


class Boxes:
    """Connections under CURVE, a message at a time; lengths are those of its frames."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self._flows: dict[tuple[str, str], int] = {}
        self._sent: Counter[tuple[int, str]] = Counter()
        self._closed: dict[int, int] = {}

    def connect(self, client: str, server: str, initiate: int, ready: int) -> None:
        """Add a connection whose sides announce so many octets."""
        flow = len(self._flows) + 1
        self._flows[client, server] = flow
        for src, dst in ((client, server), (server, client)):
            self.events.append(Greeting(0, flow, flow, src, dst, "3.1", "CURVE"))
        self.events.append(Command(0, flow, flow, client, server, "INITIATE", box=bytes(144 + initiate)))
        self.events.append(Command(0, flow, flow, server, client, "READY", box=bytes(16 + ready)))

    def say(self, ms: int, src: str, dst: str, *lengths: int) -> None:
        """Add a message."""
        flow = self._flows.get((src, dst)) or self._flows[dst, src]
        for length in lengths:
            place = ms * MS, len(self.events), flow, src, dst
            offset, seen = self._sent[flow, src], self._sent[flow, dst]
            self.events.append(Command(*place, "MESSAGE", box=bytes(17 + length), offset=offset, seen=seen))
            self._sent[flow, src] += 17 + length

    def close(self, ms: int, client: str) -> None:
        """Let a client close its connection."""
        (flow,) = (flow for (one, _), flow in self._flows.items() if one == client)
        self._closed[flow] = ms
        self.events.append(self._end(flow, ms))

    def _end(self, flow: int, ms: int) -> Connection:
        (ends,) = (ends for ends, one in self._flows.items() if one == flow)
        client, server = (Peer(address) for address in ends)
        none = Sides(0, 0)
        if flow in self._closed:
            return Connection(flow, "tcp", client, server, none, none, 0, ms * MS, "fin", closed_by="client")
        return Connection(flow, "tcp", client, server, none, none, 0, ms * MS, "open")

    def alarms(self, ms: int) -> list[tuple[str, str]]:
        """The findings at the end of the capture."""
        ends = [self._end(flow, ms) for flow in self._flows.values() if flow not in self._closed]
        return alarms(diagnose_events([*self.events, *ends]))


def _workers(slow: int = 5, jobs: int = 60) -> Boxes:
    """A broker deals requests of clients out to three REPs, one of which takes so many milliseconds for each."""
    boxes = Boxes()
    for worker in WORKERS:
        boxes.connect(worker, DEALING, REP, DEALER)
    for job in range(jobs):
        worker = WORKERS[job % 3]
        envelope = [5, 4] if job % 2 else [5]  # REQ_CORRELATE's number
        boxes.say(job * 100, DEALING, worker, *envelope, 0, 20 + job)
        boxes.say(job * 100 + (slow if worker == WORKERS[1] else 5), worker, DEALING, *envelope, 0, 30)
    return boxes


def test_workers_that_are_healthy() -> None:
    assert not _workers().alarms(7000)


def test_a_worker_that_is_slow_beside_others() -> None:
    ((code, summary),) = _workers(slow=90).alarms(7000)
    assert code == "replies-slow"
    assert summary == (
        f"{WORKERS[1]} is slow: half of its 20 replies took over 90 ms, those of others that do the same under 5 ms"
    )


def test_a_worker_that_says_nothing_any_more() -> None:
    boxes = _workers()
    boxes.say(6000, DEALING, WORKERS[2], 5, 0, 20)
    boxes.say(6001, DEALING, WORKERS[2], 5, 0, 20)
    ((code, summary),) = boxes.alarms(12_000)
    assert code == "worker-silent"
    assert f"the worker {WORKERS[2]} of {DEALING} answers nothing: 2 requests in 6.0 s, after 20 replies" in summary


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_worker_that_closes_with_a_request_in_hand(goes_on: bool) -> None:
    boxes = _workers()
    boxes.say(6000, DEALING, WORKERS[2], 5, 0, 20)
    boxes.close(6010, WORKERS[2])
    if goes_on:
        boxes.say(7500, DEALING, WORKERS[1], 5, 0, 20)
        boxes.say(7505, WORKERS[1], DEALING, 5, 0, 20)
    found = boxes.alarms(8000)
    assert [code for code, _ in found] == ["worker-closed"] * goes_on


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        pytest.param([5, 0, 3, 0], [5, 0, 3], id="the last frame of a request is empty"),
        pytest.param([5, 0, 3, 4, 0], [5, 0, 3], id="a frame in the middle is empty"),
        pytest.param([5, 0, 3], [4, 0, 3], id="another envelope"),
        pytest.param([5, 0, 0], [5, 0, 3], id="an empty body"),
    ],
)
def test_a_worker_whose_messages_are_not_clear(asked: list[int], answered: list[int]) -> None:
    boxes = _workers()
    for job in range(10):
        boxes.say(6000 + job * 10, DEALING, WORKERS[1], *asked)
        boxes.say(6005 + job * 10, WORKERS[1], DEALING, *answered)
    boxes.say(6100, DEALING, WORKERS[1], 5, 0, 20)
    assert not boxes.alarms(20_000)


def test_a_subscriber_that_announces_an_identity() -> None:
    """A PUB announces as much as a REP, and another library's SUB as much as a REQ; or the other way round."""
    boxes = Boxes()
    boxes.connect(CLIENT, SERVICE, REP, REQ)  # a SUB of libzmq
    boxes.say(1, CLIENT, SERVICE, 1)
    for number in range(10):
        boxes.say(10 + number, SERVICE, CLIENT, 0, 5)  # an empty topic
    assert not boxes.alarms(20_000)


def _service(own_ms: int, store_ms: int, client_announces: int = REQ, store_announces: int = REP) -> Boxes:
    """A service asks a store before it answers; each 20th time both are slow, if they are."""
    boxes = Boxes()
    boxes.connect(ASKS, STORE, REQ, store_announces)
    boxes.connect(CLIENT, SERVICE, client_announces, REP)
    for turn in range(1, 101):
        now = turn * 1000
        own, other = (own_ms, store_ms) if turn % 20 == 0 else (1, 2)
        boxes.say(now, CLIENT, SERVICE, 0, 20)
        boxes.say(now + own, ASKS, STORE, 0, 12)
        boxes.say(now + own + other, STORE, ASKS, 0, 40)
        boxes.say(now + own + other + 1, SERVICE, CLIENT, 0, 60)
    return boxes


@pytest.mark.parametrize(
    ("own_ms", "store_ms", "accused"),
    [(1, 2, []), (300, 2, [SERVICE]), (1, 300, [STORE]), (300, 300, [SERVICE, STORE])],
)
def test_a_service_that_waits_for_another_one(own_ms: int, store_ms: int, accused: list[str]) -> None:
    found = _service(own_ms, store_ms).alarms(110_000)
    assert [code for code, _ in found] == ["replies-slow"] * len(accused)
    assert all(any(one in summary for _, summary in found) for one in accused)


def test_a_service_that_may_wait_for_one_that_is_not_told_apart() -> None:
    assert not _service(300, 2, store_announces=ROUTER).alarms(110_000)


def test_a_service_that_waits_for_a_silent_one() -> None:
    boxes = _service(1, 2)
    boxes.say(102_000, CLIENT, SERVICE, 0, 20)
    boxes.say(102_001, ASKS, STORE, 0, 20)
    ((code, summary),) = boxes.alarms(110_000)
    assert code == "request-unanswered"
    assert summary.startswith(f"{STORE} does not answer 10.0.0.2: 1 request under CURVE without a reply")


def test_programs_of_one_host_may_wait_for_each_other() -> None:
    """On loopback only one of two that are open at the same time is slow for certain: nobody knows which."""
    boxes = Boxes()
    for client, server in (("127.0.0.1:40001", "127.0.0.1:5000"), ("127.0.0.1:40002", "127.0.0.1:6000")):
        boxes.connect(client, server, REQ, REP)
    for turn in range(1, 101):
        now, long = turn * 1000, 300 if turn % 20 == 0 else 3
        boxes.say(now, "127.0.0.1:40001", "127.0.0.1:5000", 0, 20)
        boxes.say(now + 1, "127.0.0.1:40002", "127.0.0.1:6000", 0, 20)
        boxes.say(now + long - 1, "127.0.0.1:6000", "127.0.0.1:40002", 0, 20)
        boxes.say(now + long, "127.0.0.1:5000", "127.0.0.1:40001", 0, 20)
    assert not boxes.alarms(110_000)
