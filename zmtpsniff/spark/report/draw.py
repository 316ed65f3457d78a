"""A report as tables, for a terminal."""

import os
from collections.abc import Sequence
from typing import IO, Any

from zmtpsniff.render import Color
from zmtpsniff.render.palette import make_signs
from zmtpsniff.render.text import encodable
from zmtpsniff.spark.report.records import AnyRecord, TotalRow
from zmtpsniff.spark.report.sections import headline, sections

_NO_TERMINAL = 100  # columns where no terminal says how many there are
_STYLES = {"Client": "cyan", "Server": "magenta", "Socket bound at": "magenta", "Replies, by server": "magenta"}
_STYLES |= {"Topic": "green", "Host": "cyan"}
_SEVERITIES = {"error": "bold red", "warning": "bold yellow", "note": "cyan"}


def draw(records: Sequence[AnyRecord], stream: IO[Any], color: Color = "auto", width: int | None = None) -> None:
    """Write all records as tables to a stream, as wide as its terminal or ``width`` columns; times are UTC."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    encoding = getattr(stream, "encoding", None)
    plain = color == "never" or (color == "auto" and bool(os.environ.get("NO_COLOR")))
    console = Console(
        file=stream,
        force_terminal=True if color == "always" else None,
        color_system=None if plain else "standard" if color == "always" else "auto",
        width=width or (None if stream.isatty() or os.environ.get("COLUMNS") else _NO_TERMINAL),
        highlight=False,
        emoji=False,
        markup=False,
    )
    with console.capture() as drawn:
        for record in records:
            if isinstance(record, TotalRow):
                console.print(Text("\n".join(headline(record))))
        for section in sections(records, make_signs(encoding).more):
            console.print()
            table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
            for title in section.columns:
                right = title.startswith(">")
                table.add_column(
                    title.lstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=right
                )
            for row in section.rows:
                cells = zip(section.columns, row, strict=True)
                table.add_row(*(Text(cell, _style(title, cell)) for title, cell in cells))
            console.print(table)
            if section.note:
                console.print(Text(section.note, "dim"))
    text = "\n".join(line.rstrip() for line in drawn.get().splitlines()) + "\n"
    change = encodable(encoding)
    stream.write(change(text) if change else text)


def _style(title: str, cell: str) -> str:
    if title == "Problem":
        return _SEVERITIES[cell.partition(" ")[0]]
    return _STYLES.get(title, "")
