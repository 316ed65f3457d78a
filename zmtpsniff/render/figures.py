"""Numbers and cells as tables for people have them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from zmtpsniff.words.durations import brief

if TYPE_CHECKING:
    from rich.text import Text

_PREFIXES = ("", "k", "M", "G", "T", "P")


def lines(*each: str, styles: Sequence[str] = ()) -> "Text":
    """The lines of a cell, already safe to show, each with its style. Empty lines at the end are left out."""
    from rich.text import Text

    text = Text()
    for place, line in enumerate(each):
        text.append("\n" if place and line else "")
        text.append(line, styles[place] if place < len(styles) else "")
    return text


def _scaled(count: float) -> tuple[str, str]:
    """A number of three digits and the prefix of its unit."""
    place = 0
    while count >= 999.5 and place < len(_PREFIXES) - 1:
        count /= 1000
        place += 1
    return f"{count:.3g}", _PREFIXES[place]


def short(count: float) -> str:
    """A number in seven characters at most, such as ``12,345``, ``1.23 M``."""
    return f"{count:,.0f}" if count < 100_000 else " ".join(_scaled(count))


def figure(value: float | None, kind: Literal["count", "share", "time"]) -> str:
    """A figure of a peer; empty for none, and for nothing."""
    if not value:
        return ""
    if kind == "share":
        return f"{100 * value:.0f} %"
    return brief(int(value)) if kind == "time" else short(value)


def rate(count: float | None, unit: str = "", per: str = "/s") -> str:
    """A number with its prefix and unit, such as ``12.3/s``, ``1.2 kB/s``."""
    if count is None:
        return ""
    digits, prefix = _scaled(count)
    return f"{digits}{' ' if unit or prefix else ''}{prefix}{unit}{per}"
