"""Charts of characters."""

from collections.abc import Sequence
from typing import NamedTuple

from zmtpsniff.words.text import shown_by


class Blocks(NamedTuple):
    """The characters of charts: cells that are partly filled from the left, and from below."""

    across: str = "▏▎▍▌▋▊▉█"
    up: str = "▁▂▃▄▅▆▇█"
    axis: str = "┤"
    corner: str = "└"
    line: str = "─"


def make_blocks(encoding: str | None) -> Blocks:
    """The characters for a stream of that encoding: ASCII where it has no others."""
    return shown_by(encoding, Blocks(), Blocks("#", ".:#", "|", "+", "-"))


def bar(value: float, largest: float, width: int, blocks: Blocks) -> str:
    """A bar from left to right, ``width`` characters long for the largest value. A value over 0 is always visible."""
    if value <= 0 or largest <= 0:
        return ""
    parts = len(blocks.across)
    filled = max(1, round(value / largest * width * parts))
    whole, rest = divmod(filled, parts)
    return blocks.across[-1] * whole + (blocks.across[rest - 1] if rest else "")


def columns(values: Sequence[float], height: int, blocks: Blocks) -> list[str]:
    """Columns side by side, a character wide each, as lines from top to bottom. A value over 0 is always visible."""
    largest = max(values, default=0)
    parts = len(blocks.up)
    lines = [""] * height
    for value in values:
        filled = max(1, round(value / largest * height * parts)) if value > 0 else 0
        for line in range(height):
            part = min(max(filled - (height - 1 - line) * parts, 0), parts)
            lines[line] += blocks.up[part - 1] if part else " "
    return lines
