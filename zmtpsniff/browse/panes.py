"""The contents of the three panes: the records, the tree of one, its octets."""

from rich.text import Text
from textual import events
from textual.message import Message

from dissectors.address import port_of
from dissectors.events import AnyEvent, Connection, time_of
from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.row_words import record_words
from zmtpsniff.browse.selection import Selection
from zmtpsniff.browse.sheet import Sheet, TreeField
from zmtpsniff.browse.virtual_list import VirtualList
from zmtpsniff.render.clock import Clock, Times, seconds
from zmtpsniff.render.palette import STYLES
from zmtpsniff.words.text import escape, hex_dump

_WIDE = 120  # columns from which on there is room for whole addresses
_ADDRESS = 21  # the longest of IPv4, with its port
_PORT = 6
_TEXT = 4096  # octets of a frame on its line, which can be scrolled
_ROW = 16  # octets on a line of the dump
_DIGITS, _CHARACTERS = 6, 56  # columns where their digits and their characters begin


class RecordClock:
    """The time of a row: of day, since the first record, or since the row shown before."""

    def __init__(self, index: RecordIndex, utc: bool = False, times: Times = "absolute") -> None:
        """Tell the time of day in local time, or in UTC."""
        self.times = times
        self.start_ns: int | None = None  # None: that of the first record
        self._index = index
        self._clock = Clock(utc)

    def read(self, selection: Selection, place: int) -> tuple[AnyEvent, str]:
        """The record at a place of a selection, and its time, 15 columns wide."""
        event = self._index.event(selection.row(place))
        time_ns = time_of(event)
        if time_ns is None:
            return event, " " * 15
        if self.times == "absolute":
            return event, f"{self._clock.time(time_ns):>15}"
        start = self.start_ns or self._index.first_ns
        if self.times == "delta":
            start = time_of(self._index.event(selection.row(place - 1))) if place else None
        span = time_ns - (time_ns if start is None else start)
        return event, seconds(span).rjust(15)

    def whole(self, time_ns: int) -> str:
        """The date and the time of day."""
        time = self._clock.time(time_ns)
        return f"{self._clock.date} {time}"


class SelectedRecords:
    """Some records, each on a line."""

    def __init__(
        self, index: RecordIndex, selection: Selection, clock: RecordClock, show_secrets: bool = False
    ) -> None:
        """Show the selected rows; passwords only with ``show_secrets``."""
        self.selection = selection
        self._index = index
        self._clock = clock
        self._show_secrets = show_secrets

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self.selection)


class RecordLines(SelectedRecords):
    """The list of records: time, packet, sender and receiver, kind, what it says."""

    columns = 0
    marks: frozenset[int] = frozenset()  # rows
    frozen: int | None = None  # show no more than so many, although more have come

    def __len__(self) -> int:
        """How many lines there are."""
        count = len(self.selection)
        return count if self.frozen is None else min(self.frozen, count)

    def event(self, place: int) -> AnyEvent:
        """The record of a line."""
        return self._index.event(self.selection.row(place))

    def line(self, place: int, width: int) -> Text:
        """The line of a record."""
        event, time = self._clock.read(self.selection, place)
        packet = getattr(event, "packet", None)
        text = Text(no_wrap=True, end="")
        text.append("*" if self.selection.row(place) in self.marks else " ", "bold yellow")
        text.append(time, "dim")
        text.append(f" {packet or '':>6} ", "dim")
        self._add_addresses(text, event, width >= _WIDE)
        words = record_words(event, width, self._show_secrets)
        text.append(f"{words.kind[:12]:12} ", words.style)
        text.append(words.text)
        return text

    def _add_addresses(self, text: Text, event: AnyEvent, wide: bool) -> None:
        if isinstance(event, Connection):
            src, dst = event.client.address, event.server.address
        else:
            src, dst = getattr(event, "src", None) or "", getattr(event, "dst", None) or ""
        style = STYLES.of_sender(src, dst)
        if wide:
            text.append(f"{escape(src):>{_ADDRESS}} → {escape(dst):{_ADDRESS}} " if src else " " * 46, style)
        else:
            ports = f"{port_of(src) or '':>{_PORT - 1}}→{port_of(dst) or '':<{_PORT - 1}} "
            text.append(ports if src else " " * (2 * _PORT), style)


class ConversationLines(SelectedRecords):
    """A conversation in turn: the client's records at the left, the server's further in."""

    columns = _TEXT

    def line(self, place: int, width: int) -> Text:
        """The line of a record."""
        event, time = self._clock.read(self.selection, place)
        talk = self._index.talks.get(self._index.flows[self.selection.row(place)])
        src = getattr(event, "src", None)
        text = Text(f"{time} ", "dim", no_wrap=True, end="")
        words = record_words(event, _TEXT, self._show_secrets)
        if src is None or talk is None:
            text.append(f"   {words.kind} ", f"{words.style} not dim")
        elif src == talk.client:
            text.append(f"▶ {words.kind} ", "cyan not dim")
        else:
            text.append(f"      ◀ {words.kind} ", "magenta not dim")
        text.append(words.text, "not dim")
        return text


class TreeLines:
    """The fields of a record; those inside a field that is closed are left out."""

    columns = 0

    def __init__(self) -> None:
        """Begin without a record."""
        self.sheet = Sheet([], b"", False)
        self._closed: set[int] = set()
        self._shown: list[int] = []

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self._shown)

    def show(self, sheet: Sheet) -> None:
        """Show another record."""
        self.sheet = sheet
        self._closed.clear()
        self._lay_out()

    def field(self, place: int) -> TreeField | None:
        """The field on a line."""
        return self.sheet.fields[self._shown[place]] if 0 <= place < len(self._shown) else None

    def place(self, number: int) -> int:
        """The line of a field, or of the closed one that it is in."""
        while number not in self._shown and number > 0:
            number -= 1
        return self._shown.index(number) if self._shown else 0

    def set_open(self, place: int, is_open: bool | None = None) -> None:
        """Open or close the field on a line; None: whatever it is not."""
        if not 0 <= place < len(self._shown):
            return
        number = self._shown[place]
        if not self._has_parts(number):
            return
        if is_open is None:
            is_open = number in self._closed
        (self._closed.discard if is_open else self._closed.add)(number)
        self._lay_out()

    def line(self, place: int, width: int) -> Text:
        """The line of a field."""
        number = self._shown[place]
        field = self.sheet.fields[number]
        sign = ("+" if number in self._closed else "-") if self._has_parts(number) else " "
        text = Text("  " * field.depth + sign + " ", no_wrap=True, end="")
        text.append(field.label, "bold" if field.depth == 0 else "bright_blue")
        text.append(f"  {field.value}" if field.label else field.value)
        return text

    def _has_parts(self, number: int) -> bool:
        fields = self.sheet.fields
        return number + 1 < len(fields) and fields[number + 1].depth > fields[number].depth

    def _lay_out(self) -> None:
        self._shown = []
        deepest = None
        for number, field in enumerate(self.sheet.fields):
            if deepest is not None and field.depth > deepest:
                continue
            deepest = field.depth if number in self._closed else None
            self._shown.append(number)


class TreeView(VirtualList):
    """The tree, whose fields open and close."""

    def __init__(self, lines: TreeLines, *, id: str | None = None) -> None:  # noqa: A002  # as Textual has it
        """Show these fields."""
        super().__init__(lines, id=id)
        self._tree = lines

    def action_choose(self) -> None:
        """Open or close a field."""
        self._set_open(None)

    def action_sideways(self, columns: int) -> None:
        """Open a field, or close it."""
        self._set_open(columns > 0)

    def _set_open(self, is_open: bool | None) -> None:
        self._tree.set_open(self.cursor, is_open)
        self.sync()
        self.refresh()


class OctetLines:
    """The octets of a record, with those of one field lit."""

    columns = 0

    def __init__(self) -> None:
        """Begin without octets."""
        self.octets = b""
        self.lit = range(0)
        self.cursor: int | None = None  # the octet that is pointed at, if this pane has the focus

    def __len__(self) -> int:
        """How many lines there are."""
        return (len(self.octets) + _ROW - 1) // _ROW

    def line(self, place: int, width: int) -> Text:
        """The line of 16 octets: where they are, their digits, the characters that are ASCII."""
        start = place * _ROW
        row = self.octets[start : start + _ROW]
        ((_, digits, characters),) = hex_dump(row)
        text = Text(f"{start:04x}  {digits}  {characters[1:-1]}", no_wrap=True, end="")
        text.stylize("dim", 0, _DIGITS)
        for column in range(len(row)):
            style = self._style(start + column)
            # The blank between two octets of a field is lit, too, so that it is one stripe.
            at_end = column in (_ROW // 2 - 1, _ROW - 1)
            joined = start + column in self.lit and start + column + 1 in self.lit and not at_end
            at = _DIGITS + 3 * column + column // (_ROW // 2)
            text.stylize(style, at, at + (3 if joined else 2))
            text.stylize(style, _CHARACTERS + column, _CHARACTERS + column + 1)
        return text

    def _style(self, octet: int) -> str:
        if octet == self.cursor:
            return "bold underline reverse not dim" if octet not in self.lit else "bold underline not dim"
        return "reverse not dim" if octet in self.lit else "not dim"


class OctetView(VirtualList):
    """The octets, with a cursor of their own."""

    marks_line = False

    class OctetChoice(Message):
        """The cursor is on another octet."""

        def __init__(self, octet: int) -> None:
            """By its place in the record."""
            super().__init__()
            self.octet = octet

    def __init__(self, lines: OctetLines, *, id: str | None = None) -> None:  # noqa: A002  # as Textual has it
        """Show these octets."""
        super().__init__(lines, id=id)
        self._octets = lines

    def light(self, start: int, stop: int) -> None:
        """Light the octets of a field, and show the first of them."""
        self._octets.lit = range(start, stop)
        if self._octets.cursor is None or not start <= self._octets.cursor < stop:
            self.cursor = min(start // _ROW, max(len(self._octets) - 1, 0))
        self.sync()
        self.reveal()
        self.refresh()

    def point(self, octet: int) -> None:
        """Put the cursor on an octet."""
        if not self._octets.octets:
            return
        octet = min(max(octet, 0), len(self._octets.octets) - 1)
        self._octets.cursor = octet
        self.cursor = octet // _ROW
        self.reveal()
        self.refresh()
        self.post_message(self.OctetChoice(octet))

    def action_move(self, step: int) -> None:
        """Go some lines on."""
        self.point(self._at() + step * _ROW)

    def action_page(self, pages: float) -> None:
        """Go some screens on."""
        height = max(self.scrollable_content_region.height - 1, 1)
        self.point(self._at() + round(pages * height) * _ROW)

    def action_first(self) -> None:
        """Go to the first octet."""
        self.point(0)

    def action_last(self) -> None:
        """Go to the last octet."""
        self.point(len(self._octets.octets) - 1)

    def action_sideways(self, columns: int) -> None:
        """Go to the next octet, or to the one before."""
        self.point(self._at() + (1 if columns > 0 else -1))

    def on_focus(self) -> None:
        """Begin at the field that is lit."""
        self._octets.cursor = self._octets.lit.start

    def on_blur(self) -> None:
        """Leave only the field lit."""
        self._octets.cursor = None

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the octet under the mouse."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        place = offset.y + self.scroll_offset.y
        column = offset.x + self.scroll_offset.x
        digits, characters = column - _DIGITS, column - _CHARACTERS
        if 0 <= characters < _ROW:
            inside = characters
        elif digits >= 0:
            inside = min((digits - (1 if digits >= 3 * _ROW // 2 else 0)) // 3, _ROW - 1)
        else:
            inside = 0
        self.point(place * _ROW + inside)

    def _at(self) -> int:
        return self._octets.lit.start if self._octets.cursor is None else self._octets.cursor
