"""A report as tables, for a terminal."""

from typing import IO, TYPE_CHECKING, Any

from zmtpsniff.render.color import Color
from zmtpsniff.render.console import columns, drawn, plain_table
from zmtpsniff.render.palette import STYLES, make_signs
from zmtpsniff.report.results import Results
from zmtpsniff.report.sections import Cell, headline, sections

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"Client": "cyan", "Server": "magenta", "Socket bound at": "magenta", "Replies, by server": "magenta"}
_STYLES |= {"Topic": "green", "Subscription": "green", "Host": "cyan"}


def draw(results: Results, stream: IO[Any], color: Color = "auto", width: int | None = None) -> None:
    """Write results as tables to a stream, as wide as its terminal or ``width`` columns; times are UTC."""
    more = make_signs(getattr(stream, "encoding", None)).more
    stream.write(drawn(stream, color, width or columns(stream), lambda console: _draw(results, console, more)))


def _draw(results: Results, console: "Console", more: str) -> None:
    from rich.text import Text

    console.print(Text("\n".join(headline(results.total))))
    for section in sections(results, more):
        console.print()
        table = plain_table(1)
        for column in section.columns:
            justify = "right" if column.is_number else "left"
            table.add_column(column.title, justify=justify, overflow="fold", no_wrap=column.is_number)  # type: ignore[arg-type]
        for row in section.rows:
            cells = zip(section.columns, row, strict=True)
            table.add_row(*(Text(cell.text, _style(column.title, cell)) for column, cell in cells))
        console.print(table)
        if section.note:
            console.print(Text(section.note, "dim"))


def _style(title: str, cell: Cell) -> str:
    return getattr(STYLES, cell.severity) if cell.severity else _STYLES.get(title, "")
