"""The line on a terminal that shows how much of the capture files has been read."""

import sys
import time
from typing import TYPE_CHECKING, TextIO

from zmtpsniff.cli.last_line import QUIET_SECONDS, LastLine, leads_to_a_program
from zmtpsniff.render.figures import rate
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import shown_by

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dissectors.events import AnyEvent
    from zmtpsniff.dissection import Dissection

_TELLING = 0.01  # after so great a part of the files, the time that the rest takes can be estimated
_BAR = 30  # columns


class ProgressLine(LastLine):
    """How much has been read, of how much, and about how long the rest will take."""

    def __init__(
        self, terminal: TextIO, position: "Callable[[], tuple[int, int] | None]", shares_terminal: bool
    ) -> None:
        """Draw on ``terminal``. ``position`` gives octets read and octets in all, None if nobody knows them.

        With ``shares_terminal`` records may show there, too. Then the line is drawn only while no records come.
        """
        super().__init__(terminal)
        self._position = position
        self._shares_terminal = shares_terminal
        self._done, self._left, self._dot = shown_by(terminal.encoding or "ascii", ("━", "─", " · "), ("#", "-", ", "))
        self._began = time.monotonic()
        self._draw_from = self._began + QUIET_SECONDS

    def see(self, events: "Sequence[AnyEvent]", shown: "Sequence[AnyEvent]") -> None:
        """Make room for events that are about to be shown."""
        if shown and self._shares_terminal:
            self.erase()
            self._draw_from = time.monotonic() + QUIET_SECONDS

    def draw(self) -> None:
        """Draw the line anew, unless that was done a moment ago."""
        now = time.monotonic()
        if now < self._draw_from or not self.is_due:
            return
        position = self._position()
        if position is None:
            return
        octets, whole = position
        part = min(octets / whole, 1.0) if whole else 1.0
        done = int(part * _BAR)
        words = [f"{self._done * done}{self._left * (_BAR - done)} {int(part * 100)} %"]
        words.append(f"{rate(octets, 'B', '')} of {rate(whole, 'B', '')}")
        if part >= _TELLING:
            seconds = round((now - self._began) * (1 - part) / part)
            words.append(f"about {_span(seconds)} left")
        self.show(self._dot.join(words))


def make_progress_line(capture: "Dissection", file: str | None = None) -> ProgressLine | None:
    """The line for records that go to ``file``, None or "-" for standard output. None if nobody would see it."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    is_terminal = file in (None, "-") and sys.stdout is not None and sys.stdout.isatty()
    return ProgressLine(sys.stderr, lambda: capture.position, is_terminal or leads_to_a_program(file))


def _span(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else brief(seconds * 1_000_000_000)
