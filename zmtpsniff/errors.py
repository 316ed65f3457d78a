"""What is raised when something cannot be done that a user asked for."""

import re

_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Error(Exception):
    """Something cannot be done. The text is one line, as the commands print it: what, why, and what to do."""


class PluginError(Error):
    """A plug-in cannot be used; the text says which and why, on one line."""

    def __init__(self, reason: str) -> None:
        """``reason`` begins with the plug-in's name."""
        super().__init__(f"plug-in {reason}")


def one_line(error: BaseException) -> str:
    """The text of another library's error, on one line, without the colours that those of Delta Lake have."""
    return " ".join(_COLOUR.sub("", str(error)).split())
