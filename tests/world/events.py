"""The events of octets that two sides send, and of packets; the rules that the events of any capture keep."""

from collections.abc import Iterable, Sequence
from typing import Any

from dissectors.events import AnyEvent, Capture, Command, Comment, Connection, Message, Octets, Problem, Work
from dissectors.records import record_fields
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.limits import Limits
from tests.support.settings import WIRE
from tests.world.tap import Packets
from zmtpsniff.capture.block import Packet
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Sniffer

CLIENT, SERVER = "10.0.0.1:40000", "10.0.0.2:5555"
Said = tuple[int, bytes | int | None]
"""A side, and its octets; or how many of them the capture lacks; None: it has nothing of that side."""


def dissect(
    sent: Iterable[Said],
    end: str = "fin",
    limits: Limits | None = None,
    forced: int | None = None,
    from_start: bool | tuple[bool, bool] = True,
) -> list[AnyEvent]:
    """The events of a connection in which the sides send these octets in this order."""
    out: list[AnyEvent] = []
    starts = from_start if isinstance(from_start, tuple) else (from_start, from_start)
    connection = ZmtpConnection(out, 1, CLIENT, SERVER, starts, limits, forced)
    number = 0
    for number, (side, said) in enumerate(sent, 1):
        half, place = connection.halves[side], (number * 1000, number)
        if connection.rejected:
            break
        if said is None:
            half.absent(*place)
        elif isinstance(said, int):
            half.gap(said, False, *place)
        else:
            half.feed(said, *place)
    connection.finish(end, 0, number * 1000)  # type: ignore[arg-type]
    return out


def problems(events: list[AnyEvent]) -> list[str]:
    return [event.code for event in events if isinstance(event, Problem)]


def frames_of(events: Iterable[AnyEvent]) -> list[list[Octets]]:
    """The frames of each message."""
    return [event.frames for event in events if isinstance(event, Message)]


def summary(events: Sequence[AnyEvent]) -> Connection:
    """The record of a connection, which is the last."""
    last = events[-1]
    assert isinstance(last, Connection)
    return last


def events_of(given: Sequence[Packet], settings: Settings, batch: int = 100) -> list[AnyEvent]:
    """All events of these packets, dissected so."""
    return [event for some in Sniffer(Packets(given, batch), settings).events() for event in some]


def sniff(given: Sequence[Packet], batch: int = 100, settings: Settings = WIRE) -> list[AnyEvent]:
    """The same, which are also held against what every output must keep to."""
    events = events_of(given, settings, batch)
    check_records(events, given)
    return events


def check_records(events: Sequence[AnyEvent], given: Sequence[Packet]) -> None:
    """The rules of records that hold for any capture."""
    last: dict[tuple[int, str], int] = {}
    count: dict[tuple[int, str], int] = {}
    ended = set()
    for event in events:
        if isinstance(event, Connection):
            assert event.flow not in ended
            ended.add(event.flow)
            for side, number in ((event.client, event.messages.client), (event.server, event.messages.server)):
                assert number == count.pop((event.flow, side.address), 0)
            assert event.start_ns <= event.end_ns
            continue
        if isinstance(event, Capture | Comment | Work):
            continue
        if event.packet is not None:
            assert 1 <= event.packet <= len(given)
            assert event.time_ns == given[event.packet - 1][0], "time_ns is not that of the packet"
        if event.flow is None:
            continue
        # That a message never came is known once the capture is over.
        assert isinstance(event, Problem) or event.flow not in ended, "a record after the connection record"
        assert event.src is not None
        assert event.packet is not None
        key = event.flow, event.src
        if not isinstance(event, Problem):
            assert event.packet >= last.get(key, 1), "the records of a sender are not in order"
            last[key] = event.packet
        if isinstance(event, Message | Command):
            assert (event.latency_ns or 0) >= 0
        if isinstance(event, Message):
            count[key] = count.get(key, 0) + 1
    assert not count, "records of a flow without a connection record"
    total = events[-1]
    assert isinstance(total, Capture)
    assert total.packets == len(given)
    assert total.messages == sum(isinstance(event, Message) for event in events)
    assert total.problems == sum(isinstance(event, Problem) for event in events)
    assert total.zmtp_flows == len(ended) <= total.flows


def _bare(event: AnyEvent) -> tuple[Any, ...]:
    fields = {field.name: getattr(event, field.name) for field in record_fields(type(event))}
    for name in ("time_ns", "packet", "part", "flow", "src", "dst", "start_ns", "end_ns"):
        fields.pop(name, None)
    return (type(event).__name__, *fields.items())


def told(events: Iterable[AnyEvent]) -> dict[str, list[tuple[Any, ...]]]:
    """The events of each sender, without times and numbers, and the connection record."""
    out: dict[str, list[tuple[Any, ...]]] = {}
    for event in events:
        if isinstance(event, Connection):
            out.setdefault("connection", []).append(_bare(event))
        elif not isinstance(event, (Capture, Comment, Problem, Work)):
            out.setdefault(event.src, []).append(_bare(event))
    return out


def complaints(events: Iterable[AnyEvent]) -> list[tuple[str, str]]:
    """The errors and warnings."""
    return sorted({(e.severity, e.code) for e in events if isinstance(e, Problem) and e.severity != "note"})


def whole_messages(events: Iterable[AnyEvent]) -> dict[str, list[list[Any]]]:
    """The frames of each sender's messages that are not marked as incomplete."""
    out: dict[str, list[list[Any]]] = {}
    for event in events:
        if isinstance(event, Message) and not event.incomplete:
            out.setdefault(event.src, []).append(event.frames)
    return out


def is_subsequence(part: Iterable[Any], whole: Iterable[Any]) -> bool:
    rest = iter(whole)
    return all(any(one == other for other in rest) for one in part)
