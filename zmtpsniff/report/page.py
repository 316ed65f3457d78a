"""Results as a page: one file of HTML that fetches nothing.

All text goes through ``html.escape`` or, for the charts, through JSON that no markup can leave. The page's own
Content-Security-Policy lets only two scripts run, by their hashes: those that this module puts into the page. The
charts put text into the page as text.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from importlib.resources import files

from zmtpsniff.analysis.statistics.severities import Severities, add_severities
from zmtpsniff.render.figures import short
from zmtpsniff.report.charts import charts
from zmtpsniff.report.flow_ladder import ladders, severity_mark
from zmtpsniff.report.results import ReportPair, ReportSocket, Results
from zmtpsniff.report.sections import Cell, Section, headline, sections, severity_words
from zmtpsniff.report.waterfalls import waterfalls
from zmtpsniff.words.counts import MANY, plural
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import escape as safe

_SCRIPTS = ("echarts.min.js", "page.js")
_PEERS = 12  # of a service, the busiest
_MANY = 8  # rows of a table from which on it can be filtered

# Sections in the order of the page: the names of their tables, and of the chart above them.
_LAYOUT: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("findings", "Findings", ("findings",), ""),
    ("ways", "Slowest and lost", ("ways",), ""),
    ("pairs", "Who talks to whom", ("pairs",), "topology"),
    ("rates", "Traffic over time", (), "rates"),
    ("sockets", "Services", ("sockets", "peers", "queues"), ""),
    ("latency", "Replies", ("latency", "delays"), "replies"),
    ("topics", "Topics", ("topics", "subscriptions"), "topics"),
    ("conversations", "Conversations", (), ""),
    ("problems", "Problems", ("problems", "storms"), "problems"),
    ("health", "Capture health", ("health", "clocks", "files", "silences"), ""),
    ("versions", "Versions and mechanisms", ("versions",), "versions"),
)


def page(results: Results, title: str, command: str) -> str:
    """The page; ``title`` says what it is of, ``command`` what made it."""
    return "".join(_Page(results, title, command).parts())


def policy(scripts: list[str]) -> str:
    """The Content-Security-Policy of a page with these scripts."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def asset(name: str) -> str:
    """A file that is put into the page."""
    return (files("zmtpsniff.report") / "assets" / name).read_text("utf-8")


class _Page:
    """One page."""

    def __init__(self, results: Results, title: str, command: str) -> None:
        self._results = results
        self._title = escape(safe(title))
        self._command = escape(command)
        self._tables = {section.name: section for section in sections(results)}
        self._charts = charts(results)
        self._anchors = {row.address: f"service-{place}" for place, row in enumerate(results.sockets, 1)}
        self._time_lines = {each["name"]: place for place, each in enumerate(self._rates())}

    def _rates(self) -> list[dict[str, str]]:
        return self._charts["rates"]["services"] if "rates" in self._charts else []

    def parts(self) -> Iterator[str]:
        """The page in parts."""
        scripts = [asset(name) for name in _SCRIPTS]
        yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        yield f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(scripts))}">\n'
        yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        yield f"<title>{self._title}</title>\n<style>\n{asset('page.css')}</style>\n</head>\n<body>\n"
        yield f'<header>\n<h1>{self._title}</h1>\n<button id="theme" type="button" hidden>Light or dark</button>\n'
        yield "".join(f"<p>{escape(line)}</p>\n" for line in headline(self._results.total))
        yield "</header>\n"
        bodies = {name: "".join(self._section(name, tables, chart)) for name, _, tables, chart in _LAYOUT}
        titles = {name: title for name, title, _, _ in _LAYOUT if bodies[name]}
        yield "<nav>" + "".join(f'<a href="#{name}">{title}</a>' for name, title in titles.items()) + "</nav>\n<main>\n"
        for name, title in titles.items():
            yield f'<section id="{name}">\n<h2><a href="#{name}">{title}</a></h2>\n{bodies[name]}</section>\n'
        yield "</main>\n"
        yield f"<footer>Made by {self._command}; times are UTC. Charts: Apache ECharts.</footer>\n"
        yield '<div id="tip" hidden></div>\n'
        yield f'<script type="application/json" id="data">{_json(self._charts)}</script>\n'
        yield "".join(f"<script>{script}</script>\n" for script in scripts)
        yield "</body>\n</html>\n"

    def _section(self, name: str, tables: tuple[str, ...], chart: str) -> Iterator[str]:
        if name == "findings":
            yield from self._findings()
        elif name == "conversations":
            yield from ladders(self._results.conversations, self._anchors)
        if chart in self._charts:
            yield f'<div class="chart" data-chart="{chart}"></div>\n'
        for place, table in enumerate(found for found in tables if found in self._tables):
            section = self._tables[table]
            if place or name not in (table, "topics"):
                yield f'<h3 id="{table}">{escape(section.title)}</h3>\n' if table != name else ""
            elif section.title != _TITLES[name]:
                yield f"<h3>{escape(section.title)}</h3>\n"
            yield self._table(section)
        if name == "ways":
            yield from waterfalls(self._results.ways)
        if name == "sockets":
            for row in self._results.sockets:
                yield from self._service(row)

    # ------------------------------------------------------------------ findings, services

    def _findings(self) -> Iterator[str]:
        if "findings" in self._tables:
            return
        counts: Severities = {}
        for row in self._results.problems:
            add_severities(counts, {row.severity: row.count} if row.severity != "note" else {})
        if counts:
            yield f'<p><a href="#problems">{severity_words(counts)}</a></p>\n'
        else:
            yield "<p>There is no error and no warning.</p>\n"

    def _service(self, row: ReportSocket) -> Iterator[str]:
        name = self._anchors[row.address]
        pairs = [pair for pair in self._results.pairs if pair.server == row.address]
        kinds = " or ".join(row.socket_types) or "of unknown type"
        yield f'<article id="{name}">\n<h3><a href="#{name}">{escape(safe(row.address))}</a> '
        yield f'<span class="dim">{escape(safe(kinds))}</span></h3>\n'
        facts = [
            f"{plural(row.connections, 'connection')}, {row.open:,} of them open at the end",
            f"{plural(row.messages_in, 'message')} in, {row.messages_out:,} out",
            f"{short(row.octets_in)} octets in, {short(row.octets_out)} out",
        ]
        yield f"<p>{escape('; '.join(facts))}.</p>\n"
        for latency in self._results.latencies:
            if latency.service == row.address:
                shares = ("p50", latency.p50_ns), ("p95", latency.p95_ns), ("p99", latency.p99_ns)
                times = "".join(f"{share} {brief(value)}, " for share, value in shares if latency.count >= MANY)
                yield f'<p><a href="#latency">{plural(latency.count, "reply")}</a>: '
                yield f"{escape(times)}slowest {escape(brief(latency.max_ns))}.</p>\n"
        place = self._time_lines.get(safe(row.address))
        if place is not None:
            yield f'<div class="chart small" data-chart="service" data-place="{place}"></div>\n'
        if pairs:
            yield self._peers(pairs)
        yield "</article>\n"

    def _peers(self, pairs: list[ReportPair]) -> str:
        shown = [
            f"<li>{escape(safe(pair.client))} "
            f'<span class="dim">{escape(safe(pair.client_socket_type or "?"))}</span>: '
            f"{plural(pair.messages_in, 'message')} sent, {pair.messages_out:,} received"
            f"{severity_mark(pair.problems)}</li>\n"
            for pair in pairs[:_PEERS]
        ]
        left = len(pairs) - len(shown)
        more = f'<li><a href="#pairs">{left:,} more</a></li>\n' if left else ""
        return f'<ul class="peers">\n{"".join(shown)}{more}</ul>\n'

    # ------------------------------------------------------------------ tables

    def _table(self, section: Section) -> str:
        head = "".join(
            f'<th scope="col"{_class("number" if column.is_number else "")}>{escape(column.title)}</th>'
            for column in section.columns
        )
        body = "".join(
            "<tr>"
            + "".join(self._cell(cell, column.is_number) for column, cell in zip(section.columns, row, strict=True))
            + "</tr>\n"
            for row in section.rows
        )
        note = f'<p class="dim">{escape(section.note)}</p>\n' if section.note else ""
        many = " data-filter" if len(section.rows) >= _MANY else ""
        return (
            f'<div class="table"{many}><table data-name="{section.name}">\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}</tbody></table></div>\n{note}"
        )

    def _cell(self, cell: Cell, is_number: bool) -> str:
        text = escape(cell.text)
        anchor = self._anchors.get(cell.service or "")
        if anchor is not None:
            text = f'<a href="#{anchor}">{text}</a>'
        value = "" if cell.value is None else f' data-value="{cell.value}"'
        kind = " ".join(filter(None, ("number" if is_number else "", cell.severity or "")))
        return f"<td{_class(kind)}{value}>{text}</td>"


_TITLES = {name: title for name, title, _, _ in _LAYOUT}


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _json(data: object) -> str:
    """JSON that is safe between the tags of a script: it has no end of a script, and no beginning of a comment."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
