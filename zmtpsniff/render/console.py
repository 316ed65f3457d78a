"""Tables and charts for people. rich draws them, as text that their stream can show."""

import os
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

from zmtpsniff.render.color import Color
from zmtpsniff.words.text import encodable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_NO_TERMINAL, _WIDE = 100, 500  # columns


def drawn(stream: IO[Any], color: Color, width: int | None, draw: "Callable[[Console], None]") -> str:
    """The lines that ``draw`` prints for ``stream`` on a console of ``width`` columns; None for its terminal's."""
    from rich.console import Console

    plain = color == "never" or (color == "auto" and bool(os.environ.get("NO_COLOR")))
    console = Console(
        file=stream,
        force_terminal=True if color == "always" else None,
        color_system=None if plain else "standard" if color == "always" else "auto",
        width=width,
        highlight=False,
        emoji=False,
        markup=False,
    )
    with console.capture() as captured:
        draw(console)
    text = "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"
    return encodable(getattr(stream, "encoding", None))(text)


def plain_table(between: int = 2) -> "Table":
    """A table without lines, its columns so many blanks apart."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, between, 0, 0), header_style="bold")


def terminal_width(stream: IO[Any]) -> int | None:
    """How many columns the terminal of a stream has; None if the stream leads to no terminal."""
    if not stream.isatty():
        return None
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdecimal() and 0 < int(said) < 10_000:
        return int(said)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None  # a new pseudo-terminal has 0
    except OSError:
        return None


def columns(stream: IO[Any]) -> int | None:
    """The width for statistics: None for the terminal's, a fixed one if neither a terminal nor COLUMNS gives it."""
    return None if stream.isatty() or os.environ.get("COLUMNS") else _NO_TERMINAL


def unbroken(stream: IO[Any]) -> int | None:
    """The width for lists: None for the terminal's; where there is none, so much that no line is broken."""
    return None if stream.isatty() else _WIDE
