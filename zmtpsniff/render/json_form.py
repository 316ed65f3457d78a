"""Values of events in the form that JSON records have: octets as objects, fields that do not apply left out."""

from collections.abc import Callable
from math import isfinite
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec.structs import astuple

from dissectors.events import Octets, Payload
from dissectors.records import is_record, record_fields, without_none
from dissectors.zmtp.limits import Limits
from zmtpsniff.words.text import as_text, shown_octets

DEFAULT_MAX_BYTES = Limits().body_octets  # what is kept
OCTETS = frozenset(get_args(Octets))  # the types of octets

_PLAIN = frozenset({str, int, bool, NoneType})  # types of which JSON has every value as it is


def _beginning(length: int) -> str:
    """The text of the object of printable octets, up to them."""
    return f'{{"length":{length},"text":"'


_SHORT = 256
_BEGINNINGS = [*map(_beginning, range(_SHORT))]  # since a number takes longer to write than 20 octets to copy
_encode = msgspec.json.Encoder().encode
_Form = Callable[[Any], Any]


def octets_json(octets: Octets, max_bytes: int) -> str:
    """The JSON text of octets_object()."""
    if type(octets) is bytes and (not max_bytes or len(octets) <= max_bytes) and octets.isascii():  # most
        text = octets.decode()
        if text.isprintable() and '"' not in text and "\\" not in text:
            length = len(octets)
            return f'{_BEGINNINGS[length] if length < _SHORT else _beginning(length)}{text}"}}'
    return _encode(octets_object(octets, max_bytes)).decode()


def octets_object(octets: Octets, max_bytes: int = DEFAULT_MAX_BYTES) -> dict[str, Any]:
    """The object that stands for octets in a record, with ``max_bytes`` of them at most (0: no limit)."""
    data, length = shown_octets(octets, max_bytes)
    if data is None:
        return {"length": length}
    whole = len(data) == length
    text = as_text(data, whole)
    shown: dict[str, Any] = {"length": length}
    if text is None:
        shown["hex"] = data.hex()
    else:
        shown["text"] = text
    if not whole:
        shown["truncated"] = True
    return shown


class _Plan(NamedTuple):
    """The differences between the fields of an event, or of a part of one, and those of its record.

    Fields are named by their places in the struct.
    """

    changes: tuple[tuple[int, _Form], ...]  # fields that msgspec would encode in another form than records have
    lacking: tuple[tuple[int, Any], ...]  # fields that the record lacks, with the value that leaves them out


class JsonForm:
    """Turns events into what msgspec encodes as their records."""

    def __init__(self, octets: Callable[[Octets], Any]) -> None:
        """Show octets as what ``octets`` returns for them."""
        self._octets = octets
        self._plans: dict[type, _Plan] = {}

    def record(self, value: msgspec.Struct) -> msgspec.Struct:
        """An event, or a part of one. Most need no change, so msgspec takes them as they are."""
        kind = type(value)
        plan = self._plans.get(kind)
        if plan is None:
            plan = self._plans[kind] = self._make_plan(kind)
        if not (plan.changes or plan.lacking):
            return value
        fields = [*astuple(value)]  # and a struct of these: quicker than to ask for each field, and to replace some
        for place, default in plan.lacking:
            fields[place] = default
        for place, form in plan.changes:
            if fields[place] is not None:
                fields[place] = form(fields[place])
        return kind(*fields)

    def value(self, value: Any) -> Any:
        """The value of any field."""
        kind = type(value)
        if kind in OCTETS:
            return self._octets(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, dict):
            return {str(name): self.value(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        if isinstance(value, float) and not isfinite(value):
            return str(value)  # JSON has no such numbers
        if kind is Payload:
            own = {"protocol": value.protocol, "summary": value.summary}
            return {**own, **self.value({k: v for k, v in _without_none(value.fields).items() if k not in own})}
        return self.record(value) if isinstance(value, msgspec.Struct) else value

    def _properties(self, properties: dict[str, Octets]) -> dict[str, Any]:
        make = self._octets
        return {name: make(octets) for name, octets in properties.items()}

    def _make_plan(self, struct: type[msgspec.Struct]) -> _Plan:
        types = {field.name: field.type for field in record_fields(struct)}
        changes: list[tuple[int, _Form]] = []
        lacking: list[tuple[int, Any]] = []
        for place, field in enumerate(msgspec.structs.fields(struct)):
            if field.name not in types:
                lacking.append((place, field.default))
            elif (form := self._form(types[field.name])) is not None:
                changes.append((place, form))
        return _Plan(tuple(changes), tuple(lacking))

    def _form(self, hint: Any) -> _Form | None:
        """The way to the form of values of a type; None if msgspec encodes them so already."""
        if _is_plain(hint):
            return None
        kind, _ = without_none(hint)
        if kind == Octets or kind in OCTETS:
            return self._octets
        if kind == dict[str, Octets]:
            return self._properties
        return self.record if is_record(kind) and kind is not Payload else self.value


def _is_plain(hint: Any) -> bool:
    """Whether msgspec encodes all values of a type in the form that records have."""
    if get_origin(hint) is Literal or hint in _PLAIN:
        return True
    if is_record(hint):
        fields = record_fields(hint)
        return len(fields) == len(hint.__struct_fields__) and all(_is_plain(field.type) for field in fields)
    members = get_args(hint)
    return bool(members) and all(map(_is_plain, members))


def _without_none(value: Any) -> Any:
    """A value without fields that are None, also in dicts inside it."""
    if isinstance(value, dict):
        return {name: _without_none(item) for name, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value
