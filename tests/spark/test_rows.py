"""Rows of events, without Spark: what is gathered in lists says what the events said."""

from collections import Counter
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from dissectors.columns import ROW
from dissectors.events import AnyEvent, Cut, Envelope, Hidden, Message, Octets, Place
from dissectors.records import record_fields
from zmtpsniff.capture.block import Block
from zmtpsniff.spark.connection_ids import local_id
from zmtpsniff.spark.packet_names import PacketNames
from zmtpsniff.spark.row_columns import OctetsBuilder, RowOrigin
from zmtpsniff.spark.rows import Rows
from zmtpsniff.spark.tables import TABLES

IDS = {flow: local_id("tcp", "a", "b", flow) for flow in (1, 2)}
OFFSETS = [24, 90, 200, 300]
PACKETS = PacketNames(0, [], lambda _: [])
PACKETS.see(1, 1, Block(b"", b"".join(ROW.pack(0, offset - 20, 1, 1, 1) for offset in OFFSETS), base=20))
PACKETS.add(1, 1, len(OFFSETS))
ORIGIN = RowOrigin("series", {1: "one.pcap"}, PACKETS, IDS)
MOST = (1 << 63) - 1

octets = (
    st.binary(max_size=9)
    | st.builds(lambda data, more: Cut(data, len(data) + more), st.binary(max_size=9), st.integers(1, 1 << 64))
    | st.builds(Hidden, st.integers(0, 9))
)


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    packet = draw(st.integers(0, 3))  # which is of one flow, and has one sender
    ends = ("10.0.0.1:1", "10.0.0.2:2") if packet % 2 else ("10.0.0.2:2", "10.0.0.1:1")
    place = (1_000 * packet, packet + 1, packet // 2 + 1, *ends)
    kind, incomplete, encrypted = draw(st.sampled_from((None, "PUSH"))), draw(st.booleans()), draw(st.booleans())
    frames = draw(st.lists(st.lists(octets, min_size=1, max_size=3), max_size=3))
    return [Message(*place, some, kind, incomplete=incomplete, encrypted=encrypted) for some in frames]


def numbered(some: list[list[Message]]) -> list[Message]:
    """Messages with their parts, as a dissector counts them."""
    events = [event for each in some for event in each]
    ended: Counter[int] = Counter()
    for event in events:
        event.part = ended[event.packet] + 1
        ended[event.packet] += 1
    return events


def rows(events: list[Any], max_bytes: int = 0, bodies: bool = True) -> list[dict[str, Any]]:
    maker = Rows(max_bytes, bodies)
    maker.take(events, ORIGIN)
    return [row for _, batch, _ in maker.made(ORIGIN) for row in batch.to_pylist()]


def shown(value: Octets | None, max_bytes: int) -> dict[str, Any] | None:
    """A value as a table has it."""
    if value is None:
        return None
    if isinstance(value, Hidden):
        return {"length": value.length, "data": None}
    data, length = (value, len(value)) if isinstance(value, bytes) else (value.data, value.length)
    return {"length": min(length, MOST), "data": data[: max_bytes or None]}


@given(values=st.lists(octets | st.none()), max_bytes=st.sampled_from((0, 4)))
def test_a_column_has_the_octets_that_it_was_given(values: list[Octets | None], max_bytes: int) -> None:
    builder = OctetsBuilder(max_bytes or MOST)
    builder.extend(values[:1])
    builder.extend(values[1:])
    assert builder.build().to_pylist() == [shown(value, max_bytes) for value in values]


def row_of(event: Message) -> dict[str, Any]:
    """The row of a message."""
    at = event.packet - 1
    values = [shown(frame, 0) or {} for frame in event.frames]
    named = ("time_ns", "src", "dst", "socket_type", "part", "incomplete", "encrypted")
    own = {"conn_id": IDS[event.flow].name, "packet": at + 1, "offset": OFFSETS[at], "src_port": int(event.src[-1])}
    return {
        **{name: getattr(event, name) for name in named},
        **own,
        "frames": values,
        "size": min(sum(value["length"] for value in values), MOST),
    }


@given(events=st.lists(messages(), max_size=6).map(numbered))
def test_rows_of_messages_are_what_each_of_them_says(events: list[Message]) -> None:
    wanted = [row_of(event) for event in events]
    claims = [sum(one["length"] > 1 << 40 for one in row["frames"]) for row in wanted]
    assume(max(claims, default=0) < 2)  # no message has two such frames, for the first of them never ends
    found = rows(events)
    assert [{name: row[name] for name in one} for row, one in zip(found, wanted, strict=True)] == wanted
    for row, one in zip(rows(events, bodies=False), wanted, strict=True):
        assert row["frames"] == [{"length": frame["length"], "data": None} for frame in one["frames"]]


def test_every_field_of_messages_is_a_column() -> None:
    """These columns are written by hand, for the time that it saves."""
    fields = {field.name for field in record_fields(Message)} - {"flow", "payload", "bodies"}
    event: AnyEvent = Message(
        1, 1, 1, "a:1", "b:2", [b"x"], "PUSH", True, "PUB", incomplete=True, encrypted=True, envelope=Envelope(2, True),
        matched=b"x", latency_ns=5, request=2, request_part=3, paired="order", forwards=Place(2, 3, 4),
    )  # fmt: skip
    (row,) = rows([event])
    assert fields <= {column.name for column in TABLES["messages"]}
    assert all(row[name] for name in fields)
    assert (row["envelope"], row["request_file"]) == ({"identities": 2, "delimiter": True}, "one.pcap")
    assert row["forwards"] == {"conn_id": IDS[2].name, "file": "one.pcap", "packet": 3, "part": 4}
