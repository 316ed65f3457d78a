"""The data that the page's scripts draw, as plain lists: numbers, and text that is safe to show."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dissectors.address import host_of, is_loopback
from dissectors.events import SEVERITIES
from dissectors.zmtp.sockets import RECEIVERS
from zmtpsniff.analysis.statistics.count_rows import NUMBERS
from zmtpsniff.analysis.statistics.severities import Severities, add_severities, worst
from zmtpsniff.analysis.ways.way_records import Way, lasted_ns
from zmtpsniff.render.wording import place_words
from zmtpsniff.report.results import ReportPair, ReportReplies, ReportTimeline, ReportVersion, Results
from zmtpsniff.report.sections import agreements, severity_words
from zmtpsniff.report.waterfalls import joint_words
from zmtpsniff.words.text import escape, quote

_NODES = 40  # that only ask, and as many that are asked
_STACKED = 8  # services
_BARS = 15
_LABEL = 60  # octets
_MS = 1_000_000

Chart = dict[str, Any]


def charts(results: Results) -> dict[str, Chart]:
    """The data of each chart that there is something to draw of, by its name; times in milliseconds."""
    made = {
        "ways": _waterfalls(results.ways),
        "topology": _topology(results.pairs),
        "rates": _rates(results),
        "replies": _replies(results),
        "topics": _topics(results),
        "versions": _versions(results),
        "problems": _problems(results),
    }
    return {name: data for name, data in made.items() if data}


# ------------------------------------------------------------------ the ways of messages


def _waterfalls(ways: list[Way]) -> Chart:
    """Of each way a bar for each message: how long its receiver had it. Times are since the beginning of the way."""
    return {"ways": [_waterfall(way) for way in ways]} if ways else {}


def _waterfall(way: Way) -> Chart:
    starts = [leg.time_ns - way.time_ns for leg in way.legs]
    ends = [_passed_ns(way, place) - way.time_ns for place in range(len(starts))]
    whole = max(lasted_ns(way), *ends, 1)
    if way.ended is not None:
        whole = ends[-1] = starts[-1] + max(whole // 4, 1_000_000)  # it may be there for ever
    lengths = [max(end - start, 0) for start, end in zip(starts, ends, strict=True)]
    at = None if way.slowest is None else way.slowest.at
    places = (place for place, leg in enumerate(way.legs) if leg.dst == at)
    slowest = max(places, key=lengths.__getitem__, default=None)
    rows = []
    for place, leg in enumerate(way.legs):
        kind = "reply" if leg.reply else "request"
        if place == slowest:
            kind = "slowest"
        if way.ended is not None and place == len(lengths) - 1:
            kind = "ended"
        rows.append(
            [escape(leg.dst), starts[place], lengths[place], kind, place_words(leg.packet, leg.part), joint_words(leg)]
        )
    return {"whole": whole, "rows": rows}


def _passed_ns(way: Way, place: int) -> int:
    """When the receiver of a message passed it on, or answered; when the message came if nothing is known of that."""
    leg, later = way.legs[place], way.legs[place + 1 :]
    if way.kind != "publication":
        return later[0].time_ns if later else leg.time_ns
    return max((one.time_ns for one in later if host_of(one.src) == host_of(leg.dst)), default=leg.time_ns)


# ------------------------------------------------------------------ who talks to whom


def _topology(pairs: list[ReportPair]) -> Chart:
    """Programs and hosts from left to right: whoever asks stands left of the one that is asked."""
    if not pairs:
        return {}
    clients: Counter[str] = Counter()
    services: Counter[str] = Counter()
    for pair in pairs:
        weight = 1 + pair.messages_in + pair.messages_out + 100 * (worst(pair.problems) in ("error", "warning"))
        clients[_client(pair)] += weight
        services[_server(pair)] += weight
    for name in services:
        clients.pop(name, None)
    kept = {name for counts in (clients, services) for name, _ in counts.most_common(_most(counts))}
    others = {False: f"{len(clients) - _most(clients):,} others", True: f"{len(services) - _most(services):,} others"}

    def node(name: str) -> tuple[str, bool]:
        is_service = name in services
        return (name if name in kept else others[is_service], is_service)

    links: dict[tuple[tuple[str, bool], tuple[str, bool]], ReportPair] = {}
    for pair in pairs:
        ends = node(_client(pair)), node(_server(pair))
        if _server_asks(pair):
            ends = ends[1], ends[0]
        known = links.get(ends)
        links[ends] = pair if known is None else _joined(known, pair)
    levels = _levels(links)
    places = {name: place for place, name in enumerate(_in_rows(levels, links))}
    return {
        "nodes": [[escape(name), levels[name, is_service], int(is_service)] for name, is_service in places],
        "links": [
            [
                places[one],
                places[other],
                pair.messages_in,
                pair.messages_out,
                pair.octets_in + pair.octets_out,
                pair.connections,
                worst(pair.problems) or "",
                severity_words(pair.problems),
                f"{escape(pair.client_socket_type or '?')} - {escape(pair.server_socket_type or '?')}",
            ]
            for (one, other), pair in links.items()
        ],
    }


def _client(pair: ReportPair) -> str:
    if pair.client_program is not None:
        return pair.client_program
    return f"{pair.client} {pair.client_socket_type or ''}".strip() if is_loopback(pair.client) else pair.client


def _server(pair: ReportPair) -> str:
    return pair.server_program or pair.server


def _server_asks(pair: ReportPair) -> bool:
    """Whether messages go from the server to the client, and replies back."""
    return pair.client_socket_type in RECEIVERS if pair.server_asks is None else pair.server_asks


def _most(counts: "Counter[str]") -> int:
    """How many of them the picture shows: all, or the heaviest, and one place for all others."""
    return _NODES if len(counts) > _NODES + 1 else len(counts)


Node = tuple[str, bool]


def _levels(links: Iterable[tuple[Node, Node]]) -> dict[Node, int]:
    """The column of each node: one more than that of the last one that asks it, without those in a circle."""
    askers: dict[Node, list[Node]] = {}
    for one, other in links:
        askers.setdefault(one, [])
        askers.setdefault(other, []).append(one)
    levels: dict[Node, int] = {}
    for start in askers:
        stack, on_path = [start], {start}
        while stack:
            name = stack[-1]
            left = [one for one in askers[name] if one not in levels and one not in on_path]
            if left and name not in levels:
                stack.append(left[0])
                on_path.add(left[0])
                continue
            stack.pop()
            on_path.discard(name)
            if name not in levels:
                levels[name] = max((levels[one] + 1 for one in askers[name] if one in levels), default=0)
    return levels


def _in_rows(levels: Mapping[Node, int], links: Iterable[tuple[Node, Node]]) -> list[Node]:
    """The nodes from left to right. In a column each stands beside its neighbours, so that few lines cross."""
    beside: dict[Node, list[Node]] = {}
    for one, other in links:
        beside.setdefault(one, []).append(other)
        beside.setdefault(other, []).append(one)
    columns: dict[int, list[Node]] = {}
    for name in sorted(levels):
        columns.setdefault(levels[name], []).append(name)
    heights: dict[Node, float] = {}
    for level in sorted(columns, reverse=True):  # services have a place of their own, and those who ask them follow
        column = columns[level]
        middle = {
            name: sum(found) / len(found)
            for name in column
            if (found := [heights[one] for one in beside[name] if one in heights])
        }
        column.sort(key=lambda name: (middle.get(name, 0), name))
        heights.update({name: (place + 0.5) / len(column) for place, name in enumerate(column)})
    return [name for level in sorted(columns) for name in columns[level]]


def _joined(one: ReportPair, other: ReportPair) -> ReportPair:
    problems: Severities = dict(one.problems)
    add_severities(problems, other.problems)
    same = (one.client_socket_type, one.server_socket_type) == (other.client_socket_type, other.server_socket_type)
    return replace(
        one,
        start_ns=min(one.start_ns, other.start_ns),
        end_ns=max(one.end_ns, other.end_ns),
        client_socket_type=one.client_socket_type if same else "several",
        server_socket_type=one.server_socket_type if same else "several",
        problems=problems,
        **{name: getattr(one, name) + getattr(other, name) for name in NUMBERS},
    )


# ------------------------------------------------------------------ by time


def _time_axis(
    results: Results, rows: Sequence[ReportTimeline | ReportReplies | ReportVersion]
) -> tuple[Callable[[int], int], Chart]:
    """The number of the interval that begins at a time; the intervals from the first to the last for page scripts.

    All charts show the whole time, so that they can be compared.
    """
    length_ns = rows[0].interval_ns
    first = min(row.start_ns for row in rows)
    last = max(row.start_ns for row in rows)
    if results.total.start_ns is not None and results.total.end_ns is not None:
        first = min(first, results.total.start_ns // length_ns * length_ns)
        last = max(last, results.total.end_ns // length_ns * length_ns)
    axis = {"start": first / _MS, "interval": length_ns / _MS, "count": (last - first) // length_ns + 1}
    return lambda start_ns: (start_ns - first) // length_ns, axis


def _rates(results: Results) -> Chart:
    rows = results.timeline
    if not rows:
        return {}
    number, axis = _time_axis(results, rows)
    by_service: dict[str | None, list[list[int]]] = {}
    for row in rows:
        by_service.setdefault(row.service, []).append([number(row.start_ns), row.messages, row.octets])
    return {
        **axis,
        "stacked": _STACKED,
        "all": by_service.pop(None, []),
        "services": [{"name": escape(name or ""), "rows": found} for name, found in by_service.items()],
    }


def _replies(results: Results) -> Chart:
    rows = results.replies
    if not rows:
        return {}
    number, axis = _time_axis(results, rows)
    steps = {(row.least_ns, row.below_ns) for row in rows}
    places = {step: place for place, step in enumerate(sorted(steps))}
    by_service: dict[str | None, list[int]] = {}
    for row in rows:
        cell = (number(row.start_ns), places[row.least_ns, row.below_ns], row.count)
        by_service.setdefault(row.service, []).extend(cell)
    times = {
        row.service: [row.count, row.min_ns, row.p50_ns, row.p95_ns, row.p99_ns, row.max_ns]
        for row in results.latencies
    }
    return {
        **axis,
        "steps": list(places),
        "services": [
            {"name": "all services" if name is None else escape(name), "cells": cells, "times": times.get(name)}
            for name, cells in by_service.items()
        ],
    }


def _versions(results: Results) -> Chart:
    rows = results.versions
    if not rows:
        return {}
    number, axis = _time_axis(results, rows)
    return {
        **axis,
        "kinds": [
            {"name": name, "rows": [[number(row.start_ns), row.connections] for row in found]}
            for name, found in agreements(rows).items()
        ],
    }


# ------------------------------------------------------------------ bars


def _topics(results: Results) -> Chart:
    found = [row for row in results.topics if row.messages][:_BARS]
    return _bars([quote(row.topic, _LABEL, "…") for row in found], {"messages": [row.messages for row in found]})


def _problems(results: Results) -> Chart:
    hosts: dict[str, Severities] = {}
    for row in results.problems:
        add_severities(hosts.setdefault(escape(row.host or "(no host)"), {}), {row.severity: row.count})
    names = sorted(hosts, key=lambda name: -sum(hosts[name].values()))[:_BARS]
    return _bars(names, {f"{each}s": [hosts[name].get(each, 0) for name in names] for each in SEVERITIES})


def _bars(names: Iterable[str], parts: dict[str, list[int]]) -> Chart:
    names = list(names)
    return {"names": names, "parts": {name: counts for name, counts in parts.items() if any(counts)}} if names else {}
