"""Display filters: Wireshark's syntax on the fields of our records.

:func:`compile_filter` turns the text of a filter into a function that says whether an event passes. The parser is
imported only if there is a filter.
"""

from collections.abc import Callable

from dissectors.events import AnyEvent
from zmtpsniff.filters.filter_error import FilterError

__all__ = ["FilterError", "compile_filter"]


def compile_filter(text: str) -> Callable[[AnyEvent], bool]:
    """A function that says whether an event passes the filter. It raises nothing, whatever the event holds.

    Raises FilterError, which says where the text is wrong and what it may mean.
    """
    from zmtpsniff.filters.compiler import compile_text

    return compile_text(text)
