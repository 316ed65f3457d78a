"""Mistakes in policies: checks that rules and endpoints share, and the words for what is wrong."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from zmtpsniff.check.model import LEVELS, Level

Fail = Callable[[str | None, str], NoReturn]
"""Raises what is wrong with a key, or with the rule or endpoint."""
_LONGEST_NAME = 200  # characters: more fits into no report


def suggest(word: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown word, to be appended to the error; empty if no known word is near."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def listed(words: Iterable[str]) -> str:
    """Words in a list."""
    return ", ".join(words)


def check_keys(table: Mapping[str, Any], known: Iterable[str], fail: Fail, inside: str | None = None) -> None:
    """Fail at the first key that is not known; ``inside`` is the key whose value the table is, None at the top."""
    for key in table:
        if key not in known:
            where = "" if inside is None else f"{inside}: "
            fail(inside or key, f"{where}unknown key {key!r}{suggest(key, known)}")


def name_in(table: Mapping[str, Any], default: str, fail: Fail) -> str:
    """The name that a rule or an endpoint has."""
    name = table.get("name", default)
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
        fail("name", f"name must be text of 1 to {_LONGEST_NAME} characters")
    return name


def level_in(table: Mapping[str, Any], fail: Fail) -> Level:
    """The level of a rule or an endpoint."""
    level: Level = table.get("level", "error")
    if level not in LEVELS:
        fail("level", f"level must be one of {listed(LEVELS)}, not {level!r}")
    return level
