"""The fields that a filter names, and the texts that it compares them with."""

from typing import NamedTuple

from lark import Token, Tree

from zmtpsniff.filters.aliases import ALIASES
from zmtpsniff.filters.grammar import parse
from zmtpsniff.filters.literals import string


class Mentions(NamedTuple):
    """The fields and texts of a filter, each once."""

    fields: frozenset[str]  # with dots, without places: "client.socket_type", "frames"
    texts: frozenset[bytes]


def mentions_of(text: str) -> Mentions:
    """The names in the text of a filter; raises FilterError for a text that is no filter."""
    tree = parse(text)
    fields = set()
    for path in tree.find_data("path"):
        name = _dotted(path)
        fields.add(ALIASES[name].path if name in ALIASES else name)
    tokens = [token for token in tree.scan_values(lambda value: isinstance(value, Token)) if token.type == "STRING"]
    return Mentions(frozenset(fields), frozenset(string(token) for token in tokens))


def _dotted(path: Tree[Token]) -> str:
    return "".join(str(child) for child in path.children if isinstance(child, Token) and child.type in ("NAME", "PART"))
