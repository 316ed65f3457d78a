"""The tables: their columns, with types and meanings, as Arrow and as Spark know them.

This is the documentation of what :mod:`zmtpsniff.spark` writes; ``docs/reference/tables.md`` is made from it. A column
that is a field of a record has its type and its meaning from there (:mod:`dissectors.events`), so a new field is a new
column. Neither Spark nor Arrow is imported before a schema is asked for.

Rows are the records of ``read -T json --no-payload``. Where a record has ``flow`` a row has ``conn_id``, which is the
same in every run, and where it has ``packet``, the number in all files together, a row has ``file``, ``packet``, the
number of the packet in that file, counted from 1 as Wireshark's ``frame.number``, and ``offset``, where its record
begins there. Where a record names another packet (``request``), a row has its number in its file, and ``request_file``.
"""

import os
import re
from collections.abc import Iterator, Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin

import msgspec

from dissectors.events import (
    Beacon,
    Command,
    Connection,
    Event,
    Greeting,
    Message,
    Octets,
    Peer,
    Problem,
    Sides,
    Subscription,
    Work,
)
from dissectors.records import RecordField, joint_meaning, record_fields, without_none
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.ways.way_records import Way
from zmtpsniff.capture.locations import canonical, local_path

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    """A column: its type in Spark's SQL, whether it may be null, its meaning, and its unit."""

    name: str
    sql: str
    nullable: bool
    meaning: str
    unit: str = ""

    @property
    def comment(self) -> str:
        """Its meaning and its unit."""
        return f"{self.meaning} In {self.unit}." if self.unit else self.meaning


OCTETS = "STRUCT<length: BIGINT, data: BINARY>"
"""Octets from the wire: how many there were, and those of them that are at hand.

``data`` has at most ``--max-bytes`` octets, fewer than ``length`` if that cut it or the capture lacks the rest; it is
null for what must not be shown (passwords)."""

OCTETS_LIST = f"ARRAY<{OCTETS}>"
PROPERTIES = f"ARRAY<STRUCT<name: STRING, value: {OCTETS}>>"
_SQL: Mapping[Any, str] = {
    str: "STRING",
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    Octets: OCTETS,
    dict[str, Octets]: PROPERTIES,
}
PACKET_FIELDS = ("request", "beacon")
"""Fields that name another packet."""
_NO_COLUMNS = frozenset({"flow", "payload", "bodies", "process"})
_SMALL = frozenset({"port"})  # numbers of 16 bits


class FieldColumn(NamedTuple):
    """A field of a record that has a column: ``path`` leads to its value in an event, as for ``attrgetter``."""

    path: str
    field: RecordField
    column: Column


def _sql(hint: Any) -> str:
    """The type of a field, as Spark's SQL writes it."""
    hint, _ = without_none(hint)
    if hint in _SQL:
        return _SQL[hint]
    if get_origin(hint) is list:
        return f"ARRAY<{_sql(get_args(hint)[0])}>"
    members: dict[str, str] = {}
    for field in record_fields(hint):
        if field.name == "packet":
            members |= {"conn_id": "STRING", "file": "STRING"}
        if field.name not in _NO_COLUMNS:
            members[field.name] = _sql(field.type)
    return f"STRUCT<{', '.join(f'{name}: {sql}' for name, sql in members.items())}>"


def field_columns(record: type[msgspec.Struct]) -> Iterator[FieldColumn]:
    """The columns of the fields of a record, but for ``flow``, which ``conn_id`` stands for, and payloads.

    A field with a value for each side of a connection has a column for each; so has what a side announces.
    """
    for field in record_fields(record):
        if field.name in _NO_COLUMNS:
            continue
        if field.type in (Peer, Sides):
            for inner in field_columns(field.type):
                side, what = (field.name, inner.path) if field.type is Peer else (inner.path, field.name)
                name = side if what == "address" else f"{side}_{what}"
                column = inner.column._replace(name=name, meaning=f"{field.meaning} {inner.column.meaning}")
                yield FieldColumn(f"{field.name}.{inner.path}", inner.field, column)
            continue
        _, optional = without_none(field.type)
        sql = "INT" if field.name in _SMALL else _sql(field.type)
        optional |= field.name == "request_part"
        yield FieldColumn(field.name, field, Column(field.name, sql, optional, field.meaning, field.unit))


def _table(
    records: tuple[type[Event | Finding | Way], ...], *entries: Column | str | EllipsisType
) -> tuple[Column, ...]:
    """The columns of a table of such records.

    An entry is a column that no field has, the name of one that a field has, or ``...`` for those of all other fields.
    """
    found: dict[str, list[tuple[str, FieldColumn]]] = {}
    for record in records:
        for each in field_columns(record):
            found.setdefault(each.column.name, []).append((str(record.__struct_config__.tag), each))
    columns: dict[str, Column] = {}
    for name, tagged in found.items():
        _, (_, field, column) = tagged[0]
        # A field that a record omits when it is false is false for a record without that field.
        absent = len(tagged) < len(records) and field.default is not False
        nullable = absent or any(each.column.nullable for _, each in tagged)
        meaning = joint_meaning((tag, each.column.meaning) for tag, each in tagged)
        columns[name] = column._replace(nullable=nullable, meaning=meaning)
        if name.endswith(PACKET_FIELDS):
            columns[f"{name}_file"] = Column(f"{name}_file", "STRING", True, f"The file of {name}.")
    named = {entry.name if isinstance(entry, Column) else entry for entry in entries}
    made: list[Column] = []
    for entry in entries:
        if isinstance(entry, EllipsisType):
            made += [column for name, column in columns.items() if name not in named]
        else:
            made.append(columns[entry] if isinstance(entry, str) else entry)
    return tuple(made)


_PART = (
    Column("date", "DATE", True, "The day in UTC that the row is filed under; null without a time."),
    Column("series", "STRING", False, "The files that are read as one capture: their folder, or what --series says."),
)
_CONN_ID = "Names the connection in all files and runs, 16 hex digits; in all series that have it if shared_id is true."
_CONNECTION = (*_PART, Column("conn_id", "STRING", False, _CONN_ID))
_OPEN = Column(
    "provisional", "BOOLEAN", False, "True if made because the files end; the next run that has more replaces the row."
)
_PLACE = (
    Column("file", "STRING", False, "Path or URL of the file with the packet that completed it."),
    Column("packet", "BIGINT", False, "The number of that packet in the file, from 1."),
    Column(
        "offset",
        "BIGINT",
        True,
        "Where its record (pcap) or block (pcapng) begins in the file, uncompressed, from 0; "
        "null for a log of strace, which has no records.",
        "octets",
    ),
)


def _time(name: str, nullable: bool = False) -> Column:
    return Column(name.removesuffix("_ns"), "TIMESTAMP", nullable, f"The same as {name}.")


def _port(name: str) -> Column:
    return Column(f"{name}_port", "INT", True, f"The port of {name}; null for Unix domain sockets.")


_BODY_HASH = (
    "The first 16 octets of the SHA-256 of its last frame, if --max-bytes left only the beginning of that in frames. "
    "Null with --no-bodies, if the capture lacks octets of the message, and for frames of more than 64 KiB in a box of "
    "CURVE, over ws, or in the files of two runs: of these only the first 64 KiB are opened, unmasked or carried over."
)

_ENDS = ("src", _port("src"), "dst", _port("dst"))
_WIRE = (*_CONNECTION, _time("time_ns"), "time_ns", *_PLACE, *_ENDS)


def _side(side: str) -> tuple[Column | str, ...]:
    announced = ("version", "socket_type", "identity", "messages", "octets")
    return (side, _port(side), *(f"{side}_{what}" for what in announced))


TABLES: dict[str, tuple[Column, ...]] = {
    "connections": _table(
        (Connection,),
        *_CONNECTION,
        Column(
            "shared_id",
            "BOOLEAN",
            False,
            "Whether conn_id is the initial sequence numbers of client and server, and so the same wherever the "
            "connection was captured. Else (TCP's handshake is not in the capture) it is made of the addresses and the "
            "time of the first packet.",
        ),
        "transport",
        *_side("client"),
        *_side("server"),
        ...,
        _time("start_ns"),
        "start_ns",
        Column("stop", "TIMESTAMP", False, "The same as end_ns."),
        "end_ns",
        "end",
        "closed_by",
        _OPEN,
    ),
    "messages": _table(
        (Message,),
        *_WIRE,
        Column("server", "STRING", False, "The server of its connection; of datagrams the receiver."),
        Column("from_client", "BOOLEAN", False, "Whether the client sent it."),
        "socket_type",
        Column("topic", "STRING", True, "Of a PUB, XPUB or RADIO: the first frame, as text, with --max-bytes of it."),
        "frames",
        Column("size", "BIGINT", False, "All frames together on the wire.", "octets"),
        Column("body_hash", "BINARY", True, _BODY_HASH),
        ...,
        "incomplete",
        _OPEN,
    ),
    "commands": _table(
        (Greeting, Command, Beacon),
        *_WIRE,
        Column("kind", "STRING", False, "The type of its record: greeting, command, beacon."),
        Column("name", "STRING", False, "The name of the command; greeting, beacon."),
        ...,
        "incomplete",
        _OPEN,
    ),
    "subscriptions": _table((Subscription,), *_WIRE, ..., "incomplete", _OPEN),
    "problems": _table(
        (Problem,),
        *_PART,
        Column("conn_id", "STRING", True, "That of its connection; null for a problem of a file."),
        ...,
        _time("time_ns", nullable=True),
        "time_ns",
        *(column._replace(nullable=True) for column in _PLACE),
        *_ENDS,
        _OPEN,
    ),
    "work": _table((Work,), *_PART, ..., _OPEN),
    "findings": _table(
        (Finding,),
        *_PART,
        "severity",
        "code",
        "summary",
        "known",
        "advice",
        "count",
        "certainty",
        _time("first_ns", nullable=True),
        "first_ns",
        _time("last_ns", nullable=True),
        "last_ns",
        ...,
        _OPEN,
    ),
    "ways": _table(
        (Way,),
        *_PART,
        "kind",
        Column("src", "STRING", False, "The address and port of the socket that sent its first message."),
        Column("dst", "STRING", False, "Those of the socket that got it: of a request, the service."),
        Column("file", "STRING", True, "The file with the packet that completed its first message."),
        Column("packet", "BIGINT", True, "The number of that packet in the file, from 1."),
        Column("part", "BIGINT", False, "Which of the messages of its sender that end in that packet."),
        _time("time_ns"),
        "time_ns",
        "duration_ns",
        "answered",
        ...,
        _OPEN,
    ),
    "captures": (
        *_PART,
        Column("file", "STRING", False, "Path or URL."),
        Column("size", "BIGINT", False, "The size of the file.", "octets"),
        Column("modified_ns", "BIGINT", False, "When it was last written to, since 1970.", "ns"),
        Column("packets", "BIGINT", False, "Packets in it, as far as it can be read."),
        Column("dropped", "BIGINT", False, "Packets that the file says were lost while it was written."),
        Column("first_ns", "BIGINT", True, "The time of its earliest packet, since 1970.", "ns"),
        Column("last_ns", "BIGINT", True, "The time of its latest packet, since 1970.", "ns"),
        Column("comments", "ARRAY<STRING>", False, "Those on the file as a whole."),
        Column("shards", "INT", False, "Tasks that shared its series when it was read."),
        Column(
            "condition",
            "STRING",
            False,
            "Whole, damaged, foreign (no capture), missing (to be tried again).",
        ),
        Column("error", "STRING", True, "Why it, or the rest of it, could not be read."),
    ),
}
"""The columns of each table, in order."""

WHOLE = ("captures", "work", "findings", "ways")
"""Tables whose rows are of no connection."""

PARTITION = "date"
"""The column by which files are partitioned. Parquet files have it in their folder's name, not inside."""


def tables_of(output: str) -> str:
    """A regular expression that the paths and URLs of what a run writes into ``output`` match, and no others there.

    An output may be in the folder of the captures, or that in the output.
    """
    names = {canonical(output)} | ({os.path.realpath(local)} if (local := local_path(output)) is not None else set())
    begin = "|".join(sorted(re.escape(name.rstrip("/")) for name in names))
    return f"^(?:{begin})/(?:(?:{'|'.join(TABLES)})/(?:{PARTITION}=|_delta_log/)|_states/)"


def ddl(table: str) -> str:
    """The schema of a table as Spark's SQL writes it."""
    columns = TABLES[table]
    return ", ".join(f"`{each.name}` {each.sql}{'' if each.nullable else ' NOT NULL'}" for each in columns)


def arrow_schema(table: str) -> "pa.Schema":
    """The schema of a table as Arrow has it, with the meaning of each column, as Spark and Delta Lake have comments."""
    import pyarrow as pa

    octets = pa.struct([("length", pa.int64()), ("data", pa.binary())])
    types = {
        "BIGINT": pa.int64(),
        "INT": pa.int32(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        OCTETS: octets,
        PROPERTIES: pa.list_(pa.struct([("name", pa.string()), ("value", octets)])),
    }

    def arrow(sql: str) -> pa.DataType:
        if sql in types:
            return types[sql]
        if sql.startswith("ARRAY<"):
            return pa.list_(arrow(sql[len("ARRAY<") : -1]))
        members = (member.split(": ") for member in sql[len("STRUCT<") : -1].split(", "))
        return pa.struct([(name, types[kind]) for name, kind in members])

    return pa.schema(
        [pa.field(each.name, arrow(each.sql), each.nullable, {"comment": each.comment}) for each in TABLES[table]]
    )
