"""Screens in front of the panes: tables, texts, ladders, conversations."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from zmtpsniff.browse.virtual_list import LineSource, VirtualList

Go = Callable[[int, str], None]
"""The action for a line of a view, by its place, and for the key that was pressed there."""


class TextLines:
    """Lines that are there already."""

    def __init__(self, lines: Sequence[Text]) -> None:
        """Show these."""
        self._lines = lines
        self.columns = max([line.cell_len for line in lines], default=0)

    def __len__(self) -> int:
        """How many they are."""
        return len(self._lines)

    def line(self, place: int, width: int) -> Text:
        """One of them."""
        return self._lines[place]


class ViewScreen(Screen[None]):
    """A list with a title, and what can be done with its lines."""

    AUTO_FOCUS = "#view"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", show=False),
        Binding("f", "go('f')", show=False),
        Binding("c", "go('c')", show=False),
        Binding("L", "go('L')", show=False),
        Binding("r", "go('r')", show=False),
        Binding("question_mark", "app.view('help')", show=False),
        Binding("t", "times", show=False),
    ]

    def __init__(self, title: str, lines: LineSource, hints: str, go: Go | None = None, cursor: int = 0) -> None:
        """``go`` is called with the place of a line when a key of ``hints`` is pressed there."""
        super().__init__()
        self._title = title
        self._lines = lines
        self._hints = hints
        self._go = go
        self._cursor = cursor
        self.view = VirtualList(lines, id="view")

    def compose(self) -> ComposeResult:
        """The title, the heading of the columns if there is one, the list, the hints."""
        yield Static(self._title, classes="title", markup=False)
        heading = getattr(self._lines, "heading", None)
        if heading is not None:
            yield Static(Text(heading, no_wrap=True), id="heading", classes="heading", markup=False)
        yield self.view
        yield Static(self._hints, classes="hints", markup=False)

    def on_mount(self) -> None:
        """Begin at the line that was asked for."""
        self.view.focus()
        self.call_after_refresh(self.view.show, self._lines, self._cursor)
        self.set_interval(0.25, self._sync)
        self.watch(self.view, "scroll_x", self._scroll_heading, init=False)

    def on_virtual_list_choice(self, event: VirtualList.Choice) -> None:
        """Go where the line leads."""
        event.stop()
        self.action_go("enter")

    def action_go(self, key: str) -> None:
        """Do with the line what a key asks for."""
        if self._go is not None and len(self._lines):
            self._go(self.view.cursor, key)

    def action_times(self) -> None:
        """Tell times in the next way."""
        self.app.action_times()  # type: ignore[attr-defined]
        self.view.refresh()

    def _sync(self) -> None:
        if len(self._lines) != self.view.virtual_size.height:
            self.view.sync()

    def _scroll_heading(self) -> None:
        heading = getattr(self._lines, "heading", None)
        if heading is not None:
            text = Text(heading, no_wrap=True)[round(self.view.scroll_x) :]
            self.query_one("#heading", Static).update(text)
