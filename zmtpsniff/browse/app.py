"""The terminal to look around in: records, the tree of one, its octets, and views of them all."""

import asyncio
import io
import os
import signal
import time
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize
from textual.theme import BUILTIN_THEMES
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from dissectors.events import AnyEvent, Cut, Message, at_hand
from zmtpsniff.analysis.statistics import Statistics
from zmtpsniff.analysis.statistics.records import AnyRecord
from zmtpsniff.analysis.statistics.report import report
from zmtpsniff.browse.ladder import LadderLines
from zmtpsniff.browse.panes import (
    ConversationLines,
    OctetLines,
    OctetView,
    RecordClock,
    RecordLines,
    TreeLines,
    TreeView,
    time_of,
)
from zmtpsniff.browse.prompt import Prompt
from zmtpsniff.browse.reader import CaptureReader
from zmtpsniff.browse.save import SaveError, json_line, save_octets, save_packets
from zmtpsniff.browse.screens import TextLines, ViewScreen
from zmtpsniff.browse.selection import EveryRow, FilteredRows, FlowRows, Selection, SomeRows
from zmtpsniff.browse.sheet import make_sheet
from zmtpsniff.browse.tables import TableLines, Target, conversations, findings, problems, services, topics
from zmtpsniff.browse.trace import trace
from zmtpsniff.browse.virtual_list import LineSource, VirtualList
from zmtpsniff.browse.wire import WireFinder
from zmtpsniff.browse.words import record_words
from zmtpsniff.filters import FilterError, compile_filter
from zmtpsniff.filters.completion import FieldCompletion
from zmtpsniff.render.clock import TIMES, Times
from zmtpsniff.render.statistics import draw
from zmtpsniff.render.text import escape, quote

_Made = TypeVar("_Made")

THEMES = ("terminal", "dark", "light")

_THEMES = {"terminal": "ansi-dark", "dark": "textual-dark", "light": "textual-light"}
_SYNC_SECONDS = 0.2
_SIDE_BY_SIDE = 150  # columns from which on tree and octets stand beside each other
_SEARCHED = 5000  # rows between two looks at whether somebody wants to stop
_CHUNK = 20_000  # records that statistics take at a time
_VIEW_HINTS = "Enter record  f filter  c follow  L ladder  Esc back"


class BrowseOptions(NamedTuple):
    """How everything is shown at first."""

    title: str  # what is looked at, safe to show
    is_live: bool = False
    condition: str = ""  # the display filter
    times: Times = "absolute"
    utc: bool = False
    theme: str = "terminal"
    show_secrets: bool = False


class BrowseApp(App[None]):
    """Looks around in what a reader reads."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#records"  # not the filter, which is first: keys that were pressed early are no part of one
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", show=False),
        Binding("question_mark,f1", "help", show=False),
        Binding("f,ampersand,ctrl+slash", "ask_filter", show=False),
        Binding("F", "clear_filter", show=False),
        Binding("slash", "ask('search')", show=False),
        Binding("n", "search(1)", show=False),
        Binding("N", "search(-1)", show=False),
        Binding("e", "problem(1)", show=False),
        Binding("E", "problem(-1)", show=False),
        Binding("colon,ctrl+g", "ask('packet')", show=False),
        Binding("m", "mark", show=False),
        Binding("apostrophe", "marked(1)", show=False),
        Binding("quotation_mark", "marked(-1)", show=False),
        Binding("t", "times", show=False),
        Binding("T", "theme", show=False),
        Binding("z", "zoom", show=False),
        Binding("p", "pause", show=False),
        Binding("s", "stop_capture", show=False),
        Binding("y", "copy_field", show=False),
        Binding("Y", "copy_record", show=False),
        Binding("w", "ask('octets')", show=False),
        Binding("W", "ask('record')", show=False),
        Binding("P", "ask('packets')", show=False),
        Binding("1", "records", show=False),
        Binding("2", "conversations", show=False),
        Binding("3", "ladder", show=False),
        Binding("4", "findings", show=False),
        Binding("5", "topics", show=False),
        Binding("6", "services", show=False),
        Binding("7", "statistics", show=False),
        Binding("8", "problems", show=False),
        Binding("c", "follow", show=False),
        Binding("r", "trace", show=False),
        Binding("L", "ladder_here", show=False),
        Binding("escape", "escape", show=False),
    ]
    _QUESTIONS: ClassVar[dict[str, str]] = {
        "search": "search for: ",
        "packet": "packet: ",
        "octets": "save octets to file: ",
        "record": "save record to file: ",
        "packets": "save packets to file: ",
    }

    def __init__(self, reader: CaptureReader, options: BrowseOptions) -> None:
        """Show what the reader has read; it is started, and stopped in the end."""
        # NO_COLOR takes colours out of those of the terminal; made of others it would leave shades of grey.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._reader = reader
        self._index = reader.index
        self._options = options
        self._clock = RecordClock(self._index, options.utc)
        self._clock.times = options.times
        self._records = RecordLines(self._index, EveryRow(self._index), self._clock, options.show_secrets)
        self._finder = WireFinder(self._index, reader.packets)
        self._tree = TreeLines()
        self._octets = OctetLines()
        self._completion = FieldCompletion()
        self._condition = ""  # the filter that holds
        self._question = ""  # that the prompt asks
        self._sought = ""
        self._said = ""  # what was done, until the next key
        self._shown_row: int | None = None
        self._is_zoomed = False
        self._statistics: tuple[int, list[AnyRecord]] | None = None  # of how many records
        for theme in BUILTIN_THEMES.values():
            self.register_theme(theme)
        self.theme = _THEMES[options.theme]

    # ------------------------------------------------------------------ what there is on the screen

    def compose(self) -> ComposeResult:
        """The filter, three panes, a line to ask in, the state."""
        # They are kept since a query asks the screen in front, which may be a view.
        self._filter = Prompt(id="filter", completion=self._completion)
        self._list = VirtualList(self._records, id="records")
        self._tree_view = TreeView(self._tree, id="tree")
        self._octet_view = OctetView(self._octets, id="octets")
        self._panes, self._below = Container(id="panes"), Container(id="below")
        self._question_line, self._question_label = Container(id="question-line"), Static("", id="question-label")
        self._prompt = Prompt(id="question")
        self._status = Static("", id="status", markup=False)
        with Container(id="filter-line"):
            yield Static("filter ", id="filter-label")
            yield self._filter
        with self._panes:
            yield self._list
            with self._below:
                yield self._tree_view
                yield self._octet_view
        with self._question_line:
            yield self._question_label
            yield self._prompt
        yield self._status

    def on_mount(self) -> None:
        """Begin to read, and to show what has come."""
        self._list.border_title = Text(self._options.title)  # a name of a file is no markup
        self._list.focus()
        self._list.is_live = self._list.follows = self._options.is_live
        if self._options.condition:
            self._filter.value = self._options.condition
            self.apply_filter(self._options.condition)
        for number in (signal.SIGHUP, signal.SIGTERM):  # the terminal is gone, or somebody ends the program
            asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self._reader.start()
        self.set_interval(_SYNC_SECONDS, self._sync)
        self.set_timer(0.02, self._sync)
        self.set_timer(0.08, self._sync)

    def on_unmount(self) -> None:
        """Let go of the capture."""
        self._reader.close()

    def on_resize(self, event: Resize) -> None:
        """Put tree and octets beside each other where there is room."""
        self._below.set_class(event.size.width >= _SIDE_BY_SIDE, "-wide")

    def _sync(self) -> None:
        """Show what has come since."""
        self._list.sync()
        if len(self._records) and self._shown_row != self._records.selection.row(self._list.cursor):
            self._show_record()
        self._show_status()

    def _show_status(self) -> None:
        reader, count = self._reader, len(self._records)
        words = []
        if self._said:
            words.append(self._said)
        if reader.error is not None:
            words.append(f"error: {escape(reader.error)}")
        shown = f"{self._list.cursor + 1 if count else 0:,}/{count:,}"
        words.append(shown if not self._condition else f"{shown} of {len(self._index):,}")
        if self._records.frozen is not None:
            words.append(f"paused, {len(self._records.selection) - count:,} more")
        if self._options.is_live:
            following = self._list.follows and self._records.frozen is None
            words.append("over" if reader.is_over else ("following" if following else "live"))
        elif (progress := reader.progress) is not None:
            words.append(f"reading {progress:.0%}")
        if reader.dropped:
            words.append(f"{reader.dropped:,} dropped")
        text = Text("  ".join(words), no_wrap=True, overflow="ellipsis")
        if reader.dropped or reader.error is not None:
            text.stylize("bold")
        hints = "  ? help  f filter  / search  2 conversations  q quit"
        if text.cell_len + len(hints) < self.size.width:
            text.append(hints.rjust(self.size.width - text.cell_len - 1), "dim")
        self._status.update(text)

    def say(self, text: str) -> None:
        """Tell what was done, or why it was not, in the status line; it must be safe to show."""
        self._said = text
        self._show_status()

    # ------------------------------------------------------------------ the three panes

    @property
    def _row(self) -> int | None:
        """The row under the cursor."""
        return self._records.selection.row(self._list.cursor) if len(self._records) else None

    def _event(self) -> AnyEvent | None:
        return None if self._row is None else self._index.event(self._row)

    def _show_record(self) -> None:
        row = self._row
        self._shown_row = row
        if row is None:
            return
        event = self._index.event(row)
        time_ns = time_of(event)
        told = "" if time_ns is None else self._clock.whole(time_ns)
        sheet = make_sheet(event, self._finder.image(row), told, self._options.show_secrets)
        self._tree.show(sheet)
        self._octets.octets = sheet.octets
        self._octets.lit = range(0)
        self._octets.cursor = None
        self._tree_view.show(self._tree)
        self._octet_view.show(self._octets)
        self._octet_view.border_title = (
            f"{len(sheet.octets):,} octets" if sheet.is_whole or not sheet.octets else "frames' octets, without headers"
        )
        self._tree_view.border_title = f"record {row + 1:,}"
        self._light()

    def _light(self) -> None:
        field = self._tree.field(self._tree_view.cursor)
        if field is not None:
            whole = self._tree_view.cursor == 0
            self._octet_view.light(0 if whole else field.start, 0 if whole else field.stop)

    def on_virtual_list_cursor_move(self, event: VirtualList.CursorMove) -> None:
        """Show what the cursor is on."""
        self._said = ""
        if event.view.id == "records":
            self._show_record()
            self._show_status()
        elif event.view.id == "tree":
            self._light()

    def on_virtual_list_choice(self, event: VirtualList.Choice) -> None:
        """From a record to its tree."""
        if event.view.id == "records":
            self._tree_view.focus()

    def on_octet_view_octet_choice(self, event: OctetView.OctetChoice) -> None:
        """Go to the field that the octet belongs to."""
        number = self._tree.sheet.field_at(event.octet)
        if number is None:
            return
        place = self._tree.place(number)
        self._tree_view.move_to(place, silent=True)
        field = self._tree.field(place)
        if field is not None:
            self._octets.lit = range(field.start, field.stop)
            self._octet_view.refresh()

    def go_to_row(self, row: int) -> None:
        """Put the cursor on a record; without the filter if that hides it."""
        selection = self._records.selection
        place = selection.place(row)
        if place >= len(selection) or selection.row(place) != row:
            self.action_clear_filter()
            place = row
        self._records.frozen = None
        self._zoom(None)
        self._list.sync()
        self._list.move_to(place)
        self._list.focus()

    # ------------------------------------------------------------------ filter, search, marks

    def action_ask_filter(self) -> None:
        """Let a filter be typed."""
        self._back_to_records()
        self._filter.focus()

    def action_clear_filter(self) -> None:
        """Show all records."""
        self._filter.value = ""
        self.apply_filter("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say of a filter whether it can be used, while it is typed."""
        if event.input.id != "filter" or not event.input.has_focus:
            return
        text = event.value.strip()
        event.input.remove_class("-wrong", "-right")
        if not text:
            self.say("Enter shows all records")
            return
        names = self._completion.candidates(text)
        hint = f"Tab: {'  '.join(names[:6])}" if names else ""
        try:
            compile_filter(text)
        except FilterError as error:
            event.input.add_class("-wrong")
            self.say(hint or str(error))
        else:
            event.input.add_class("-right")
            self.say(hint or "Enter applies")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply a filter, or take an answer."""
        text = event.value.strip()
        prompt = event.input
        assert isinstance(prompt, Prompt)
        if prompt is self._filter:
            if self.apply_filter(text):
                prompt.remember(text)
                self._list.focus()
            return
        prompt.remember(text)
        self._close_question()
        if text:
            self._answer(text)

    def on_prompt_departure(self, event: Prompt.Departure) -> None:
        """Go back to the records."""
        if event.prompt is self._filter:
            self._filter.value = self._condition
            self._filter.remove_class("-wrong", "-right")
            self.say("")
            self._list.focus()
        else:
            self._close_question()

    def apply_filter(self, condition: str) -> bool:
        """Show only records that pass; False if the filter cannot be used, which is told then."""
        if not condition:
            selection: Selection = EveryRow(self._index)
        else:
            try:
                selection = FilteredRows(self._index, compile_filter(condition))
            except FilterError as error:
                self.say(str(error))
                return False
        self._condition = condition
        self._filter.remove_class("-wrong", "-right")
        self._select(selection)
        return True

    def _select(self, selection: Selection) -> None:
        """Show these rows, with the cursor on the record that it was on, if that is among them."""
        row = self._row
        self.workers.cancel_group(self, "selection")
        self._records.frozen = None
        self._records.selection = selection
        self._said = ""
        selection.advance()
        self._list.show(self._records, 0 if row is None else selection.place(row))
        self._show_record()
        self._fill(selection, row)

    @work(thread=True, group="selection", exit_on_error=False)
    def _fill(self, selection: Selection, row: int | None) -> None:
        """Find the rows of a selection, and those that come later."""
        worker = get_current_worker()
        while not worker.is_cancelled:
            found = len(selection)
            if selection.advance():
                if row is not None and len(selection) > found and selection.row(len(selection) - 1) >= row:
                    self.call_from_thread(self._return_to, selection, row)
                    row = None
            elif self._reader.is_over:
                return
            else:
                time.sleep(_SYNC_SECONDS)

    def _return_to(self, selection: Selection, row: int) -> None:
        if self._records.selection is selection and self._list.cursor == 0:
            self._list.sync()
            self._list.move_to(selection.place(row))

    def action_ask(self, question: str) -> None:
        """Ask something below the panes."""
        if question in ("octets", "record", "packets") and self._row is None:
            return
        self._back_to_records()
        self._question = question
        names = {"octets": "frame.bin", "record": "record.json", "packets": "packets.pcapng"}
        self._question_label.update(self._QUESTIONS[question])
        self._question_line.add_class("-asked")
        self._prompt.value = names.get(question, self._sought if question == "search" else "")
        self._prompt.cursor_position = len(self._prompt.value)
        self._prompt.focus()

    def _close_question(self) -> None:
        self._question_line.remove_class("-asked")
        self._list.focus()

    def _answer(self, text: str) -> None:
        if self._question == "search":
            self._sought = text
            self.action_search(1)
        elif self._question == "packet":
            row = self._index.row_from_packet(int(text)) if text.isascii() and text.isdigit() else None
            if row is None:
                self.say(f"no record from packet {escape(text)} on")
            else:
                self.go_to_row(row)
        else:
            self._save(self._question, text)

    def action_search(self, step: int) -> None:
        """Go to the next record, or to the one before, whose line holds the text sought, whatever its case."""
        if self._sought:
            self.say(f"searching for {quote(self._sought.encode())}, Esc stops")
            self._find(step, self._sought.casefold(), self._list.cursor)

    @work(thread=True, group="search", exclusive=True, exit_on_error=False)
    def _find(self, step: int, sought: str, start: int) -> None:
        worker = get_current_worker()
        place = start + step
        count = len(self._records)
        while 0 <= place < count:
            if place % _SEARCHED == 0 and worker.is_cancelled:
                return
            words = record_words(self._records.event(place), 1 << 20, self._options.show_secrets)
            if sought in f"{words.kind} {words.text}".casefold():
                self.call_from_thread(self._found, place)
                return
            place += step
        self.call_from_thread(self.say, f"not found {'below' if step > 0 else 'above'}: {quote(sought.encode())}")

    def _found(self, place: int) -> None:
        self._list.move_to(place)
        self._said = ""
        self._show_record()
        self._show_status()

    def action_problem(self, step: int) -> None:
        """Go to the next problem, or to the one before."""
        self._next_of(sorted(self._index.problems), step, "problem")

    def action_mark(self) -> None:
        """Mark the record, or take its mark away."""
        if self._row is not None:
            self._records.marks ^= {self._row}
            self._list.refresh()

    def action_marked(self, step: int) -> None:
        """Go to the next marked record, or to the one before."""
        self._next_of(sorted(self._records.marks), step, "mark")

    def _next_of(self, rows: list[int], step: int, what: str) -> None:
        here = -1 if self._row is None else self._row
        after = [row for row in rows if row > here] if step > 0 else [row for row in reversed(rows) if row < here]
        if after:
            self.go_to_row(after[0])
        else:
            self.say(f"no {what} {'below' if step > 0 else 'above'}")

    # ------------------------------------------------------------------ views

    def action_records(self) -> None:
        """Show the panes."""
        self._back_to_records()

    def _back_to_records(self) -> None:
        self._zoom(None)
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def action_help(self) -> None:
        """Say what all the keys do."""
        text = files("zmtpsniff.browse").joinpath("help.txt").read_text("utf-8")
        lines = [Text(line, no_wrap=True, end="") for line in text.splitlines()]
        self.push_screen(ViewScreen("zmtpsniff browse: keys", TextLines(lines), "Esc back"))

    def _show_view(self, title: str, lines: LineSource, targets: Callable[[int], Target], cursor: int = 0) -> None:
        def go(place: int, key: str) -> None:
            self._go(targets(place), key)

        self._back_to_records()
        self.push_screen(ViewScreen(title, lines, _VIEW_HINTS, go, cursor))

    def _show_table(self, title: str, lines: TableLines) -> None:
        self._show_view(title, lines, lambda place: lines.lines[place].target)

    def _go(self, target: Target, key: str) -> None:
        """Go where a line of a view leads, by the key that was pressed on it."""
        flows = target.flows or (() if target.row is None else (self._index.flows[target.row],))
        if key == "c" and flows:
            self._follow(flows)
        elif key == "L" and flows:
            self._show_ladder(flows)
        elif key == "r" and target.row is not None:
            self._show_trace(target.row)
        elif key == "enter" and target.row is not None:
            self._back_to_records()
            self.go_to_row(target.row)
        elif key in ("f", "enter"):
            condition = target.condition
            if not condition and flows:
                some = f"== {flows[0]}" if len(flows) == 1 else f"in {{{', '.join(map(str, flows[:500]))}}}"
                condition = f"flow {some}"
            if condition:
                self._back_to_records()
                self._filter.value = condition
                self.apply_filter(condition)
                self._list.focus()

    @work(thread=True, group="view", exclusive=True, exit_on_error=False)
    def _prepare(self, make: Callable[[], _Made], show: Callable[[_Made], None]) -> None:
        """Make something that takes a while where records are many, and then show it."""
        made = make()
        if not get_current_worker().is_cancelled:
            self.call_from_thread(show, made)

    def action_conversations(self) -> None:
        """Show the connections, those of one socket together."""
        title = "conversations, by bound socket"
        self._prepare(lambda: conversations(self._index), lambda table: self._show_table(title, table))

    def action_findings(self) -> None:
        """Show what is wrong and what to do about it, as zmtpsniff diagnose does."""
        if self._reader.is_over:
            found = self._reader.findings
            self._show_table("findings" if found else "findings: nothing is wrong", findings(self._index, found))
        else:
            self.say("findings come when all is read; 8 shows the problems so far")

    def action_problems(self) -> None:
        """Show what is wrong with single records, by what it is."""
        self._prepare(lambda: problems(self._index), lambda table: self._show_table("problems", table))

    def action_topics(self) -> None:
        """Show topics and groups."""
        self._with_statistics(lambda records: self._show_table("topics", topics(records)))

    def action_services(self) -> None:
        """Show who answers, and how fast."""
        self._with_statistics(lambda records: self._show_table("services", services(self._index, records)))

    def action_statistics(self) -> None:
        """Show what zmtpsniff stats shows."""
        self._with_statistics(self._show_statistics)

    def _show_statistics(self, records: list[AnyRecord]) -> None:
        stream = io.StringIO()
        draw(records, stream, self._options.utc, "always", max(self.size.width - 2, 40))
        lines = [Text.from_ansi(line, no_wrap=True, end="") for line in stream.getvalue().splitlines()]
        self._back_to_records()
        self.push_screen(ViewScreen("statistics", TextLines(lines), "Esc back"))

    @work(thread=True, group="view", exclusive=True, exit_on_error=False)
    def _with_statistics(self, show: Callable[[list[AnyRecord]], None]) -> None:
        """Count all records that have come, unless that has been done, and show something of it."""
        worker = get_current_worker()
        count = len(self._index)
        if self._statistics is None or self._statistics[0] != count:
            statistics = Statistics()
            for start in range(0, count, _CHUNK):
                if worker.is_cancelled:
                    return
                self.call_from_thread(self.say, f"counting {start / count:.0%}")
                statistics.take(list(self._index.events(start, min(start + _CHUNK, count))), None)
            self._statistics = (count, report(statistics, 1000))
        self.call_from_thread(self.say, "")
        self.call_from_thread(show, self._statistics[1])

    def action_follow(self) -> None:
        """Follow the conversation of the record."""
        if self._row is not None and (flow := self._index.flows[self._row]):
            self._follow((flow,), self._row)

    def _follow(self, flows: tuple[int, ...], row: int | None = None) -> None:
        """Show some flows from beginning to end, both sides in turn."""
        selection = FlowRows(self._index, flows)
        lines = ConversationLines(self._index, selection, self._clock, self._options.show_secrets)
        talk = self._index.talks.get(flows[0])
        title = f"flow {flows[0]}" if len(flows) == 1 else f"{len(flows):,} flows"
        if talk is not None:
            title += f": {escape(talk.client)} {escape(talk.socket_type(talk.client))} → "
            title += f"{escape(talk.server)} {escape(talk.socket_type(talk.server))}"
        self._show_rows(title.rstrip(), lines, selection, row)

    def action_ladder(self) -> None:
        """Show what the list shows as a ladder."""
        selection = self._records.selection

        def make() -> LadderLines:
            flows: Iterable[int] = list(self._index.talks)
            if not isinstance(selection, EveryRow):
                flows = sorted({self._index.flows[selection.row(place)] for place in range(len(selection))})
            return self._ladder_lines(selection, flows)

        self._prepare(make, lambda lines: self._show_rows("ladder", lines, selection, self._row))

    def action_ladder_here(self) -> None:
        """Show the conversation of the record as a ladder."""
        if self._row is not None and (flow := self._index.flows[self._row]):
            self._show_ladder((flow,), self._row)

    def _show_ladder(self, flows: tuple[int, ...], row: int | None = None) -> None:
        selection = FlowRows(self._index, flows)
        self._show_rows("ladder", self._ladder_lines(selection, flows), selection, row)

    def _ladder_lines(self, selection: Selection, flows: Iterable[int]) -> LadderLines:
        """A ladder whose columns are both sides of each flow."""
        talks = [talk for flow in flows if (talk := self._index.talks.get(flow)) is not None]
        ends = [(talk.flow, address) for talk in talks for address in (talk.client, talk.server)]
        return LadderLines(self._index, selection, self._clock, self._options.show_secrets, ends, self.size.width)

    def action_trace(self) -> None:
        """Show the way of the request or reply under the cursor."""
        if self._row is not None and isinstance(self._index.event(self._row), Message):
            self._show_trace(self._row)
        else:
            self.say("only a message has a way through proxies")

    def _show_trace(self, row: int) -> None:
        self._prepare(lambda: trace(self._index, row), lambda rows: self._show_way(row, rows))

    def _show_way(self, row: int, rows: list[int]) -> None:
        selection = SomeRows(rows)
        events = [event for each in rows if isinstance(event := self._index.event(each), Message)]
        ends = [(event.flow, address) for event in events for address in (event.src, event.dst)]
        lines = LadderLines(self._index, selection, self._clock, self._options.show_secrets, ends, self.size.width)
        self._show_rows(f"the way of record {row + 1:,}: {len(rows):,} messages", lines, selection, row)

    def _show_rows(self, title: str, lines: LineSource, selection: Selection, row: int | None) -> None:
        while len(selection) < 1000 and selection.advance():
            pass
        cursor = 0 if row is None else selection.place(row)
        self._show_view(title, lines, lambda place: Target(selection.row(place)), cursor)
        self._complete(selection)

    @work(thread=True, group="rows", exclusive=True, exit_on_error=False)
    def _complete(self, selection: Selection) -> None:
        """Find the rest of the rows of a view."""
        worker = get_current_worker()
        while not worker.is_cancelled and (selection.advance() or not self._reader.is_over):
            time.sleep(0.001)

    # ------------------------------------------------------------------ taking out

    def action_copy_field(self) -> None:
        """Copy the field under the tree's cursor: its octets as text, or their digits, else its value."""
        field = self._tree.field(self._tree_view.cursor)
        if field is None:
            return
        if field.depth == 0:
            words = record_words(self._index.event(self._shown_row or 0), 1 << 20, self._options.show_secrets)
            self._copy(words.text)
        elif field.octets is not None:
            octets = at_hand(field.octets)
            try:
                self._copy(octets.decode())
            except UnicodeDecodeError:
                self._copy(octets.hex())
        else:
            self._copy(field.value)

    def action_copy_record(self) -> None:
        """Copy the record as a line of JSON."""
        event = self._event()
        if event is not None:
            self._copy(json_line(event, self._options.show_secrets))

    def _copy(self, text: str) -> None:
        self.copy_to_clipboard(text)
        self.say(f"copied {len(text):,} characters")

    def _save(self, what: str, name: str) -> None:
        path = Path(name).expanduser()
        event = self._event()
        assert event is not None
        if what == "packets":
            self._save_packets(path)
            return
        field = self._tree.field(self._tree_view.cursor)
        try:
            if what == "record":
                octets = (json_line(event, self._options.show_secrets) + "\n").encode()
            else:
                octets = self._tree.sheet.octets if field is None or field.octets is None else at_hand(field.octets)
            save_octets(path, octets)
        except SaveError as error:
            self.say(escape(str(error)))
        else:
            part = ""
            if what == "octets" and field is not None and isinstance(field.octets, Cut):
                part = f", the first of {field.octets.length:,} (zmtpsniff extract has all)"
            self.say(f"{len(octets):,} octets saved{part}: {escape(str(path))}")

    @work(thread=True, group="save", exit_on_error=False)
    def _save_packets(self, path: Path) -> None:
        """Save all packets of the conversations that are shown."""
        selection = self._records.selection
        everything = isinstance(selection, EveryRow)
        flows = set() if everything else {self._index.flows[selection.row(place)] for place in range(len(selection))}
        talks = [talk for flow in flows if (talk := self._index.talks.get(flow)) is not None]
        pairs = None if everything else {frozenset((talk.client, talk.server)) for talk in talks}
        self.call_from_thread(self.say, "saving packets")
        try:
            saved = save_packets(path, self._reader.packets, pairs)
        except SaveError as error:
            self.call_from_thread(self.say, escape(str(error)))
        else:
            self.call_from_thread(self.say, f"{saved:,} packets saved to {escape(str(path))}")

    # ------------------------------------------------------------------ the rest

    def action_times(self) -> None:
        """Tell times in the next way."""
        self._clock.times = TIMES[(TIMES.index(self._clock.times) + 1) % len(TIMES)]
        self._list.refresh()
        self.say(f"time: {self._clock.times}")

    def action_theme(self) -> None:
        """Take the next colours."""
        names = list(_THEMES.values())
        self.theme = names[(names.index(self.theme) + 1) % len(names)]

    def action_pane(self, step: int) -> None:
        """Go to the next pane, or to the one before."""
        panes = [pane for pane in (self._list, self._tree_view, self._octet_view) if pane.display]
        if len(self.screen_stack) == 1:
            at = next((place for place, pane in enumerate(panes) if pane.has_focus), -step)
            panes[(at + step) % len(panes)].focus()

    def action_zoom(self) -> None:
        """Show only the pane with the focus, or all again."""
        self._zoom(None if self._is_zoomed else self.focused)

    def _zoom(self, pane: Widget | None) -> None:
        """Show only that pane, or all of them."""
        self._is_zoomed = pane is not None
        for view in (self._list, self._tree_view, self._octet_view):
            view.display = pane is None or view is pane
        self._below.display = pane is not self._list

    def action_pause(self) -> None:
        """Stop the list, or let it go on; records are read meanwhile."""
        self._records.frozen = len(self._records) if self._records.frozen is None else None
        self._list.sync()
        self._show_status()

    def action_stop_capture(self) -> None:
        """End the capture."""
        self._reader.stop()
        self.say("stopped")

    def action_escape(self) -> None:
        """Stop what goes on."""
        self.workers.cancel_group(self, "search")
        self._zoom(None)
        self.say("")
        self._list.focus()
