"""Display filters: Wireshark's syntax on the fields of our records.

:func:`compile_filter` turns the text of a filter into a function that says whether an event passes. The parser is
imported only if there is a filter.
"""

from typing import Protocol

from dissectors.events import AnyEvent, Event
from zmtpsniff.filters.filter_error import FilterError

__all__ = ["Filter", "FilterError", "compile_filter"]


class Filter(Protocol):
    """A function that says whether an event passes. It raises nothing, whatever the event holds."""

    text: str
    """The filter as it was written."""
    records: frozenset[type[Event]]
    """The types of record of which some may pass. No message passes ``severity == "error"``, whatever it holds."""

    def __call__(self, event: AnyEvent, /) -> bool:
        """Whether ``event`` passes."""


def compile_filter(text: str) -> Filter:
    """The function of a filter.

    Raises FilterError, which says where the text is wrong and what it may mean.
    """
    from zmtpsniff.filters.compiler import compile_text

    passes: Filter
    passes, records = compile_text(text)
    passes.text, passes.records = text, records
    return passes
