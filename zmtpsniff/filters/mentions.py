"""The fields that a filter names, and the texts that it compares them with."""

from collections.abc import Iterator
from typing import NamedTuple

from lark import Token, Tree

from zmtpsniff.filters.aliases import ALIASES
from zmtpsniff.filters.grammar import parse
from zmtpsniff.filters.literals import string

_MATCHES = ("matches", "~")


class TextTest(NamedTuple):
    """A field that is compared with a text."""

    field: str  # as it is written: "body.items[0].price"
    relation: str
    text: bytes


class Mentions(NamedTuple):
    """The fields and texts of a filter, each once. A regular expression is no text: its backslashes are its own."""

    fields: frozenset[str]  # with dots, without places: "client.socket_type", "frames"
    texts: frozenset[bytes]
    comparisons: tuple[TextTest, ...]  # each with a field on its left


def mentions_of(text: str) -> Mentions:
    """The names in the text of a filter; raises FilterError for a text that is no filter."""
    tree = parse(text)
    fields = set()
    for path in tree.find_data("path"):
        name = _dotted(path)
        fields.add(ALIASES[name].path if name in ALIASES else name)
    compared = list(_compared(tree))
    patterns = {id(token) for _, relation, right in compared if relation in _MATCHES for token in _tokens(right)}
    texts = frozenset(string(token) for token in _tokens(tree) if id(token) not in patterns)
    comparisons = tuple(
        TextTest("".join(map(str, left.children)), relation, string(token))
        for left, relation, right in compared
        for token in _tokens(right)
        if left.data == "path" and id(token) not in patterns
    )
    return Mentions(frozenset(fields), texts, comparisons)


def _compared(tree: Tree[Token]) -> Iterator[tuple[Tree[Token], str, Tree[Token]]]:
    """The operands of each comparison with the relation between them."""
    for comparison in tree.find_data("comparison"):
        _, *chain = comparison.children
        for left, relation, right in zip(chain[::2], chain[1::2], chain[2::2], strict=False):
            assert isinstance(left, Tree)
            assert isinstance(relation, Tree)
            assert isinstance(right, Tree)
            yield left, str(relation.children[0]), right


def _tokens(tree: Tree[Token]) -> Iterator[Token]:
    """The texts in a tree."""
    yield from tree.scan_values(lambda value: isinstance(value, Token) and value.type == "STRING")


def _dotted(path: Tree[Token]) -> str:
    return "".join(str(child) for child in path.children if isinstance(child, Token) and child.type in ("NAME", "PART"))
