"""Views in front of the panes: conversations, ladders, topics, services, statistics, findings, problems."""

import io
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.resources import files
from typing import TypeVar

import msgspec
from rich.text import Text
from textual.app import App
from textual.worker import get_current_worker

from dissectors.events import Message
from zmtpsniff.analysis.statistics.record_maker import report
from zmtpsniff.analysis.statistics.statistics import Statistics
from zmtpsniff.analysis.statistics.stats_records import AnyRecord
from zmtpsniff.browse.browse_options import BrowseOptions
from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.ladder_lines import LadderLines
from zmtpsniff.browse.panes import ConversationLines, RecordClock
from zmtpsniff.browse.reader import CaptureReader
from zmtpsniff.browse.record_view import RecordView
from zmtpsniff.browse.screens import TextLines, ViewScreen
from zmtpsniff.browse.selection import EveryRow, Selection, SomeRows, rows_of_flows
from zmtpsniff.browse.status_bar import StatusBar
from zmtpsniff.browse.traced_way import Traced, trace
from zmtpsniff.browse.view_tables import TableLines, Target, conversations, findings, problems, services, topics
from zmtpsniff.browse.virtual_list import LineSource
from zmtpsniff.render.statistics_tables import draw
from zmtpsniff.render.way_ladder import way_words
from zmtpsniff.words.counts import plural
from zmtpsniff.words.text import escape

_Made = TypeVar("_Made")

_CHUNK = 20_000  # records that statistics take at a time
_HINTS = "Enter record  f filter  c follow  L ladder  Esc back"
_BACK = "Esc back"


class Views(msgspec.Struct, eq=False):
    """Opens views of all records, or of one conversation, on screens of ``_app``."""

    _app: App[None]
    _reader: CaptureReader
    _view: RecordView
    _status: StatusBar
    _clock: RecordClock
    _options: BrowseOptions
    _go_to_row: Callable[[int], None]  # where lines of views lead
    _filter_by: Callable[[str], None]  # likewise, to the records that pass
    _statistics: tuple[int, list[AnyRecord]] | None = None  # of how many records

    @property
    def _index(self) -> RecordIndex:
        return self._reader.index

    def open(self, name: str) -> None:
        """Open a view: of all records, or of the record under the cursor (follow, record-ladder, way)."""
        views: dict[str, Callable[[], None]] = {
            "help": self._show_help,
            "records": self.close,
            "conversations": self._show_conversations,
            "ladder": self._show_ladder_of_list,
            "findings": self._show_findings,
            "topics": lambda: self._with_statistics(lambda records: self._show_table("topics", topics(records))),
            "services": lambda: self._with_statistics(
                lambda records: self._show_table("services", services(self._index, records))
            ),
            "statistics": lambda: self._with_statistics(self._show_statistics),
            "problems": self._show_problems,
            "follow": lambda: self._go(Target(self._view.row), "c"),
            "record-ladder": lambda: self._go(Target(self._view.row), "L"),
            "way": lambda: self._go(Target(self._view.row), "r"),
        }
        views[name]()

    def close(self) -> None:
        """Go back to all three panes."""
        self._view.zoom(None)
        while len(self._app.screen_stack) > 1:
            self._app.pop_screen()

    # ------------------------------------------------------------------ of all records

    def _show_help(self) -> None:
        """Say what all the keys do."""
        text = files("zmtpsniff.browse").joinpath("help.txt").read_text("utf-8")
        lines = [Text(line, no_wrap=True, end="") for line in text.splitlines()]
        self._app.push_screen(ViewScreen("zmtpsniff browse: keys", TextLines(lines), _BACK))

    def _show_conversations(self) -> None:
        """Show the connections, those of one socket together."""
        title = "conversations, by bound socket"
        self._prepare(lambda: conversations(self._index), lambda table: self._show_table(title, table))

    def _show_findings(self) -> None:
        """Show what is wrong and what to do about it, as zmtpsniff diagnose does."""
        if self._reader.is_over:
            found = self._reader.findings
            self._show_table("findings", findings(self._index, found), "nothing is wrong")
        else:
            self._status.say("findings come when all is read; 8 shows the problems so far")

    def _show_problems(self) -> None:
        """Show what is wrong with single records, by what it is."""
        self._prepare(lambda: problems(self._index), lambda table: self._show_table("problems", table))

    def _show_statistics(self, records: list[AnyRecord]) -> None:
        stream = io.StringIO()
        draw(records, stream, self._options.utc, "always", max(self._app.size.width - 2, 40))
        lines = [Text.from_ansi(line, no_wrap=True, end="") for line in stream.getvalue().splitlines()]
        self.close()
        self._app.push_screen(ViewScreen("statistics", TextLines(lines), _BACK))

    def _with_statistics(self, show: Callable[[list[AnyRecord]], None]) -> None:
        self._run(partial(self._count, show), "view")

    def _count(self, show: Callable[[list[AnyRecord]], None]) -> None:
        """Count all records that have come, unless that has been done, and show some of the counts."""
        worker = get_current_worker()
        count = len(self._index)
        if self._statistics is None or self._statistics[0] != count:
            statistics = Statistics()
            for start in range(0, count, _CHUNK):
                if worker.is_cancelled:
                    return
                self._app.call_from_thread(self._status.say, f"counting {start / count:.0%}")
                statistics.take(list(self._index.events(start, min(start + _CHUNK, count))), None)
            self._statistics = (count, report(statistics, 1000))
        self._app.call_from_thread(self._status.say, "")
        self._app.call_from_thread(show, self._statistics[1])

    # ------------------------------------------------------------------ of some records

    def _follow(self, flows: tuple[int, ...], row: int | None) -> None:
        """Show some flows from beginning to end, both sides in turn."""
        selection = rows_of_flows(self._index, flows)
        lines = ConversationLines(self._index, selection, self._clock, self._options.show_secrets)
        talk = self._index.talks.get(flows[0])
        title = f"connection {flows[0]}" if len(flows) == 1 else plural(len(flows), "connection")
        if talk is not None:
            title += f": {escape(talk.client)} {escape(talk.socket_type(talk.client))} → "
            title += f"{escape(talk.server)} {escape(talk.socket_type(talk.server))}"
        self._show_rows(title.rstrip(), lines, selection, row)

    def _show_ladder_of_list(self) -> None:
        """Show what the list shows as a ladder."""
        selection = self._view.records.selection

        def make() -> LadderLines:
            flows: Iterable[int] = list(self._index.talks)
            if not isinstance(selection, EveryRow):
                flows = sorted({self._index.flows[selection.row(place)] for place in range(len(selection))})
            return self._ladder_of_flows(selection, flows)

        self._prepare(make, lambda lines: self._show_rows("ladder", lines, selection, self._view.row))

    def _show_ladder(self, flows: tuple[int, ...], row: int | None) -> None:
        selection = rows_of_flows(self._index, flows)
        self._show_rows("ladder", self._ladder_of_flows(selection, flows), selection, row)

    def _ladder_of_flows(self, selection: Selection, flows: Iterable[int]) -> LadderLines:
        """A ladder whose columns are both sides of each flow."""
        talks = [talk for flow in flows if (talk := self._index.talks.get(flow)) is not None]
        return self._ladder(selection, [(talk.flow, end) for talk in talks for end in (talk.client, talk.server)])

    def _ladder(
        self, selection: Selection, ends: list[tuple[int, str]], clock: RecordClock | None = None
    ) -> LadderLines:
        secrets, width = self._options.show_secrets, self._app.size.width
        return LadderLines(self._index, selection, clock or self._clock, secrets, ends, width)

    def _show_trace(self, row: int | None) -> None:
        if row is not None and isinstance(self._index.event(row), Message):
            self._prepare(lambda: trace(self._index, row), lambda traced: self._show_way(row, traced))
        else:
            self._status.say("only a message has a way over brokers and services")

    def _show_way(self, row: int, traced: Traced) -> None:
        """Show a way as a ladder, with the times since its first message."""
        selection = SomeRows(traced.rows)
        events = [event for each in traced.rows if isinstance(event := self._index.event(each), Message)]
        clock = RecordClock(self._index, self._options.utc, "relative")
        clock.start_ns = events[0].time_ns
        lines = self._ladder(
            selection, [(event.flow, end) for event in events for end in (event.src, event.dst)], clock
        )
        words = [plural(len(traced.rows), "message")] if traced.way is None else way_words(traced.way)
        self._show_rows("; ".join(words), lines, selection, row)

    # ------------------------------------------------------------------ screens

    def _prepare(self, make: Callable[[], _Made], show: Callable[[_Made], None]) -> None:
        """Make a view that takes a while if there are many records, and then show it."""

        def work() -> None:
            made = make()
            if not get_current_worker().is_cancelled:
                self._app.call_from_thread(show, made)

        self._run(work, "view")

    def _run(self, work: Callable[[], None], group: str) -> None:
        """Do something in a thread. It replaces what the group's thread still does."""
        self._app.run_worker(work, group=group, exclusive=True, thread=True, exit_on_error=False)

    def _show_rows(self, title: str, lines: LineSource, selection: Selection, row: int | None) -> None:
        while len(selection) < 1000 and selection.advance():
            pass
        cursor = 0 if row is None else selection.place(row)
        self._show_view(title, lines, lambda place: Target(selection.row(place)), cursor)
        self._run(partial(self._complete, selection), "rows")

    def _complete(self, selection: Selection) -> None:
        """Find the rest of the rows of a view."""
        worker = get_current_worker()
        while not worker.is_cancelled and (selection.advance() or not self._reader.is_over):
            time.sleep(0.001)

    def _show_table(self, title: str, lines: TableLines, if_empty: str = "there are none") -> None:
        title = title if len(lines) else f"{title}: {if_empty}"
        self._show_view(title, lines, lambda place: lines.lines[place].target)

    def _show_view(self, title: str, lines: LineSource, targets: Callable[[int], Target], cursor: int = 0) -> None:
        def go(place: int, key: str) -> None:
            self._go(targets(place), key)

        self.close()
        self._app.push_screen(ViewScreen(title, lines, _HINTS, go, cursor))

    def _go(self, target: Target, key: str) -> None:
        """Go where a line of a view leads, by the key that was pressed on it."""
        row = target.row
        flows = target.flows or (() if row is None or not self._index.flows[row] else (self._index.flows[row],))
        if key == "c" and flows:
            self._follow(flows, row)
        elif key == "L" and flows:
            self._show_ladder(flows, row)
        elif key == "r":
            self._show_trace(row)
        elif key == "enter" and row is not None:
            self.close()
            self._go_to_row(row)
        elif key in ("f", "enter"):
            condition = target.condition
            if not condition and flows:
                some = f"== {flows[0]}" if len(flows) == 1 else f"in {{{', '.join(map(str, flows[:500]))}}}"
                condition = f"flow {some}"
            if condition:
                self.close()
                self._filter_by(condition)
