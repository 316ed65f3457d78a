"""From the name of a field to the Python expression of its values, for one type of record.

A path is walked through the types of the events. So a filter can name every field of the JSON output, also a new one.
"""

import re
import typing
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from dissectors.events import Payload
from dissectors.records import RecordField, is_record, record_fields, without_none
from zmtpsniff.filters.filter_error import FilterError
from zmtpsniff.filters.function_source import SourceCode

Kind = Literal["text", "number", "boolean", "octets", "ip", "ipv6", "time", "object", "value"]
"""``value`` is of the type that it has in each message."""

PARTS: dict[str, tuple[Kind, str]] = {
    "text": ("text", "text_of({})"),
    "hex": ("text", "hex_of({})"),
    "length": ("number", "len({})"),
    "truncated": ("boolean", "is_cut({})"),
}


class Step(NamedTuple):
    """One step of a path: a name, a ``["key"]``, or a place or range in ``[]``."""

    kind: Literal["name", "key", "place", "range"]
    name: str = ""
    start: int = 0
    length: int | None = None  # of a range; None: to the end


@dataclass(frozen=True)
class Value:
    """The values that a path has in one type of record.

    ``code`` is the expression of one value. If ``optional``, it may be None, for no value. With ``loops``, each a
    variable and what it iterates over, there is a value for each turn.
    """

    kind: Kind
    code: str
    optional: bool = False
    loops: tuple[tuple[str, str], ...] = ()
    octets: str | None = None  # of a text that is that of octets: the octets
    items: str | None = None  # of a list: the list
    shown_if_true: bool = False  # false is left out of the record
    found: str | None = None  # of kind "value": all values, where lists are not taken apart yet


@dataclass(frozen=True)
class _Node:
    """Where a walk has come to: an expression and its type."""

    hint: Any
    code: str
    optional: bool = False
    loops: tuple[tuple[str, str], ...] = ()
    octets: str | None = None
    shown_if_true: bool = False


@lru_cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, RecordField]:
    """The fields of a struct by name.

    They are remembered, since looking them up took most of the time of long filters.
    """
    return {field.name: field for field in record_fields(struct)}


def is_octets(hint: Any) -> bool:
    """Whether a type is that of octets."""
    return bytes in typing.get_args(hint) and typing.get_origin(hint) not in (list, dict)


def kind_of(hint: Any) -> Kind:
    """The name of a type in filters, without None; a list has the name of its items."""
    if typing.get_origin(hint) is list:
        return kind_of(typing.get_args(hint)[0])
    if is_octets(hint):
        return "octets"
    kinds: dict[Any, Kind] = {str: "text", bool: "boolean", int: "number", float: "number"}
    return kinds.get(hint, "object")


def lifted(source: SourceCode, code: str, optional: bool, template: str) -> str:
    """The template applied to the value of an expression, None if that is None."""
    if not optional:
        return template.format(code)
    name = source.name()
    return f"({template.format(name)} if ({name} := {code}) is not None else None)"


def parse_subscript(text: str, column: int, line: int) -> Step:
    """A ``[...]`` of the grammar; raises FilterError for a range that cannot be."""
    inner = text[1:-1].strip()
    if (match := re.fullmatch(r"(-?\d{1,15})?\s*(?:([:-])\s*(-?\d{1,15})?)?", inner)) is None:
        raise FilterError(f"{text}: too large a number", column, line)
    first, separator, second = match.groups()
    start = int(first or 0)
    if separator is None:
        return Step("place", start=start)
    if separator == ":":
        if second is not None and int(second) < 1:
            raise FilterError(f"{text}: after the colon is how many, at least 1", column, line)
        return Step("range", start=start, length=None if second is None else int(second))
    if second is None or start < 0 or int(second) < start:
        raise FilterError(f"{text}: a range like [1-2] goes from a place to a later one", column, line)
    return Step("range", start=start, length=int(second) - start + 1)


def walk(struct: type[msgspec.Struct], code: str, steps: list[Step], source: SourceCode) -> Value | str:
    """The values of a path that begins in a struct, or the reason why there are none."""
    node = _Node(struct, code)
    left = list(steps)
    while left:
        if node.hint is Payload and left[0].name not in fields_of(Payload):
            return structure(f"payload_fields({node.code})", left, source)
        found = _step(node, left.pop(0), source)
        if isinstance(found, str):
            return found
        node = found
    return _finish(node, source)


def structure(values: str, steps: list[Step], source: SourceCode) -> Value:
    """Values inside values whose types only the message shows. ``values`` is the expression of all of them."""
    found = f"inside({values}, {source.constant(tuple(map(tuple, steps)))})"
    name = source.name()
    return Value("value", name, False, ((name, f"leaves({found})"),), found=found)


def _step(node: _Node, step: Step, source: SourceCode) -> _Node | str:
    hint = node.hint
    if is_record(hint) and step.kind == "name":
        if step.name == "type" and hint.__struct_config__.tag is not None:
            return _Node(str, source.constant(hint.__struct_config__.tag))
        field = fields_of(hint).get(step.name)
        if field is None:
            return ""
        plain, optional = without_none(field.type)
        code = lifted(source, node.code, node.optional, f"{{}}.{field.name}")
        return _Node(plain, code, node.optional or optional, node.loops, None, field.default is False)
    if is_octets(hint):
        return _part(node, step, source)
    if typing.get_origin(hint) is list:
        return _in_list(node, step, source)
    if typing.get_origin(hint) is dict and step.kind in ("name", "key"):
        name = source.name()
        values = f"named({node.code}, {source.constant(step.name.lower())})"
        return _Node(typing.get_args(hint)[1], name, False, (*node.loops, (name, values)))
    if hint is str and step.kind in ("place", "range"):
        length = 1 if step.kind == "place" else step.length
        code = lifted(source, node.code, node.optional, f"text_slice({{}}, {step.start}, {length})")
        return _Node(str, code, True, node.loops)
    if step.kind == "name":
        return ""
    kind = kind_of(hint)
    return f"{'an' if kind == 'object' else 'a'} {kind} has no places"


def _part(node: _Node, step: Step, source: SourceCode) -> _Node | str:
    """A part of the object that octets are in a record, or some of the octets."""
    if step.kind in ("place", "range"):
        length = 1 if step.kind == "place" else step.length
        code = lifted(source, node.code, node.optional, f"octets_slice({{}}, {step.start}, {length})")
        return replace(node, code=code, optional=True)
    if step.name not in PARTS:
        return ""
    kind, template = PARTS[step.name]
    code = lifted(source, node.code, node.optional, template)
    hint = {"text": str, "number": int, "boolean": bool}[kind]
    octets = node.code if step.name == "text" else None
    return _Node(hint, code, node.optional or kind == "text", node.loops, octets, kind == "boolean")


def _in_list(node: _Node, step: Step, source: SourceCode) -> _Node | str:
    hint = typing.get_args(node.hint)[0]
    if step.kind == "place":
        place, name = step.start, source.name()
        enough = f"> {place}" if place >= 0 else f">= {-place}"
        code = f"({name}[{place}] if len({name} := {node.code} or ()) {enough} else None)"
        return _Node(hint, code, True, node.loops)
    if step.kind == "range":
        return replace(node, code=f"items({node.code}, {step.start}, {step.length})", optional=False)
    name = source.name()
    return _step(_Node(hint, name, False, (*node.loops, (name, f"{node.code} or ()"))), step, source)


def _finish(node: _Node, source: SourceCode) -> Value:
    if typing.get_origin(node.hint) is list:
        name = source.name()
        item = _Node(typing.get_args(node.hint)[0], name, False, (*node.loops, (name, f"{node.code} or ()")))
        return replace(_finish(item, source), items=None if node.loops else node.code)
    return Value(kind_of(node.hint), node.code, node.optional, node.loops, node.octets, None, node.shown_if_true)
