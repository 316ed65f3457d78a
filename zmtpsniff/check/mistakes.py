"""Words for mistakes in policies."""

import difflib
from collections.abc import Iterable


def suggest(word: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown word, to be appended to the error; empty if no known word is near."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def listed(words: Iterable[str]) -> str:
    """Words in a list."""
    return ", ".join(words)
