"""Views with a line for each conversation, problem, topic or service. Each line leads to its records."""

from collections import Counter
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Literal, NamedTuple

from rich.text import Text

from dissectors.events import SEVERITIES, Connection, Octets, Problem, printable
from zmtpsniff.analysis.findings.finding import Evidence, Finding
from zmtpsniff.analysis.statistics.stats_records import AnyRecord, LatencyRow, SocketRow, TopicRow
from zmtpsniff.browse.index import RecordIndex, Talk
from zmtpsniff.render.figures import short
from zmtpsniff.render.palette import STYLES
from zmtpsniff.render.wording import ENDS
from zmtpsniff.words.counts import MANY, again
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import escape, quote

_TEXT = 76  # columns of sentences
_MOST = 20_000  # lines of one view


class Target(NamedTuple):
    """Where a line leads."""

    row: int | None = None  # a record
    flows: tuple[int, ...] = ()  # the records of these flows
    condition: str = ""  # or a display filter


class TableLine(NamedTuple):
    """A line of a view."""

    cells: tuple[str, ...]  # safe to show
    target: Target
    style: str = ""


Align = Literal["<", ">"]


class TableLines:
    """Lines in columns that line up."""

    def __init__(self, titles: Sequence[str], lines: Iterable[TableLine]) -> None:
        """Titles of columns with numbers begin with ``>``."""
        self.lines = list(lines)[:_MOST]
        self._aligns: list[Align] = [">" if title.startswith(">") else "<" for title in titles]
        titles = [title.lstrip(">") for title in titles]
        self._widths = [
            max([len(title), *[len(line.cells[place]) for line in self.lines]]) for place, title in enumerate(titles)
        ]
        self.heading = self._row(tuple(titles)).rstrip()

    @property
    def columns(self) -> int:
        """How many columns a line takes."""
        return sum(self._widths) + 2 * len(self._widths)

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self.lines)

    def line(self, place: int, width: int) -> Text:
        """A line."""
        found = self.lines[place]
        return Text(self._row(found.cells), style=found.style, no_wrap=True, end="")

    def _row(self, cells: tuple[str, ...]) -> str:
        each = zip(cells, self._aligns, self._widths, strict=True)
        return "  ".join([f"{cell:{align}{width}}" for cell, align, width in each])


def conversations(index: RecordIndex) -> TableLines:
    """All conversations, those of one bound address together, which is one socket."""
    talks: dict[str, list[Talk]] = {}
    for talk in list(index.talks.values()):
        talks.setdefault(talk.server, []).append(talk)
    records = Counter(index.flows[: len(index)])
    lines: list[TableLine] = []
    for server, found in sorted(talks.items(), key=lambda item: -sum(records[talk.flow] for talk in item[1])):
        flows = tuple(talk.flow for talk in found)
        title = f"{escape(server)} {escape(found[0].socket_type(server))}".rstrip()
        total = sum(records[flow] for flow in flows)
        lines.append(TableLine((title, "", f"{len(found):,}", f"{total:,}", ""), Target(None, flows), "bold"))
        for talk in found:
            client = f"  {escape(talk.client)} {escape(talk.socket_type(talk.client))}".rstrip()
            identity = talk.identities.get(talk.client)
            said = [] if identity is None else [quote(identity, 16, "…")]
            if talk.summary is not None:
                summary = index.event(talk.summary)
                assert isinstance(summary, Connection)
                said.append(f"{ENDS[summary.end]} after {brief(summary.end_ns - summary.start_ns)}")
            cells = (client, f"{talk.flow}", "", f"{records[talk.flow]:,}", ", ".join(said))
            lines.append(TableLine(cells, Target(talk.first_row, (talk.flow,))))
    return TableLines(("socket", ">No.", ">peers", ">records", ""), lines)


def findings(index: RecordIndex, found: Sequence[Finding]) -> TableLines:
    """The findings with their advice, each with the packets that show it below."""
    lines: list[TableLine] = []
    for each in found:
        rows = [(piece.packet, _row_near(index, piece)) for piece in each.evidence]
        first = Target(rows[0][1] if rows else None)
        often = again(each.count)
        lines.append(
            TableLine((f"{each.severity} {escape(each.heading)}{often}",), first, getattr(STYLES, each.severity))
        )
        for words in (each.summary, f"seen: {each.seen}", f"fix: {each.advice}"):
            lines += [TableLine((f"  {line}",), first) for line in wrap(escape(words), _TEXT)]
        lines += [TableLine((f"    packet {packet}",), Target(row)) for packet, row in rows]
    return TableLines(("what is wrong, how that is known, what to do, and packets that show it",), lines)


def _row_near(index: RecordIndex, piece: Evidence) -> int | None:
    """The record of a packet. A refused connection has none: then it is the next record, or the last one."""
    row = index.row_of_packet(piece.packet, piece.flow)
    if row is None:
        row = index.row_from_packet(piece.packet)
    return row if row is not None or not len(index) else len(index) - 1


def problems(index: RecordIndex) -> TableLines:
    """The problems by their codes, the worst first, each with those of its code below it."""
    found: dict[tuple[int, str], list[tuple[int, Problem]]] = {}
    for row in list(index.problems):
        event = index.event(row)
        if isinstance(event, Problem):
            found.setdefault((SEVERITIES.index(event.severity), event.code), []).append((row, event))
    lines = []
    for (_, code), rows in sorted(found.items(), key=lambda item: item[0]):
        severity = rows[0][1].severity
        condition = f'code == "{code}"'
        heading = (severity, escape(code), f"{len(rows):,}", "")
        lines.append(TableLine(heading, Target(rows[0][0], (), condition), getattr(STYLES, severity)))
        for row, event in rows[:100]:
            cells = ("", f"  packet {event.packet or '-'}", "", escape(event.detail))
            lines.append(TableLine(cells, Target(row)))
    return TableLines(("severity", "problem", ">count", "what"), lines)


def topics(records: Sequence[AnyRecord]) -> TableLines:
    """The topics of publishers and the groups of radios."""
    lines = []
    for record in records:
        if isinstance(record, TopicRow):
            cells = (
                quote(record.topic, 60, "…"), f"{record.messages:,}", short(record.octets), f"{record.subscribers:,}",
                f"{record.subscribers_most:,}",
            )  # fmt: skip
            lines.append(TableLine(cells, Target(None, (), _matches(record.topic))))
    return TableLines(("topic", ">messages", ">octets", ">subscribers", ">at most"), lines)


def services(index: RecordIndex, records: Sequence[AnyRecord]) -> TableLines:
    """The bound addresses, with what passes there and how fast they answer."""
    latencies = {
        record.service: record
        for record in records
        if isinstance(record, LatencyRow) and record.pattern == "request-reply"
    }
    flows: dict[str, list[int]] = {}
    for talk in list(index.talks.values()):
        flows.setdefault(talk.server, []).append(talk.flow)
    lines = []
    for record in records:
        if not isinstance(record, SocketRow):
            continue
        latency = latencies.get(record.address)
        times = [""] * 3
        if latency is not None:
            some = (latency.p50_ns, latency.p99_ns) if latency.count >= MANY else ()
            times = [*([brief(each) for each in some] or [""] * 2), brief(latency.max_ns)]
        kinds = escape(", ".join(record.socket_types))
        cells = (
            escape(record.address), kinds, f"{record.connections:,}", f"{record.messages_in:,}",
            f"{record.messages_out:,}", *times,
        )  # fmt: skip
        lines.append(TableLine(cells, Target(None, tuple(flows.get(record.address, ())))))
    return TableLines(("service", "type", ">peers", ">in", ">out", ">p50", ">p99", ">slowest"), lines)


def _matches(topic: Octets) -> str:
    """The display filter for the messages of a topic, empty if none can say it."""
    if not isinstance(topic, bytes) or printable(topic) is None:
        return ""
    text = topic.decode().replace("\\", "\\\\").replace('"', '\\"')
    return f'matched == "{text}"'
