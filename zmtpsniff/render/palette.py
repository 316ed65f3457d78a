"""The colours and signs of output for people, and whether its stream shows any."""

import os
from dataclasses import dataclass, fields
from typing import TextIO

from zmtpsniff.render.color import Color

# The look of each part, in rich's words. Only named colours, so that the terminal's own theme decides the shades.
STYLES = {
    "time": "dim",
    "place": "dim",
    "client": "cyan",
    "server": "magenta",
    "title": "bold",
    "label": "bright_blue",
    "text": "green",
    "hex": "yellow",
    "dim": "dim",
    "key": "bright_blue",
    "number": "cyan",
    "constant": "magenta",
    "error": "bold red",
    "warning": "bold yellow",
    "note": "cyan",
    "good": "green",
}


_FORCES = ("FORCE_COLOR", "TTY_COMPATIBLE")  # with these rich takes any stream for a terminal


@dataclass(frozen=True)
class Palette:
    """For each part of a record the SGR sequence that begins its colour; all empty without colours."""

    time: str = ""
    place: str = ""
    client: str = ""
    server: str = ""
    title: str = ""
    label: str = ""
    text: str = ""
    hex: str = ""
    dim: str = ""
    key: str = ""
    number: str = ""
    constant: str = ""
    error: str = ""
    warning: str = ""
    note: str = ""
    good: str = ""
    reset: str = ""

    def paint(self, sequence: str, text: str) -> str:
        """Text in one of the palette's colours."""
        return f"{sequence}{text}{self.reset}" if sequence and text else text


@dataclass(frozen=True)
class Signs:
    """The signs that the tree is drawn with."""

    arrow: str = "→"
    more: str = "…"
    bar: str = "│"


_ASCII_SIGNS = Signs("->", "...", "|")


def make_signs(encoding: str | None) -> Signs:
    """The signs for a stream of that encoding: ASCII ones where it has no others."""
    signs = Signs()
    try:
        (signs.arrow + signs.more + signs.bar).encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return _ASCII_SIGNS
    return signs


def make_palette(stream: TextIO, color: Color) -> Palette:
    """The colours for a stream.

    ``auto``: those its terminal is able to show, and none if it is not a terminal or ``NO_COLOR`` is set;
    ``always``: the same, or the standard ones where rich sees no terminal that has any.
    """
    if color == "never" or (color == "auto" and os.environ.get("NO_COLOR")):
        return Palette()
    if color == "auto" and not stream.isatty() and not any(map(os.environ.get, _FORCES)):
        return Palette()  # also to be spared the import of rich
    from rich.console import COLOR_SYSTEMS, Console
    from rich.style import Style

    console = Console(file=stream, force_terminal=True if color == "always" else None)
    if console.color_system is None and color == "auto":
        return Palette()
    system = COLOR_SYSTEMS[console.color_system or "standard"]
    sequences = {}
    for field in fields(Palette):
        if field.name in STYLES:
            # rich puts the text between two sequences, which begin and end a style. Only the first is needed, once.
            sequences[field.name] = Style.parse(STYLES[field.name]).render("x", color_system=system).split("x")[0]
    return Palette(**sequences, reset="\x1b[0m")
