"""Processes in records of connections: only of who had the port while the connection lived."""

import io
import threading
from typing import Any

import pytest

from dissectors.events import Connection, End, Greeting, Peer, Process, Sides
from zmtpsniff.host.kernel_sockets import SocketEnds
from zmtpsniff.host.local import LocalHost
from zmtpsniff.host.owners import ConnectionOwners
from zmtpsniff.render import Format, make_renderer

CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"


class FakeHelper:
    """Remembers what it is asked, and says nothing by itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[SocketEnds]]] = []

    def find_owners(self, number: int, ends: list[SocketEnds]) -> None:
        self.asked.append((number, ends))


def answer(flow: int, local: str, time_ns: int, pid: int) -> dict[str, Any]:
    return {
        "is": "owner",
        "id": flow,
        "local": local,
        "time_ns": time_ns,
        "pid": pid,
        "name": "python",
        "container": None,
        "pod": None,
    }


def connection(flow: int, start_ns: int, end_ns: int, end: End = "fin") -> Connection:
    peers = Peer(CLIENT), Peer(SERVER)
    return Connection(flow, "tcp", *peers, Sides(0, 0), Sides(0, 0), start_ns, end_ns, end)


def greeting(flow: int) -> Greeting:
    return Greeting(1, 1, flow, CLIENT, SERVER)


@pytest.fixture
def helper() -> FakeHelper:
    return FakeHelper()


@pytest.fixture
def owners(helper: FakeHelper) -> ConnectionOwners:
    return ConnectionOwners(helper)  # type: ignore[arg-type]


def test_it_asks_once_about_both_ends(helper: FakeHelper) -> None:
    host = LocalHost(helper, print)  # type: ignore[arg-type]
    host.take([greeting(1), greeting(1)])
    host.take([greeting(1), greeting(2)])
    both = [SocketEnds(CLIENT, SERVER), SocketEnds(SERVER, CLIENT)]
    assert helper.asked == [(1, both), (2, both)]


@pytest.mark.parametrize(
    ("time_ns", "end", "named"),
    [(50, "fin", True), (99, "fin", False), (10, "fin", False), (99, "open", True), (99, "rst", False)],
)
def test_an_answer_counts_only_for_who_lived_then(
    owners: ConnectionOwners, time_ns: int, end: End, named: bool
) -> None:
    owners.ask(1, CLIENT, SERVER)
    owners.see(answer(1, CLIENT, time_ns, 7))
    owners.see(answer(1, SERVER, time_ns, 8))
    event = connection(1, 20, 60, end)
    owners.add_to(event)
    assert event.client.process == (Process(7, "python") if named else None)
    assert event.server.process == (Process(8, "python") if named else None)


def test_the_end_of_a_capture_waits_for_the_first_look(owners: ConnectionOwners) -> None:
    """However long the helper has had no processor for it."""
    owners.ask(1, CLIENT, SERVER)

    def look() -> None:
        owners.see(answer(1, CLIENT, 50, 7))
        owners.see({"is": "looked", "id": 1})

    late = threading.Timer(0.5, look)
    late.start()
    event = connection(1, 20, 60, "open")
    owners.add_to(event)
    late.join()
    assert event.client.process == Process(7, "python")
    assert event.server.process is None


def test_a_port_that_is_used_again(owners: ConnectionOwners) -> None:
    """An answer that comes after the end is nobody's, also if the next connection has the same ends."""
    owners.ask(1, CLIENT, SERVER)
    first = connection(1, 20, 60)
    owners.add_to(first)
    owners.ask(2, CLIENT, SERVER)
    owners.see(answer(1, CLIENT, 50, 7))
    second = connection(2, 70, 90)
    owners.add_to(second)
    assert first.client.process is None
    assert second.client.process is None


@pytest.mark.parametrize("form", ["tree", "summary", "json"])
def test_records_show_it(form: Format) -> None:
    event = connection(1, 20, 60)
    event.client.process = Process(4711, "worker\x1b[31m", "8f3ab2c41d90")
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    renderer = make_renderer(form, stream, color="never")
    renderer.write([event])
    renderer.finish()
    stream.flush()
    shown = raw.getvalue().decode()
    assert "4711" in shown
    assert "8f3ab2c41d90" in shown
    assert "\x1b" not in shown
