"""The language of filters: from text to a tree.

The grammar is Wireshark's, as far as it goes: ``or`` binds least, then ``xor``, ``and``, ``not``. A literal such as
``10`` may be a number or an octet. That depends on the field that it is compared with, so it stays text here.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from zmtpsniff.filters.filter_error import FilterError

if TYPE_CHECKING:
    from lark.exceptions import UnexpectedInput

MAX_CHARACTERS = 10_000

_GRAMMAR = r"""
start: expression

?expression: odd | odd (_or odd)+ -> either
?odd: both | both (_xor both)+ -> odd
?both: unary | unary (_and unary)+ -> both
?unary: test | _not unary -> negation
?test: "(" expression ")"
    | [quantifier] operand (relation operand)+ -> comparison
    | [quantifier] operand _in set -> membership
    | [quantifier] operand "not" _in set -> exclusion
    | operand -> presence

_or: "||" | "or"
_xor: "^^" | "xor"
_and: "&&" | "and"
_not: "!" | "not"
_in: "in"
!quantifier: "any" | "all"
!relation: "==" | "eq" | "any_eq" | "!=" | "ne" | "all_ne" | "===" | "all_eq" | "!==" | "any_ne"
    | "<" | "lt" | "<=" | "le" | ">" | "gt" | ">=" | "ge" | "contains" | "matches" | "~"

?operand: call | path | literal
call: NAME "(" operand ")"
path: NAME (SLICE | KEY | PART)*
!literal: STRING | RAW | NUMBER | OCTET | COLONS | DOTTED
set: "{" element ("," element)* "}"
element: constant [".." constant]
?constant: literal | path

NAME: /[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*/
PART: /\.[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*/
SLICE: /\[\s*(-?[0-9]+\s*([:-]\s*(-?[0-9]+)?)?|:\s*-?[0-9]+)\s*\]/
KEY: /\[\s*"([^"\\]|\\.)*"\s*\]/
STRING: /"([^"\\]|\\.)*"/s
RAW.6: /[rR]"([^"\\]|\\.)*"/s
COLONS.5: /([0-9a-fA-F]{0,4}:)+[0-9a-fA-F:.]*(\/[0-9]+)?/
DOTTED.4: /[0-9]+(\.[0-9]+){3}(\/[0-9]+)?/
NUMBER.3: /[-+]?(0[xX][0-9a-fA-F]+|[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?)(ns|us|ms|s)?(?![\w])/
OCTET.2: /[0-9][0-9a-fA-F](?!\w)/
%ignore /\s+/
"""

_VALUES = {"STRING", "RAW", "NUMBER", "OCTET", "COLONS", "DOTTED"}


@lru_cache(1)
def _parser() -> Lark:
    # An LALR parser keeps its own stack, so parentheses may be nested to any depth.
    return Lark(_GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def parse(text: str) -> Tree[Token]:
    """The tree of a filter; raises FilterError for what is none."""
    if len(text) > MAX_CHARACTERS:
        raise FilterError(f"a filter has {MAX_CHARACTERS:,} characters at most", MAX_CHARACTERS + 1)
    if not text.strip():
        raise FilterError("the filter is empty", 1)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FilterError(r'this is no UTF-8; an octet is written as "\xff"', error.start + 1) from None
    try:
        return _parser().parse(text)
    except (UnexpectedCharacters, UnexpectedToken, UnexpectedEOF) as error:
        raise _explained(error, text) from None


def _explained(error: "UnexpectedInput", text: str) -> FilterError:
    """The message of an error, made of the text found and the tokens that would fit."""
    expected: set[str] = set(getattr(error, "expected", None) or getattr(error, "allowed", None) or ())
    wants = "a value" if expected & _VALUES else "an operator" if "__ANON_0" in expected or "AND" in expected else ""
    if "NAME" in expected:
        wants = "a field or a value"
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        opened = _unclosed(text)
        if opened is not None:
            before = text[:opened]
            column = opened - (before.rfind("\n") + 1) + 1
            return FilterError(f'"{text[opened]}" is not closed', column, before.count("\n") + 1)
        lines = text.rstrip().split("\n")
        return FilterError(f"{wants or 'more'} is missing at the end", len(lines[-1]) + 1, len(lines))
    line, column = max(error.line, 1), max(error.column, 1)
    rest = text.split("\n")[line - 1][column - 1 :]
    return FilterError(f'"{rest[:20]}" does not fit here{_advice(rest, wants)}', column, line)


def _advice(rest: str, wants: str) -> str:
    """Suggests tokens that start like this."""
    if rest.startswith("=") and not rest.startswith("=="):
        return '; equal is "=="'
    if rest.startswith("'"):
        return '; texts are in double quotes: "text"'
    if rest.startswith('"') and rest.count('"') == 1:
        return "; the text has no closing quote"
    if rest.startswith("["):
        return "; places are [0], [-1], [1:2] (from 1, 2 of them), [1-2] (from 1 to 2), [1:] and [:2]"
    for wrong, right in (("&", "&&"), ("|", "||"), ("AND", "and"), ("OR", "or"), ("NOT", "not"), ("=<", "<=")):
        if rest.startswith(wrong) and not rest.startswith(right):
            return f'; did you mean "{right}"?'
    return f"; {wants} should follow" if wants else ""


def _unclosed(text: str) -> int | None:
    """The place of the last bracket that is not closed, outside texts."""
    opened: list[int] = []
    quoted = escaped = False
    for place, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "({[":
            opened.append(place)
        elif character in ")}]" and opened:
            opened.pop()
    return opened[-1] if opened else None
