"""Defaults of analysis."""

REPLY_SECONDS = 5.0
"""Seconds that a request may wait for its reply before that is reported."""

TOP_ROWS = 20
"""Of each table that has an order."""

PAGE_ROWS = 200
"""The same on a page, whose tables can be filtered."""

SORT = "messages"
"""The column by which tables are sorted."""
