"""Metrics: they count what the records say, with few labels, and answer where they were told to."""

import http.client
import re
import urllib.request
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import zmtpsniff
from dissectors.batches import MessageBatch
from dissectors.events import AnyEvent, Connection, Message, Peer, Problem, Sides, Subscription
from dissectors.zmtp import usual
from tests.support.both_cores import built_core
from tests.support.live_program import live, needs_privilege, wait_for
from tests.support.paths import FIXTURES
from tests.support.ports import free_port
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.catalogue import FINDINGS
from zmtpsniff.analysis.findings.finding_watch import FindingWatch
from zmtpsniff.analysis.patterns import batch_parts, column_pairs
from zmtpsniff.capture import files
from zmtpsniff.dissection import open_files
from zmtpsniff.engine import settled, sniffer
from zmtpsniff.engine.settings import Settings
from zmtpsniff.errors import Error
from zmtpsniff.export.metrics import MOST_SERVICES, Metrics

LABELS = ("service", "program", "host", "sender", "socket_type", "action", "code", "severity", "le")
CAPTURES = ["m31_req_rep.pcap", "m31_pub_sub.pcap", "rec_proxy.pcap", "rec_odd_subscriptions.pcap", "app_jupyter.pcap"]


class Source:
    """The parts of a sniffer that Metrics reads."""

    packets, dropped = 7, 1

    def __init__(self, *connections: Connection) -> None:
        self.connections: Sequence[Connection] = connections

    def open_connections(self) -> Sequence[Connection]:
        return self.connections

    def server(self, flow: int) -> str | None:
        return None


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmtpsniff.export.metrics._PATIENCE", 0.0)


def made(events: Sequence[AnyEvent], *going_on: Connection) -> dict[tuple[str, tuple[str, ...]], float]:
    """All samples, by name and the values of their labels, as Prometheus reads them."""
    diagnosis = Diagnosis()
    watch = FindingWatch(diagnosis.findings)
    metrics = Metrics(Source(*going_on), diagnosis, watch)
    list(metrics.collect())  # asks, so that the next events bring the numbers up to date
    for begin in range(0, len(events), 10):
        metrics.take(events[begin : begin + 10])
    list(metrics.collect())
    watch.look(1)
    metrics.take([])
    found = asked(metrics)
    price = found.pop(("zmtpsniff_cpu_seconds_total", ())), found.pop(("zmtpsniff_memory_octets", ()))
    assert all(one > 0 for one in price)
    return found


def watched(source: Source) -> Metrics:
    """Metrics of a source that gives no findings."""
    return Metrics(source, Diagnosis(), FindingWatch(list))


def asked(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """The samples that it has now."""
    registry = CollectorRegistry()
    registry.register(metrics)
    return samples(generate_latest(registry).decode())


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(text)
    return {
        (each.name, tuple(each.labels[name] for name in LABELS if name in each.labels)): each.value
        for family in families
        for each in family.samples
    }


def total(found: dict[tuple[str, tuple[str, ...]], float], name: str) -> float:
    return sum(value for (each, _), value in found.items() if each == name)


@pytest.mark.parametrize("name", CAPTURES)
def test_they_are_what_the_records_say(name: str) -> None:
    events = list(zmtpsniff.open(FIXTURES / name))
    connections = [event for event in events if isinstance(event, Connection)]
    found = made(events)
    messages = [event for event in events if isinstance(event, Message)]
    servers = {connection.flow: connection.server.address for connection in connections}
    expected: Counter[tuple[str, str, str]] = Counter()
    for message in messages:
        server = servers[message.flow]
        expected[server, "server" if message.src == server else "client", message.socket_type or "unknown"] += 1
    for key, count in expected.items():
        assert found["zmtp_messages_total", key] == count
    octets = sum(connection.octets.client + connection.octets.server for connection in connections)
    assert total(found, "zmtp_octets_total") == octets
    assert total(found, "zmtp_messages_total") == len(messages)
    latencies = [message.latency_ns for message in messages if message.latency_ns is not None]
    assert total(found, "zmtp_reply_seconds_count") == len(latencies)
    assert total(found, "zmtp_reply_seconds_sum") == pytest.approx(sum(latencies) / 1e9)
    assert total(found, "zmtp_connections_opened_total") == len(connections)
    assert total(found, "zmtp_connections_open") == total(found, "zmtp_subscriptions_active") == 0
    assert total(found, "zmtp_problems_total") == sum(isinstance(event, Problem) for event in events)
    assert total(found, "zmtp_subscriptions_total") == sum(isinstance(event, Subscription) for event in events)
    assert (total(found, "zmtpsniff_packets_total"), total(found, "zmtpsniff_packets_dropped_total")) == (7, 1)


@pytest.mark.parametrize("name", ["m31_req_rep.pcap", "rec_closing_worker.pcap", "rec_growing_connections.pcap"])
def test_messages_in_columns_count_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "LEAST", 0)
    monkeypatch.setattr(column_pairs, "SHORTEST_PAIRED", 0)
    monkeypatch.setattr(usual, "MOST_PIECES", 6)  # of a handshake
    for module in (sniffer, column_pairs, batch_parts):
        monkeypatch.setattr(module, "core", built_core())
    monkeypatch.setattr(files, "CHUNK", 400)  # octets: messages in the block of a handshake are objects
    events = list(open_files([FIXTURES / name], Settings(batches=True, payload=False)))
    assert any(isinstance(event, MessageBatch) for event in events)
    expected = made(list(open_files([FIXTURES / name], Settings(payload=False))))
    found = made(events)
    assert found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(expected[key]) for key in expected)


def test_the_work_of_peers_is_that_of_their_hosts() -> None:
    events = list(zmtpsniff.open(FIXTURES / "rec_closing_worker.pcap"))
    workers = ("127.0.0.1:5560", "127.0.0.1")
    found = made(events)
    assert (found["zmtp_peers_taken_total", workers], found["zmtp_peers_given_total", workers]) == (11, 10)
    assert found["zmtp_peers_in_hand", workers] == 1
    going_on = [event for event in events if isinstance(event, Connection)]
    found = made([event for event in events if not isinstance(event, Connection)], *going_on)
    assert (found["zmtp_peers_taken_total", workers], found["zmtp_peers_in_hand", workers]) == (11, 1)


def test_programs_that_pass_on_have_a_queue() -> None:
    found = made(list(zmtpsniff.open(FIXTURES / "systems/worker_stops.pcap.gz")))
    queues = {labels: value for (name, labels), value in found.items() if name == "zmtp_programs_queue"}
    assert queues == {("10.9.0.58",): 0, ("10.9.0.62",): 78, ("10.9.0.66",): 0}  # their ports are those of clients
    assert found["zmtp_programs_passed_total", ("10.9.0.62",)] == 24
    found = made(list(zmtpsniff.open(FIXTURES / "rec_proxy.pcap")))
    assert found["zmtp_programs_passed_total", ("127.0.0.1:5572",)] == 11


def test_programs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmtpsniff.export.metrics.MOST_PROGRAMS", 1)
    found = made(list(zmtpsniff.open(FIXTURES / "systems/worker_stops.pcap.gz")))
    queues = {labels: value for (name, labels), value in found.items() if name == "zmtp_programs_queue"}
    assert queues.keys() > {("other",)}
    assert (len(queues), sum(queues.values())) == (2, 78)


@pytest.mark.parametrize("name", ["rec_reconnect_storm.pcap", "rec_plain_wrong_password.pcap", "m31_req_rep.pcap"])
def test_findings_are_those_of_diagnose(name: str) -> None:
    events = list(zmtpsniff.open(FIXTURES / name))
    diagnosis = Diagnosis()
    diagnosis.take(events)
    expected = Counter((each.code, each.severity) for each in diagnosis.findings())
    told = {labels: value for (name, labels), value in made(events).items() if name == "zmtp_findings"}
    found: Counter[tuple[str, ...]] = Counter()
    for (service, code, severity), value in told.items():
        found[code, severity] += round(value)
        assert service in {address for each in diagnosis.findings() for address in each.endpoints}
    assert found == expected
    assert {code for code, _ in found} <= set(FINDINGS)  # nothing of the wire gets into a label


def said(latency_ns: int) -> Message:
    message = Message(1, 1, 1, "10.0.0.2:5555", "10.0.0.1:40000", [b"x"], "REP")
    message.latency_ns = latency_ns
    return message


def connected(flow: int, kind: str = "REQ", messages: int = 1) -> Connection:
    client, server = Peer("10.0.0.1:40000", "3.1", kind), Peer(f"10.0.0.2:{flow}", "3.1", "REP")
    counts = Sides(messages, messages), Sides(10, 20)
    return Connection(flow, "tcp", client, server, *counts, 0, 1, "fin", subscriptions=[b"a", b"b"])


def test_services_are_bounded() -> None:
    found = made([connected(flow) for flow in range(1, 1001)])
    services = {labels[0] for name, labels in found if name == "zmtp_messages_total"}
    assert len(services) == MOST_SERVICES + 1
    assert found["zmtp_messages_total", ("other", "client", "REQ")] == 1000 - MOST_SERVICES


def test_hostile_labels() -> None:
    found = made([connected(1, 'evil"\n} 1')])
    assert {labels[2] for name, labels in found if name == "zmtp_messages_total"} == {"other", "REP"}


def test_what_goes_on_counts_once() -> None:
    """Before its summary has come, and after."""
    source = Source(connected(1, messages=5), connected(2))
    metrics = watched(source)
    list(metrics.collect())
    metrics.take([])
    found = asked(metrics)
    assert (total(found, "zmtp_messages_total"), total(found, "zmtp_connections_open")) == (12, 2)
    assert total(found, "zmtp_subscriptions_active") == 4
    source.connections = (connected(2),)
    metrics.take([])  # flow 1 is over, and its summary is on its way
    found = asked(metrics)
    assert total(found, "zmtp_messages_total") == 12
    metrics.take([connected(1, messages=6)])
    found = asked(metrics)
    assert (total(found, "zmtp_messages_total"), total(found, "zmtp_connections_open")) == (14, 1)
    assert total(found, "zmtp_connections_opened_total") == 2


def test_buckets_add_up() -> None:
    latencies = [0, 10_000, 10_001, 999_999, 5_000_000_000, 11_000_000_000]
    found = made([said(latency) for latency in latencies])
    buckets = [value for (name, _), value in found.items() if name == "zmtp_reply_seconds_bucket"]
    assert all(low <= high for low, high in pairwise(buckets))
    assert buckets[0] == 2
    assert buckets[-1] == len(latencies)
    assert buckets[-2] == len(latencies) - 1


def test_it_answers_where_it_was_told_to() -> None:
    metrics = watched(Source())
    metrics.take([connected(5555)])
    port = metrics.serve("127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            found = samples(answer.read().decode())
        assert total(found, "zmtpsniff_packets_total") == 7
        with pytest.raises(Error, match="in use"):
            watched(Source()).serve("127.0.0.1", port)
    finally:
        metrics.close()


@pytest.mark.parametrize(
    "path", ["/", "/metrics/", "/metrics/../../etc/passwd", "/metricsx", "/favicon.ico", "/etc/passwd"]
)
def test_it_answers_at_one_path_alone(path: str) -> None:
    metrics = watched(Source())
    connection = http.client.HTTPConnection("127.0.0.1", metrics.serve("127.0.0.1", 0), timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (404, b"the metrics are at /metrics\n")
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert (answer.status, total(samples(answer.read().decode()), "zmtpsniff_packets_total")) == (200, 7)
    finally:
        connection.close()
        metrics.close()


@needs_privilege
def test_live(tmp_path: Path) -> None:
    import zmq

    port = free_port()  # of this one alone, since others talk over loopback at the same time
    with live("-i", "lo", "-f", f"tcp port {port}", "--metrics", "127.0.0.1:0") as program:
        wait_for(lambda: bool(re.search(r"metrics at \S+\n", program.said())))
        url = program.said().partition("metrics at ")[2].split()[0]
        with zmq.Context() as context, context.socket(zmq.REP) as service, context.socket(zmq.REQ) as client:
            address = f"127.0.0.1:{port}"
            service.bind(f"tcp://{address}")
            client.connect(f"tcp://{address}")
            for _ in range(3):
                client.send(b"ask")
                service.send(service.recv())
                client.recv()
        program.read_until(lambda records: any(r["type"] == "connection" for r in records))
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = samples(answer.read().decode())
    assert found["zmtp_messages_total", (address, "client", "REQ")] == 3
    assert found["zmtp_octets_total", (address, "server", "REP")] > 9
    assert found["zmtp_reply_seconds_count", (address,)] == 3
