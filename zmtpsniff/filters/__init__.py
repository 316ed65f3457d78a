"""Display filters: Wireshark's syntax on the fields of our records.

:func:`compile_filter` turns the text of a filter into a function that says of an event whether it passes. The parser is
imported only when there is a filter to parse.
"""

from collections.abc import Callable

from dissectors.events import AnyEvent
from zmtpsniff.filters.errors import FilterError

__all__ = ["FilterError", "compile_filter"]


def compile_filter(text: str) -> Callable[[AnyEvent], bool]:
    """A function that says whether an event passes the filter; it raises nothing, whatever the event holds.

    Raises FilterError, which says where the text is wrong and what may be meant.
    """
    from zmtpsniff.filters.compiler import compile_text

    return compile_text(text)
