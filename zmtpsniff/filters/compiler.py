"""From the tree of a filter to a function: Python source, compiled once.

One walk over the tree makes an expression for each test and each type of record. A field that a type of record lacks
is ``False`` already here. So a filter costs next to nothing on records that it cannot match.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from lark import Token, Tree

from dissectors.events import EVENT_TYPES, Event, Message
from zmtpsniff.filters import structures, values
from zmtpsniff.filters.comparison_source import Quantifier, Relation, among, presence, search, with_constant, with_value
from zmtpsniff.filters.filter_error import FilterError
from zmtpsniff.filters.filter_fields import choices
from zmtpsniff.filters.function_source import SourceCode
from zmtpsniff.filters.grammar import parse
from zmtpsniff.filters.literals import KINDS, Range, convert, fail, pattern
from zmtpsniff.filters.operands import Field, field, is_field
from zmtpsniff.filters.paths import Kind, Value

_NEAR = 0.7  # of difflib's ratio, from which on a text is most likely a mistake
_MOST_DEPTH = 50  # Python's own compiler limits nested parentheses, too

_Code = dict[type[Event], str]  # an expression for each type of record; "False" where it is not there

_RELATIONS: dict[str, tuple[Relation, Quantifier]] = {
    **dict.fromkeys(("==", "eq", "any_eq"), ("==", "any")),
    **dict.fromkeys(("!=", "ne", "all_ne"), ("!=", "all")),
    **dict.fromkeys(("===", "all_eq"), ("==", "all")),
    **dict.fromkeys(("!==", "any_ne"), ("!=", "any")),
    **dict.fromkeys(("<", "lt"), ("<", "any")),
    **dict.fromkeys(("<=", "le"), ("<=", "any")),
    **dict.fromkeys((">", "gt"), (">", "any")),
    **dict.fromkeys((">=", "ge"), (">=", "any")),
    "contains": ("contains", "any"),
    **dict.fromkeys(("matches", "~"), ("matches", "any")),
}
_MIRRORED: dict[Relation, Relation] = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_EQUAL: frozenset[Kind] = frozenset({"text", "number", "boolean", "octets", "ip", "ipv6", "time", "value"})
_ORDERED = _EQUAL - {"boolean"}
_SEARCHED: frozenset[Kind] = frozenset({"text", "octets", "value"})
_IN_STRUCTURES: frozenset[Kind] = frozenset({"text", "number", "boolean", "octets", "value"})
_FITTING: dict[Relation, frozenset[Kind]] = {
    **dict.fromkeys(("==", "!="), _EQUAL),
    **dict.fromkeys(("<", "<=", ">", ">="), _ORDERED),
    **dict.fromkeys(("contains", "matches"), _SEARCHED),
}
_RUNTIME = {
    name: getattr(module, name) for module in (values, structures) for name in dir(module) if not name.startswith("_")
}


def compile_text(text: str) -> tuple[Any, frozenset[type[Event]]]:
    """The function of a filter, and the types of record of which some may pass; raises FilterError."""
    return _Compiler().compile(parse(text))


class _Compiler:
    def __init__(self) -> None:
        self._source = SourceCode(_RUNTIME)

    def compile(self, tree: Tree[Token]) -> tuple[Any, frozenset[type[Event]]]:
        code = {record: each for record, each in self._walk(tree.children[0], 0).items() if each != "False"}
        lines = ["kind = type(e)"]
        # Most records of a busy capture are messages.
        for record in sorted(code, key=lambda record: record is not Message):
            lines += [f"if kind is {self._source.constant(record)}:", f" return {code[record]}"]
        return self._source.build("passes", [*lines, "return False"]), frozenset(code)

    def _walk(self, tree: Any, depth: int) -> _Code:
        if depth > _MOST_DEPTH:
            _fail_at(tree, f"more than {_MOST_DEPTH} parts within each other; take the filter apart")
        kind = tree.data
        if kind in ("either", "both", "odd", "negation"):
            parts = [self._walk(child, depth + 1) for child in tree.children]
            return {record: _JOINED[kind]([part[record] for part in parts]) for record in EVENT_TYPES}
        leaf = {
            "comparison": self._comparison,
            "membership": self._membership,
            "exclusion": self._membership,
            "presence": self._presence,
        }[kind]
        code = leaf(tree, depth)
        if kind == "exclusion":
            code = {record: _not([each]) for record, each in code.items()}
        return code

    def _presence(self, tree: Tree[Token], depth: int) -> _Code:
        (operand,) = tree.children
        if _literal(operand) is not None:
            _fail_at(operand, "a value says nothing alone; compare a field with it")
        named = self._field(operand, depth)
        if isinstance(operand, Tree) and operand.data == "call":
            _fail_at(operand, f"{named.name} says nothing alone; compare it with a value")
        return self._each(lambda record: presence(named.values[record], self._source), named)

    def _comparison(self, tree: Tree[Token], depth: int) -> _Code:
        quantifier, *chain = tree.children
        # 1 < packet < 5 is two comparisons.
        pairs = [
            self._pair(quantifier, left, relation, right, depth)
            for left, relation, right in zip(chain[::2], chain[1::2], chain[2::2], strict=False)
        ]
        return {record: _and([pair[record] for pair in pairs]) for record in EVENT_TYPES}

    def _pair(self, quantifier: Any, left: Any, written: Any, right: Any, depth: int) -> _Code:
        """One comparison: a field with a value, a value with a field, or a field with another."""
        relation, quantity = _RELATIONS[str(written.children[0])]
        if isinstance(quantifier, Tree):
            quantity = "all" if quantifier.children[0] == "all" else "any"
        if self._is_value(left):
            if self._is_value(right):
                _fail_at(left, "two values are compared; one side must be a field")
            if relation not in _MIRRORED:
                _fail_at(left, f'a field must be in front of "{relation}"')
            left, right, relation = right, left, _MIRRORED[relation]
        field = self._field(left, depth)
        fitting = {record: value for record, value in field.values.items() if value.kind in _FITTING[relation]}
        if not fitting:
            self._fail_relation(field, relation)
        if relation == "matches":
            return self._search(field, fitting, right, quantity)
        constant = self._constant_of(right, fitting)
        if constant is not None:
            made = self._constants(field, fitting, [constant], relation)
            return self._each(
                lambda record: with_constant(field.values[record], relation, made[record][0], quantity, self._source),
                field, made,
            )  # fmt: skip
        other = self._field(right, depth)
        pairs = {
            record: value
            for record, value in fitting.items()
            if record in other.values and _go_together(value.kind, other.values[record].kind)
        }
        if not pairs:
            self._fail_pair(field, other)
        return self._each(
            lambda record: with_value(field.values[record], relation, other.values[record], quantity, self._source),
            field, pairs,
        )  # fmt: skip

    def _search(self, field: Field, fitting: "dict[type[Event], Value]", right: Any, quantity: Quantifier) -> _Code:
        token = _literal(right)
        if token is None:
            _fail_at(right, "matches takes a regular expression in double quotes")
        text = pattern(token)
        try:
            searches = {kind: search(text, kind) for kind in {value.kind for value in fitting.values()}}
        except ValueError as error:
            fail(token, f"no regular expression of RE2: {error}")
        return self._each(
            lambda record: with_constant(
                fitting[record], "matches", searches[fitting[record].kind], quantity, self._source
            ),
            field, fitting,
        )  # fmt: skip

    def _membership(self, tree: Tree[Token], depth: int) -> _Code:
        quantifier, operand, elements = tree.children
        quantity: Quantifier = "all" if isinstance(quantifier, Tree) and quantifier.children[0] == "all" else "any"
        if self._is_value(operand):
            _fail_at(operand, 'a field must be in front of "in"')
        field = self._field(operand, depth)
        fitting = {record: value for record, value in field.values.items() if value.kind in _FITTING["=="]}
        if not fitting:
            self._fail_relation(field, "==")
        tokens: list[tuple[Token, ...]] = []
        assert isinstance(elements, Tree)
        for element in elements.children:
            assert isinstance(element, Tree)
            ends = [child for child in element.children if child is not None]
            pair = [self._constant_of(end, fitting) for end in ends]
            if None in pair:
                _fail_at(ends[pair.index(None)], "a set holds values, not fields")
            tokens.append(tuple(token for token in pair if token is not None))
        made = self._constants(field, fitting, tokens, "==")
        return self._each(lambda record: among(field.values[record], made[record], quantity, self._source), field, made)

    def _field(self, operand: Any, depth: int) -> Field:
        nested = operand
        while isinstance(nested, Tree) and nested.data == "call":
            depth += 1
            nested = nested.children[1]
        if depth > _MOST_DEPTH:
            _fail_at(operand, f"more than {_MOST_DEPTH} parts within each other")
        return field(operand, self._source)

    def _is_value(self, operand: Any) -> bool:
        """Whether an operand can only be a value."""
        token = _literal(operand)
        return token is not None or (
            _bare(operand) is not None and not is_field(str(_bare(operand))) and _octet(operand)
        )

    def _constant_of(self, operand: Any, fitting: "dict[type[Event], Value]") -> Token | None:
        """The token of a value, also of one that looks like a name: ``true``, ``ff``."""
        token = _literal(operand)
        if token is not None:
            return token
        bare = _bare(operand)
        if bare is None or is_field(str(bare)):
            return None
        kinds = {value.kind for value in fitting.values()}
        words = ("true", "false", "null") if "value" in kinds else ("true", "false")
        if (kinds & {"boolean", "value"} and bare.lower() in words) or (
            kinds & {"octets", "value"} and _octet(operand)
        ):
            return bare
        if kinds & {"text", "octets", "value"} and "." not in bare:
            fail(bare, f'there is no field "{bare}"; a text is written in double quotes: "{bare}"')
        return None

    def _constants(
        self, field: Field, fitting: "dict[type[Event], Value]", tokens: Any, relation: Relation
    ) -> dict[type[Event], list[Any]]:
        """The constants for each type of record where they fit; raises FilterError if they do so nowhere."""
        made: dict[type[Event], list[Any]] = {}
        wrong: FilterError | None = None
        for record, value in fitting.items():
            try:
                made[record] = [_constant(token, value.kind, field.name, relation) for token in tokens]
            except FilterError as error:
                wrong = wrong or error
        if not made and wrong is not None:
            raise wrong
        if relation in ("==", "!=") and (known := choices(field.name)):
            for token in tokens:
                _fail_if_never(token, field.name, known)
        return made

    def _each(self, code: Callable[[type[Event]], str], field: Field, records: Any = None) -> _Code:
        """The expressions for the types of record that have the field. Those without an event are evaluated now."""
        chosen = field.values if records is None else records
        made: _Code = {}
        for record in EVENT_TYPES:
            expression = code(record) if record in chosen else "False"
            if not re.search(r"\be\b", expression) and expression not in ("True", "False"):
                expression = str(self._source.now(expression))
            made[record] = expression
        return made

    def _fail_relation(self, field: Field, relation: str) -> NoReturn:
        kind = next(iter(field.values.values())).kind
        if kind == "object":
            fail(field.token, f"{field.name} is an object: name one of its fields, or ask for its presence alone")
        takes = "texts and octets" if relation in ("contains", "matches") else "what has an order"
        fail(field.token, f'{field.name} is {KINDS[kind]}; "{relation}" takes {takes}')

    def _fail_pair(self, one: Field, other: Field) -> NoReturn:
        kinds = [KINDS[next(iter(each.values.values())).kind] for each in (one, other)]
        if kinds[0] == kinds[1]:
            fail(other.token, f"no record has both {one.name} and {other.name}")
        fail(other.token, f"{one.name} is {kinds[0]}, {other.name} is {kinds[1]}")


def _fail_if_never(token: Token | tuple[Token, ...], name: str, known: Sequence[str]) -> None:
    """Raise FilterError for a text that is nearly a value of the field, but never is one: nothing would ever pass."""
    if isinstance(token, tuple):
        if len(token) == 2:
            return
        token = token[0]
    value = convert(token, "text", name)
    if value not in known:
        near = difflib.get_close_matches(str(value), known, 1, _NEAR)
        if near:
            fail(token, f'{name} is never "{value}"; did you mean "{near[0]}"?')


def _constant(token: Token | tuple[Token, ...], kind: Kind, name: str, relation: Relation) -> Any:
    """A value, or the Range from the first to the second of two."""
    if isinstance(token, tuple) and len(token) == 2:
        first, last = (convert(each, kind, name) for each in token)
        if isinstance(first, Range) or isinstance(last, Range):
            fail(token[0], "a network is a range already")
        if kind == "boolean":
            fail(token[0], f"{name} is true or false")
        if kind == "value" and not (type(first) is type(last) is bytes or _are_numbers(first, last)):
            fail(token[0], "a range has two numbers, or two texts, at its ends")
        if first > last:
            fail(token[1], f"a range goes from the lower to the higher: {token[1]} is below {token[0]}")
        return Range(first, last)
    single = token[0] if isinstance(token, tuple) else token
    made = convert(single, kind, name)
    if isinstance(made, Range) and relation not in ("==", "!="):
        fail(single, f'{single} is a network: use "==" or "!="')
    return made


def _are_numbers(*values: Any) -> bool:
    return all(type(value) in (int, float) for value in values)


def _go_together(one: Kind, other: Kind) -> bool:
    """Whether values of two kinds can be compared."""
    return one == other or ("value" in (one, other) and {one, other} <= _IN_STRUCTURES)


def _literal(operand: Any) -> Token | None:
    """The token of an operand that is a literal."""
    if isinstance(operand, Tree) and operand.data == "literal":
        token = operand.children[0]
        assert isinstance(token, Token)
        return token
    return None


def _bare(operand: Any) -> Token | None:
    """The token of an operand that is a name alone."""
    if isinstance(operand, Tree) and operand.data == "path" and len(operand.children) == 1:
        token = operand.children[0]
        assert isinstance(token, Token)
        return token
    return None


def _octet(operand: Any) -> bool:
    return re.fullmatch("[0-9a-fA-F]{2}", str(_bare(operand))) is not None


def _fail_at(tree: Any, reason: str) -> NoReturn:
    raise FilterError(reason, tree.meta.column, tree.meta.line)


def _and(parts: list[str]) -> str:
    if "False" in parts:
        return "False"
    rest = [part for part in parts if part != "True"]
    return f"({' and '.join(rest)})" if len(rest) > 1 else rest[0] if rest else "True"


def _or(parts: list[str]) -> str:
    if "True" in parts:
        return "True"
    rest = [part for part in parts if part != "False"]
    return f"({' or '.join(rest)})" if len(rest) > 1 else rest[0] if rest else "False"


def _not(parts: list[str]) -> str:
    (part,) = parts
    return {"True": "False", "False": "True"}.get(part, f"(not {part})")


def _xor(parts: list[str]) -> str:
    # All sides are True or False. Each further one that is True inverts the result.
    turned = parts.count("True") % 2 == 1
    rest = [part for part in parts if part not in ("True", "False")]
    joined = f"({' ^ '.join(f'({part})' for part in rest)})" if rest else "False"
    return _not([joined]) if turned else joined


_JOINED = {"either": _or, "both": _and, "negation": _not, "odd": _xor}
