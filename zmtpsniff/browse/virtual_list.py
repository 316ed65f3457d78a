"""A list of any length that draws only the lines on the screen."""

from typing import ClassVar, Protocol

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

_CHOSEN = Style(reverse=True)
_LEFT = Style(underline=True)  # the line that is chosen in a list that has not the focus


class LineSource(Protocol):
    """The lines of a list."""

    def __len__(self) -> int:
        """How many lines there are."""

    def line(self, place: int, width: int) -> Text:
        """A line, for a list of so many columns. The list can be scrolled to the end of a longer line."""

    @property
    def columns(self) -> int:
        """How many columns the widest line may have, 0 if each fits the list."""


class VirtualList(ScrollView, can_focus=True):
    """Lines with a cursor, moved by the keys of less and vim, and by the mouse."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b,b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", show=False),
        Binding("ctrl+u,u", "page(-0.5)", show=False),
        Binding("ctrl+d,d", "page(0.5)", show=False),
        Binding("home,g", "first", show=False),
        Binding("end,G", "last", show=False),
        Binding("left,h", "sideways(-8)", show=False),
        Binding("right,l", "sideways(8)", show=False),
        Binding("enter", "choose", show=False),
        Binding("tab", "app.pane(1)", show=False),
        Binding("shift+tab", "app.pane(-1)", show=False),
    ]

    class CursorMove(Message):
        """The cursor is on another line."""

        def __init__(self, view: "VirtualList", place: int) -> None:
            """In that list, at that place."""
            super().__init__()
            self.view = view
            self.place = place

    class Choice(CursorMove):
        """Posted when the user opens the line with the cursor."""

    marks_line = True  # whether the line with the cursor is marked as a whole

    def __init__(self, lines: LineSource, *, id: str | None = None) -> None:  # noqa: A002  # as Textual has it
        """Show these lines."""
        super().__init__(id=id)
        self.lines = lines
        self.cursor = 0
        self.is_live = False  # lines come as long as somebody looks
        self.follows = False  # the end, when lines come

    def show(self, lines: LineSource, cursor: int = 0) -> None:
        """Show other lines."""
        self.lines = lines
        self.cursor = min(max(cursor, 0), max(len(lines) - 1, 0))
        self.sync()
        self.reveal()
        self.refresh()

    def sync(self) -> None:
        """Take in lines that came, or a new size."""
        count = len(self.lines)
        size = Size(self.lines.columns or 1, count)
        if size != self.virtual_size:
            self.virtual_size = size
            self.refresh()
            if self.follows:
                self.call_after_refresh(self.reveal)  # how far it can be scrolled is known only then
        if self.cursor >= count:
            self.cursor = max(count - 1, 0)
        if self.follows and count and self.cursor != count - 1:
            self.move_to(count - 1, keep_following=True)

    def on_resize(self) -> None:
        """Fit the lines to the new width."""
        self.sync()
        self.reveal()

    def move_to(self, place: int, *, keep_following: bool = False, silent: bool = False) -> None:
        """Put the cursor on a line; ``silent`` if nobody is to be told."""
        place = min(max(place, 0), max(len(self.lines) - 1, 0))
        self.follows = self.follows and keep_following
        moved = place != self.cursor
        self.cursor = place
        self.reveal()
        self.refresh()
        if moved and not silent:
            self.post_message(self.CursorMove(self, place))

    def reveal(self) -> None:
        """Scroll so that the cursor is on the screen."""
        height = self.scrollable_content_region.height or 1
        top = round(self.scroll_y)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False)

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        width = self.size.width
        left, top = self.scroll_offset
        place = y + top
        base = self.rich_style
        if place >= len(self.lines):
            return Strip.blank(width, base)
        text = self.lines.line(place, width)
        strip = Strip(text.render(self.app.console)).crop_extend(left, left + width, base).apply_style(base)
        if self.marks_line and place == self.cursor:
            strip = strip.apply_style(_CHOSEN if self.has_focus else _LEFT)
        return strip

    def action_move(self, step: int) -> None:
        """Go some lines on."""
        self.move_to(self.cursor + step)

    def action_page(self, pages: float) -> None:
        """Go some screens on."""
        height = max(self.scrollable_content_region.height - 1, 1)
        self.move_to(self.cursor + round(pages * height))

    def action_first(self) -> None:
        """Go to the first line."""
        self.move_to(0)

    def action_last(self) -> None:
        """Go to the last line, and where lines come follow them."""
        self.follows = self.is_live
        self.move_to(len(self.lines) - 1, keep_following=True)

    def action_sideways(self, columns: int) -> None:
        """Scroll to the side."""
        self.scroll_to(x=max(self.scroll_x + columns, 0), animate=False)

    def action_choose(self) -> None:
        """Go where the line leads to."""
        if len(self.lines):
            self.post_message(self.Choice(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is. A second click goes where the line leads."""
        inside = event.get_content_offset(self)
        if inside is None:
            return
        place = inside.y + self.scroll_offset.y
        if 0 <= place < len(self.lines):
            self.move_to(place)
            if event.chain == 2:
                self.action_choose()
