"""The error of a filter that cannot be used."""

from zmtpsniff.errors import Error
from zmtpsniff.words.text import escape


class FilterError(Error, ValueError):
    """A filter that cannot be used. Its text is one line, which says where and why.

    ``line`` and ``column`` count from 1. The text names the line only if there are several.
    """

    def __init__(self, reason: str, column: int, line: int = 1) -> None:
        """Say ``reason`` of the place ``column`` in ``line``."""
        place = f"column {column}" if line == 1 else f"line {line}, column {column}"
        super().__init__(f"{place}: {escape(' '.join(reason.split()))}")
        self.reason = reason
        self.column = column
        self.line = line
