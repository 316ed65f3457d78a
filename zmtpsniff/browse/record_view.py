"""The three panes: the list of records, the tree of the one under the cursor, its octets."""

import time

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget
from textual.worker import get_current_worker

from dissectors.events import AnyEvent, time_of
from zmtpsniff.browse.browse_options import BrowseOptions
from zmtpsniff.browse.panes import OctetLines, OctetView, RecordClock, RecordLines, TreeLines, TreeView
from zmtpsniff.browse.reader import CaptureReader
from zmtpsniff.browse.selection import EveryRow, Selection
from zmtpsniff.browse.sheet import TreeField, make_sheet
from zmtpsniff.browse.virtual_list import VirtualList
from zmtpsniff.browse.wire_image import WireFinder
from zmtpsniff.words.counts import plural

_SIDE_BY_SIDE = 150  # columns from which on tree and octets stand beside each other
_WAIT_SECONDS = 0.2  # for more records, while they are read


class RecordView(Container):
    """Shows the records of a selection, and one of them in parts."""

    def __init__(self, reader: CaptureReader, options: BrowseOptions, clock: RecordClock) -> None:
        """Show what the reader has read, with the times that ``clock`` tells."""
        super().__init__(id="panes")
        self._reader = reader
        self._index = reader.index
        self._options = options
        self._clock = clock
        self.records = RecordLines(self._index, EveryRow(self._index), clock, options.show_secrets)
        self.tree_lines = TreeLines()
        self.octet_lines = OctetLines()
        self.list_pane = VirtualList(self.records, id="records")
        self.tree_pane = TreeView(self.tree_lines, id="tree")
        self.octet_pane = OctetView(self.octet_lines, id="octets")
        self._below = Container(id="below")
        self._finder = WireFinder(self._index, reader.packets)
        self._shown_row: int | None = None
        self._is_zoomed = False

    def compose(self) -> ComposeResult:
        """The list, and below it the tree and the octets."""
        yield self.list_pane
        with self._below:
            yield self.tree_pane
            yield self.octet_pane

    def on_mount(self) -> None:
        """Begin with the list, at its end if records still come."""
        self.list_pane.border_title = Text(self._options.title)  # a name of a file is no markup
        self.list_pane.focus()
        self.list_pane.is_live = self.list_pane.follows = self._options.is_live

    def lay_out(self, columns: int) -> None:
        """Put tree and octets beside each other where there is room."""
        self._below.set_class(columns >= _SIDE_BY_SIDE, "-wide")

    # ------------------------------------------------------------------ the record under the cursor

    @property
    def row(self) -> int | None:
        """Its row, None if there is no record."""
        return self.records.selection.row(self.list_pane.cursor) if len(self.records) else None

    @property
    def event(self) -> AnyEvent | None:
        """The record under the cursor."""
        return None if self.row is None else self._index.event(self.row)

    @property
    def field(self) -> TreeField | None:
        """Its field under the tree's cursor."""
        return self.tree_lines.field(self.tree_pane.cursor)

    def show_record(self) -> None:
        """Show it in parts."""
        row = self.row
        self._shown_row = row
        if row is None:
            return
        event = self._index.event(row)
        time_ns = time_of(event)
        told = "" if time_ns is None else self._clock.whole(time_ns)
        sheet = make_sheet(event, self._finder.image(row), told, self._options.show_secrets)
        self.tree_lines.show(sheet)
        self.octet_lines.octets = sheet.octets
        self.octet_lines.lit = range(0)
        self.octet_lines.cursor = None
        self.tree_pane.show(self.tree_lines)
        self.octet_pane.show(self.octet_lines)
        self.octet_pane.border_title = (
            plural(len(sheet.octets), "octet")
            if sheet.is_whole or not sheet.octets
            else "frames' octets, without headers"
        )
        self.tree_pane.border_title = f"record {row + 1:,}"
        self._light()

    def sync(self) -> None:
        """Show what has come since."""
        self.list_pane.sync()
        if len(self.records) and self._shown_row != self.row:
            self.show_record()

    def _light(self) -> None:
        field = self.field
        if field is not None:
            whole = self.tree_pane.cursor == 0
            self.octet_pane.light(0 if whole else field.start, 0 if whole else field.stop)

    def on_virtual_list_cursor_move(self, event: VirtualList.CursorMove) -> None:
        """Show what the cursor is on."""
        if event.view is self.list_pane:
            self.show_record()
        elif event.view is self.tree_pane:
            self._light()

    def on_virtual_list_choice(self, event: VirtualList.Choice) -> None:
        """From a record to its tree."""
        if event.view is self.list_pane:
            self.tree_pane.focus()

    def on_octet_view_octet_choice(self, event: OctetView.OctetChoice) -> None:
        """Go to the field that the octet belongs to."""
        number = self.tree_lines.sheet.field_at(event.octet)
        if number is None:
            return
        place = self.tree_lines.place(number)
        self.tree_pane.move_to(place, silent=True)
        field = self.tree_lines.field(place)
        if field is not None:
            self.octet_lines.lit = range(field.start, field.stop)
            self.octet_pane.refresh()

    # ------------------------------------------------------------------ which records

    def has(self, row: int) -> bool:
        """Whether the list shows a record."""
        selection = self.records.selection
        place = selection.place(row)
        return place < len(selection) and selection.row(place) == row

    def go_to_row(self, row: int) -> None:
        """Put the cursor on a record that the list shows."""
        self.records.frozen = None
        self.zoom(None)
        self.list_pane.sync()
        self.list_pane.move_to(self.records.selection.place(row))
        self.list_pane.focus()

    def go_to_place(self, place: int) -> None:
        """Put the cursor on a line of the list."""
        self.list_pane.move_to(place)
        self.show_record()

    def select(self, selection: Selection) -> None:
        """Show these rows, with the cursor on the record that it was on, if that is among them."""
        row = self.row
        self.workers.cancel_group(self, "selection")
        self.records.frozen = None
        self.records.selection = selection
        selection.advance()
        self.list_pane.show(self.records, 0 if row is None else selection.place(row))
        self.show_record()
        self._fill(selection, row)

    @work(thread=True, group="selection", exit_on_error=False)
    def _fill(self, selection: Selection, row: int | None) -> None:
        """Find the rows of a selection, and those that come later."""
        worker = get_current_worker()
        while not worker.is_cancelled:
            found = len(selection)
            if selection.advance():
                if row is not None and len(selection) > found and selection.row(len(selection) - 1) >= row:
                    self.app.call_from_thread(self._return_to, selection, row)
                    row = None
            elif self._reader.is_over:
                return
            else:
                time.sleep(_WAIT_SECONDS)

    def _return_to(self, selection: Selection, row: int) -> None:
        if self.records.selection is selection and self.list_pane.cursor == 0:
            self.list_pane.sync()
            self.list_pane.move_to(selection.place(row))

    def toggle_mark(self) -> None:
        """Mark the record, or take its mark away."""
        if self.row is not None:
            self.records.marks ^= {self.row}
            self.list_pane.refresh()

    def toggle_pause(self) -> None:
        """Pause the list, or resume it; records are read meanwhile."""
        self.records.frozen = len(self.records) if self.records.frozen is None else None
        self.list_pane.sync()

    # ------------------------------------------------------------------ which panes

    @property
    def _shown_panes(self) -> tuple[VirtualList, ...]:
        return self.list_pane, self.tree_pane, self.octet_pane

    def focus_next(self, step: int) -> None:
        """Go to the next pane, or to the one before."""
        panes = [pane for pane in self._shown_panes if pane.display]
        at = next((place for place, pane in enumerate(panes) if pane.has_focus), -step)
        panes[(at + step) % len(panes)].focus()

    def toggle_zoom(self, pane: Widget | None) -> None:
        """Show only that pane, or all again."""
        self.zoom(None if self._is_zoomed else pane)

    def zoom(self, pane: Widget | None) -> None:
        """Show only that pane, or all of them."""
        self._is_zoomed = pane is not None
        for view in self._shown_panes:
            view.display = pane is None or view is pane
        self._below.display = pane is not self.list_pane
