"""Results as sections with tables of text, for terminals and pages. All text from the wire is safe to show."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from dissectors.events import SEVERITIES, Severity
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.statistics.severities import Severities, worst
from zmtpsniff.analysis.statistics.stats_records import PEER_FIGURES, PeerFigure
from zmtpsniff.analysis.ways.way_records import Way, lasted_ns
from zmtpsniff.render.clock import Clock
from zmtpsniff.render.figures import figure, short
from zmtpsniff.render.way_ladder import way_words
from zmtpsniff.render.wording import kind_words, program, protocol
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
    ReportSilence,
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


_Cells = tuple[Cell, ...]
_Row = TypeVar("_Row")


class Section(NamedTuple):
    """A table."""

    name: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: list[_Cells]
    note: str


def headline(total: ReportTotal) -> list[str]:
    """All together, in lines."""
    lines = [f"{plural(total.files, 'file')}, {plural(total.packets, 'packet')}"]
    if total.start_ns is not None and total.end_ns is not None:
        lines[0] += f" from {moment(total.start_ns)} to {moment(total.end_ns)} (UTC)"
    if total.dropped:
        lines.append(f"{plural(total.dropped, 'packet')} lost while the files were written")
    if total.damaged:
        lines.append(f"{plural(total.damaged, 'file')} could not be read, or not to the end")
    encrypted = f" and {plural(total.encrypted, 'encrypted frame')}" if total.encrypted else ""
    lines.append(
        f"{plural(total.connections, 'connection')}, {plural(total.messages, 'message')}{encrypted}, "
        f"{plural(total.octets, 'octet')}, {plural(total.problems, 'problem')}"
    )
    return lines


def sections(results: Results, more: str = "…") -> list[Section]:
    """The sections that have rows. ``more`` marks the end of a topic that is cut."""
    figures = [one for one in PEER_FIGURES if any(getattr(row, one.field) for row in results.peers)]
    programs = any(row.process for row in results.peers)  # known of live traffic
    titles = ["Peer", "Of the socket", "Role", *["Program"] * programs, *(f">{one.title}" for one in figures)]

    def made(name: str, title: str, titles: str, rows: Sequence[_Row], cells: Callable[[_Row], _Cells]) -> Section:
        left = results.more(rows[0]) if rows else 0
        note = f"{more} and {left:,} more (--top)" if left else ""
        return Section(name, title, columns(titles), [cells(row) for row in rows], note)

    every = [
        made("findings", "Findings", "Finding|>Count|What|What to do|How it is known", results.findings, _finding),
        made("ways", "Slowest and lost", "Way|>Took|Most of its time, or its end|From|Begin|>Legs", results.ways, _way),
        made("pairs", "Who talks to whom",
             "Client|Server|Sockets|>Connections|>Open|>To server|>From server|>Octets|Problems", results.pairs, _pair),
        made("sockets", "Bound sockets", "Socket bound at|Type|Their types|Protocol|>Peers|>Open|>In|>Out",
             results.sockets, _socket),
        made("peers", "Work of each peer", "|".join(titles), results.peers, partial(_peer, figures, programs)),
        made("queues", "Queues",
             "Program that passes on|>Taken|>Passed on|>Ended there|>Queue at most|When|>In the end",
             results.queues, _queue),
        made("versions", "Versions and mechanisms", "Protocol|>Connections|First|Last",
             list(agreements(results.versions).values()), _version),
        made("topics", "Topics as published", "Topic|>Messages|>Octets", results.topics, partial(_topic, more)),
        made("subscriptions", "Topics as subscribed to", "Subscription|>Messages|>Octets|>Subscribers|>At most",
             results.subscriptions, partial(_subscription, more)),
        made("latency", "Replies", "Replies, by server|>Count|>Fastest|>p50|>p95|>p99|>Slowest",
             results.latencies, _latency),
        made("delays", "Network or service",
             "Seen at both ends, by server|>Count|>There p50|>p95|>Service p50|>p95|>Back p50|>p95",
             results.delays, _delay),
        made("storms", "Reconnect storms", "Client|Server|>Connections|Begin|>Lasted|Handshake",
             results.storms, _storm),
        made("problems", "Problems", "Host|Problem|>Count|First|What", results.problems, _problem),
        made("health", "Capture health",
             "Captures|>Files|>Damaged|>Packets|>Lost|First|Last|>Ended before others", results.series, _series),
        made("clocks", "Clocks", "Clock of|Compared with that of|>Ahead by|>Give or take|>Gains, in µs/s",
             results.clocks, _clock),
        made("files", "Files that could not be read", "File|Condition|Why", results.files, _file),
        made("silences", "Hosts that fell silent",
             "Host|>Messages|>Open connections|Last message|>Silent for|>Longest pause before",
             results.silences, _silence),
    ]  # fmt: skip
    return [section for section in every if section.rows]


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


def columns(titles: str) -> tuple[TableColumn, ...]:
    """Columns by their titles, with ``|`` between them; those of numbers begin with ``>``."""
    return tuple(TableColumn(title.lstrip(">"), title.startswith(">")) for title in titles.split("|"))


# ------------------------------------------------------------------ the cells of a row of each section


def _finding(row: Finding) -> _Cells:
    code = Cell(f"{row.severity} {escape(row.heading)}", severity=row.severity)
    packets = ", ".join(f"#{each.packet}" for each in row.evidence)
    known = escape(row.seen) + (f"; look at {packets}" if packets else "")
    return code, _count(row.count), _text(row.summary), _text(row.advice), Cell(known)


def _way(way: Way) -> _Cells:
    is_lost = way.ended is not None
    kind = Cell(f"{way.kind}, lost" if is_lost else way.kind, severity="error" if is_lost else None)
    took = _span(None if is_lost else lasted_ns(way))
    places = Cell("\n".join(way_words(way)[1:]))
    return kind, took, places, _text(way.legs[0].src), _time(way.time_ns), _count(len(way.legs))


def _pair(row: ReportPair) -> _Cells:
    kinds = Cell(f"{escape(row.client_socket_type or '?')} - {escape(row.server_socket_type or '?')}")
    counts = _counts(row.connections, row.open, row.messages_in, row.messages_out, row.octets_in + row.octets_out)
    client = row.client if row.client_program is None else f"{row.client} (bound to {row.client_program})"
    return _text(client), _service(row.server), kinds, *counts, _severities(row.problems)


def _socket(row: ReportSocket) -> _Cells:
    agreed = [protocol(name) for name in row.versions] + [", ".join(map(escape, row.mechanisms))]
    lines = (kind_words(row.socket_types), kind_words(row.peer_socket_types), filter(None, agreed))
    kinds = (Cell("\n".join(each)) for each in lines)
    return _service(row.address), *kinds, *_counts(row.connections, row.open, row.messages_in, row.messages_out)


def _peer(figures: Sequence[PeerFigure], programs: bool, row: ReportPeer) -> _Cells:
    values = [(getattr(row, one.field) or 0, one.kind) for one in figures]
    names = (_text(row.peer), _service(row.service), _text(row.role), *[Cell(program(row.process))] * programs)
    return *names, *(Cell(figure(value, kind), value) for value, kind in values)


def _queue(row: ReportQueue) -> _Cells:
    counts = _counts(row.taken, row.passed, row.ended, row.most)
    return _service(row.program), *counts, _time(row.most_ns), _count(row.left)


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


def _version(rows: list[ReportVersion]) -> _Cells:
    times = (_time(rows[0].start_ns), _time(rows[-1].start_ns))
    return Cell(agreement(rows[0])), _count(sum(row.connections for row in rows)), *times


def _topic(more: str, row: ReportTopic) -> _Cells:
    return Cell(quote(row.topic, _TOPIC_OCTETS, more)), *_counts(row.messages, row.octets)


def _subscription(more: str, row: ReportSubscription) -> _Cells:
    everything = " (everything)" if row.topic == b"" else ""
    counts = _counts(row.messages, row.octets, row.subscribers, row.subscribers_most)
    return Cell(quote(row.topic, _TOPIC_OCTETS, more) + everything), *counts


def _latency(row: ReportLatency) -> _Cells:
    shares = (row.p50_ns, row.p95_ns, row.p99_ns) if row.count >= MANY else (None, None, None)
    name = Cell("all") if row.service is None else _service(row.service)
    return name, _count(row.count), *map(_span, (row.min_ns, *shares, row.max_ns))


def _delay(row: ReportDelay) -> _Cells:
    times = (row.there_p50_ns, row.there_p95_ns, row.service_p50_ns, row.service_p95_ns, row.back_p50_ns)
    return _service(row.service), _count(row.count), *map(_span, (*times, row.back_p95_ns))


def _storm(row: ReportStorm) -> _Cells:
    times = (_time(row.start_ns), _span(row.end_ns - row.start_ns))
    handshake = Cell((row.handshake or "").replace("-", " "))
    return _text(row.client), _service(row.server), _count(row.connections), *times, handshake


def _problem(row: ReportProblem) -> _Cells:
    first = "" if row.time_ns is None else moment(row.time_ns)
    place = "" if row.file is None else escape(row.file.rpartition("/")[2])
    if row.packet is not None:
        place = f"{place} #{row.packet}".strip()
    lines = Cell("\n".join(filter(None, (first, place))), row.time_ns or 0)
    code = Cell(f"{row.severity} {escape(row.code)}", severity=row.severity)
    return _text(row.host), code, _count(row.count), lines, _text(row.detail)


def _series(row: ReportSeries) -> _Cells:
    counts = _counts(row.files, row.damaged, row.packets, row.dropped)
    return _text(row.series), *counts, _time(row.start_ns), _time(row.end_ns), _span(row.silent_ns)


def _clock(row: ReportClock) -> _Cells:
    times = (_span(row.difference_ns), _span(row.uncertainty_ns))
    return _text(row.other), _text(row.one), *times, Cell(f"{row.drift_ppm:.3g}", row.drift_ppm)


def _file(row: ReportFile) -> _Cells:
    return _text(row.file), _text(row.condition), _text(row.error)


def _silence(row: ReportSilence) -> _Cells:
    times = (_time(row.last_ns), _span(row.silent_ns), _span(row.longest_ns))
    return _text(row.host), *_counts(row.messages, row.open), *times
