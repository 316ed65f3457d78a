"""The work of each peer of a bound socket."""

from pathlib import Path

import pytest

import zmtpsniff
from dissectors.events import Connection, Message, Peer, Process, Sides
from tests.analysis.findings.diagnoses import diagnose
from tests.analysis.ways.scenes import Scene
from tests.support.footprint import reachable
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.workload import Workload
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.statistics.stats_records import PeerRow, worth_telling
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators
from zmtpsniff.net.witness import Stall

SERVICE = "10.0.0.1:5555"


def rows(path: Path, *, batches: bool = False) -> list[PeerRow]:
    diagnosis = Diagnosis()
    for events in open_files([path], Settings(batches=batches), Collaborators(witness=diagnosis)).batches():
        diagnosis.take(events)
    return diagnosis.peers()


def counted(*connections: Connection, stalls: tuple[Stall, ...] = (), going_on: bool = False) -> list[PeerRow]:
    workload = Workload(lambda flow: None)
    for stall in stalls:
        workload.stall(stall)
    if going_on:
        return workload.rows(connections)
    for connection in connections:
        workload.end(None, connection, 9)
    return workload.rows()


def connection(flow: int, client: Peer, to_client: int) -> Connection:
    server = Peer(SERVICE, socket_type="PUSH")
    return Connection(flow, "tcp", client, server, Sides(0, to_client), Sides(9, 9), 0, 9, "fin")


@pytest.mark.parametrize("batches", [False, True])
def test_workers_that_answer(batches: bool) -> None:
    """Real REPs of a DEALER, of which one closes with a request in hand."""
    leaving, staying = sorted(rows(FIXTURES / "rec_closing_worker.pcap", batches=batches), key=lambda row: row.taken)
    assert (leaving.role, leaving.taken, leaving.given, leaving.in_hand) == ("worker", 3, 2, 1)
    assert (staying.role, staying.taken, staying.given, staying.in_hand) == ("worker", 8, 8, 0)
    assert (leaving.share, staying.share) == (0.2727, 0.7273)
    assert (staying.replies, staying.p50_ns) == (8, 90249)
    assert {leaving.service, staying.service} == {"127.0.0.1:5560"}


def test_consumers_that_have_no_room() -> None:
    busy, idle = sorted(rows(FIXTURES / "work" / "rec_waiting_work.pcap"), key=lambda row: -row.window_closed_ns)
    assert (busy.role, idle.role) == ("consumer", "consumer")
    assert (round(busy.window_closed_ns / 1e9, 1), idle.window_closed_ns) == (2.2, 0)
    healthy = rows(FIXTURES / "work" / "rec_waiting_work_ok.pcap")
    assert [row.share for row in healthy] == [0.5, 0.5]


def test_a_client_that_waits() -> None:
    (row,) = rows(FIXTURES / "rec_unanswered_request.pcap")
    assert (row.role, row.waiting, row.in_hand, row.share) == ("client", 1, 0, None)


def test_who_tells_more_than_is_ordered_waits_for_nothing() -> None:
    """Reports and orders on one connection, such as those of Locust: no message is the reply to another one."""
    scene = Scene()
    scene.connect(1, "10.0.0.2:40000", SERVICE, types=("DEALER", "ROUTER"))
    for number in range(12):
        scene.say(1, b"report %d" % number)
        if number % 3 == 0:
            scene.say(1, b"order %d" % number, by_server=True)
    scene.close(1)
    diagnosis = Diagnosis()
    diagnosis.take(Patterns().take(scene.events))
    (row,) = diagnosis.peers()
    assert (row.role, row.waiting, row.in_hand, row.service) == (None, 0, 0, SERVICE)


def test_a_finding_has_the_peers_of_its_service_and_no_others() -> None:
    (found,) = diagnose(FIXTURES / "rec_closing_worker.pcap")
    assert [row.peer for row in found.peers] == [found.endpoints[0], "127.0.0.1:57040"]


@pytest.mark.parametrize(
    ("peers", "names"),
    [
        ((Peer("10.0.0.2:1"), Peer("10.0.0.2:2")), ["10.0.0.2:1", "10.0.0.2:2"]),
        ((Peer("10.0.0.2:1", identity=b"w"), Peer("10.0.0.2:2", identity=b"w")), ["10.0.0.2:2"]),
        ((Peer("10.0.0.2:1", identity=b"w"), Peer("10.0.0.3:1", identity=b"w")), ["10.0.0.2:1", "10.0.0.3:1"]),
        # A program may have several workers.
        (
            (Peer("10.0.0.2:1", process=Process(7, "x")), Peer("10.0.0.2:2", process=Process(7, "x"))),
            ["10.0.0.2:1", "10.0.0.2:2"],
        ),
    ],
)
def test_a_peer_that_comes_back_is_one(peers: tuple[Peer, ...], names: list[str]) -> None:
    found = counted(*(connection(flow, peer, 5) for flow, peer in enumerate(peers, 1)))
    assert [row.peer for row in found] == names
    assert sum(row.taken for row in found) == 10
    assert sum(row.connections for row in found) == 2


@pytest.mark.parametrize("going_on", [False, True])
def test_whoever_had_no_room_let_the_other_wait(going_on: bool) -> None:
    client = Peer("10.0.0.2:1")
    stalls = (
        Stall(1, client.address, SERVICE, "window", 1, 4, 1, 1, True),
        Stall(1, client.address, SERVICE, "window", 5, 7, 1, 1, True),
        Stall(1, SERVICE, client.address, "window", 1, 2, 1, 1, True),
        Stall(1, SERVICE, client.address, "unacknowledged", 1, 9, 1, 1, True),
        Stall(2, client.address, SERVICE, "window", 1, 9, 1, 1, True),
    )
    (row,) = counted(connection(1, client, 5), stalls=stalls, going_on=going_on)
    assert (row.window_closed_ns, row.waited_ns) == (5, 1)
    assert worth_telling([row]) == [row]
    (quiet,) = counted(connection(1, client, 5))
    assert worth_telling([quiet]) == []


@pytest.mark.parametrize("going_on", [False, True])
def test_the_queues_of_the_kernel_at_both_ends(going_on: bool) -> None:
    workload = Workload(lambda flow: None)
    client = Peer("10.0.0.2:1")
    workload.know_queues(lambda local, remote: {client.address: (5, 6), SERVICE: (7, 8)}[local])
    is_open, is_over = connection(1, client, 1), connection(2, Peer("10.0.0.2:2"), 1)
    is_open.end = "open"
    if not going_on:
        workload.end(None, is_open, 9)
    workload.end(None, is_over, 9)
    rows = {row.peer: row for row in workload.rows([is_open] if going_on else [])}
    open_row, over = rows[client.address], rows["10.0.0.2:2"]
    assert (open_row.recv_q, open_row.send_q, open_row.service_recv_q, open_row.service_send_q) == (5, 6, 7, 8)
    assert over.recv_q == over.service_send_q == 0
    assert workload.rows([is_open] if going_on else []) == list(rows.values())


def test_asking_twice_counts_once() -> None:
    diagnosis = Diagnosis()
    events = list(zmtpsniff.open(FIXTURES / "rec_closing_worker.pcap"))
    diagnosis.take(events)
    assert diagnosis.peers() == diagnosis.peers()


def test_of_many_clients_those_of_one_host_that_left_first_are_one_peer() -> None:
    """Nothing is counted less than before, so that a counter of metrics never falls."""
    left = [connection(flow, Peer(f"10.0.0.{2 + flow % 2}:{flow}"), flow) for flow in range(5000)]
    found = counted(*left)
    assert (sum(row.connections for row in found), sum(row.taken for row in found)) == (5000, sum(range(5000)))
    first = {row.peer: row for row in found if row.connections > 1}
    assert [row.service for row in first.values()] == [SERVICE] * 2
    assert {*first} == {"10.0.0.2", "10.0.0.3"}
    assert "10.0.0.2:4998" in {row.peer for row in found}
    assert len(found) < 1010


def test_a_client_of_zmtp_2_asks_before_the_service_has_said_its_type() -> None:
    """JeroMQ 0.3 does."""
    scene, client = Scene(), "10.0.0.2:40000"
    scene.greet(1, client, SERVICE, "REQ")
    asked = scene.say(1, b"", b"x")
    scene.greet(1, client, SERVICE, "REP", by_server=True)
    for _ in range(2):
        reply = scene.say(1, b"", b"done", by_server=True, answers=asked)
        reply.latency_ns = 1_000_000
        asked = scene.say(1, b"", b"x")
    scene.close(1)
    diagnosis = Diagnosis()
    diagnosis.take(scene.events)
    (row,) = diagnosis.peers()
    assert (row.role, row.replies, row.waiting, row.in_hand) == ("client", 2, 1, 0)


def test_what_a_peer_of_zmtp_2_sends_meanwhile_is_bounded() -> None:
    scene = Scene()
    scene.greet(1, "10.0.0.2:40000", SERVICE, "PUSH")
    for number in range(100):
        scene.say(1, bytes([number]) * 10_000)
    diagnosis = Diagnosis()
    diagnosis.take(scene.events)
    scene.events.clear()
    assert sum(len(one) for one in reachable(diagnosis) if isinstance(one, bytes)) < 200_000


@pytest.mark.parametrize(("asked", "role"), [(1, None), (12, "client")])
def test_who_registers_and_then_is_asked_is_no_client(asked: int, role: str | None) -> None:
    """A server of qweather says what it can do, and the broker says that it knows: one pair of many messages."""
    scene, diagnosis = Scene(), Diagnosis()
    scene.connect(1, "10.0.0.2:40000", SERVICE, types=("DEALER", "ROUTER"))
    for number in range(12):
        asks = number < asked
        message = scene.say(1, b"", b"%d" % number, b"body")
        scene.say(1, b"", b"answer", b"%d" % number, by_server=True, answers=message if asks else None)
    for event in scene.events:
        if isinstance(event, Message) and event.request is not None:
            event.latency_ns = 1_000_000
    scene.close(1)
    diagnosis.take(scene.events)
    assert [row.role for row in diagnosis.peers()] == [role]
