"""The last line of a terminal: it is drawn again and again, and leaves nothing behind."""

import os
import stat
import sys
import time
from typing import TextIO

QUIET_SECONDS = 1.0  # so long nothing is drawn after records that another program may show on the same terminal
_REDRAW_SECONDS = 0.25
_COLUMNS = 80  # where the terminal does not say
_ERASE = "\r\x1b[K"


class LastLine:
    """The last line of a terminal."""

    def __init__(self, terminal: TextIO) -> None:
        """Draw nothing yet."""
        self._terminal = terminal
        self._drawn_at = 0.0
        self._is_shown = False

    @property
    def is_due(self) -> bool:
        """Whether it is time to draw it: it is not shown, or was drawn some time ago."""
        return not self._is_shown or time.monotonic() - self._drawn_at >= _REDRAW_SECONDS

    def show(self, text: str) -> None:
        """Show a text, cut to the width of the terminal."""
        self._terminal.write(f"{_ERASE}{text[: self._columns() - 1]}")
        self._terminal.flush()
        self._drawn_at = time.monotonic()
        self._is_shown = True

    def erase(self) -> None:
        """Make room for other lines."""
        if self._is_shown:
            self._terminal.write(_ERASE)
            self._terminal.flush()
            self._is_shown = False

    def _columns(self) -> int:
        # Not shutil's, which asks standard output: that may be a file.
        try:
            return os.get_terminal_size(self._terminal.fileno()).columns or _COLUMNS
        except OSError:
            return _COLUMNS


def leads_to_a_program(file: str | None) -> bool:
    """Whether the output to ``file``, None or "-" for standard output, goes to another program by a pipe.

    That program may write on the terminal that has our line, and cannot know of it.
    """
    if file not in (None, "-") or sys.stdout is None:
        return False
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):  # it is closed, or no file
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def shares_terminal(terminal: TextIO, file: str | None) -> bool:
    """Whether a line on a terminal may meet records of ``file`` that another program shows there."""
    return terminal.isatty() and leads_to_a_program(file)
