"""How the tree looks: its colours and signs, and how much it shows."""

from dataclasses import dataclass

from dissectors.events import Octets
from zmtpsniff.render.palette import Palette, Signs
from zmtpsniff.render.text import quote

INDENT = "    "  # of what stands below the first line of a record


@dataclass(frozen=True)
class Look:
    """What all parts of the tree go by.

    ``max_bytes`` of all octets are shown at most (0: no limit); from ``verbosity`` 1 on every field has its line, and
    text has its dump beside it.
    """

    palette: Palette
    signs: Signs
    max_bytes: int
    verbosity: int

    @property
    def everything(self) -> bool:
        """Whether all items of a list are shown, however many there are."""
        return bool(self.verbosity) or not self.max_bytes

    @property
    def more(self) -> str:
        """What stands for things left out, ``{}`` for their number."""
        return f"{self.signs.more} {{}} more"

    def octets(self, octets: Octets) -> str:
        """Octets on one line, in their colour."""
        shown = quote(octets, self.max_bytes, self.more)
        return self.palette.paint(self.palette.hex if shown.startswith("0x") else self.palette.text, shown)
