"""Tables and charts of statistics, for people."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import IO, TYPE_CHECKING, Any

from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.statistics.stats_records import (
    PEER_FIGURES,
    AnyRecord,
    ConnectionRow,
    CutRow,
    LatencyRow,
    Pattern,
    PeerRow,
    ProblemRow,
    PublicationRow,
    QueueRow,
    Record,
    SocketRow,
    TimelineRow,
    TopicRow,
    TotalRow,
)
from zmtpsniff.render import chart
from zmtpsniff.render.chart import Blocks, make_blocks
from zmtpsniff.render.clock import Clock
from zmtpsniff.render.color import Color
from zmtpsniff.render.console import columns, drawn, plain_table
from zmtpsniff.render.figures import figure
from zmtpsniff.render.figures import lines as _lines
from zmtpsniff.render.figures import rate as _rate
from zmtpsniff.render.figures import short as _short
from zmtpsniff.render.palette import STYLES, Signs, make_signs
from zmtpsniff.render.wording import ENDS, kind_words, program, protocol
from zmtpsniff.words.counts import MANY, plural
from zmtpsniff.words.durations import NS
from zmtpsniff.words.durations import brief as _brief
from zmtpsniff.words.text import escape, quote

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dissectors.events import Peer, Side

_CLEAR = frozenset({"NULL", "PLAIN"})  # mechanisms that encrypt nothing
_BAR = 40
_HEIGHT = 6
_MARGIN = 9
_TOPIC_OCTETS = 48
_IDENTITY_OCTETS = 24
_ANY = 10_000  # columns for a table that is measured only
_WIDE = 100  # columns from which on there is room between columns
_PROTOCOL = 16  # columns that the protocol needs
_ADDRESS = 23  # the longest of IPv4, with its port and an arrow


def draw(
    records: Sequence[AnyRecord],
    stream: IO[Any],
    utc: bool = False,
    color: Color = "auto",
    width: int | None = None,
    findings: Sequence[Finding] = (),
) -> None:
    """Write all records and findings as tables and charts to a stream, as wide as its terminal or ``width`` columns."""
    encoding = getattr(stream, "encoding", None)

    def all_of_them(console: "Console") -> None:
        _Drawing(console, utc, make_signs(encoding), make_blocks(encoding)).all(records, findings)

    stream.write(drawn(stream, color, width or columns(stream), all_of_them))


class _Drawing:
    """Draws section by section."""

    def __init__(self, console: "Console", utc: bool, signs: Signs, blocks: Blocks) -> None:
        self._console = console
        self._clock = Clock(utc)
        self._signs = signs
        self._blocks = blocks
        self._cuts: dict[tuple[str, Pattern | None], int] = {}
        self._has_legs = False  # programs pass on: a request has a reply on each leg

    def all(self, records: Sequence[AnyRecord], findings: Sequence[Finding]) -> None:
        """Draw the total and the findings, then all else in the order of the records."""
        self._has_legs = any(isinstance(record, QueueRow) for record in records)
        self._cuts = {(cut.of, cut.pattern): cut.at_least for cut in records if isinstance(cut, CutRow)}
        for record in records:
            if isinstance(record, TotalRow):
                self._total(record)
        if findings:
            self._console.print()
            self._findings(findings)
        draws: dict[type, Any] = {
            ConnectionRow: self._connections,
            SocketRow: self._sockets,
            PeerRow: self._peers,
            QueueRow: self._queues,
            TopicRow: self._topics,
            PublicationRow: self._publications,
            LatencyRow: self._latencies,
            TimelineRow: self._timeline,
            ProblemRow: self._problems,
        }
        if sum(record.messages for record in records if isinstance(record, TimelineRow)) < MANY:
            del draws[TimelineRow]  # the other tables say as much
        if not any(_tells(record) for record in records if isinstance(record, PeerRow)):
            del draws[PeerRow]  # all messages are encrypted
        for kind, rows in groupby((record for record in records if type(record) in draws), type):
            self._console.print()
            draws[kind](list(rows))
            self._tell_cut(kind)

    def _tell_cut(self, kind: type[Record], pattern: Pattern | None = None) -> None:
        more = self._cuts.get((str(kind.__struct_config__.tag), pattern))
        if more is not None:
            self._print(f"{self._signs.more} and at least {more:,} more (--top)", "dim")

    def _print(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(text, style), soft_wrap=False)

    def _table(self, *titles: str, address: int = 0) -> "Table":
        """A table.

        ``>`` begins titles of columns with numbers, ``@`` one with addresses, as long as the longest address.
        """

        between = 2 if self._console.width >= _WIDE else 1
        table = plain_table(between)
        for title in titles:
            right = title.startswith(">")
            # A number or an address on two lines cannot be read, so other text gives way.
            table.add_column(
                title.lstrip(">@"),
                justify="right" if right else "left",
                overflow="fold",
                no_wrap=right,
                min_width=min(address, _ADDRESS) if title.startswith("@") else None,
            )
        return table

    def _show(self, table: "Table") -> None:
        """Write a table. If it is too wide, addresses get their least width: rich would cut off the last column."""
        from rich.measure import Measurement

        if (
            Measurement.get(self._console, self._console.options.update(max_width=_ANY), table).maximum
            > self._console.width
        ):
            for column in table.columns:
                column.width = column.min_width
        self._console.print(table)

    def _total(self, row: TotalRow) -> None:
        self._print(
            f"{plural(row.packets, 'packet')} in {_brief(row.duration_ns)}{_interrupted(row.interrupted_ns)}, "
            f"{plural(row.flows, 'connection')}, {row.zmtp_flows:,} of them ZMTP"
            if row.packets
            else "No packets"
        )
        if row.dropped:
            self._print(f"{plural(row.dropped, 'packet')} dropped", "bold yellow")
        if row.zmtp_flows:
            encrypted = f" and {plural(row.encrypted, 'encrypted frame')}" if row.encrypted else ""
            self._print(
                f"{plural(row.messages, 'message')}{_per_second(row.messages, row.duration_ns - row.interrupted_ns)}"
                f"{encrypted}, {plural(row.octets, 'octet')}, {plural(row.problems, 'problem')}"
            )
        if row.beacons:
            self._print(f"{plural(row.beacons, 'beacon')} of {plural(row.beacon_peers, 'peer')}")
        if row.subscriptions_not_followed:
            self._print(
                f"{plural(row.subscriptions_not_followed, 'subscription')} not followed: too many at a time",
                "bold yellow",
            )

    # ------------------------------------------------------------------ tables

    def _connections(self, rows: list[ConnectionRow]) -> None:
        """A line a connection, with what each side sent. Words that most have in common stand once, above."""
        protocols, ends = Counter(map(_protocol, rows)), Counter(ENDS[row.end] for row in rows)
        (usual, _), (usual_end, _) = protocols.most_common(1)[0], ends.most_common(1)[0]
        differs = [title for title, kinds in (("Protocol", protocols), ("End", ends)) if len(kinds) > 1]
        rate = [">Rate"] if self._console.width >= _WIDE + (_PROTOCOL if differs else 0) else []
        titles = (">No.", "@Client and server", "Types", ">Messages", ">Octets", *rate, ">Lasted", *differs)
        mostly = "mostly " if differs else ""
        common = f"{plural(len(rows), 'connection')}, {mostly}{', '.join(filter(None, (usual, usual_end)))}"
        frames = "; encrypted frames in parentheses" if any(row.encrypted for row in rows) else ""
        self._print(f"{common} (messages and octets: client / server{frames})", "bold")
        longest = max(max(len(escape(row.client.address)), len(escape(row.server.address))) for row in rows)
        table = self._table(*titles, address=longest + len(self._signs.arrow) + 1)
        for row in rows:
            told, end = _protocol(row), ENDS[row.end]
            cells: dict[str, str | Text] = {
                ">No.": str(row.flow),
                "@Client and server": self._both(escape(row.client.address), escape(row.server.address)),
                "Types": self._both(_socket(row.client, self._signs.more), _socket(row.server, self._signs.more)),
                ">Messages": f"{_messages(row, 'client')} / {_messages(row, 'server')}",
                ">Octets": f"{_short(row.octets.client)} / {_short(row.octets.server)}",
                ">Rate": "" if row.encrypted and not row.messages_per_s else _rate(row.messages_per_s),
                ">Lasted": _brief(row.duration_ns),
                "Protocol": "" if told == usual else told or "?",
                "End": "" if end == usual_end else _lines(end, styles=("" if row.end == "fin" else "yellow",)),
            }
            table.add_row(*(cells[title] for title in titles))
        self._show(table)

    def _both(self, client: str, server: str) -> "Text":
        """Words of both sides of a connection."""
        from rich.text import Text

        return Text.assemble((client, "cyan"), f" {self._signs.arrow} ", (server, "magenta"))

    def _sockets(self, rows: list[SocketRow]) -> None:
        titles = ("@Socket bound at", "Type", ">Peers", ">Still open", "Their types", "Protocol", ">In", ">Out")
        table = self._table(*titles, address=max(len(escape(row.address)) for row in rows))
        for row in rows:
            table.add_row(
                _lines(escape(row.address), styles=("magenta",)),
                _lines(*kind_words(row.socket_types)),
                _short(row.connections),
                _short(row.open),
                _lines(*kind_words(row.peer_socket_types)),
                _lines(*(protocol(name) for name in row.versions), ", ".join(map(escape, row.mechanisms))),
                _lines(_readable(row, row.messages_in), _rate(row.octets_in, "B", "")),
                _lines(_readable(row, row.messages_out), _rate(row.octets_out, "B", "")),
            )
        self._show(table)

    def _peers(self, rows: list[PeerRow]) -> None:
        """Two lines a peer: itself, the service that it is connected to. Figures that no peer has are left out."""
        figures = [one for one in PEER_FIGURES if any(getattr(row, one.field) for row in rows)]
        longest = max(max(len(escape(row.peer)), len(escape(row.service))) for row in rows)
        table = self._table("@Peer, and its service", "Role", *(f">{one.title}" for one in figures), address=longest)
        for row in rows:
            role = _lines(row.role or "", program(row.process) or escape(row.socket_type or ""))
            name = _lines(escape(row.peer), escape(row.service), styles=("cyan", "magenta"))
            table.add_row(name, role, *(figure(getattr(row, one.field), one.kind) for one in figures))
        self._show(table)

    def _queues(self, rows: list[QueueRow]) -> None:
        titles = ("@Program that passes on", ">Taken", ">Passed on", ">Ended there", ">Queue at most", ">In the end")
        table = self._table(*titles, address=max(len(escape(row.program)) for row in rows))
        for row in rows:
            counts = map(_short, (row.taken, row.passed, row.ended, row.most, row.left))
            table.add_row(_lines(escape(row.program), styles=("magenta",)), *counts)
        self._show(table)

    def _topics(self, rows: list[TopicRow]) -> None:
        table = self._table("Topic, as subscribed to", ">Messages", ">Octets", ">Subscribers at most", ">In the end")
        for row in rows:
            note = " (everything)" if row.topic == b"" else ""
            if not row.subscribers_most:
                note = " (published; subscription not seen)"
            table.add_row(
                _lines(quote(row.topic, _TOPIC_OCTETS, self._signs.more) + note, styles=("green",)),
                _short(row.messages) + (f" (+{_short(row.missing)})" if row.missing else ""),
                _short(row.octets),
                _short(row.subscribers_most) if row.subscribers_most else "",
                _short(row.subscribers) if row.subscribers_most else "",
            )
        self._show(table)

    def _publications(self, rows: list[PublicationRow]) -> None:
        table = self._table("Topic, as published", ">Messages", ">Octets")
        for row in rows:
            name = quote(row.topic, _TOPIC_OCTETS, self._signs.more)
            if row.prefix and row.octets:  # messages of one frame, which are not all empty
                name += f" {self._signs.more}" if row.topic else " (nothing in common)"
            table.add_row(
                _lines(name, styles=("green",)),
                _short(row.messages) + (f" (+{_short(row.missing)})" if row.missing else ""),
                _short(row.octets),
            )
        self._show(table)

    def _findings(self, findings: Sequence[Finding]) -> None:
        table = self._table("Finding", ">Count", "What (zmtpsniff diagnose says what to do)")
        for one in findings:
            style = getattr(STYLES, one.severity)
            name = _lines(f"{one.severity} {one.name}", *one.doubts, styles=(style, style))
            table.add_row(name, _short(one.count), _lines(escape(one.summary)))
        self._show(table)

    def _problems(self, rows: list[ProblemRow]) -> None:
        table = self._table("Problem", ">Count", ">First #", "What")
        for row in rows:
            style = getattr(STYLES, row.severity)
            table.add_row(
                _lines(f"{row.severity} {row.code}", styles=(style,)),
                _short(row.count),
                "" if row.packet is None else str(row.packet),
                _lines(escape(row.detail)),
            )
        self._show(table)

    # ------------------------------------------------------------------ latency

    def _latencies(self, rows: list[LatencyRow]) -> None:
        titles = {"request-reply": "Replies, by server", "heartbeat": "PONGs, by server"}
        for pattern, group in groupby(rows, lambda row: row.pattern):
            these = list(group)
            if these[0] is not rows[0]:
                self._console.print()
            many = any(row.count >= MANY for row in these)
            shares = (">p50", ">p95", ">p99") if many else ()
            columns = (f"@{titles[pattern]}", ">Count", ">Fastest", *shares, ">Slowest")
            table = self._table(*columns, address=max(len(escape(row.service or "")) for row in these))
            for row in these if len(these) > 2 else these[-1:]:  # the first is all together
                of_row = [_brief(ns) if row.count >= MANY else "" for ns in (row.p50_ns, row.p95_ns, row.p99_ns)]
                times = (_brief(row.min_ns), *(of_row if many else ()), _brief(row.max_ns))
                name = (
                    _lines("all, each leg" if self._has_legs else "all", styles=("bold",))
                    if row.service is None
                    else _lines(escape(row.service), styles=("magenta",))
                )
                table.add_row(name, _short(row.count), *times)
            self._show(table)
            self._tell_cut(LatencyRow, pattern)
            if these[0].count >= MANY:
                self._histogram(these[0])
            elif words := _outliers(these[0]):
                self._print(words)

    def _histogram(self, row: LatencyRow) -> None:
        largest = max(each.count for each in row.histogram)
        labels = [_brief(each.up_to_ns) for each in row.histogram]
        margin = max(map(len, labels))
        width = max(1, min(_BAR, self._console.width - margin - 14))
        self._console.print()
        before = None
        for label, each in zip(labels, row.histogram, strict=True):
            if not each.count and before == 0:
                continue  # empty rows are one
            before = each.count
            drawn = chart.bar(each.count, largest, width, self._blocks)
            self._print(f"{'up to':>5} {label:>{margin}} {drawn:{width}} {_short(each.count):>7}")

    # ------------------------------------------------------------------ time line

    def _timeline(self, rows: list[TimelineRow]) -> None:
        interval_ns, start_ns = rows[0].interval_ns, rows[0].start_ns
        intervals = (rows[-1].start_ns - start_ns) // interval_ns + 1
        margin = _MARGIN
        joined = -(-intervals // max(1, self._console.width - margin - 1))  # neighbours that share a column
        counts = [0] * -(-intervals // joined)
        for row in rows:
            counts[(row.start_ns - start_ns) // interval_ns // joined] += row.messages
        seconds = interval_ns * joined / NS
        most = _rate(max(counts) / seconds)
        if len(most) >= margin:  # less than one in an hour
            most = "<0.01/s"
        self._print(f"Messages a second, {_brief(interval_ns * joined)} a column", "bold")
        for line, text in enumerate(chart.columns(counts, _HEIGHT, self._blocks)):
            self._print(f"{most if not line else '':>{margin - 1}}{self._blocks.axis}{text}")
        self._print(f"{'0':>{margin - 1}}{self._blocks.corner}{self._blocks.line * len(counts)}")
        first = self._clock.time(start_ns)
        date = self._clock.date
        last = self._clock.time(rows[-1].start_ns + interval_ns)
        day = "" if date == self._clock.date else f" on {date}"
        self._print(f"{'':{margin}}{first}{day} to {last} on {self._clock.date}", "dim")


def _socket(peer: "Peer", more: str) -> str:
    words = [] if peer.type_name is None else [escape(peer.type_name)]
    if peer.identity:
        words.append(quote(peer.identity, _IDENTITY_OCTETS, more))
    if process := program(peer.process):
        words.append(process)
    return " ".join(words) or "?"


def _protocol(row: ConnectionRow) -> str:
    """The version, the mechanism, and what became of a handshake that is not complete."""
    handshake = "" if row.handshake in (None, "complete") else f"handshake {str(row.handshake).replace('-', ' ')}"
    version = "" if row.version is None else protocol(row.version)
    return " ".join(filter(None, (version, escape(row.mechanism or ""), handshake)))


def _messages(row: ConnectionRow, side: "Side") -> str:
    """How many messages one side sent; frames that are encrypted in parentheses."""
    count: int = getattr(row.messages, side)
    if row.encrypted is None:
        return _short(count)
    encrypted = f"({_short(getattr(row.encrypted, side))})"
    return f"{_short(count)} {encrypted}" if count else encrypted


def _tells(row: PeerRow) -> bool:
    """Whether there is more to say of a peer than its address."""
    has_figures = any(getattr(row, one.field) for one in PEER_FIGURES)
    return has_figures or bool(row.role or row.socket_type or row.process)


def _readable(row: SocketRow, count: int) -> str:
    """How many messages a socket took or sent; a question mark if they may all be encrypted."""
    return _short(count) if count or _CLEAR.issuperset(row.mechanisms) else "?"


def _interrupted(length_ns: int) -> str:
    return f" ({_brief(length_ns)} of that between captures)" if length_ns else ""


def _per_second(count: int, length_ns: int) -> str:
    return f" ({_rate(count * NS / length_ns)})" if length_ns > 0 and count else ""


def _outliers(row: LatencyRow) -> str:
    """A few replies of which some took far longer than the others, in words; empty if none did."""
    bars = [bar for bar in row.histogram if bar.count]
    gaps = [(high.over_ns / max(low.up_to_ns, 1), place) for place, (low, high) in enumerate(pairwise(bars), 1)]
    widest, place = max(gaps, default=(0, 0))
    if widest <= 1:
        return ""
    late = sum(bar.count for bar in bars[place:])
    took = _brief(row.max_ns) if late == 1 else f"over {_brief(bars[place].over_ns)}"
    noun = "reply" if row.pattern == "request-reply" else "PONG"
    return f"{late} of {plural(row.count, noun)} took {took}, the others up to {_brief(bars[place - 1].up_to_ns)}"
