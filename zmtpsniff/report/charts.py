"""The data that the page's scripts draw, as plain lists: numbers, and text that is safe to show."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from dissectors.events import SEVERITIES
from zmtpsniff.analysis.statistics.rows import NUMBERS
from zmtpsniff.analysis.statistics.severities import Severities, add_severities, worst
from zmtpsniff.report.results import ReportPair, ReportReplies, ReportTimeline, ReportVersion, Results
from zmtpsniff.report.sections import agreements, severity_words
from zmtpsniff.words.text import escape, quote

_NODES = 40  # on each side of the picture
_STACKED = 8  # services
_BARS = 15
_LABEL = 60  # octets
_MS = 1_000_000

Chart = dict[str, Any]


def charts(results: Results) -> dict[str, Chart]:
    """The data of each chart that there is something to draw of, by its name; times in milliseconds."""
    made = {
        "topology": _topology(results.pairs),
        "rates": _rates(results),
        "replies": _replies(results),
        "topics": _topics(results),
        "versions": _versions(results),
        "problems": _problems(results),
    }
    return {name: data for name, data in made.items() if data}


# ------------------------------------------------------------------ who talks to whom


def _topology(pairs: list[ReportPair]) -> Chart:
    if not pairs:
        return {}
    hosts: Counter[str] = Counter()
    services: Counter[str] = Counter()
    for pair in pairs:
        weight = 1 + pair.messages_in + pair.messages_out + 100 * (worst(pair.problems) in ("error", "warning"))
        hosts[pair.client] += weight
        services[pair.server] += weight
    right = _nodes(services)
    left = _nodes(hosts, _heights(pairs, right))
    links: dict[tuple[int, int], ReportPair] = {}
    for pair in pairs:
        ends = (left.get(pair.client, len(left)), right.get(pair.server, len(right)))
        known = links.get(ends)
        links[ends] = pair if known is None else _joined(known, pair)
    others = len(hosts) - len(left), len(services) - len(right)
    names = [
        [escape(name) for name in found] + ([f"{more:,} others"] if more else [])
        for found, more in zip((left, right), others, strict=True)
    ]
    return {
        "hosts": names[0],
        "services": names[1],
        "links": [
            [
                *ends,
                pair.messages_in,
                pair.messages_out,
                pair.octets_in + pair.octets_out,
                pair.connections,
                worst(pair.problems) or "",
                severity_words(pair.problems),
                f"{escape(pair.client_socket_type or '?')} - {escape(pair.server_socket_type or '?')}",
            ]
            for ends, pair in links.items()
        ],
    }


def _heights(pairs: list[ReportPair], services: dict[str, int]) -> dict[str, float]:
    """The vertical place of each host: beside the middle of its services, so that few lines cross."""
    places: dict[str, list[int]] = {}
    for pair in pairs:
        places.setdefault(pair.client, []).append(services.get(pair.server, len(services)))
    return {host: sum(found) / len(found) for host, found in places.items()}


def _nodes(weights: "Counter[str]", heights: Mapping[str, float] = MappingProxyType({})) -> dict[str, int]:
    """The places of the heaviest nodes, from top to bottom, or by their names. The last place is for all others."""
    most = _NODES if len(weights) > _NODES + 1 else len(weights)
    names = [name for name, _ in weights.most_common(most)]
    return {name: place for place, name in enumerate(sorted(names, key=lambda name: (heights.get(name, 0), name)))}


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


def _time_axis(results: Results, rows: Sequence[ReportTimeline | ReportReplies | ReportVersion]) -> tuple[int, Chart]:
    """The begin of the first interval that the page shows, for its scripts, too: intervals from there to the end.

    All charts show the whole time, so that they can be compared.
    """
    length_ns = rows[0].interval_ns
    first = min(row.start_ns for row in rows)
    last = max(row.start_ns for row in rows)
    if results.total.start_ns is not None and results.total.end_ns is not None:
        first = min(first, results.total.start_ns // length_ns * length_ns)
        last = max(last, results.total.end_ns // length_ns * length_ns)
    return first, {"start": first / _MS, "interval": length_ns / _MS, "count": (last - first) // length_ns + 1}


def _rates(results: Results) -> Chart:
    rows = results.timeline
    if not rows:
        return {}
    first, axis = _time_axis(results, rows)
    length_ns = rows[0].interval_ns
    by_service: dict[str | None, list[list[int]]] = {}
    for row in rows:
        place = (row.start_ns - first) // length_ns
        by_service.setdefault(row.service, []).append([place, row.messages, row.octets])
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
    first, axis = _time_axis(results, rows)
    length_ns = rows[0].interval_ns
    steps = {(row.least_ns, row.below_ns) for row in rows}
    places = {step: place for place, step in enumerate(sorted(steps))}
    by_service: dict[str | None, list[int]] = {}
    for row in rows:
        cell = ((row.start_ns - first) // length_ns, places[row.least_ns, row.below_ns], row.count)
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
    first, axis = _time_axis(results, rows)
    length_ns = rows[0].interval_ns
    return {
        **axis,
        "kinds": [
            {"name": name, "rows": [[(row.start_ns - first) // length_ns, row.connections] for row in found]}
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
