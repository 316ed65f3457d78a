"""Records as sections with tables of text, for terminals and pages alike: all that is of the wire is safe to show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zmtpsniff.render.clock import Clock
from zmtpsniff.render.figures import brief, short
from zmtpsniff.render.text import escape, quote
from zmtpsniff.render.wording import number, protocol
from zmtpsniff.spark.report.records import (
    AnyRecord,
    CutRow,
    LatencyRow,
    PairRow,
    ProblemRow,
    Record,
    SocketRow,
    StormRow,
    TopicRow,
    TotalRow,
    VersionRow,
)

_TOPIC_OCTETS = 48
_SERVICE_HOURS = 24  # of each service, the last ones
_CLOCK = Clock(utc=True)


@dataclass
class Section:
    """A table; titles of columns with numbers begin with ``>``, cells may have several lines."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    note: str = ""


def headline(total: TotalRow) -> list[str]:
    """All together, in lines."""
    lines = [f"{number(total.files, 'file')}, {number(total.packets, 'packet')}"]
    if total.start_ns is not None and total.end_ns is not None:
        lines[0] += f" from {moment(total.start_ns)} to {moment(total.end_ns)} (UTC)"
    if total.dropped:
        lines.append(f"{number(total.dropped, 'packet')} lost while the files were written")
    encrypted = f" and {total.encrypted:,} encrypted" if total.encrypted else ""
    lines.append(
        f"{number(total.connections, 'connection')}, {number(total.messages, 'message')}{encrypted}, "
        f"{number(total.octets, 'octet')}, {number(total.problems, 'problem')}"
    )
    return lines


def sections(records: Sequence[AnyRecord], more: str = "…") -> list[Section]:
    """The sections that there is something to tell of; ``more`` is put where a topic is cut."""
    cuts = {record.of: record.more for record in records if isinstance(record, CutRow)}
    found = []
    for kind, make in _SECTIONS.items():
        rows: list[Any] = [record for record in records if type(record) is kind]
        if not rows:
            continue
        section = make(rows, more)
        if left := cuts.get(str(kind.__struct_config__.tag)):
            section.note = f"{more} and {left:,} more (--top)"
        found.append(section)
        if kind is LatencyRow and len({row.hour_ns for row in rows}) > 2:  # more than one hour, and all together
            found.append(_hours(rows))
    return found


def moment(time_ns: int) -> str:
    """A time in UTC to the second, as in ``2026-11-21 14:00:05``."""
    time = _CLOCK.time(time_ns)
    return f"{_CLOCK.date.removesuffix(' UTC')} {time[:8]}"


def _pairs(rows: list[PairRow], more: str) -> Section:
    titles = ("Client", "Server", "Sockets", ">Connections", ">Open", ">To server", ">From server", ">Octets")
    section = Section("pairs", "Who talks to whom", titles)
    for row in rows:
        kinds = f"{escape(row.client_socket_type or '?')} - {escape(row.server_socket_type or '?')}"
        counts = (row.connections, row.open, row.messages_in, row.messages_out, row.octets_in + row.octets_out)
        section.rows.append((escape(row.client), escape(row.server), kinds, *map(short, counts)))
    return section


def _sockets(rows: list[SocketRow], more: str) -> Section:
    titles = ("Socket bound at", "Type", "Their types", "Protocol", ">Peers", ">Open", ">In", ">Out")
    section = Section("sockets", "Bound sockets", titles)
    for row in rows:
        agreed = [protocol(name) for name in row.versions] + [", ".join(map(escape, row.mechanisms))]
        counts = (row.connections, row.open, row.messages_in, row.messages_out)
        kinds = (_kinds(row.socket_types), _kinds(row.peer_socket_types))
        section.rows.append((escape(row.address), *kinds, "\n".join(filter(None, agreed)), *map(short, counts)))
    return section


def _kinds(counts: dict[str, int]) -> str:
    if len(counts) < 2:
        return "\n".join(map(escape, counts))
    return "\n".join(f"{escape(name)} {count:,}" for name, count in counts.items())


def agreement(row: VersionRow) -> str:
    """A version with its mechanism, as in ``ZMTP 3.1 NULL``."""
    return (
        f"{protocol(row.version) if row.version is not None else 'none agreed'} {escape(row.mechanism or '')}".strip()
    )


def _versions(rows: list[VersionRow], more: str) -> Section:
    section = Section("versions", "Versions and mechanisms", ("Protocol", ">Connections", "First", "Last"))
    kinds: dict[str, list[VersionRow]] = {}
    for row in rows:
        kinds.setdefault(agreement(row), []).append(row)
    for name, found in sorted(kinds.items(), key=lambda item: -sum(row.connections for row in item[1])):
        times = (moment(found[0].start_ns), moment(found[-1].start_ns))
        section.rows.append((name, short(sum(row.connections for row in found)), *times))
    return section


def _topics(rows: list[TopicRow], more: str) -> Section:
    section = Section("topics", "Topics", ("Topic", ">Messages", ">Octets", ">Subscribers", ">At most"))
    for row in rows:
        counts = (row.messages, row.octets, row.subscribers, row.subscribers_most)
        everything = " (everything)" if row.topic == b"" else ""
        section.rows.append((quote(row.topic, _TOPIC_OCTETS, more) + everything, *map(short, counts)))
    return section


def _latencies(rows: list[LatencyRow], more: str) -> Section:
    section = Section("latency", "Replies", ("Replies, by server", *_TIMES))
    for row in rows:
        if row.hour_ns is None:
            section.rows.append(("all" if row.service is None else escape(row.service), *_times(row)))
    return section


def _hours(rows: list[LatencyRow]) -> Section:
    """The latencies of each service by hour: those of its last hours."""
    section = Section("hours", "Replies by hour", ("Replies, by server", "Hour", *_TIMES))
    of_hours: dict[str, list[LatencyRow]] = {}
    for row in rows:
        if row.hour_ns is not None and row.service is not None:
            of_hours.setdefault(row.service, []).append(row)
    for service, found in of_hours.items():
        name = escape(service)
        for row in found[-_SERVICE_HOURS:]:
            section.rows.append((name, moment(row.hour_ns or 0)[:16], *_times(row)))
            name = ""
    return section


_TIMES = (">Count", ">Fastest", ">p50", ">p95", ">p99", ">Slowest")


def _times(row: LatencyRow) -> tuple[str, ...]:
    return short(row.count), *map(brief, (row.min_ns, row.p50_ns, row.p95_ns, row.p99_ns, row.max_ns))


def _storms(rows: list[StormRow], more: str) -> Section:
    titles = ("Client", "Server", ">Connections", "Begin", ">Lasted", "Handshake")
    section = Section("storms", "Reconnect storms", titles)
    for row in rows:
        lasted = brief(row.end_ns - row.start_ns)
        handshake = (row.handshake or "").replace("-", " ")
        ends = (escape(row.client), escape(row.server))
        section.rows.append((*ends, short(row.connections), moment(row.start_ns), lasted, handshake))
    return section


def _problems(rows: list[ProblemRow], more: str) -> Section:
    section = Section("problems", "Problems", ("Host", "Problem", ">Count", "First", "What"))
    for row in rows:
        first = "" if row.time_ns is None else moment(row.time_ns)
        if row.file is not None:
            place = escape(row.file.rpartition("/")[2])
            first += f"\n{place}" + (f" #{row.packet}" if row.packet is not None else "")
        code = f"{row.severity} {row.code}"
        section.rows.append((escape(row.host or ""), code, short(row.count), first.strip("\n"), escape(row.detail)))
    return section


_SECTIONS: dict[type[Record], Callable[[list[Any], str], Section]] = {
    PairRow: _pairs,
    SocketRow: _sockets,
    VersionRow: _versions,
    TopicRow: _topics,
    LatencyRow: _latencies,
    StormRow: _storms,
    ProblemRow: _problems,
}
