"""Events as tables of Arrow, for pandas, Polars and DuckDB: a column for each field of their records."""

import json
import typing
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from dissectors.events import Event, Message, Octets, Payload, at_hand
from dissectors.records import record_fields, without_none
from zmtpsniff.errors import Error
from zmtpsniff.render.json_form import JsonForm, octets_object
from zmtpsniff.render.payload import frames_to_show
from zmtpsniff.words.text import as_text

if TYPE_CHECKING:
    import pyarrow as pa

_OF_FRAMES = ("frames", "text")  # columns of messages
_ROWS = 65_536  # that become Arrow at a time
_AnyEvent = TypeVar("_AnyEvent", bound=Event)
_Converter = Callable[[Any], Any]
_WHOLE = JsonForm(lambda octets: octets_object(octets, max_bytes=0))


class _ArrowField(NamedTuple):
    """How a value becomes one of Arrow."""

    type: "pa.DataType"
    convert: _Converter | None  # None if it is one already


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
    time = _ArrowField(pa.timestamp("ns", tz="UTC"), None)
    fields = [(field.name, time if field.is_moment else _arrow_field(field.type)) for field in record_fields(kind)]
    if issubclass(kind, Message):
        fields.append(("topic", _ArrowField(pa.string(), _text)))
        fields.append(("text", _ArrowField(pa.list_(pa.string()), lambda frames: list(map(_text, frames)))))
    schema = pa.schema([(name, field.type) for name, field in fields])
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array(
                    [value if value is None or field.convert is None else field.convert(value) for value in column],
                    field.type,
                )
                for column, (_, field) in zip(columns, fields, strict=True)
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


def _arrow_field(hint: Any) -> _ArrowField:
    import pyarrow as pa

    hint, _ = without_none(hint)
    plain = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    if hint in plain:
        return _ArrowField(plain[hint], None)
    if hint == Octets:
        return _ArrowField(pa.binary(), at_hand)
    if typing.get_origin(hint) is list and (inner := typing.get_args(hint)[0]) is not Any:
        item = _arrow_field(inner)
        return _ArrowField(pa.list_(item.type), lambda values: [_converted(item, value) for value in values])
    if typing.get_origin(hint) is dict:
        item = _arrow_field(typing.get_args(hint)[1])
        return _ArrowField(
            pa.map_(pa.string(), item.type),
            lambda values: [(name, _converted(item, value)) for name, value in values.items()],
        )
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint is not Payload:
        return _struct_field(hint)
    return _ArrowField(pa.string(), lambda value: json.dumps(_WHOLE.value(value), default=str))


def _struct_field(struct: type[msgspec.Struct]) -> _ArrowField:
    import pyarrow as pa

    members = [(field.name, _arrow_field(field.type)) for field in record_fields(struct)]
    return _ArrowField(
        pa.struct([(name, member.type) for name, member in members]),
        lambda value: {name: _converted(member, getattr(value, name)) for name, member in members},
    )


def _converted(field: _ArrowField, value: Any) -> Any:
    return value if value is None or field.convert is None else field.convert(value)
