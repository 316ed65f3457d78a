"""A report as tables, for a terminal."""

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from zmtpsniff.render import Color
from zmtpsniff.render.console import columns, drawn
from zmtpsniff.render.palette import make_signs
from zmtpsniff.spark.report.records import AnyRecord, TotalRow
from zmtpsniff.spark.report.sections import headline, sections

if TYPE_CHECKING:
    from rich.console import Console

_NO_TERMINAL = 100  # columns where no terminal says how many there are
_STYLES = {"Client": "cyan", "Server": "magenta", "Socket bound at": "magenta", "Replies, by server": "magenta"}
_STYLES |= {"Topic": "green", "Host": "cyan"}
_SEVERITIES = {"error": "bold red", "warning": "bold yellow", "note": "cyan"}


def draw(records: Sequence[AnyRecord], stream: IO[Any], color: Color = "auto", width: int | None = None) -> None:
    """Write all records as tables to a stream, as wide as its terminal or ``width`` columns; times are UTC."""
    more = make_signs(getattr(stream, "encoding", None)).more

    def all_of_them(console: "Console") -> None:
        _draw(records, console, more)

    stream.write(drawn(stream, color, width or columns(stream, _NO_TERMINAL), all_of_them))


def _draw(records: Sequence[AnyRecord], console: "Console", more: str) -> None:
    from rich.table import Table
    from rich.text import Text

    for record in records:
        if isinstance(record, TotalRow):
            console.print(Text("\n".join(headline(record))))
    for section in sections(records, more):
        console.print()
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for title in section.columns:
            right = title.startswith(">")
            table.add_column(title.lstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=right)
        for row in section.rows:
            cells = zip(section.columns, row, strict=True)
            table.add_row(*(Text(cell, _style(title, cell)) for title, cell in cells))
        console.print(table)
        if section.note:
            console.print(Text(section.note, "dim"))


def _style(title: str, cell: str) -> str:
    if title == "Problem":
        return _SEVERITIES[cell.partition(" ")[0]]
    return _STYLES.get(title, "")
