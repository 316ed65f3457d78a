"""Taking out what the panes show: to the clipboard, or to files."""

from functools import partial
from pathlib import Path

import msgspec
from textual.app import App

from dissectors.events import Cut, at_hand
from zmtpsniff.browse.reader import CaptureReader
from zmtpsniff.browse.record_view import RecordView
from zmtpsniff.browse.row_words import record_words
from zmtpsniff.browse.save import json_line, save_octets, save_packets
from zmtpsniff.browse.selection import EveryRow, Selection
from zmtpsniff.browse.status_bar import StatusBar
from zmtpsniff.errors import Error
from zmtpsniff.words.counts import plural
from zmtpsniff.words.text import escape

FILES = {"octets": "frame.bin", "record": "record.json", "packets": "packets.pcapng"}
"""The kinds of files that can be saved, each with its proposed name."""


class Exporter(msgspec.Struct, eq=False):
    """Copies and saves what the panes show."""

    _app: App[None]  # has the clipboard and threads
    _reader: CaptureReader
    _view: RecordView
    _status: StatusBar  # reports the results
    _show_secrets: bool

    def copy_field(self) -> None:
        """Copy the field under the tree's cursor: its octets as text, or their digits, else its value."""
        event, field = self._view.event, self._view.field
        if event is None or field is None:
            return
        if field.depth == 0:
            self._copy(record_words(event, 1 << 20, self._show_secrets).text)
        elif field.octets is not None:
            octets = at_hand(field.octets)
            try:
                self._copy(octets.decode())
            except UnicodeDecodeError:
                self._copy(octets.hex())
        else:
            self._copy(field.value)

    def copy_record(self) -> None:
        """Copy the record as a line of JSON."""
        event = self._view.event
        if event is not None:
            self._copy(json_line(event, self._show_secrets))

    def _copy(self, text: str) -> None:
        self._app.copy_to_clipboard(text)
        self._status.say(f"copied {plural(len(text), 'character')}")

    def save(self, what: str, name: str) -> None:
        """Save what :data:`FILES` has a name for: to a new file."""
        path = Path(name).expanduser()
        if what == "packets":
            work = partial(self._save_packets, path, self._view.records.selection)
            self._app.run_worker(work, group="save", thread=True, exit_on_error=False)
            return
        event, field = self._view.event, self._view.field
        assert event is not None
        try:
            if what == "record":
                octets = (json_line(event, self._show_secrets) + "\n").encode()
            elif field is None or field.octets is None:
                octets = self._view.tree_lines.sheet.octets
            else:
                octets = at_hand(field.octets)
            save_octets(path, octets)
        except Error as error:
            self._status.say(escape(str(error)))
        else:
            part = ""
            if what == "octets" and field is not None and isinstance(field.octets, Cut):
                part = f", the first of {field.octets.length:,} (zmtpsniff extract has all)"
            self._status.say(f"{plural(len(octets), 'octet')} saved{part}: {escape(str(path))}")

    def _save_packets(self, path: Path, selection: Selection) -> None:
        """Save all packets of the conversations that are shown."""
        index = self._reader.index
        everything = isinstance(selection, EveryRow)
        flows = set() if everything else {index.flows[selection.row(place)] for place in range(len(selection))}
        talks = [talk for flow in flows if (talk := index.talks.get(flow)) is not None]
        pairs = None if everything else {frozenset((talk.client, talk.server)) for talk in talks}
        self._app.call_from_thread(self._status.say, "saving packets")
        try:
            saved = save_packets(path, self._reader.packets, pairs)
        except Error as error:
            said = str(error)
        else:
            said = f"{plural(saved, 'packet')} saved to {path}"
        self._app.call_from_thread(self._status.say, escape(said))
