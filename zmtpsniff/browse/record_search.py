"""Going from record to record: by a text, a packet, a problem, a mark."""

from collections.abc import Callable
from functools import partial

import msgspec
from textual.app import App
from textual.worker import get_current_worker

from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.record_view import RecordView
from zmtpsniff.browse.row_words import record_words
from zmtpsniff.browse.status_bar import StatusBar
from zmtpsniff.words.text import escape, quote

_SEARCHED = 5000  # rows between two looks at whether somebody wants to stop
_GROUP = "search"


class RecordSearch(msgspec.Struct, eq=False):
    """Finds records, and goes there: searches in threads of ``_app`` what ``_view`` shows."""

    _app: App[None]
    _index: RecordIndex
    _view: RecordView
    _status: StatusBar
    _go_to_row: Callable[[int], None]  # also to a record that the view does not show
    _show_secrets: bool
    text: str = ""  # that was sought last

    def go_to_packet(self, number: str) -> None:
        """Go to the first record from a packet on."""
        row = self._index.row_from_packet(int(number)) if number.isascii() and number.isdigit() else None
        if row is None:
            self._status.say(f"no record from packet {escape(number)} on")
        else:
            self._go_to_row(row)

    def go_to_next(self, rows: list[int], step: int, what: str) -> None:
        """Go to the next of these rows, or to the one before; ``what`` they are called."""
        here = -1 if self._view.row is None else self._view.row
        after = [row for row in rows if row > here] if step > 0 else [row for row in reversed(rows) if row < here]
        if after:
            self._go_to_row(after[0])
        else:
            self._status.say(f"no {what} {'below' if step > 0 else 'above'}")

    def start(self, step: int) -> None:
        """Look for the next record, or the one before, whose line holds the text, whatever its case."""
        if self.text:
            self._status.say(f"searching for {quote(self.text.encode())}, Esc stops")
            work = partial(self._find, step, self.text, self._view.list_pane.cursor)
            self._app.run_worker(work, group=_GROUP, exclusive=True, thread=True, exit_on_error=False)

    def stop(self) -> None:
        """Look no further."""
        self._app.workers.cancel_group(self._app, _GROUP)

    def _find(self, step: int, text: str, start: int) -> None:
        worker = get_current_worker()
        records = self._view.records
        sought = text.casefold()
        place = start + step
        count = len(records)
        while 0 <= place < count:
            if place % _SEARCHED == 0 and worker.is_cancelled:
                return
            words = record_words(records.event(place), 1 << 20, self._show_secrets)
            if sought in f"{words.kind} {words.text}".casefold():
                self._app.call_from_thread(self._go_to_place, place)
                return
            place += step
        where = "below" if step > 0 else "above"
        self._app.call_from_thread(self._status.say, f"not found {where}: {quote(sought.encode())}")

    def _go_to_place(self, place: int) -> None:
        self._view.go_to_place(place)
        self._status.say("")
