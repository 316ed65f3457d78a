"""A diagnosis that is left on keeps no more after thousands of connections than after the first ones."""

import pytest

from dissectors.events import Command, Connection, Greeting, Peer, Process, Sides
from tests.analysis.ways.scenes import MS, Scene
from tests.support.footprint import entries, reachable
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings import Diagnosis, compared_copies, queues
from zmtpsniff.analysis.findings.handshakes import Handshakes
from zmtpsniff.analysis.findings.identities import Identities
from zmtpsniff.analysis.ways import correlation, programs
from zmtpsniff.net.witness import Attempt, Pause, Stall

SERVICES = {"PULL": "10.0.0.1:5551", "REP": "10.0.0.1:5552", "PUB": "10.0.0.1:5553", "ROUTER": "10.0.0.1:5554"}
WORKER = "10.0.0.9:5555"
STEP_MS = 20.0


def process_at(address: str) -> Process:
    """Each port is another process."""
    return Process(int(address.rpartition(":")[2]), "program")


class System:
    """Services whose clients come and go, and a broker with a connection of its own for each request."""

    def __init__(self, *, knows_processes: bool) -> None:
        self.diagnosis = Diagnosis()
        self.connections = 0
        self._scene = Scene()
        self._taken = taken = [0]  # events since the last connection was over
        if knows_processes:
            self.diagnosis.know_processes(lambda _, address: process_at(address) if taken[0] > 3 else None)

    def visit(self, times: int) -> None:
        """A client of each service comes and goes."""
        for _ in range(times):
            for kind, service in SERVICES.items():
                client = self._connect({"PULL": "PUSH", "PUB": "SUB"}.get(kind, "REQ"), service, kind, "10.0.0.2")
                if kind == "PULL":
                    self._scene.say(client, b"job %d" % client, after_ms=STEP_MS)
                elif kind == "REP":
                    self._ask(client)
                elif kind == "ROUTER":
                    self._pass_on(client)
                self._close(client, kind)

    def _connect(self, own: str, service: str, kind: str, host: str) -> int:
        self.connections += 1
        flow, now_ns = self.connections, self._scene.now_ns
        client = f"{host}:{10_000 + flow % 50_000}"
        self.diagnosis.attempt(Attempt("accepted", flow, client, service, 1, now_ns, now_ns, 1, 1))
        self._scene.connect(flow, client, service, types=(own, kind))
        return flow

    def _ask(self, client: int) -> None:
        asked = self._scene.say(client, b"", b"question %d" % client, after_ms=STEP_MS)
        self._scene.say(client, b"", b"answer", by_server=True, answers=asked)

    def _pass_on(self, client: int) -> None:
        """A broker gives a request to a worker, over a connection that it makes for that."""
        asked = self._scene.say(client, b"", b"question %d" % client, after_ms=STEP_MS)
        inner = self._connect("DEALER", WORKER, "REP", "10.0.0.1")
        passed = self._scene.say(inner, b"id %d" % client, b"", b"question %d" % client)
        self._scene.say(inner, b"id %d" % client, b"", b"answer", by_server=True, answers=passed)
        self._scene.say(client, b"", b"answer", by_server=True, answers=asked)
        self._close(inner, "REP")

    def _close(self, flow: int, kind: str) -> None:
        self._scene.close(flow)
        over = self._scene.events[-1]
        assert isinstance(over, Connection)
        over.server.socket_type, over.client.socket_type = kind, {"PULL": "PUSH"}.get(kind, "REQ")
        over.start_ns = over.end_ns - 5 * MS
        self._taken[0] = 0
        for event in self._scene.events:
            self.diagnosis.take([event])
            self._taken[0] += 1
        self._scene.events.clear()

    def entries_at(self, connections: int) -> int:
        """How much is kept after so many connections."""
        while self.connections < connections:
            self.visit(1)
        self.diagnosis.findings()
        return entries(self.diagnosis)


@pytest.mark.parametrize("knows_processes", [False, True])
def test_connections_come_and_go(monkeypatch: pytest.MonkeyPatch, knows_processes: bool) -> None:
    """All tables are full after 3000 connections."""
    for module, limit in ((correlation, "_TOKENS"), (programs, "_ENDED"), (compared_copies, "_FREE")):
        monkeypatch.setattr(module, limit, 400)  # else they take long to fill
    monkeypatch.setattr(queues, "_INTERVALS", 150)
    system = System(knows_processes=knows_processes)
    before = system.entries_at(3000)
    assert system.entries_at(4000) < before * 1.005


def test_connections_that_are_not_zmtp() -> None:
    """Their ends are not told."""
    diagnosis = Diagnosis()
    kept = []
    for flow in range(1, 12_501):
        client, server, now_ns = f"10.0.0.2:{flow}", "10.0.0.1:443", flow * 100 * MS
        diagnosis.attempt(Attempt("accepted", flow, client, server, 1, now_ns, now_ns, flow, 1))
        diagnosis.pause(Pause(flow, client, now_ns, now_ns + 2000 * MS, 0, 0, resent=100))
        diagnosis.stall(Stall(flow, server, client, "unacknowledged", now_ns, now_ns + MS, flow, 3, False))
        diagnosis.stall(Stall(flow, server, client, "window", now_ns, now_ns + MS, flow, 3, True))
        if flow in (10_500, 12_500):
            kept.append(entries(diagnosis))
    assert kept[1] == kept[0]


def test_names_that_peers_choose() -> None:
    """Mechanisms, socket types and commands of handshakes."""
    handshakes = Handshakes()
    client, server = "10.0.0.2:40000", "10.0.0.1:5555"
    kept = []
    for flow in range(1, 1001):
        dossier = Dossier(flow)
        for src, dst in ((client, server), (server, client)):
            greeting = Greeting(flow, flow, flow, src, dst, version="3.1", mechanism=f"M{flow}")
            handshakes.greeting(dossier, greeting)
        handshakes.command(dossier, Command(flow, flow, flow, client, server, "READY"))
        ends = Peer(client, "3.1", f"A{flow}"), Peer(server, "3.1", f"B{flow}")
        over = Connection(flow, "tcp", *ends, Sides(0, 0), Sides(9, 9), flow, flow + MS, "fin", closed_by="client")
        over.handshake = "complete" if flow % 2 else "failed"
        handshakes.end(dossier, over, flow + MS)
        if flow % 500 == 0:
            kept.append(entries(handshakes))
    assert kept[1] == kept[0]
    for number in range(1000):
        handshakes.command(Dossier(1), Command(1, 1, 1, client, server, f"X{number}"))
    assert entries(handshakes) < kept[1] + 10


def test_a_peer_that_comes_back_before_it_has_left() -> None:
    """Each time with the same identity."""
    identities = Identities()
    kept = []
    for flow in range(1, 30_001):
        peer, router = f"10.0.0.2:{flow}", "10.0.0.1:5555"
        identities.begin(Dossier(flow, flow, flow, {peer: "DEALER", router: "ROUTER"}, {peer: b"me"}))
        if flow > 1:
            ends = Peer(f"10.0.0.2:{flow - 1}"), Peer(router)
            over = Connection(flow - 1, "tcp", *ends, Sides(0, 0), Sides(9, 9), 0, flow, "fin")
            identities.end(Dossier(flow - 1), over, flow)
        if flow % 15_000 == 0:
            kept.append(sum(1 for _ in reachable(identities)))
    assert kept[1] < kept[0] * 1.02
