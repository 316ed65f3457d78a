"""Spans: one for each reply, where a collector of the test's own receives them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import zmtpsniff
from dissectors.events import AnyEvent, Message
from tests.support.paths import FIXTURES
from zmtpsniff.errors import Error
from zmtpsniff.export.spans import Spans, make_spans


def events_of(name: str) -> list[AnyEvent]:
    return list(zmtpsniff.open(FIXTURES / name))


def replies(events: list[AnyEvent]) -> list[Message]:
    return [event for event in events if isinstance(event, Message) and event.latency_ns is not None]


@pytest.mark.parametrize("name", ["m31_req_rep.pcap", "rec_proxy.pcap", "app_majordomo_mdp01.pcap"])
def test_a_span_for_each_reply(name: str) -> None:
    exporter = InMemorySpanExporter()
    events = events_of(name)
    spans = Spans(SimpleSpanProcessor(exporter))
    spans.take(events)
    spans.close()
    made = exporter.get_finished_spans()
    expected = [(reply.flow, reply.request, reply.packet, reply.time_ns, reply.latency_ns) for reply in replies(events)]
    assert expected
    got = []
    for span in made:
        assert span.attributes
        keys = ("zmtp.flow", "zmtp.request.packet", "zmtp.reply.packet")
        assert span.start_time is not None
        assert span.end_time is not None
        got.append((*map(span.attributes.get, keys), span.end_time, span.end_time - span.start_time))
    assert got == expected
    first = replies(events)[0]
    assert made[0].attributes
    host, _, port = first.src.rpartition(":")
    assert (made[0].attributes["server.address"], made[0].attributes["server.port"]) == (host, int(port))
    assert made[0].attributes["zmtp.reply.socket_type"] == first.socket_type


def test_proxies_make_one_trace() -> None:
    exporter = InMemorySpanExporter()
    events = events_of("rec_proxy_ok.pcap")
    spans = Spans(SimpleSpanProcessor(exporter))
    spans.take(events)
    by_request = {}
    for span in exporter.get_finished_spans():
        assert span.attributes
        by_request[span.attributes["zmtp.flow"], span.attributes["zmtp.request.packet"]] = span
    forwarded = [event for event in events if isinstance(event, Message) and event.forwards and event.request is None]
    assert forwarded
    for message in forwarded:
        assert message.forwards
        inner = by_request[message.flow, message.packet]
        outer = by_request[message.forwards.flow, message.forwards.packet]
        assert inner.parent == outer.context
        assert inner.context.trace_id == outer.context.trace_id
        assert outer.start_time <= inner.start_time <= inner.end_time <= outer.end_time  # type: ignore[operator]


def test_requests_of_one_packet_have_traces_of_their_own() -> None:
    exporter = InMemorySpanExporter()
    asked = [Message(1000, 1, 1, "a:1", "b:2", [b"", b"x"], socket_type="DEALER", part=part) for part in (1, 2)]
    passed_on = [
        Message(2000, 2, 2, "b:3", "c:4", [b"", b"x"], socket_type="DEALER", part=part, forwards=asked[part - 1].place)
        for part in (1, 2)
    ]
    told = []
    for flow, packet, (src, dst), request in ((2, 3, ("c:4", "b:3"), 2), (1, 4, ("b:2", "a:1"), 1)):
        for part in (1, 2):
            reply = Message(3000 + packet, packet, flow, src, dst, [b"", b"x"], part=part, latency_ns=500)
            reply.request, reply.request_part = request, part
            told.append(reply)
    Spans(SimpleSpanProcessor(exporter)).take([*asked, *passed_on, *told])
    back, front = exporter.get_finished_spans()[:2], exporter.get_finished_spans()[2:]
    assert [span.parent for span in back] == [span.context for span in front]
    assert len({span.context.span_id for span in (*back, *front) if span.context}) == 4


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector that takes OTLP over HTTP."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            got.append(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_gets_them() -> None:
    events = events_of("m31_req_rep.pcap")
    with collector() as (url, got):
        spans = make_spans(url)
        spans.take(events)
        spans.close()
    sent = [
        span for each in got for group in each.resource_spans for scope in group.scope_spans for span in scope.spans
    ]
    assert [span.end_time_unix_nano for span in sent] == [reply.time_ns for reply in replies(events)]
    assert len({span.span_id for span in sent}) == len(sent)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmtpsniff.export.spans._MOST_REQUESTS", 10)
    exporter = InMemorySpanExporter()
    spans = Spans(SimpleSpanProcessor(exporter))
    ends = "10.0.0.1:4", "10.0.0.2:5"
    spans.take([Message(1, packet, 1, *ends, [b""], "REQ") for packet in range(100)])
    spans.take([
        Message(2, 100 + packet, 1, *ends[::-1], [b""], "REP", latency_ns=1, request=packet) for packet in range(100)
    ])  # fmt: skip
    found = [span.attributes["zmtp.request.packet"] for span in exporter.get_finished_spans() if span.attributes]
    assert found == list(range(90, 100))


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://host", "http://"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(Error, match="must be a URL"):
        make_spans(url)
