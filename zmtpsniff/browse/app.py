"""The terminal to look around in: records, the tree of one, its octets, and views of them all."""

import asyncio
import os
import signal
import threading
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Key, Resize
from textual.theme import BUILTIN_THEMES
from textual.widgets import Input, Static

from zmtpsniff.browse.browse_options import THEMES, BrowseOptions
from zmtpsniff.browse.browse_views import Views
from zmtpsniff.browse.exporter import FILES, Exporter
from zmtpsniff.browse.panes import RecordClock
from zmtpsniff.browse.prompt import Prompt
from zmtpsniff.browse.reader import CaptureReader
from zmtpsniff.browse.record_search import RecordSearch
from zmtpsniff.browse.record_view import RecordView
from zmtpsniff.browse.selection import EveryRow, Selection, filtered_rows
from zmtpsniff.browse.status_bar import StatusBar
from zmtpsniff.browse.virtual_list import VirtualList
from zmtpsniff.filters import FilterError, compile_filter
from zmtpsniff.filters.completion import FieldCompletion
from zmtpsniff.render.clock import TIMES

_NUMBERED = ("records", "conversations", "ladder", "findings", "topics", "services", "statistics", "problems")
_SYNC_SECONDS = 0.2
_EXIT_SECONDS = 10.0  # that it has for its end once somebody ends it


class BrowseApp(App[None]):
    """Looks around in the records of a reader. It has the keys, the filter and the question; its parts do the rest."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#records"  # not the filter, which is first: keys that were pressed early are no part of a filter
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", show=False),
        Binding("question_mark,f1", "view('help')", show=False),
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
        Binding("y", "copy('field')", show=False),
        Binding("Y", "copy('record')", show=False),
        Binding("w", "ask('octets')", show=False),
        Binding("W", "ask('record')", show=False),
        Binding("P", "ask('packets')", show=False),
        *(Binding(str(number), f"view('{name}')", show=False) for number, name in enumerate(_NUMBERED, 1)),
        Binding("c", "view('follow')", show=False),
        Binding("r", "view('way')", show=False),
        Binding("L", "view('record-ladder')", show=False),
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
        # NO_COLOR removes the terminal's colours. Colours that are computed would become shades of grey.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        secrets = options.show_secrets
        self.reader = reader
        self._options = options
        self._clock = RecordClock(reader.index, options.utc)
        self._clock.times = options.times
        # They are kept, since a query asks only the front screen, which may be a view.
        self.view = RecordView(reader, options, self._clock)
        self.status = StatusBar(reader, self.view, options)
        self._views = Views(
            self,
            reader,
            self.view,
            self.status,
            self._clock,
            options,
            self.go_to_row,
            self.filter_by,
        )
        self._search = RecordSearch(self, reader.index, self.view, self.status, self.go_to_row, secrets)
        self._exporter = Exporter(self, reader, self.view, self.status, secrets)
        self._completion = FieldCompletion()
        self.filter_prompt = Prompt(id="filter", completion=self._completion)
        self._question_line = Container(id="question-line")
        self._question_label = Static("", id="question-label")
        self.question_prompt = Prompt(id="question")
        self._condition = ""  # the filter that holds
        self._question = ""  # that the prompt asks
        for theme in BUILTIN_THEMES.values():
            self.register_theme(theme)
        self.theme = THEMES[options.theme]

    def compose(self) -> ComposeResult:
        """The filter, three panes, a line to ask in, the state."""
        with Container(id="filter-line"):
            yield Static("filter ", id="filter-label")
            yield self.filter_prompt
        yield self.view
        with self._question_line:
            yield self._question_label
            yield self.question_prompt
        yield self.status

    def on_mount(self) -> None:
        """Begin to read, and to show what has come."""
        if self._options.condition:
            self.filter_prompt.value = self._options.condition
            self.apply_filter(self._options.condition)
        loop = asyncio.get_running_loop()

        def end(*_: object) -> None:
            # Textual may wait for ever to write to a terminal that is gone. Then its loop does nothing any more.
            timer = threading.Timer(_EXIT_SECONDS, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()
            loop.call_soon_threadsafe(self.exit)

        # The terminal is gone, or somebody ends the program.
        self._handlers = {each: signal.signal(each, end) for each in (signal.SIGHUP, signal.SIGTERM)}
        self.reader.start()
        self.set_interval(_SYNC_SECONDS, self._sync)
        self.set_timer(0.02, self._sync)
        self.set_timer(0.08, self._sync)

    def on_unmount(self) -> None:
        """Let go of the capture."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self.reader.close()

    def on_resize(self, event: Resize) -> None:
        """Lay the panes out anew."""
        self.view.lay_out(event.size.width)

    def on_virtual_list_cursor_move(self, event: VirtualList.CursorMove) -> None:
        """Tell where the cursor is, and no more what was done before."""
        self.status.say("")

    def _sync(self) -> None:
        """Show what has come since."""
        self.view.sync()
        self.status.draw()

    def go_to_row(self, row: int) -> None:
        """Put the cursor on a record; without the filter if that hides it."""
        if not self.view.has(row):
            self.action_clear_filter()
        self.view.go_to_row(row)

    def on_key(self, event: Key) -> None:
        """Give a prompt the keys that went to the records, since they came right behind the one that opens it."""
        prompt = self.focused
        if isinstance(prompt, Prompt) and event is not prompt.last_key:
            event.stop()
            event.prevent_default()
            self.post_message(Key(event.key, event.character))

    # ------------------------------------------------------------------ the filter

    def action_ask_filter(self) -> None:
        """Let a filter be typed."""
        self._views.close()
        self.screen.set_focus(self.filter_prompt)

    def action_clear_filter(self) -> None:
        """Show all records."""
        self.filter_prompt.value = ""
        self.apply_filter("")

    def filter_by(self, condition: str) -> None:
        """Write a filter, and apply it."""
        self.filter_prompt.value = condition
        self.apply_filter(condition)
        self.view.list_pane.focus()

    def apply_filter(self, condition: str) -> bool:
        """Show only records that pass; False if the filter cannot be used, which is told then."""
        index = self.reader.index
        try:
            selection: Selection = filtered_rows(index, compile_filter(condition)) if condition else EveryRow(index)
        except FilterError as error:
            self.status.say(str(error))
            return False
        self._condition = condition
        self.filter_prompt.remove_class("-wrong", "-right")
        self.view.select(selection)
        self.status.is_filtered = bool(condition)
        self.status.say("")
        return True

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say of a filter whether it can be used, while it is typed."""
        if event.input.id != "filter" or not event.input.has_focus:
            return
        text = event.value.strip()
        event.input.remove_class("-wrong", "-right")
        if not text:
            self.status.say("Enter shows all records")
            return
        names = self._completion.candidates(text)
        hint = f"Tab: {'  '.join(names[:6])}" if names else ""
        try:
            compile_filter(text)
        except FilterError as error:
            event.input.add_class("-wrong")
            self.status.say(hint or str(error))
        else:
            event.input.add_class("-right")
            self.status.say(hint or "Enter applies")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply a filter, or take an answer."""
        text = event.value.strip()
        prompt = event.input
        assert isinstance(prompt, Prompt)
        if prompt is self.filter_prompt:
            if self.apply_filter(text):
                prompt.remember(text)
                self.view.list_pane.focus()
            return
        prompt.remember(text)
        self._close_question()
        if text:
            self._answer(text)

    def on_prompt_departure(self, event: Prompt.Departure) -> None:
        """Go back to the records."""
        if event.prompt is self.filter_prompt:
            self.filter_prompt.value = self._condition
            self.filter_prompt.remove_class("-wrong", "-right")
            self.status.say("")
            self.view.list_pane.focus()
        else:
            self._close_question()

    # ------------------------------------------------------------------ the question

    def action_ask(self, question: str) -> None:
        """Ask something below the panes."""
        if question in FILES and self.view.row is None:
            return
        self._views.close()
        self._question = question
        self._question_label.update(self._QUESTIONS[question])
        self._question_line.add_class("-asked")
        self.question_prompt.propose(FILES.get(question, self._search.text if question == "search" else ""))
        self.screen.set_focus(self.question_prompt)

    def _close_question(self) -> None:
        self._question_line.remove_class("-asked")
        self.view.list_pane.focus()

    def _answer(self, text: str) -> None:
        if self._question == "search":
            self._search.text = text
            self._search.start(1)
        elif self._question == "packet":
            self._search.go_to_packet(text)
        else:
            self._exporter.save(self._question, text)

    # ------------------------------------------------------------------ what keys do

    def action_search(self, step: int) -> None:
        """Go to the next record that has the text sought, or to the one before."""
        self._search.start(step)

    def action_problem(self, step: int) -> None:
        """Go to the next problem, or to the one before."""
        self._search.go_to_next(sorted(self.reader.index.problems), step, "problem")

    def action_mark(self) -> None:
        """Mark the record, or take its mark away."""
        self.view.toggle_mark()

    def action_marked(self, step: int) -> None:
        """Go to the next marked record, or to the one before."""
        self._search.go_to_next(sorted(self.view.records.marks), step, "mark")

    def action_view(self, name: str) -> None:
        """Open a view."""
        self._views.open(name)

    def action_copy(self, what: str) -> None:
        """Copy the field under the tree's cursor, or the record as a line of JSON."""
        (self._exporter.copy_field if what == "field" else self._exporter.copy_record)()

    def action_times(self) -> None:
        """Tell times in the next way."""
        self._clock.times = TIMES[(TIMES.index(self._clock.times) + 1) % len(TIMES)]
        self.view.list_pane.refresh()
        self.status.say(f"time: {self._clock.times}")

    def action_theme(self) -> None:
        """Take the next colours."""
        names = list(THEMES.values())
        self.theme = names[(names.index(self.theme) + 1) % len(names)]

    def action_pane(self, step: int) -> None:
        """Go to the next pane, or to the one before."""
        if len(self.screen_stack) == 1:
            self.view.focus_next(step)

    def action_zoom(self) -> None:
        """Show only the pane with the focus, or all again."""
        self.view.toggle_zoom(self.focused)

    def action_pause(self) -> None:
        """Pause the list, or resume it."""
        self.view.toggle_pause()
        self.status.draw()

    def action_stop_capture(self) -> None:
        """End the capture."""
        self.reader.stop()
        self.status.say("stopped")

    def action_escape(self) -> None:
        """Stop a search, a zoom or a message of the status line."""
        self._search.stop()
        self.view.zoom(None)
        self.status.say("")
        self.view.list_pane.focus()
