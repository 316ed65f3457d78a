"""The colours and signs of output for people, and whether its stream shows any."""

import os
from dataclasses import dataclass, fields
from typing import NamedTuple, TextIO

from dissectors.address import port_of
from zmtpsniff.render.color import Color
from zmtpsniff.words.text import shown_by

_FORCES = ("FORCE_COLOR", "TTY_COMPATIBLE")  # with these rich takes any stream for a terminal


@dataclass(frozen=True)
class Palette:
    """For each part of a record the SGR sequence that begins its colour; all empty without colours.

    The defaults are rich's words. They are named colours only, so that the terminal's own theme decides the shades.
    """

    time: str = "dim"
    place: str = "dim"
    client: str = "cyan"
    server: str = "magenta"
    title: str = "bold"
    label: str = "bright_blue"
    text: str = "green"
    hex: str = "yellow"
    dim: str = "dim"
    key: str = "bright_blue"
    number: str = "cyan"
    constant: str = "magenta"
    error: str = "bold red"
    warning: str = "bold yellow"
    note: str = "cyan"
    good: str = "green"
    reset: str = ""

    def paint(self, sequence: str, text: str) -> str:
        """Text in one of the palette's colours."""
        return f"{sequence}{text}{self.reset}" if sequence and text else text

    def around(self, sequence: str) -> tuple[str, str]:
        """The sequences before and behind a text in one of the palette's colours."""
        return sequence, self.reset if sequence else ""

    def of_sender(self, src: str, dst: str) -> str:
        """The colour of the sending side.

        A record does not name the side of its sender. If both sides greet, the one with the higher port is the client:
        the system gives it that port when it connects.
        """
        return self.client if port_of(src) >= port_of(dst) else self.server


STYLES = Palette()
_PARTS = [field.name for field in fields(Palette)]
NO_COLORS = Palette(**dict.fromkeys(_PARTS, ""))


class Signs(NamedTuple):
    """The signs that the tree is drawn with."""

    arrow: str = "→"
    more: str = "…"
    bar: str = "│"


def make_signs(encoding: str | None) -> Signs:
    """The signs for a stream of that encoding: ASCII ones where it has no others."""
    return shown_by(encoding, Signs(), Signs("->", "...", "|"))


def make_palette(stream: TextIO, color: Color) -> Palette:
    """The colours for a stream.

    ``auto``: those its terminal is able to show, and none if it is not a terminal or ``NO_COLOR`` is set;
    ``always``: the same, or the standard ones where rich sees no terminal that has any.
    """
    if color == "never" or (color == "auto" and os.environ.get("NO_COLOR")):
        return NO_COLORS
    if color == "auto" and not stream.isatty() and not any(map(os.environ.get, _FORCES)):
        return NO_COLORS  # also to be spared the import of rich
    from rich.console import COLOR_SYSTEMS, Console
    from rich.style import Style

    console = Console(file=stream, force_terminal=True if color == "always" else None)
    if console.color_system is None and color == "auto":
        return NO_COLORS
    system = COLOR_SYSTEMS[console.color_system or "standard"]
    # rich puts the text between two sequences, which begin and end a style. Only the first is needed, once.
    begins = {
        name: Style.parse(getattr(STYLES, name)).render("x", color_system=system).split("x")[0]
        for name in _PARTS
        if name != "reset"
    }
    return Palette(**begins, reset="\x1b[0m")
