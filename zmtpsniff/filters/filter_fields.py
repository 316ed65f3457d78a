"""All fields that a filter can name: those of the events, and Wireshark's names for them.

The events define what a field means, except fields that are computed from others.
"""

import typing
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import NoneType
from typing import NamedTuple

import msgspec

from dissectors.events import EVENT_TYPES, Event
from dissectors.payloads import PayloadDissector, fields_of
from dissectors.problems import PROBLEMS
from dissectors.records import is_record, joint_meaning, record_fields, without_none
from dissectors.zmtp.sockets import PEERS
from zmtpsniff.filters.aliases import ALIASES, DERIVED, Alias
from zmtpsniff.filters.function_source import SourceCode
from zmtpsniff.filters.paths import PARTS, is_octets, kind_of


class FieldInfo(NamedTuple):
    """A field as it is listed."""

    name: str
    kind: str  # a Kind, "list of" one, or "properties"
    records: tuple[str, ...]
    meaning: str
    unit: str = ""  # of its numbers
    also: str = ""  # for a name of Wireshark: the name of the same field in our records


_MECHANISMS = ("NULL", "PLAIN", "CURVE", "GSSAPI")
# The values of fields of any text that zmtpsniff knows: one that is nearly such a value is a slip.
_CHOICES = {
    **dict.fromkeys(("socket_type", "client.socket_type", "server.socket_type"), tuple(PEERS)),
    **dict.fromkeys(("mechanism", "zmtp.mechanism"), _MECHANISMS),
    "code": tuple(PROBLEMS),
}

PART_MEANINGS = {
    "text": "the octets as text, where they are text",
    "hex": "their hexadecimal digits, where they are no text",
    "length": "how many there were on the wire",
    "truncated": "whether some are not at hand",
}


def fields_of_event(event: type[Event]) -> list[FieldInfo]:
    """The fields of one type of record, each in front of those inside it."""
    tag = str(event.__struct_config__.tag)
    return [FieldInfo("type", "text", (tag,), "Which record this is."), *_of_struct(event, "", (tag,))]


@lru_cache(1)
def list_fields() -> tuple[FieldInfo, ...]:
    """All fields: those of the records first, in their order, then Wireshark's."""
    found: dict[str, list[FieldInfo]] = {}
    for event in EVENT_TYPES:
        for info in fields_of_event(event):
            found.setdefault(info.name, []).append(info)
    derived = list(_derived())
    for info in derived:
        if info.name in found:
            found[info.name].append(info)
    listed = {name: _joint(infos) for name, infos in found.items()}
    aliases = [_alias(name, alias, listed) for name, alias in ALIASES.items()]
    return (*listed.values(), *aliases, *(info for info in derived if info.name not in found))


def payload_fields(dissectors: Iterable[PayloadDissector]) -> list[FieldInfo]:
    """The payload fields that dissectors declare, by name. Raises ValueError as fields_of() does."""
    kinds: dict[str, dict[str, list[str]]] = {}  # by name, type, and protocols
    for dissector in dissectors:
        for name, kind in fields_of(dissector).items():
            kinds.setdefault(name, {}).setdefault(kind, []).append(dissector.name)
    found = []
    for name, of_kind in sorted(kinds.items()):
        protocols = dict.fromkeys(protocol for those in of_kind.values() for protocol in those)
        meaning = f"A field of the payloads of {', '.join(protocols)}."
        found.append(FieldInfo(f"payload.{name}", " or ".join(of_kind), ("message",), meaning))
    return found


@lru_cache(1)
def names() -> frozenset[str]:
    """The names of all fields and of their parts."""
    listed = {info.name: info.kind for info in list_fields()}
    return frozenset(listed) | {f"{name}.{part}" for name, kind in listed.items() if "octets" in kind for part in PARTS}


@lru_cache
def choices(name: str) -> tuple[str, ...]:
    """All values of a field, if they are few, as those of ``type``; empty if it may have any value."""
    if name == "type":
        return tuple(str(record.__struct_config__.tag) for record in EVENT_TYPES)
    if name in _CHOICES:
        return _CHOICES[name]
    found: dict[str, None] = {}
    for record in EVENT_TYPES:
        for each in record_fields(record):
            if each.name == name:
                hints = [hint for hint in (each.type, *typing.get_args(each.type)) if hint is not NoneType]
                literals = [hint for hint in hints if typing.get_origin(hint) is typing.Literal]
                if not literals:
                    return ()
                found.update(dict.fromkeys(literals[0].__args__))
    return tuple(found)


def _of_struct(struct: type[msgspec.Struct], prefix: str, records: tuple[str, ...]) -> Iterator[FieldInfo]:
    """The fields of a struct that is in records of such types."""
    for field in record_fields(struct):
        name = prefix + field.name
        hint, _ = without_none(field.type)
        inner = typing.get_args(hint)[0] if typing.get_origin(hint) is list else hint
        kind: str = "properties" if typing.get_origin(hint) is dict else kind_of(hint)
        shown = f"list of {kind}s".replace("octetss", "octets") if inner is not hint else kind
        yield FieldInfo(name, shown, records, field.meaning, field.unit)
        if is_record(inner) and not is_octets(inner):
            yield from _of_struct(inner, f"{name}.", records)


def _joint(infos: list[FieldInfo]) -> FieldInfo:
    """A field that each of several records has."""
    kinds = dict.fromkeys(info.kind for info in infos)
    records = dict.fromkeys(record for info in infos for record in info.records)
    meaning = joint_meaning((record, info.meaning) for info in infos for record in info.records)
    return FieldInfo(infos[0].name, " or ".join(kinds), tuple(records), meaning, infos[0].unit)


def _alias(name: str, alias: Alias, listed: dict[str, FieldInfo]) -> FieldInfo:
    """Another name of a field or of a part of one."""
    whole, _, part = (alias.path, "", "") if alias.path in listed else alias.path.rpartition(".")
    kind = listed[whole].kind
    if part:
        kind = f"list of {PARTS[part][0]}s" if kind.startswith("list") else PARTS[part][0]
    only = {event.__struct_config__.tag for event in alias.records}
    records = tuple(record for record in listed[whole].records if record in only or not only)
    return FieldInfo(name, kind, records, f"Wireshark's name for {alias.path}.", listed[whole].unit, alias.path)


def _derived() -> Iterator[FieldInfo]:
    for name, derived in DERIVED.items():
        records = [kind.__struct_config__.tag for kind in EVENT_TYPES if derived.make(kind, SourceCode({})) is not None]
        yield FieldInfo(name, derived.kind, tuple(map(str, records)), derived.meaning)
