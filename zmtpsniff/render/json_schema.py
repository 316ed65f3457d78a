"""JSON Schema of the records of the JSON output, made from the event types."""

import functools
import operator
import types
import typing
from typing import Annotated, Any

import msgspec

from dissectors.events import AnyEvent, Payload
from dissectors.records import is_record, meaning, record_fields, summary
from zmtpsniff.render.json_form import OCTETS

# The version of the records, with those of statistics. docs/reference/records.md says what raises which number.
VERSION = "1.0"

_SHOWN = {
    "length": {"type": "integer", "minimum": 0, "description": "How many octets there were on the wire."},
    "truncated": {"const": True, "description": "Not all octets are shown; left out if they are."},
}
_OCTETS: dict[str, Any] = {
    "title": "Octets",
    "description": "Octets from the wire: as text if they are UTF-8 text, else as hexadecimal digits.",
    "type": "object",
    "oneOf": [
        {
            "title": "Text",
            "properties": {**_SHOWN, "text": {"type": "string"}},
            "required": ["length", "text"],
            "not": {"required": ["hex"]},
        },
        {
            "title": "Hexadecimal",
            "properties": {**_SHOWN, "hex": {"type": "string", "pattern": "^([0-9a-f]{2})*$"}},
            "required": ["length", "hex"],
            "not": {"required": ["text"]},
        },
        {
            "title": "Hidden",
            "description": "Octets that are not shown, such as a password.",
            "properties": {"length": _SHOWN["length"]},
            "required": ["length"],
            "not": {"anyOf": [{"required": ["text"]}, {"required": ["hex"]}]},
        },
    ],
}


class _OctetsObject:
    """Stands in the types for the object that octets are written as."""


def json_schema(
    records: Any = AnyEvent,
    title: str = "zmtpsniff record",
    description: str = "One line of the output of `zmtpsniff read -T json` and `zmtpsniff live -T json`.",
) -> dict[str, Any]:
    """The JSON Schema (2020-12) that every record fulfils, which tells the record types apart by ``type``.

    ``records`` is the union of their types, or the only one. Properties that it does not name are allowed: later
    versions add some.
    """
    made: dict[type, type] = {}
    # The definition of Payload is there whether a record has one or not, like that of Octets.
    parts = [_as_written(part, made) for part in (*(typing.get_args(records) or (records,)), Payload)]
    (*references, _), definitions = msgspec.json.schema_components(
        parts, schema_hook=_octets_reference, ref_template="#/$defs/{name}"
    )
    for definition in definitions.values():
        if kind := definition.get("properties", {}).get("type"):
            (tag,) = kind.pop("enum")
            kind["const"] = tag
    definitions["Octets"] = _OCTETS
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:zmtpsniff:{title.split()[-1]}:{VERSION}",
        "title": title,
        "description": description,
        "oneOf": references,
        "$defs": dict(sorted(definitions.items())),
    }


def _octets_reference(kind: type) -> dict[str, Any]:
    if kind is _OctetsObject:
        return {"$ref": "#/$defs/Octets"}
    raise NotImplementedError(kind)


def _as_written(struct: type[msgspec.Struct], made: dict[type, type]) -> type:
    """The type of a record for the type of an event: octets are objects, and fields are left out, never null."""
    if struct not in made:
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for field in record_fields(struct):
            kind, meant = _type_as_written(field.type, made), meaning(field.text, field.unit)
            if field.required:
                fields.append((field.name, Annotated[kind, meant]))
            else:
                fields.append((field.name, Annotated[kind | msgspec.UnsetType, meant], msgspec.UNSET))
        config = struct.__struct_config__
        made[struct] = msgspec.defstruct(
            struct.__name__,
            fields,
            tag=config.tag,
            tag_field=config.tag_field,
            kw_only=True,
            namespace={"__doc__": summary(struct)},
        )
    return made[struct]


def _type_as_written(kind: Any, made: dict[type, type]) -> Any:
    if kind in OCTETS:
        return _OctetsObject
    if is_record(kind):
        return _as_written(kind, made)
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if not arguments or origin is typing.Literal:
        return kind
    if origin in (typing.Union, types.UnionType):
        members = [_type_as_written(member, made) for member in arguments if member is not types.NoneType]
        return functools.reduce(operator.or_, dict.fromkeys(members))
    return origin[tuple(_type_as_written(argument, made) for argument in arguments)]
