"""The fields that a filter names, and the texts that it compares them with."""

from collections.abc import Iterator
from typing import NamedTuple

from lark import Token, Tree

from zmtpsniff.filters.aliases import ALIASES
from zmtpsniff.filters.grammar import parse
from zmtpsniff.filters.literals import string


class Mentions(NamedTuple):
    """The fields and texts of a filter, each once. A regular expression is no text: its backslashes are its own."""

    fields: frozenset[str]  # with dots, without places: "client.socket_type", "frames"
    texts: frozenset[bytes]


def mentions_of(text: str) -> Mentions:
    """The names in the text of a filter; raises FilterError for a text that is no filter."""
    tree = parse(text)
    fields = set()
    for path in tree.find_data("path"):
        name = _dotted(path)
        fields.add(ALIASES[name].path if name in ALIASES else name)
    patterns = {id(token) for comparison in tree.find_data("comparison") for token in _patterns(comparison)}
    tokens = [token for token in tree.scan_values(lambda value: isinstance(value, Token)) if token.type == "STRING"]
    return Mentions(frozenset(fields), frozenset(string(token) for token in tokens if id(token) not in patterns))


def _patterns(comparison: Tree[Token]) -> Iterator[Token]:
    """The tokens behind ``matches``."""
    _, *chain = comparison.children
    for relation, right in zip(chain[1::2], chain[2::2], strict=True):
        assert isinstance(relation, Tree)
        assert isinstance(right, Tree)
        if relation.children[0] in ("matches", "~"):
            yield from right.scan_values(lambda value: isinstance(value, Token))


def _dotted(path: Tree[Token]) -> str:
    return "".join(str(child) for child in path.children if isinstance(child, Token) and child.type in ("NAME", "PART"))
