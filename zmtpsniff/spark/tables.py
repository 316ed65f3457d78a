"""The tables: their columns, with types and meanings, as Arrow and as Spark know them.

This is the documentation of what :mod:`zmtpsniff.spark` writes; ``docs/spark.md`` is made from it. Neither Spark nor
Arrow is imported before a schema is asked for.

Rows are the records of ``read -T json --no-patterns --no-payload``. Where a record has ``flow`` a row has ``conn_id``,
which is the same in every run, and where it has ``packet``, the number in all files together, a row has ``file``,
``packet``, the number of the packet in that file, counted from 1 as Wireshark's ``frame.number``, and ``offset``, where
its record begins there.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Column(NamedTuple):
    """A column: its type in Spark's SQL, whether it may be null, what it holds."""

    name: str
    sql: str
    nullable: bool
    meaning: str


OCTETS = "STRUCT<length: BIGINT, data: BINARY>"
"""Octets from the wire: how many there were, and those of them that are at hand.

``data`` has at most ``--max-bytes`` octets, fewer than ``length`` if that cut it or the capture lacks the rest; it is
null for what must not be shown (passwords)."""

_PART = (
    Column("date", "DATE", True, "the day in UTC that the row is filed under; null without a time"),
    Column("series", "STRING", False, "the files that are read as one capture: their folder, or what --series says"),
)
_CONNECTION = (*_PART, Column("conn_id", "STRING", False, "names the connection in all files and runs, 16 hex digits"))
_OPEN = Column(
    "provisional", "BOOLEAN", False, "true if made because the files end; the next run that has more replaces the row"
)
_PLACE = (
    Column("time", "TIMESTAMP", False, "of the packet that completed it"),
    Column("time_ns", "BIGINT", False, "the same in nanoseconds since the Unix epoch"),
    Column("file", "STRING", False, "path or URL of the file with that packet"),
    Column("packet", "BIGINT", False, "number of the packet in the file, from 1"),
    Column(
        "offset",
        "BIGINT",
        True,
        "where its record (pcap) or block (pcapng) begins in the file, uncompressed, in octets from 0; "
        "null for a log of strace, which has no records",
    ),
)
_ENDS = (
    Column("src", "STRING", False, "sender, address:port"),
    Column("src_port", "INT", True, "null for Unix domain sockets"),
    Column("dst", "STRING", False, "receiver, address:port"),
    Column("dst_port", "INT", True, "null for Unix domain sockets"),
)
_WIRE = (*_CONNECTION, *_PLACE, *_ENDS)
_INCOMPLETE = Column("incomplete", "BOOLEAN", False, "octets of it are, or may be, missing from the capture")


def _peer(side: str) -> tuple[Column, ...]:
    return (
        Column(side, "STRING", False, f"the {side}, address:port"),
        Column(f"{side}_port", "INT", True, "null for Unix domain sockets"),
        Column(f"{side}_version", "STRING", True, "as it announced"),
        Column(f"{side}_socket_type", "STRING", True, "as it announced"),
        Column(f"{side}_identity", OCTETS, True, "as it announced"),
        Column(f"{side}_messages", "BIGINT", False, f"messages that the {side} sent"),
        Column(f"{side}_octets", "BIGINT", False, f"octets of the stream that the {side} sent, each counted once"),
    )


TABLES: dict[str, tuple[Column, ...]] = {
    "connections": (
        *_CONNECTION,
        Column("transport", "STRING", False, "tcp, ws, ipc, udp, pgm, epgm"),
        *_peer("client"),
        *_peer("server"),
        Column("version", "STRING", True, "negotiated"),
        Column("mechanism", "STRING", True, "if both agree"),
        Column("handshake", "STRING", True, "complete, failed, incomplete, not-seen; null for udp and PGM"),
        Column("subscriptions", f"ARRAY<{OCTETS}>", False, "topics still subscribed to"),
        Column("start", "TIMESTAMP", False, "of its first packet"),
        Column("start_ns", "BIGINT", False, "the same in nanoseconds since the Unix epoch"),
        Column("stop", "TIMESTAMP", False, "of its last packet"),
        Column("end_ns", "BIGINT", False, "the same in nanoseconds since the Unix epoch"),
        Column("end", "STRING", False, "fin, rst, timeout, open"),
        _OPEN,
    ),
    "messages": (
        *_WIRE,
        Column("socket_type", "STRING", True, "of the sender, where known"),
        Column("frames", f"ARRAY<{OCTETS}>", False, "all frames of the message"),
        Column("size", "BIGINT", False, "octets of all frames on the wire"),
        _INCOMPLETE,
        _OPEN,
    ),
    "commands": (
        *_WIRE,
        Column("kind", "STRING", False, "greeting, command, beacon"),
        Column("name", "STRING", False, "of the command; greeting, beacon"),
        Column("version", "STRING", True, "greeting: announced; CURVE HELLO; beacon"),
        Column("mechanism", "STRING", True, "greeting"),
        Column("as_server", "BOOLEAN", True, "greeting"),
        Column("socket_type", "STRING", True, "greeting of ZMTP 2.0, READY, INITIATE"),
        Column("identity", OCTETS, True, "greeting of ZMTP 1.0 and 2.0, READY, INITIATE"),
        Column("properties", f"ARRAY<STRUCT<name: STRING, value: {OCTETS}>>", True, "READY, INITIATE"),
        Column("reason", OCTETS, True, "ERROR, CLOSE"),
        Column("ttl_ms", "BIGINT", True, "PING"),
        Column("context", OCTETS, True, "PING, PONG"),
        Column("group", OCTETS, True, "JOIN, LEAVE"),
        Column("username", OCTETS, True, "PLAIN HELLO"),
        Column("password", OCTETS, True, "PLAIN HELLO; its length, unless secrets were asked for"),
        Column("client_key", OCTETS, True, "CURVE HELLO"),
        Column("nonce", OCTETS, True, "CURVE"),
        Column("cookie", OCTETS, True, "CURVE INITIATE"),
        Column("box", OCTETS, True, "CURVE, GSSAPI: what is encrypted"),
        Column("token", OCTETS, True, "GSSAPI INITIATE"),
        Column("status", "BIGINT", True, "CLOSE of WebSocket"),
        Column("data", OCTETS, True, "what an unknown or malformed command holds after its name"),
        Column("uuid", "STRING", True, "beacon of ZRE: of the peer, 32 hexadecimal digits"),
        Column("port", "INT", True, "beacon: where the peer takes connections; 0 if it takes leave"),
        Column("public_key", OCTETS, True, "beacon: of CURVE"),
        _INCOMPLETE,
        _OPEN,
    ),
    "subscriptions": (
        *_WIRE,
        Column("action", "STRING", False, "subscribe, cancel"),
        Column("topic", OCTETS, False, "the topic"),
        Column("encoding", "STRING", False, "message, command"),
        _INCOMPLETE,
        _OPEN,
    ),
    "problems": (
        *_PART,
        Column("conn_id", "STRING", True, "of its connection; null for a problem of a file"),
        Column("severity", "STRING", False, "error, warning, note"),
        Column("code", "STRING", False, "a code of docs/problems.md"),
        Column("detail", "STRING", False, "a sentence"),
        *(column._replace(nullable=True) for column in (*_PLACE, *_ENDS)),
        _OPEN,
    ),
    "captures": (
        *_PART,
        Column("file", "STRING", False, "path or URL"),
        Column("size", "BIGINT", False, "octets of the file"),
        Column("modified_ns", "BIGINT", False, "when it was last written to, nanoseconds since the Unix epoch"),
        Column("packets", "BIGINT", False, "packets in it, as far as it can be read"),
        Column("dropped", "BIGINT", False, "packets that the file says were lost while it was written"),
        Column("first_ns", "BIGINT", True, "time of its earliest packet, nanoseconds since the Unix epoch"),
        Column("last_ns", "BIGINT", True, "time of its latest packet"),
        Column("comments", "ARRAY<STRING>", False, "on the file as a whole"),
        Column("shards", "INT", True, "tasks that shared its series when it was read; null if version 0.9.0 did"),
        Column(
            "condition", "STRING", True, "whole, damaged, foreign (no capture), missing; null if version 0.9.0 read it"
        ),
        Column("error", "STRING", True, "why it, or the rest of it, could not be read"),
    ),
}
"""The columns of each table, in order."""

PARTITION = "date"
"""The column that files are partitioned by; Parquet files have it in their folder's name, not inside."""


def ddl(table: str) -> str:
    """The schema of a table as Spark's SQL writes it."""
    columns = TABLES[table]
    return ", ".join(f"`{name}` {sql}{'' if nullable else ' NOT NULL'}" for name, sql, nullable, _ in columns)


def arrow_schema(table: str) -> "pa.Schema":
    """The schema of a table as Arrow has it."""
    import pyarrow as pa

    octets = pa.struct([("length", pa.int64()), ("data", pa.binary())])
    named = pa.struct([("name", pa.string()), ("value", octets)])
    types = {
        "BIGINT": pa.int64(),
        "INT": pa.int32(),
        "BOOLEAN": pa.bool_(),
        "STRING": pa.string(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        OCTETS: octets,
        f"ARRAY<{OCTETS}>": pa.list_(octets),
        "ARRAY<STRING>": pa.list_(pa.string()),
        f"ARRAY<STRUCT<name: STRING, value: {OCTETS}>>": pa.list_(named),
    }
    return pa.schema([pa.field(name, types[sql], nullable) for name, sql, nullable, _ in TABLES[table]])
