"""Results as sections with tables of text, for terminals and pages. All text from the wire is safe to show."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dissectors.events import SEVERITIES, Severity
from zmtpsniff.analysis.statistics.records import PEER_FIGURES, Record
from zmtpsniff.analysis.statistics.severities import Severities, worst
from zmtpsniff.analysis.ways.records import lasted_ns
from zmtpsniff.render.clock import Clock
from zmtpsniff.render.figures import figure, short
from zmtpsniff.render.way_ladder import way_words
from zmtpsniff.render.wording import program, protocol
from zmtpsniff.report.results import (
    ReportClock,
    ReportDelay,
    ReportFile,
    ReportLatency,
    ReportPair,
    ReportPeer,
    ReportProblem,
    ReportQueue,
    ReportSeries,
    ReportSocket,
    ReportStorm,
    ReportSubscription,
    ReportTopic,
    ReportTotal,
    ReportVersion,
    Results,
)
from zmtpsniff.words.counts import MANY, plural
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import escape, quote

_TOPIC_OCTETS = 48
_RANK = 1 << 40  # more than there are problems
_CLOCK = Clock(utc=True)


class TableColumn(NamedTuple):
    """A column by its title."""

    title: str
    is_number: bool = False


class Cell(NamedTuple):
    """A cell; its text may have several lines."""

    text: str
    value: float | None = None  # that rows are sorted by; None: by the text
    service: str | None = None  # the bound address that it names
    severity: Severity | None = None


@dataclass
class Section:
    """A table."""

    name: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    note: str = ""


def headline(total: ReportTotal) -> list[str]:
    """All together, in lines."""
    lines = [f"{plural(total.files, 'file')}, {plural(total.packets, 'packet')}"]
    if total.start_ns is not None and total.end_ns is not None:
        lines[0] += f" from {moment(total.start_ns)} to {moment(total.end_ns)} (UTC)"
    if total.dropped:
        lines.append(f"{plural(total.dropped, 'packet')} lost while the files were written")
    if total.damaged:
        lines.append(f"{plural(total.damaged, 'file')} could not be read, or not to the end")
    encrypted = f" and {total.encrypted:,} encrypted" if total.encrypted else ""
    lines.append(
        f"{plural(total.connections, 'connection')}, {plural(total.messages, 'message')}{encrypted}, "
        f"{plural(total.octets, 'octet')}, {plural(total.problems, 'problem')}"
    )
    return lines


def sections(results: Results, more: str = "…") -> list[Section]:
    """The sections that have rows. ``more`` marks the end of a topic that is cut."""
    made = [
        _findings(results),
        _ways(results),
        _pairs(results, more),
        _sockets(results, more),
        _peers(results, more),
        _queues(results, more),
        _versions(results),
        _topics(results, more),
        _subscriptions(results, more),
        _latencies(results, more),
        _delays(results, more),
        _storms(results, more),
        _problems(results, more),
        _series(results, more),
        _clocks(results, more),
        _files(results, more),
        _silences(results),
    ]
    return [section for section in made if section.rows]


def moment(time_ns: int) -> str:
    """A time in UTC to the second, as in ``2026-11-21 14:00:05``."""
    time = _CLOCK.time(time_ns)
    return f"{_CLOCK.date.removesuffix(' UTC')} {time[:8]}"


# ------------------------------------------------------------------ cells


def _text(text: str | None) -> Cell:
    return Cell(escape(text or ""))


def _service(address: str) -> Cell:
    return Cell(escape(address), service=address)


def _count(count: int) -> Cell:
    return Cell(short(count), count)


def _time(time_ns: int | None) -> Cell:
    return Cell("", 0) if time_ns is None else Cell(moment(time_ns), time_ns)


def _span(length_ns: int | None) -> Cell:
    return Cell("", 0) if length_ns is None else Cell(brief(length_ns), length_ns)


def _counts(*counts: int) -> tuple[Cell, ...]:
    return tuple(map(_count, counts))


def severity_words(problems: Severities) -> str:
    """Numbers of problems, as in ``2 errors, 1 warning``; without any of them empty."""
    return ", ".join(plural(problems[severity], severity) for severity in SEVERITIES if problems.get(severity))


def _severities(problems: Severities) -> Cell:
    severity = worst(problems)
    rank = 0 if severity is None else len(SEVERITIES) - SEVERITIES.index(severity)
    weight = rank * _RANK + (problems[severity] if severity else 0)
    return Cell(severity_words(problems), weight, None, severity)


def columns(*titles: str) -> tuple[TableColumn, ...]:
    """Columns by their titles; those of numbers begin with ``>``."""
    return tuple(TableColumn(title.lstrip(">"), title.startswith(">")) for title in titles)


def _left_out(results: Results, kind: type[Record], more: str) -> str:
    left = results.more(kind)
    return f"{more} and {left:,} more (--top)" if left else ""


# ------------------------------------------------------------------ a section each


def _findings(results: Results) -> Section:
    section = Section("findings", "Findings", columns("Finding", ">Count", "What", "What to do", "How it is known"))
    for row in results.findings:
        certainty = "" if row.certainty == "certain" else f" ({row.certainty})"
        code = Cell(f"{row.severity} {escape(row.name)}{certainty}", severity=row.severity)
        packets = ", ".join(f"#{each.packet}" for each in row.evidence)
        known = escape(row.seen) + (f"; look at {packets}" if packets else "")
        section.rows.append((code, _count(row.count), _text(row.summary), _text(row.advice), Cell(known)))
    return section


def _ways(results: Results) -> Section:
    titles = columns("Way", "Begin", ">Took", ">Legs", "From", "Most of its time, or its end")
    section = Section("ways", "Slowest and lost", titles)
    for way in results.ways:
        is_lost = way.ended is not None
        kind = Cell(f"{way.kind}, lost" if is_lost else way.kind, severity="error" if is_lost else None)
        took = _span(None if is_lost else lasted_ns(way))
        places = Cell("\n".join(way_words(way)[1:]))
        section.rows.append((kind, _time(way.time_ns), took, _count(len(way.legs)), _text(way.legs[0].src), places))
    return section


def _pairs(results: Results, more: str) -> Section:
    titles = columns(
        "Client", "Server", "Sockets", ">Connections", ">Open", ">To server", ">From server", ">Octets", "Problems"
    )
    section = Section("pairs", "Who talks to whom", titles, note=_left_out(results, ReportPair, more))
    for row in results.pairs:
        kinds = Cell(f"{escape(row.client_socket_type or '?')} - {escape(row.server_socket_type or '?')}")
        counts = _counts(row.connections, row.open, row.messages_in, row.messages_out, row.octets_in + row.octets_out)
        client = row.client if row.client_program is None else f"{row.client} (bound to {row.client_program})"
        section.rows.append((_text(client), _service(row.server), kinds, *counts, _severities(row.problems)))
    return section


def _sockets(results: Results, more: str) -> Section:
    titles = columns("Socket bound at", "Type", "Their types", "Protocol", ">Peers", ">Open", ">In", ">Out")
    section = Section("sockets", "Bound sockets", titles, note=_left_out(results, ReportSocket, more))
    for row in results.sockets:
        agreed = [protocol(name) for name in row.versions] + [", ".join(map(escape, row.mechanisms))]
        kinds = (_kinds(row.socket_types), _kinds(row.peer_socket_types), Cell("\n".join(filter(None, agreed))))
        counts = _counts(row.connections, row.open, row.messages_in, row.messages_out)
        section.rows.append((_service(row.address), *kinds, *counts))
    return section


def _peers(results: Results, more: str) -> Section:
    figures = [one for one in PEER_FIGURES if any(getattr(row, one.field) for row in results.peers)]
    titles = columns("Peer", "Of the socket", "Role", "Program", *(f">{one.title}" for one in figures))
    section = Section("peers", "Work of each peer", titles, note=_left_out(results, ReportPeer, more))
    for row in results.peers:
        values = [(getattr(row, one.field) or 0, one.kind) for one in figures]
        names = (_text(row.peer), _service(row.service), _text(row.role), Cell(program(row.process)))
        section.rows.append((*names, *(Cell(figure(value, kind), value) for value, kind in values)))
    return section


def _queues(results: Results, more: str) -> Section:
    names = ("Program that passes on", ">Taken", ">Passed on", ">Ended there", ">Queue at most", "When", ">In the end")
    titles = columns(*names)
    section = Section("queues", "Queues", titles, note=_left_out(results, ReportQueue, more))
    for row in results.queues:
        counts = _counts(row.taken, row.passed, row.ended, row.most)
        section.rows.append((_service(row.program), *counts, _time(row.most_ns), _count(row.left)))
    return section


def _kinds(counts: dict[str, int]) -> Cell:
    if len(counts) < 2:
        return Cell("\n".join(map(escape, counts)))
    return Cell("\n".join(f"{escape(name)} {count:,}" for name, count in counts.items()))


def agreement(row: ReportVersion) -> str:
    """A version with its mechanism, as in ``ZMTP 3.1 NULL``."""
    return (
        f"{protocol(row.version) if row.version is not None else 'none agreed'} {escape(row.mechanism or '')}".strip()
    )


def agreements(rows: Iterable[ReportVersion]) -> dict[str, list[ReportVersion]]:
    """The rows of each version with its mechanism, the one with the most connections first."""
    kinds: dict[str, list[ReportVersion]] = {}
    for row in rows:
        kinds.setdefault(agreement(row), []).append(row)
    return dict(sorted(kinds.items(), key=lambda item: -sum(row.connections for row in item[1])))


def _versions(results: Results) -> Section:
    section = Section("versions", "Versions and mechanisms", columns("Protocol", ">Connections", "First", "Last"))
    for name, found in agreements(results.versions).items():
        times = (_time(found[0].start_ns), _time(found[-1].start_ns))
        section.rows.append((Cell(name), _count(sum(row.connections for row in found)), *times))
    return section


def _topics(results: Results, more: str) -> Section:
    titles = columns("Topic", ">Messages", ">Octets")
    section = Section("topics", "Topics as published", titles, note=_left_out(results, ReportTopic, more))
    for row in results.topics:
        section.rows.append((Cell(quote(row.topic, _TOPIC_OCTETS, more)), *_counts(row.messages, row.octets)))
    return section


def _subscriptions(results: Results, more: str) -> Section:
    titles = columns("Subscription", ">Messages", ">Octets", ">Subscribers", ">At most")
    section = Section(
        "subscriptions", "Topics as subscribed to", titles, note=_left_out(results, ReportSubscription, more)
    )
    for row in results.subscriptions:
        everything = " (everything)" if row.topic == b"" else ""
        counts = _counts(row.messages, row.octets, row.subscribers, row.subscribers_most)
        section.rows.append((Cell(quote(row.topic, _TOPIC_OCTETS, more) + everything), *counts))
    return section


def _latencies(results: Results, more: str) -> Section:
    titles = columns("Replies, by server", ">Count", ">Fastest", ">p50", ">p95", ">p99", ">Slowest")
    section = Section("latency", "Replies", titles, note=_left_out(results, ReportLatency, more))
    for row in results.latencies:
        shares = (row.p50_ns, row.p95_ns, row.p99_ns) if row.count >= MANY else (None, None, None)
        times = map(_span, (row.min_ns, *shares, row.max_ns))
        name = Cell("all") if row.service is None else _service(row.service)
        section.rows.append((name, _count(row.count), *times))
    return section


def _delays(results: Results, more: str) -> Section:
    titles = columns(
        "Seen at both ends, by server", ">Count", ">There p50", ">p95", ">Service p50", ">p95", ">Back p50", ">p95"
    )
    note = _left_out(results, ReportDelay, more)
    section = Section("delays", "Network or service", titles, note=note)
    for row in results.delays:
        times = (row.there_p50_ns, row.there_p95_ns, row.service_p50_ns, row.service_p95_ns, row.back_p50_ns)
        section.rows.append((_service(row.service), _count(row.count), *map(_span, (*times, row.back_p95_ns))))
    return section


def _storms(results: Results, more: str) -> Section:
    titles = columns("Client", "Server", ">Connections", "Begin", ">Lasted", "Handshake")
    section = Section("storms", "Reconnect storms", titles, note=_left_out(results, ReportStorm, more))
    for row in results.storms:
        times = (_time(row.start_ns), _span(row.end_ns - row.start_ns))
        handshake = Cell((row.handshake or "").replace("-", " "))
        section.rows.append((_text(row.client), _service(row.server), _count(row.connections), *times, handshake))
    return section


def _problems(results: Results, more: str) -> Section:
    titles = columns("Host", "Problem", ">Count", "First", "What")
    section = Section("problems", "Problems", titles, note=_left_out(results, ReportProblem, more))
    for row in results.problems:
        first = "" if row.time_ns is None else moment(row.time_ns)
        place = "" if row.file is None else escape(row.file.rpartition("/")[2])
        if row.packet is not None:
            place = f"{place} #{row.packet}".strip()
        lines = Cell("\n".join(filter(None, (first, place))), row.time_ns or 0)
        code = Cell(f"{row.severity} {escape(row.code)}", severity=row.severity)
        section.rows.append((_text(row.host), code, _count(row.count), lines, _text(row.detail)))
    return section


def _series(results: Results, more: str) -> Section:
    titles = columns("Captures", ">Files", ">Damaged", ">Packets", ">Lost", "First", "Last", ">Ended before others")
    section = Section("health", "Capture health", titles, note=_left_out(results, ReportSeries, more))
    for row in results.series:
        counts = _counts(row.files, row.damaged, row.packets, row.dropped)
        times = (_time(row.start_ns), _time(row.end_ns), _span(row.silent_ns))
        section.rows.append((_text(row.series), *counts, *times))
    return section


def _clocks(results: Results, more: str) -> Section:
    titles = columns("Clock of", "Compared with that of", ">Ahead by", ">Give or take", ">Gains, in µs/s")
    section = Section("clocks", "Clocks", titles, note=_left_out(results, ReportClock, more))
    for row in results.clocks:
        times = (_span(row.difference_ns), _span(row.uncertainty_ns))
        section.rows.append((_text(row.other), _text(row.one), *times, Cell(f"{row.drift_ppm:.3g}", row.drift_ppm)))
    return section


def _files(results: Results, more: str) -> Section:
    titles = columns("File", "Condition", "Why")
    section = Section("files", "Files that could not be read", titles, note=_left_out(results, ReportFile, more))
    section.rows = [(_text(row.file), _text(row.condition), _text(row.error)) for row in results.files]
    return section


def _silences(results: Results) -> Section:
    titles = columns("Host", ">Messages", ">Open connections", "Last message", ">Silent for", ">Longest pause before")
    section = Section("silences", "Hosts that fell silent", titles)
    for row in results.silences:
        times = (_time(row.last_ns), _span(row.silent_ns), _span(row.longest_ns))
        section.rows.append((_text(row.host), *_counts(row.messages, row.open), *times))
    return section
