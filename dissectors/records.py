"""The meaning of a record's fields. An event says it once, beside the type of each field:

    age_ms: Annotated[int | None, meaning("How old the message is.", "ms")] = None

The JSON Schema, ``zmtpsniff fields``, filters, Spark's columns and the reference read it from there, by
:func:`record_fields`. The docstring of an event says what the record is as a whole.
"""

import typing
from collections.abc import Iterable
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard

import msgspec

Kind = Literal["wire", "relation", "internal"]


def meaning(text: str, unit: str = "", kind: Kind = "wire") -> msgspec.Meta:
    """The meaning of a field, in sentences, and the unit of its numbers, such as ``ns``."""
    return msgspec.Meta(
        description=text or None, extra_json_schema={"unit": unit} if unit else None, extra={"kind": kind}
    )


def moment(text: str) -> msgspec.Meta:
    """The meaning of a time, in a sentence without its end. It is in nanoseconds since 1970."""
    return msgspec.Meta(
        description=f"{text}, since 1970.", extra_json_schema={"unit": "ns"}, extra={"kind": "wire", "is_moment": True}
    )


def relation(text: str, unit: str = "") -> msgspec.Meta:
    """The meaning of a field that analysis sets from other events. No dissector can set it."""
    return meaning(text, unit, "relation")


def internal() -> msgspec.Meta:
    """A mark for a field that only analysis needs. Records do not have it."""
    return meaning("", kind="internal")


class RecordField(NamedTuple):
    """A field of a record, as its event describes it."""

    name: str
    type: Any  # as annotated, without the meaning
    required: bool
    default: Any  # the value if the field does not apply; None if it is required
    text: str  # what the field means, "" if the event does not say
    unit: str  # of its numbers, "" if they have none
    kind: Kind
    is_moment: bool  # a time since 1970, not a length of time

    @property
    def meaning(self) -> str:
        """Its meaning, with the possible values if these are few."""
        hints = (self.type, *typing.get_args(self.type))
        choices = [f'"{value}"' for hint in hints if typing.get_origin(hint) is Literal for value in hint.__args__]
        return f"{self.text.rstrip('.')}: {', '.join(choices)}." if choices else self.text


@cache
def record_fields(struct: type[msgspec.Struct]) -> tuple[RecordField, ...]:
    """The fields of the record that is made of an event, or of a part of one, in their order."""
    found = []
    for field in msgspec.structs.fields(struct):
        hint, meta = field.type, msgspec.Meta()
        if typing.get_origin(hint) is Annotated:
            hint, meta = typing.get_args(hint)
        extra = meta.extra or {}
        kind: Kind = extra.get("kind", "wire")
        if kind == "internal":
            continue
        default = None if field.required else field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        unit = (meta.extra_json_schema or {}).get("unit", "")
        text, is_moment = meta.description or "", "is_moment" in extra
        found.append(RecordField(field.name, hint, field.required, default, text, unit, kind, is_moment))
    return tuple(found)


def summary(struct: type[msgspec.Struct]) -> str:
    """A record as a whole in a sentence: the docstring of its type, without that of :func:`with_fields`."""
    return (struct.__doc__ or "").partition("\n\n")[0]


def with_fields(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The type of a record, whose docstring now says what each field means, for ``help()``.

    ``help()`` begins with msgspec's signature, which repeats the annotations. So these lose the meanings, which would
    make a page of it; :func:`record_fields` remembers them.
    """
    if struct.__doc__ and "\n\n" not in struct.__doc__:
        lines = [
            f"{field.name}: {field.meaning}{f' ({field.unit})' if field.unit else ''}"
            for field in record_fields(struct)
        ]
        struct.__doc__ = "\n\n".join([struct.__doc__, *lines])
        struct.__annotations__ = {field.name: _plain(field.type) for field in msgspec.structs.fields(struct)}
    return struct


def _plain(hint: Any) -> Any:
    """A type as annotated, without the meaning."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def is_record(hint: Any) -> TypeGuard[type[msgspec.Struct]]:
    """Whether a type is a struct with fields of its own."""
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def without_none(hint: Any) -> tuple[Any, bool]:
    """The type of a field without None, and whether it had None. A choice among texts becomes text."""
    if typing.get_origin(hint) is Literal:
        return str, False
    members = [member for member in typing.get_args(hint) if member is not NoneType]
    if NoneType not in typing.get_args(hint) or typing.get_origin(hint) in (list, dict):
        return hint, False
    plain = members[0]
    for member in members[1:]:
        plain = plain | member
    return without_none(plain)[0], True


def joint_meaning(meanings: Iterable[tuple[str, str]]) -> str:
    """The meaning of a field that several records have; each pair is a record's type and the meaning there."""
    records: dict[str, list[str]] = {}
    for record, text in meanings:
        records.setdefault(text, []).append(record)
    if len(records) == 1:
        return next(iter(records))
    return " ".join(f"{', '.join(names)}: {text}" for text, names in records.items())
