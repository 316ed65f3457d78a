"""Defaults of analysis."""

REPLY_SECONDS = 5.0
"""Seconds that a request may wait for its reply before that is reported."""
_LONGEST_SECONDS = 1e9  # 30 years, and still an integer of nanoseconds in 64 bits

TOP_ROWS = 20
"""Of each table that has an order."""

PAGE_ROWS = 200
"""The same on a page, whose tables can be filtered."""

SORT = "messages"
"""The column by which tables are sorted."""


def timeout_ns(seconds: float) -> int:
    """How long a request may wait, in nanoseconds; ``seconds`` may be infinite."""
    return int(min(seconds, _LONGEST_SECONDS) * 1e9)
