"""How the tree looks: its colours and signs, and how much it shows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from dissectors.events import Octets
from zmtpsniff.render.fit import columns, fitted
from zmtpsniff.render.palette import Palette, Signs
from zmtpsniff.words.text import quote

_AROUND_TEXT = 26  # columns for the number and length of a frame and quotes around it
_LEAST_TEXT = 32
INDENT = "    "  # of what stands below the first line of a record


@dataclass(frozen=True)
class Look:
    """The settings that all parts of the tree share.

    At most ``max_bytes`` of all octets are shown (0: no limit). From ``verbosity`` 1 on every field has its line, and
    text has its dump beside it. On a terminal of ``width`` columns, text and fields fill its lines.
    """

    palette: Palette
    signs: Signs
    max_bytes: int
    verbosity: int
    width: int | None = None

    @cached_property
    def text_octets(self) -> int:
        """How many octets of a body that is text are shown at most (0: no limit)."""
        return self.max_bytes if self.width is None else max(self.width - _AROUND_TEXT, _LEAST_TEXT)

    @property
    def everything(self) -> bool:
        """Whether all items of a list are shown, however many there are."""
        return bool(self.verbosity) or not self.max_bytes

    @property
    def more(self) -> str:
        """The sign for things left out, with ``{}`` for their number."""
        return f"{self.signs.more} {{}} more"

    @cached_property
    def fitted(self) -> Callable[[str], str]:
        """Gives a line, as several where the terminal is narrower."""
        return str if self.width is None else partial(fitted, width=self.width)

    def is_too_long(self, line: str, start: int) -> bool:
        """Whether a line that begins in a column is longer than the terminal is wide."""
        return self.width is not None and start + len(line) > self.width and start + columns(line) > self.width

    def octets(self, octets: Octets) -> str:
        """Octets on one line, in their colour."""
        shown = quote(octets, self.max_bytes, self.more)
        return self.palette.paint(self.palette.hex if shown.startswith("0x") else self.palette.text, shown)
