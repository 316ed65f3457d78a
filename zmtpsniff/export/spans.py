"""Spans for OpenTelemetry: one for each request and its reply, as a child of the request that a proxy sent on."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from dissectors.address import host_of, port_of
from dissectors.events import AnyEvent, Message, Place
from dissectors.zmtp.sockets import REQUEST_REPLY
from zmtpsniff import __version__
from zmtpsniff.errors import Error

_MOST_REQUESTS = 65_536  # that wait for a reply; the oldest give way
_REQUESTERS = REQUEST_REPLY - {"REP"}
# Made now: it looks for installed packages, which may be out of reach once privileges have been given up.
_RESOURCE = Resource.create({"service.name": "zmtpsniff", "service.version": __version__})
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class _Request(NamedTuple):
    """A message that may get a reply."""

    context: SpanContext
    parent: SpanContext | None  # of the same request on its way to the proxy that sent it on
    socket_type: str


class Spans:
    """Makes spans of replies that name their request, and of the requests that they name."""

    def __init__(self, processor: SpanProcessor) -> None:
        """``processor`` gets each span once its reply has come."""
        self._processor = processor
        self._ids = RandomIdGenerator()
        self._scope = InstrumentationScope("zmtpsniff", __version__)
        self._requests: dict[Place, _Request] = {}

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Take note of requests, and give out the spans of those that have a reply."""
        for event in events:
            if type(event) is not Message:
                continue
            if (request := event.answers) is not None and event.latency_ns is not None:
                self._reply(event, request, event.latency_ns)
            if event.socket_type in _REQUESTERS:  # also what answers something may ask for more
                self._request(event)

    def close(self) -> None:
        """Send the waiting spans. Spans that a collector does not take within some seconds are lost."""
        self._processor.shutdown()

    def _request(self, message: Message) -> None:
        origin = self._find(message.forwards)
        trace = self._ids.generate_trace_id() if origin is None else origin.context.trace_id
        context = SpanContext(trace, self._ids.generate_span_id(), is_remote=False, trace_flags=_SAMPLED)
        parent = None if origin is None else origin.context
        self._requests[message.place] = _Request(context, parent, message.socket_type or "")
        if len(self._requests) > _MOST_REQUESTS:
            del self._requests[next(iter(self._requests))]

    def _find(self, place: Place | None) -> _Request | None:
        return None if place is None else self._requests.get(place)

    def _reply(self, reply: Message, place: Place, latency_ns: int) -> None:
        request = self._find(place)
        if request is None:
            return
        port, client_port = port_of(reply.src), port_of(reply.dst)
        attributes: dict[str, str | int] = {
            "messaging.system": "zeromq",
            "network.transport": "tcp",
            "server.address": host_of(reply.src).strip("[]"),
            "client.address": host_of(reply.dst).strip("[]"),
            "zmtp.request.socket_type": request.socket_type,
            "zmtp.reply.socket_type": reply.socket_type or "",
            "zmtp.flow": reply.flow,
            "zmtp.request.packet": place.packet,
            "zmtp.request.part": place.part,
            "zmtp.reply.packet": reply.packet,
            "zmtp.reply.part": reply.part,
        }
        attributes |= {"server.port": port} if port else {}
        attributes |= {"client.port": client_port} if client_port else {}
        span = ReadableSpan(
            name=f"{request.socket_type} {reply.src}",
            context=request.context,
            parent=request.parent,
            resource=_RESOURCE,
            attributes=attributes,
            kind=SpanKind.CLIENT,
            instrumentation_scope=self._scope,
            start_time=reply.time_ns - latency_ns,
            end_time=reply.time_ns,
        )
        self._processor.on_end(span)


def make_spans(url: str) -> Spans:
    """Spans that go to an OTLP collector over HTTP; ``/v1/traces`` is added to a URL without a path. Raises Error."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Error(f"--otlp {url}: must be a URL: http://HOST:4318")
    endpoint = url if parts.path.strip("/") else f"{url.rstrip('/')}/v1/traces"
    return Spans(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
