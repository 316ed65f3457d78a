"""Fields and functions of fields, for every type of record."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace

from lark import Token, Tree

from dissectors.events import EVENT_TYPES, Event
from zmtpsniff.filters.aliases import ALIASES, DERIVED, MISSING
from zmtpsniff.filters.comparison_source import whole
from zmtpsniff.filters.filter_fields import names
from zmtpsniff.filters.function_source import SourceCode
from zmtpsniff.filters.literals import KINDS, fail, string
from zmtpsniff.filters.paths import Step, Value, lifted, parse_subscript, structure, walk

_MOST_STEPS = 8


@dataclass(frozen=True)
class Field:
    """A field, or the value of a function of one, in each type of record that has it."""

    name: str
    token: Token  # where it is written
    values: dict[type[Event], Value]


def is_field(name: str) -> bool:
    """Whether a field has that name."""
    return name in names()


def field(tree: Tree[Token], source: SourceCode) -> Field:
    """The field of a path or a call in the tree of a filter; raises FilterError if there is none."""
    if tree.data == "call":
        return _call(tree, source)
    first = tree.children[0]
    assert isinstance(first, Token)
    steps = _steps(tree)
    text = "".join(str(child) for child in tree.children)
    values: dict[type[Event], Value] = {}
    reason = ""
    for record in EVENT_TYPES:
        found = _resolve(record, steps, source)
        if isinstance(found, Value):
            values[record] = found
        else:
            reason = reason or found
    if not values:
        fail(first, f"{text}: {reason}" if reason else _unknown(first, tree))
    return Field(text, first, values)


def _unknown(first: Token, tree: Tree[Token]) -> str:
    """That there is no such field, and which is meant."""
    name = str(first)
    for child in tree.children[1:]:
        assert isinstance(child, Token)
        name += str(child) if child.type == "PART" else ""
    if name in MISSING:
        return f'there is no field "{name}" here: {MISSING[name]}'
    if name in (record.__struct_config__.tag for record in EVENT_TYPES):
        return f'there is no field "{name}"; did you mean type == "{name}"?'
    near = difflib.get_close_matches(name, names(), 1, 0.6) or difflib.get_close_matches(name.lower(), names(), 1, 0.6)
    advice = f'; did you mean "{near[0]}"?' if near else "; zmtpsniff fields lists all"
    return f'there is no field "{name}"{advice}'


def _steps(tree: Tree[Token]) -> list[Step]:
    steps: list[Step] = []
    for child in tree.children:
        assert isinstance(child, Token)
        if child.type in ("NAME", "PART"):
            steps += [Step("name", name) for name in child.lstrip(".").split(".")]
        elif child.type == "KEY":
            quoted = child[1:-1].strip()
            key = string(Token.new_borrow_pos("STRING", quoted, child))
            steps.append(Step("key", key.decode("utf-8", "backslashreplace")))
        else:
            steps.append(parse_subscript(child, child.column or 1, child.line or 1))
        if len(steps) > _MOST_STEPS:
            fail(child, f"a field has {_MOST_STEPS} parts at most")
    return steps


def _resolve(record: type[Event], steps: list[Step], source: SourceCode) -> Value | str:
    """The values in a type of record. Else the reason why there are none: empty if there is just no such field."""
    dotted: list[str] = []
    for step in steps:
        if step.kind != "name":
            break
        dotted.append(step.name)
    for end in range(len(dotted), 0, -1):
        name = ".".join(dotted[:end])
        if name in ALIASES:
            alias = ALIASES[name]
            if alias.records and record not in alias.records:
                return ""
            return _resolve(record, [*(Step("name", part) for part in alias.path.split(".")), *steps[end:]], source)
        if name in DERIVED and (made := DERIVED[name].make(record, source)) is not None:
            if end == len(steps):
                return made
            if made.found is not None:
                return structure(made.found, steps[end:], source)
            return "" if steps[end].kind == "name" else f"{name} has no parts"
    return walk(record, "e", steps, source)


def _call(tree: Tree[Token], source: SourceCode) -> Field:
    function, argument = tree.children
    assert isinstance(function, Token)
    if function not in _FUNCTIONS:
        near = difflib.get_close_matches(function, _FUNCTIONS, 1)
        fail(function, f'there is no function "{function}"; did you mean "{(near or ["len"])[0]}"?')
    if not isinstance(argument, Tree) or argument.data == "literal":
        fail(function, f"{function}() takes a field")
    inner = field(argument, source)
    values: dict[type[Event], Value] = {}
    for record, value in inner.values.items():
        made = _FUNCTIONS[function](whole(value), source)
        if made is not None:
            values[record] = made
    if not values:
        kind = KINDS[next(iter(inner.values.values())).kind]
        fail(function, f"{function}() takes no such field: {inner.name} is {kind}")
    return Field(f"{function}({inner.name})", function, values)


def _len(value: Value, source: SourceCode) -> Value | None:
    if value.items is not None:
        return Value("number", f"len({value.items} or ())")
    if value.found is not None:
        name = source.name()
        return Value("number", f"size_of({name})", True, ((name, value.found),))
    if value.kind not in ("text", "octets"):
        return None
    return replace(value, kind="number", code=lifted(source, value.code, value.optional, "len({})"))


def _count(value: Value, source: SourceCode) -> Value | None:
    lines, indent = ["n = 0"], ""
    for variable, values in value.loops:
        lines.append(f"{indent}for {variable} in {values}:")
        indent += " "
    lines.append(f"{indent}n += {value.code} is not None")
    return Value("number", source.function([*lines, "return n"]))


def _recased(value: Value, source: SourceCode, function: str) -> Value | None:
    if value.kind == "octets":
        template = f"recased({{}}, {function == 'upper'})"
    elif value.kind == "text":
        template = f"{{}}.{function}()"
    elif value.kind == "value":
        template = f"recased_value({{}}, {function == 'upper'})"
    else:
        return None
    return replace(value, code=lifted(source, value.code, value.optional, template), items=None)


_FUNCTIONS: dict[str, Callable[[Value, SourceCode], Value | None]] = {
    "len": _len,
    "count": _count,
    "upper": lambda value, source: _recased(value, source, "upper"),
    "lower": lambda value, source: _recased(value, source, "lower"),
}
