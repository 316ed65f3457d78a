"""Finds the lines of rules, endpoints and keys in a TOML text, since tomllib does not give them."""

import re

# Strings and comments may hold anything, so they are removed before lines are read. A string of several lines may end
# in up to two quotes of its own.
_OPAQUE = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*",
    re.DOTALL,
)
_LISTED = re.compile(r"\s*\[\[\s*(rule|endpoint)\s*\]\]")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+)\s*[.=]")
_TABLE = re.compile(r"\s*\[+\s*([A-Za-z0-9_-]+)")


class Lines:
    """The lines of rules, endpoints, keys and tables in a text that tomllib has accepted."""

    def __init__(self, text: str) -> None:
        """Look through ``text``."""
        self._keys: dict[str, int] = {}  # at the top, and tables
        self._listed: dict[str, list[tuple[int, dict[str, int]]]] = {"rule": [], "endpoint": []}
        depth = 0  # of brackets that are open where a line starts
        keys = self._keys
        for number, line in enumerate(_OPAQUE.sub(_blank, text).split("\n"), 1):
            if depth == 0:
                if listed := _LISTED.match(line):
                    keys = {}
                    self._listed[listed[1]].append((number, keys))
                elif table := _TABLE.match(line):
                    self._keys.setdefault(table[1], number)
                    keys = {}  # of a table that has no place here
                elif key := _KEY.match(line):
                    keys.setdefault(key[1], number)
            depth += sum(map(line.count, "[{")) - sum(map(line.count, "]}"))

    def of_key(self, key: str) -> int:
        """The line of a key or table at the top of the policy; 1 if it is not found."""
        return self._keys.get(key, 1)

    def of_listed(self, kind: str, place: int, key: str | None = None) -> int:
        """The line of a key of rule or endpoint number ``place`` (from 0), else that of the rule."""
        if place >= len(self._listed[kind]):  # rule = [{...}, ...]
            return self.of_key(kind)
        line, keys = self._listed[kind][place]
        return line if key is None else keys.get(key, line)


def longest_key(text: str, most: int) -> int | None:
    """The first line of a text, TOML or not, that may have a key of more than ``most`` parts; None if there is none."""
    if text.count(".") <= most:
        return None
    for number, line in enumerate(_OPAQUE.sub(_blank, text).split("\n"), 1):
        if line.count(".") > most and any(part.count(".") > most for part in line.split("=")):
            return number
    return None


def _blank(match: re.Match[str]) -> str:
    """The line ends of a string or a comment, which replace it."""
    return "\n" * match[0].count("\n")
