"""Words for mistakes in policies."""

import difflib
from collections.abc import Iterable


def suggest(word: str, known: Iterable[str]) -> str:
    """What is meant by a word that is unknown, to be put behind what is said of it; empty if nothing is near."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def listed(words: Iterable[str]) -> str:
    """Words in a list."""
    return ", ".join(words)
