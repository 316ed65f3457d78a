"""How browse shows everything at first."""

from typing import NamedTuple

from zmtpsniff.render.clock import Times

THEMES = {"terminal": "ansi-dark", "dark": "textual-dark", "light": "textual-light"}
"""The colours that there are, by the names that Textual has for them."""


class BrowseOptions(NamedTuple):
    """The options of a run of browse."""

    title: str  # what is looked at, safe to show
    is_live: bool = False
    condition: str = ""  # the display filter
    times: Times = "absolute"
    utc: bool = False
    theme: str = "terminal"
    show_secrets: bool = False
