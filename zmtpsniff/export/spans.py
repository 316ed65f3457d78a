"""Spans for OpenTelemetry: a trace for each way, with a span for each leg and for each place.

The span of a leg begins with the message, and ends with the reply on the same connection, or with the last that is
known of the way. The span of a place lasts as long as a program had a message; it is a child of the leg that brought
it. Ids are made of the messages and not of the capture, so that two hosts that see the same message give it the same
ids. If a message has a ``traceparent`` (W3C Trace Context), the way is a part of that trace.
"""

import logging
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from dissectors.address import FIRST_CLIENT_PORT, host_of, port_of
from dissectors.events import AnyEvent, Message, at_hand
from zmtpsniff import __version__
from zmtpsniff.analysis.ways.delays import passages
from zmtpsniff.analysis.ways.hops import TRACEPARENT, Hop, OpenWay
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.errors import Error
from zmtpsniff.words.counts import plural

_SEARCHED = 4096  # octets of a frame, for a traceparent
_SERVICES = 1000  # whose resources are remembered
_BATCH = 512  # spans of one request to the collector
# Made now: it looks for installed packages, which may be out of reach once privileges have been given up.
_RESOURCE = Resource.create({"service.name": "zmtpsniff", "service.version": __version__})
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class _Mark(NamedTuple):
    """The ids that a message gives to its span, and to the trace if it is the first of its way."""

    trace_id: int
    span_id: int
    origin: tuple[int, int] | None  # the trace and span that its traceparent names


class Spans:
    """Makes spans of ways."""

    def __init__(self, processor: SpanProcessor) -> None:
        """``processor`` gets the spans of each way once it is over."""
        self._processor = processor
        self._ways = Ways(_mark, in_order=False)
        self._scope = InstrumentationScope("zmtpsniff", __version__)
        self._resources: dict[str, Resource] = {}

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Follow messages, and give out the spans of the ways that are over."""
        for way in self._ways.take(events):
            self._tell(way)

    def close(self) -> None:
        """Send the waiting spans. A span that the collector does not take in time is lost; that may raise Error."""
        for way in self._ways.finish():
            self._tell(way)
        self._processor.shutdown()

    def _tell(self, way: OpenWay) -> None:
        """Give out the spans of a way; there are none for what is pushed or published to one socket only."""
        if self._ways.record(way) is None or (way.kind != "request" and len(way.hops) < 2):
            return
        for span in self._spans(way):
            self._processor.on_end(span)

    def _spans(self, way: OpenWay) -> Iterator[ReadableSpan]:
        origin = next((hop.mark.origin for hop in way.hops if hop.mark.origin is not None), None)
        trace_id = way.first.mark.trace_id if origin is None else origin[0]
        terminus = self._ways.endings.ended(way)
        if terminus is not None and terminus.why == "capture-ended":
            terminus = None
        there = [hop for hop in way.hops if not hop.reply]
        contexts = {id(hop): _context(trace_id, hop.mark.span_id) for hop in there}
        outer = None if origin is None else _context(*origin, is_remote=True)
        asked, ends_ns = _pairs(way)

        def holder(hop: Hop | None) -> SpanContext | None:
            """The span of the request that a program works on, after it took a message."""
            while hop is not None and hop.reply:
                question = asked.get(id(hop))
                hop = None if question is None else question.before
            return outer if hop is None else contexts[id(hop)]

        for hop in there:
            lost = terminus if hop is there[-1] or hop is way.first else None
            yield self._span(
                f"{hop.stream.src_kind or way.kind} {self._name(hop.dst)}",
                contexts[id(hop)],
                holder(hop.before),
                self._name(hop.src),
                SpanKind.CLIENT if way.kind == "request" else SpanKind.PRODUCER,
                (hop.time_ns, ends_ns.get(id(hop), way.last_ns)),
                _attributes(hop),
                None if lost is None else Status(StatusCode.ERROR, f"{lost.why} at {lost.at}"),
            )
        for one in passages(way):
            yield self._span(
                f"inside {self._name(one.at)}",
                _context(trace_id, one.taken.mark.span_id ^ one.passed.mark.span_id >> 1),
                holder(one.taken),
                self._name(one.at),
                SpanKind.SERVER if way.kind == "request" else SpanKind.CONSUMER,
                (one.taken.time_ns, max(one.passed.time_ns, one.taken.time_ns)),
                {"zmtp.queue_ns": one.queue_ns, "zmtp.inside_ns": one.inside_ns, "zmtp.network_ns": one.network_ns},
                None,
            )

    def _span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        service: str,
        kind: SpanKind,
        times_ns: tuple[int, int],
        attributes: dict[str, str | int | bool],
        status: Status | None,
    ) -> ReadableSpan:
        resource = self._resources.get(service)
        if resource is None:
            if len(self._resources) >= _SERVICES:
                self._resources.clear()
            resource = self._resources[service] = _RESOURCE.merge(Resource({"service.name": service}))
        return ReadableSpan(
            name=name,
            context=context,
            parent=parent,
            resource=resource,
            attributes=attributes,
            kind=kind,
            instrumentation_scope=self._scope,
            status=status or Status(StatusCode.UNSET),
            start_time=times_ns[0],
            end_time=times_ns[1],
        )

    def _name(self, address: str) -> str:
        """The name of the program that has a socket: where it is bound, else its host."""
        sockets = self._ways.programs[address].sockets
        bound = min((port_of(one), one) for one in sockets)
        return bound[1] if 0 < bound[0] < FIRST_CLIENT_PORT else host_of(address)


def _mark(message: Message) -> _Mark:
    octets = [at_hand(frame) for frame in message.frames]
    place = f"{message.src} {message.dst} {message.offset} {message.part}"
    digest = blake2b(place.encode(), digest_size=24)
    origin = None
    for frame in octets:
        digest.update(frame)
        if origin is None and (found := TRACEPARENT.search(frame, 0, _SEARCHED)) is not None:
            origin = int(found[1], 16), int(found[2], 16)
    made = digest.digest()
    return _Mark(int.from_bytes(made[:16]), int.from_bytes(made[16:]), origin)


def _pairs(way: OpenWay) -> tuple[dict[int, Hop], dict[int, int]]:
    """The question of each reply, and the time of each question's reply, by the ids of their hops.

    A program may ask on one connection several times: a reply belongs to the last question before it.
    """
    questions: dict[int, Hop] = {}
    asked: dict[int, Hop] = {}
    ends_ns: dict[int, int] = {}
    for hop in way.hops:
        if not hop.reply:
            questions[hop.flow] = hop
        elif (question := questions.get(hop.flow)) is not None:
            asked[id(hop)] = question
            ends_ns.setdefault(id(question), hop.time_ns)
    return asked, ends_ns


def _context(trace_id: int, span_id: int, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=is_remote, trace_flags=_SAMPLED)


def _attributes(hop: Hop) -> dict[str, str | int | bool]:
    told: dict[str, str | int | bool] = {
        "messaging.system": "zeromq",
        "network.transport": "tcp",
        "server.address": host_of(hop.dst).strip("[]"),
        "client.address": host_of(hop.src).strip("[]"),
        "zmtp.socket_type": hop.stream.src_kind,
        "zmtp.flow": hop.flow,
        "zmtp.packet": hop.packet,
        "zmtp.part": hop.part,
        "zmtp.certain": hop.certain,
    }
    told |= {"server.port": port} if (port := port_of(hop.dst)) else {}
    told |= {"client.port": port} if (port := port_of(hop.src)) else {}
    return told | ({"zmtp.joined": hop.joined} if hop.joined is not None else {})


class _WaitingProcessor(SpanProcessor):
    """Sends spans and waits until the collector has them, where that of the SDK would drop what is too fast for it."""

    def __init__(self, exporter: SpanExporter, url: str) -> None:
        logging.getLogger(type(exporter).__module__).setLevel(logging.CRITICAL)  # shutdown() tells what is lost
        self._exporter = exporter
        self._url = url
        self._spans: list[ReadableSpan] = []
        self._lost = 0

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)
        if len(self._spans) >= _BATCH:
            self._send()

    def shutdown(self) -> None:
        """Send the rest. Raises Error if the collector did not take all."""
        self._send()
        self._exporter.shutdown()
        if self._lost:
            message = f"--otlp {self._url}: the collector did not take {plural(self._lost, 'span')}; is it running?"
            raise Error(message)

    def _send(self) -> None:
        # A collector that did not take the spans before is not waited for again.
        if self._lost or (self._spans and not self._are_taken()):
            self._lost += len(self._spans)
        self._spans.clear()

    def _are_taken(self) -> bool:
        try:
            return self._exporter.export(self._spans) is SpanExportResult.SUCCESS
        except OSError:  # nobody listens, as opentelemetry 1.35 says it
            return False


def make_spans(url: str, *, waits: bool = False) -> Spans:
    """Spans that go to an OTLP collector over HTTP; ``/v1/traces`` is added to a URL without a path. Raises Error.

    With ``waits`` no span is dropped because the collector is slow, which holds up a live capture.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Error(f"--otlp {url}: must be a URL: http://HOST:4318")
    endpoint = url if parts.path.strip("/") else f"{url.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint)
    return Spans(_WaitingProcessor(exporter, url) if waits else BatchSpanProcessor(exporter))
