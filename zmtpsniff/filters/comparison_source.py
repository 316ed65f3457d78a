"""A comparison as Python code: values of one type of record, compared with constants or other values."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from dissectors.events import Cut, Octets
from zmtpsniff.filters.function_source import SourceCode
from zmtpsniff.filters.literals import Range
from zmtpsniff.filters.paths import Value
from zmtpsniff.filters.structures import RELATIONS
from zmtpsniff.filters.values import text_of
from zmtpsniff.words.text import as_text

Relation = Literal["==", "!=", "<", "<=", ">", ">=", "contains", "matches"]
Quantifier = Literal["any", "all"]

# The octets after those at hand are unknown. So a search may match only before the cut.
_MAY_FOLLOW = (b"a", b" ", b"\n")


def with_constant(value: Value, relation: Relation, constant: Any, quantifier: Quantifier, source: SourceCode) -> str:
    """The expression of a comparison with a constant, a Range or, for ``matches``, a search."""
    if value.kind == "value":
        return quantified([value], _of_structure(value, relation, constant, source), quantifier, source)
    if relation == "==" and not isinstance(constant, Range):
        return among(value, [constant], quantifier, source)
    return quantified([value], _test(value, relation, constant, source), quantifier, source)


def among(value: Value, constants: Sequence[Any], quantifier: Quantifier, source: SourceCode) -> str:
    """The expression of whether values are among constants and Ranges."""
    if value.kind == "value":
        each = [_of_structure(value, "==", constant, source) for constant in constants]
        return quantified([value], f"({' or '.join(each)})", quantifier, source)
    ranges = [constant for constant in constants if isinstance(constant, Range)]
    single = [constant for constant in constants if not isinstance(constant, Range)]
    code = value.code
    if value.octets is not None:
        # Octets that are text are equal to it exactly if they are its UTF-8.
        code = value.octets
        single = [text.encode() for text in single if as_text(text.encode()) is not None]
    tests: list[str] = []
    if len(single) == 1:
        name = source.constant(single[0])
        if quantifier == "any" and value.items is not None and len(value.loops) == 1 and not ranges:
            return f"{name} in ({value.items} or ())"
        tests.append(f"{code} == {name}")
    elif single:
        tests.append(f"{code} in {source.constant(frozenset(single))}")
    tests += [_test(value, "==", each, source) for each in ranges]
    return quantified([value], f"({' or '.join(tests)})" if tests else "False", quantifier, source)


def _test(value: Value, relation: Relation, constant: Any, source: SourceCode) -> str:
    """The expression of one comparison with a constant."""
    octets = value.kind == "octets" or value.octets is not None
    if relation == "matches":
        return f"{source.constant(constant)}({value.octets or value.code})"
    if isinstance(constant, Range):
        if octets:
            within = replace(value, optional=True)
            parts = [_test(within, ">=", constant.first, source), _test(within, "<=", constant.last, source)]
            return f"({' and '.join(parts)})"
        first, last = source.constant(constant.first), source.constant(constant.last)
        name = source.name()
        test = f"{first} <= {name} <= {last}"
        return f"(({name} := {value.code}) is not None and {'not ' if relation == '!=' else ''}{test})"
    if relation == "contains":
        name = source.constant(constant)
        if value.kind == "octets":
            variable = source.name()
            at_once = f"{name} in {variable} if type({variable} := {value.code}) is bytes"
            return f"({at_once} else contains({variable}, {name}))"
        variable = source.name()
        return f"(({variable} := {value.code}) is not None and {name} in {variable})"
    if octets:
        encoded = constant.encode() if isinstance(constant, str) else constant
        return _of_octets(value, relation, source.constant(encoded), source)
    name = source.constant(constant)
    if relation == "==" or not value.optional:
        return f"{value.code} {relation} {name}"
    variable = source.name()
    return f"(({variable} := {value.code}) is not None and {variable} {relation} {name})"


def _of_structure(value: Value, relation: Relation, constant: Any, source: SourceCode) -> str:
    """A comparison of a value whose type only the message knows."""
    if relation == "matches":
        return f"{source.constant(constant)}(searched({value.code}))"
    if isinstance(constant, Range):
        ends = f"{source.constant(constant.first)}, {source.constant(constant.last)}"
        return f"is_between({value.code}, {ends})"
    return f"{source.constant(RELATIONS[relation])}({value.code}, {source.constant(constant)})"


def _of_octets(value: Value, relation: Relation, other: str, source: SourceCode) -> str:
    """A comparison of octets, or of the text that they are, with other octets."""
    code = value.octets or value.code
    variable = source.name()
    test = f"{source.constant(RELATIONS[relation])}(({variable} := {code}), {other})"
    return f"({test} and text_of({variable}) is not None)" if value.octets is not None else f"({test})"


def with_value(left: Value, relation: Relation, right: Value, quantifier: Quantifier, source: SourceCode) -> str:
    """The expression of a comparison of two values."""
    one, other = whole(left), whole(right)
    first, second = source.name(), source.name()
    if {"value", "octets"} & {one.kind, other.kind}:
        test = (
            f"(({first} := {one.code}) is not None and ({second} := {other.code}) is not None"
            f" and {source.constant(RELATIONS[relation])}({first}, {second}))"
        )
    else:
        compared = f"{second} in {first}" if relation == "contains" else f"{first} {relation} {second}"
        test = f"(({first} := {one.code}) is not None and ({second} := {other.code}) is not None and {compared})"
    return quantified([one, other], test, quantifier, source)


def whole(value: Value) -> Value:
    """The text of octets only if all are at hand. Otherwise it could equal a text that differs later."""
    if value.octets is None:
        return value
    return replace(value, code=f"whole_text_of({value.octets})", optional=True, octets=None)


def quantified(values: list[Value], test: str, quantifier: Quantifier, source: SourceCode) -> str:
    """The test of any value, or of all values and at least one."""
    loops = [loop for value in values for loop in value.loops]
    if not loops:
        return test
    lines: list[str] = [] if quantifier == "any" else ["seen = False"]
    indent = ""
    for variable, items in loops:
        lines.append(f"{indent}for {variable} in {items}:")
        indent += " "
    if quantifier == "any":
        lines += [f"{indent}if {test}:", f"{indent} return True", "return False"]
    else:
        for value in values:
            if value.optional:
                lines += [f"{indent}if {value.code} is None:", f"{indent} continue"]
        lines += [f"{indent}if not {test}:", f"{indent} return False", f"{indent}seen = True", "return seen"]
    return source.function(lines)


def presence(value: Value, source: SourceCode) -> str:
    """The expression of whether a record has a field."""
    if (several := value.items or value.found) is not None:
        return f"(not not {several})"
    shown = f"{value.code} is True" if value.shown_if_true else f"{value.code} is not None"
    if value.loops:
        return quantified([value], shown, "any", source)
    if value.shown_if_true:
        return f"({shown})"
    return f"({value.code} is not None)" if value.optional else "True"


def search(pattern: str, kind: str) -> Callable[[Any], bool]:
    """A function that searches a regular expression. Raises ValueError if ``pattern`` is none.

    It searches octets octet by octet, and texts by characters. Letters match in either case. RE2 does not backtrack,
    so time is linear in the length of the value, whatever the expression.
    """
    if kind == "value":
        in_text, in_octets = search(pattern, "text"), search(pattern, "octets")
        return lambda value: in_text(value) if isinstance(value, str) else in_octets(value)
    import re2  # type: ignore[import-untyped]  # imported only for this

    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.never_capture = True
    if kind == "octets":
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        find = re2.compile(pattern.encode() if kind == "octets" else pattern, options).search
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None

    def found(value: Octets | str | None) -> bool:
        if isinstance(value, str):
            return find(value.encode("utf-8", "surrogatepass")) is not None
        if type(value) is bytes:
            if kind != "octets" and as_text(value) is None:
                return False
            return find(value) is not None
        if not isinstance(value, Cut):
            return False
        data = value.data
        if kind != "octets":
            text = text_of(value)
            if text is None:
                return False
            data = text.encode()
        return all(find(data + more) is not None for more in _MAY_FOLLOW)

    return found
