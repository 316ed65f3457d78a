"""The last line: where the cursor is, how the reading goes, and what was done."""

from rich.text import Text
from textual.widgets import Static

from zmtpsniff.browse.browse_options import BrowseOptions
from zmtpsniff.browse.reader import CaptureReader
from zmtpsniff.browse.record_view import RecordView
from zmtpsniff.words.text import escape

_HINTS = "  ? help  f filter  / search  2 conversations  q quit"


class StatusBar(Static):
    """Tells the state in a line."""

    def __init__(self, reader: CaptureReader, view: RecordView, options: BrowseOptions) -> None:
        """Tell how far ``reader`` is, and what ``view`` shows."""
        super().__init__("", id="status", markup=False)
        self._reader = reader
        self._view = view
        self._options = options
        self._said = ""  # what was done, until the next key
        self.is_filtered = False

    def say(self, text: str) -> None:
        """Tell what was done, or why it was not; it must be safe to show."""
        self._said = text
        self.draw()

    def draw(self) -> None:
        """Tell how it is now."""
        reader, view, records = self._reader, self._view, self._view.records
        count = len(records)
        words = []
        if self._said:
            words.append(self._said)
        if reader.error is not None:
            words.append(f"error: {escape(reader.error)}")
        shown = f"{view.list_pane.cursor + 1 if count else 0:,}/{count:,}"
        words.append(f"{shown} of {len(reader.index):,}" if self.is_filtered else shown)
        if records.frozen is not None:
            words.append(f"paused, {len(records.selection) - count:,} more")
        if self._options.is_live:
            following = view.list_pane.follows and records.frozen is None
            words.append("over" if reader.is_over else ("following" if following else "live"))
        elif (progress := reader.progress) is not None:
            words.append(f"reading {progress:.0%}")
        if reader.dropped:
            words.append(f"{reader.dropped:,} dropped")
        text = Text("  ".join(words), no_wrap=True, overflow="ellipsis")
        if reader.dropped or reader.error is not None:
            text.stylize("bold")
        width = self.app.size.width
        if text.cell_len + len(_HINTS) < width:
            text.append(_HINTS.rjust(width - text.cell_len - 1), "dim")
        self.update(text)
