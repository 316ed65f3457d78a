"""Spans: of each leg and each place of a request's way, and a collector of the test's own that receives them."""

import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

import zmtpsniff
from dissectors.events import AnyEvent, Command, Greeting, Message
from tests.analysis.ways.scenes import Scene
from tests.support.live_program import wait_for
from tests.support.paths import FIXTURES, PROJECT
from tests.support.ports import free_port
from tests.support.runner import run
from zmtpsniff.errors import Error
from zmtpsniff.export.spans import Spans, make_spans


def events_of(name: str) -> list[AnyEvent]:
    return list(zmtpsniff.open(FIXTURES / name))


def spans_of(events: list[AnyEvent]) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    spans = Spans(SimpleSpanProcessor(exporter))
    spans.take(events)
    spans.close()
    return list(exporter.get_finished_spans())


def traces_of(spans: Iterable[ReadableSpan]) -> list[list[ReadableSpan]]:
    traces: dict[int, list[ReadableSpan]] = {}
    for span in spans:
        traces.setdefault(context_of(span).trace_id, []).append(span)
    return list(traces.values())


def context_of(span: ReadableSpan) -> SpanContext:
    context: SpanContext | None = span.context
    assert context is not None
    return context


def times_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def test_a_leg_and_a_place_for_each_request() -> None:
    events = events_of("m31_req_rep.pcap")
    replies = [event for event in events if isinstance(event, Message) and event.latency_ns is not None]
    traces = traces_of(spans_of(events))
    assert len(traces) == len(replies)
    for (leg, place), reply in zip(traces, replies, strict=True):
        assert leg.attributes
        assert (leg.parent, place.parent) == (None, leg.context)
        assert (leg.kind, place.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
        assert times_of(leg) == times_of(place) == (reply.time_ns - (reply.latency_ns or 0), reply.time_ns)
        assert (leg.attributes["zmtp.flow"], leg.attributes["zmtp.packet"]) == (reply.flow, reply.request)
        assert leg.attributes["zmtp.socket_type"] == "REQ"
        assert (leg.attributes["server.address"], leg.attributes["server.port"]) == ("127.0.0.1", 20205)
        assert place.resource.attributes["service.name"] == "127.0.0.1:20205"
        assert leg.status.is_ok


def test_the_spans_of_a_way_are_one_tree_in_time() -> None:
    """A broker asks on one connection several times for one request; each span lies within its parent."""
    for trace in traces_of(spans_of(events_of("systems/healthy_service.pcap.gz"))):
        by_id = {context_of(span).span_id: span for span in trace}
        assert len(by_id) == len(trace)
        roots = [span for span in trace if span.parent is None]
        assert roots == trace[:1]
        for span in trace:
            if span.parent is not None:
                (begin, end), (outer_begin, outer_end) = times_of(span), times_of(by_id[span.parent.span_id])
                assert outer_begin <= begin <= end <= outer_end


def test_a_request_over_a_proxy_is_one_trace() -> None:
    traces = traces_of(spans_of(events_of("rec_proxy_ok.pcap")))
    assert len(traces) == 6
    for asked, passed_on, there, worker, back in traces:
        assert asked.parent is None
        assert [span.parent for span in (passed_on, there, back)] == [asked.context] * 3
        assert worker.parent == passed_on.context
        assert {span.name for span in (there, back)} == {"inside 127.0.0.1:5574"}


def test_what_is_not_passed_on_is_an_error() -> None:
    traces = traces_of(spans_of(events_of("brokers/two_brokers.pcap.gz")))
    lost = [trace for trace in traces if any(not span.status.is_ok for span in trace)]
    assert len(lost) == 5
    for trace in lost:
        client, broker = (span for span in trace if span.kind is SpanKind.CLIENT)
        assert client.status.description == broker.status.description == "not-forwarded at 10.9.0.37:6206"
        assert client.status.status_code is StatusCode.ERROR


def test_ids_come_from_the_messages() -> None:
    """Another host, where other packets were captured before these, gives the same ids to the same messages."""
    events = events_of("rec_proxy_ok.pcap")
    ids = [(span.context, span.parent) for span in spans_of(events)]
    for event in events:
        if isinstance(event, (Greeting, Command, Message)):
            event.flow += 40
        if isinstance(event, Message):
            event.packet += 1000
            event.request = None if event.request is None else event.request + 1000
    assert [(span.context, span.parent) for span in spans_of(events)] == ids


def test_a_traceparent_goes_on() -> None:
    scene = Scene()
    scene.connect(1, "10.0.0.1:40000", "10.0.0.2:5555", types=("REQ", "REP"))
    header = b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    asked = scene.say(1, b"", header, b"which?")
    scene.say(1, b"", b"that", by_server=True, answers=asked)
    leg, place = spans_of(scene.events)
    assert context_of(leg).trace_id == context_of(place).trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert leg.parent is not None
    assert (leg.parent.span_id, leg.parent.is_remote) == (0xB7AD6B7169203331, True)


def test_what_is_sent_to_one_socket_only_gives_none() -> None:
    assert spans_of(events_of("m31_push_pull.pcap")) == []


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
    made = sorted(times_of(span) for span in spans_of(events))
    assert sorted((span.start_time_unix_nano, span.end_time_unix_nano) for span in sent) == made
    assert len({span.span_id for span in sent}) == len(sent)


def test_a_file_waits_for_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zmtpsniff.export.spans._BATCH", 10)
    events = events_of("brokers/two_brokers.pcap.gz")
    with collector() as (url, got):
        spans = make_spans(url, waits=True)
        spans.take(events)
        spans.close()
    counts = [sum(len(scope.spans) for group in each.resource_spans for scope in group.scope_spans) for each in got]
    assert sum(counts) == len(spans_of(events))
    assert set(counts[:-1]) == {10}


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _rotel() -> str | None:
    return shutil.which("rotel-agent", path=f"{os.environ['PATH']}:{PROJECT / '.ci/rotel/rotel'}")


@pytest.mark.skipif(_rotel() is None, reason="rotel, a collector of other people, is not installed")
def test_a_collector_of_other_people_reads_each_span(tmp_path: Path) -> None:
    port, other = free_port(), free_port()
    options = ["--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"]
    options += ["--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{other}"]
    said = tmp_path / "said"
    with said.open("wb") as out:
        agent = subprocess.Popen([str(_rotel()), "start", *options], stdout=out, stderr=out)
    try:
        wait_for(lambda: b"Starting" in said.read_bytes() and is_listening(port))
        capture = FIXTURES / "brokers/two_brokers.pcap.gz"
        assert run("read", "-T", "summary", "--otlp", f"http://127.0.0.1:{port}", capture).returncode == 0
        made = spans_of(events_of("brokers/two_brokers.pcap.gz"))
        wait_for(lambda: said.read_bytes().count(b"Span #") >= len(made))
    finally:
        agent.terminate()
        agent.wait()
    span = r"Trace ID +: (\w+)\n.*?    ID +: (\w+)\n.*?Start time: (\d+)\nEnd time: (\d+)"
    found = re.findall(span, said.read_text(), re.DOTALL)
    ids = [(f"{context_of(one).trace_id:032x}", f"{context_of(one).span_id:016x}") for one in made]
    assert sorted(found) == sorted((*each, *map(str, times_of(one))) for each, one in zip(ids, made, strict=True))


def test_a_collector_that_does_not_answer_is_told() -> None:
    with collector() as (url, _):
        pass
    patience = os.environ | {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}  # seconds
    result = run("read", "-T", "json", "--otlp", url, FIXTURES / "m31_req_rep.pcap", env=patience)
    assert result.returncode == 2
    assert '"type":"message"' in result.stdout
    assert f"--otlp {url}: the collector did not take 24 spans; is it running?" in result.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://host", "http://"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(Error, match="must be a URL"):
        make_spans(url)
