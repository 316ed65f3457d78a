"""Events as tables of Arrow, for pandas, Polars and DuckDB: a column for each field of their records."""

import json
import typing
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dissectors.events import Event, Message, Octets, Payload, at_hand
from dissectors.records import is_record, record_fields, without_none
from zmtpsniff.errors import Error
from zmtpsniff.render.json_form import JsonForm, octets_object
from zmtpsniff.render.payload import frames_to_show
from zmtpsniff.words.text import as_text

if TYPE_CHECKING:
    import pyarrow as pa

_OF_FRAMES = ("frames", "text")  # columns of messages
_ROWS = 65_536  # that become Arrow at a time
_AnyEvent = TypeVar("_AnyEvent", bound=Event)
_WHOLE = JsonForm(lambda octets: octets_object(octets, max_bytes=0))


def to_table(kind: type[_AnyEvent], events: Iterable[_AnyEvent]) -> "pa.Table":
    """A table of events of one type, with the fields of their records as columns.

    Octets are those at hand, without those of passwords. Times since 1970 are timestamps in UTC. ``payload`` and
    ``bodies`` are JSON. Messages have two more columns: ``topic`` of a publisher's messages, and ``text`` of their
    frames, where they are text. Raises Error without pyarrow.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise Error("pyarrow is not installed: pip install 'zmtpsniff[arrow]'") from None
    time = pa.timestamp("ns", tz="UTC")
    fields = [(field.name, time if field.is_moment else _arrow_type(field.type)) for field in record_fields(kind)]
    if issubclass(kind, Message):
        fields += [("topic", pa.string()), ("text", pa.list_(pa.string()))]
    schema = pa.schema(fields)
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array(list(map(_CONVERTED.get(name, _plain), column)), type_of)
                for column, (name, type_of) in zip(columns, fields, strict=True)
            ],
            schema=schema,
        )
        for columns in _columns([name for name, _ in fields], events)
    ]
    return pa.Table.from_batches(batches, schema)


def _columns(names: list[str], events: Iterable[Event]) -> Iterator[list[list[Any]]]:
    """The values of some fields, of so many events at a time that they take little memory."""
    rest = iter(events)
    while some := list(islice(rest, _ROWS)):
        yield [
            [
                frames_to_show(event) if name in _OF_FRAMES and isinstance(event, Message) else getattr(event, name)
                for event in some
            ]
            for name in names
        ]


def _text(octets: Octets) -> str | None:
    """Octets as text; None if not all are at hand, or they are no text."""
    return as_text(octets) if isinstance(octets, bytes) else None


def _json(value: Any) -> str:
    return json.dumps(_WHOLE.value(value), default=str)


_CONVERTED: dict[str, Callable[[Any], Any]] = {"topic": _text, "text": lambda frames: list(map(_text, frames))}
"""The functions that these columns apply to a value; other columns hold plain values."""


def _plain(value: Any) -> Any:
    """A value as Arrow takes it."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Octets):
        return at_hand(value)
    if isinstance(value, Payload):
        return _json(value)
    if isinstance(value, dict):
        return [(name, _plain(item)) for name, item in value.items()]
    if isinstance(value, list):
        return list(map(_plain, value))
    struct: type[msgspec.Struct] = type(value)
    return {one.name: (_json if one.type is Any else _plain)(getattr(value, one.name)) for one in record_fields(struct)}


def _arrow_type(hint: Any) -> "pa.DataType":
    import pyarrow as pa

    hint, _ = without_none(hint)
    plain = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), Octets: pa.binary()}
    if hint in plain:
        return plain[hint]
    if typing.get_origin(hint) is list:
        return pa.list_(_arrow_type(typing.get_args(hint)[0]))
    if typing.get_origin(hint) is dict:
        return pa.map_(pa.string(), _arrow_type(typing.get_args(hint)[1]))
    if is_record(hint) and hint is not Payload:
        return pa.struct([(field.name, _arrow_type(field.type)) for field in record_fields(hint)])
    return pa.string()
