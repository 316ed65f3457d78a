"""A ladder: a column for each socket, and an arrow for each record from its sender to its receiver."""

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from dissectors.address import host_of, port_of
from dissectors.events import Message, Octets
from zmtpsniff.browse.index import RecordIndex, Talk
from zmtpsniff.browse.panes import RecordClock, SelectedRecords
from zmtpsniff.browse.row_words import record_words
from zmtpsniff.browse.selection import Selection
from zmtpsniff.words.text import escape, quote

_TIME = 23  # columns of the time and the packet
_LEAST, _MOST = 24, 44  # columns of a socket
_NARROW = 14  # of each, if all of them fit then
_SOCKETS = 200


class LadderLines(SelectedRecords):
    """The selected records as arrows between sockets."""

    def __init__(
        self,
        index: RecordIndex,
        selection: Selection,
        clock: RecordClock,
        show_secrets: bool,
        ends: Iterable[tuple[int, str]],
        room: int = 80,
    ) -> None:
        """``ends`` are the sides of flows, by flow and address, in the order of their columns; ``room`` is for all."""
        super().__init__(index, selection, clock, show_secrets)
        self._sockets: dict[str, int] = {}  # by name, the column
        self._ends: dict[tuple[int, str], int] = {}  # flow and address: the column
        for flow, address in ends:
            talk = index.talks.get(flow)
            if talk is not None and len(self._sockets) < _SOCKETS:
                name = _socket(talk, address)
                self._ends[flow, address] = self._sockets.setdefault(name, len(self._sockets))
        share = (room - _TIME) // max(len(self._sockets), 1)
        self._column = min(_MOST, share if share >= _NARROW else _LEAST)

    @property
    def columns(self) -> int:
        """How many columns a line takes."""
        return _TIME + self._column * len(self._sockets)

    @property
    def heading(self) -> str:
        """The names of the sockets above their columns."""
        room = self._column - 1
        names = [name if cell_len(name) <= room else _short(name)[:room] for name in self._sockets]
        return " " * _TIME + "".join(set_cell_size(f"{name:^{self._column}}", self._column) for name in names)

    def line(self, place: int, width: int) -> Text:
        """The line of a record."""
        event, time = self._clock.read(self.selection, place)
        packet = getattr(event, "packet", None)
        text = Text(f"{time} {packet or '':>6} ", "dim", no_wrap=True, end="")
        flow = getattr(event, "flow", None) or 0
        start = self._ends.get((flow, getattr(event, "src", None) or ""))
        stop = self._ends.get((flow, getattr(event, "dst", None) or ""))
        words = record_words(event, 60, self._show_secrets)
        label = f"{words.kind} {words.text}".rstrip()
        if start is None or stop is None or start == stop:
            text.append(self._lifelines(0, len(self._sockets)), "not dim")
            text.append("  " + label, words.style + " not dim")
            return text
        left, right = min(start, stop), max(start, stop)
        column = self._column
        room = (right - left) * column - 1
        label = label if cell_len(label) <= room - 4 else set_cell_size(label, max(room - 5, 0)) + "…"
        fill = room - cell_len(label) - 3
        arrow = f"─ {label} {'─' * fill}"
        arrow = f"{arrow[:-1]}▶" if stop > start else f"◀{'─' * (fill - 1)} {label} ─"
        text.append(self._lifelines(0, left) + " " * (column // 2), "not dim")
        text.append("│", "not dim")
        style = "not dim cyan" if stop == right else "not dim magenta"
        text.append(arrow, style if isinstance(event, Message) else words.style + " not dim")
        text.append("│" + " " * (column - column // 2 - 1), "not dim")
        text.append(self._lifelines(right + 1, len(self._sockets)), "not dim")
        return text

    def _lifelines(self, start: int, stop: int) -> str:
        column = self._column
        return (" " * (column // 2) + "│" + " " * (column - column // 2 - 1)) * (stop - start)


def _socket(talk: Talk, address: str) -> str:
    """The name of a socket: its address, or the identity under which it connects from several."""
    kind = escape(talk.socket_type(address))
    identity: Octets | None = talk.identities.get(address)
    if identity is not None and address == talk.client:
        host = escape(host_of(address))
        return f"{kind} {quote(identity, 12, '…')} {host}".strip()
    return f"{kind} {escape(address)}".strip()


def _short(name: str) -> str:
    """The name of a socket without its host."""
    words, _, end = name.rpartition(" ")
    port = port_of(end)
    return f"{words} :{port}" if port and end != str(port) else words
