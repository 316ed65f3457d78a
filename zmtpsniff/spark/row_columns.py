"""Columns of Arrow, as several tables have them: of octets, numbers, times, texts, addresses and packets.

Columns of strings are dictionaries: they have few different strings, and Parquet takes dictionaries as they are.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from dissectors.address import port_of
from dissectors.events import (
    Cut,
    Hidden,
    Octets,
)
from zmtpsniff.spark.connection_ids import ConnectionId
from zmtpsniff.spark.packet_names import PacketNames
from zmtpsniff.spark.tables import (
    TABLES,
    arrow_schema,
)

TEXT = pa.dictionary(pa.int32(), pa.string())


def _with_dictionaries(schema: pa.Schema) -> pa.Schema:
    """A schema whose columns of strings are dictionaries."""
    return pa.schema([field.with_type(TEXT) if pa.types.is_string(field.type) else field for field in schema])


SCHEMAS = {table: _with_dictionaries(arrow_schema(table)) for table in TABLES}
OCTETS_LISTS = SCHEMAS["messages"].field("frames").type
OCTETS_TYPE = OCTETS_LISTS.value_type
_TIMESTAMP = pa.timestamp("us", tz="UTC")
MOST = (1 << 63) - 1
_MOST_KEPT = (1 << 31) - 1  # octets of all values in a column together
_DAY_NS = 86_400_000_000_000
_PORTLESS = ("pid-", "peer-of-pid-")


class RowOrigin(NamedTuple):
    """The origin of events: the name of their series, its files by number, its packets, and connections by flow."""

    series: str
    files: Mapping[int, str]
    packets: PacketNames
    conn_ids: Mapping[int, ConnectionId]


class OctetsBuilder:
    """A column of octets that grows."""

    def __init__(self, most: int, values: Iterable[Octets | None] = ()) -> None:
        """Begin with values; at most ``most`` octets of each are kept."""
        self._most = most
        self.parts: list[bytes] = []  # what is kept: of one value each, or of several
        self.lengths = array("i", [0])  # of each value; the first is none, so that sums are where values begin
        self.others: dict[int, Cut | Hidden | None] = {}  # values that are not all at hand, by their numbers
        self.extend(values)

    def extend(self, values: Iterable[Octets | None]) -> None:
        """Take values."""
        parts, lengths, most = self.parts, self.lengths, self._most
        for value in values:
            if type(value) is bytes:
                length = len(value)
                parts.append(value if length <= most else value[:most])
                lengths.append(length)
            else:
                self.others[len(lengths) - 1] = value  # type: ignore[assignment]  # it is not bytes
                lengths.append(0)

    def build(self) -> pa.Array:
        """The column."""
        all_lengths = integer_column(self.lengths)
        lengths = all_lengths[1:].cast(pa.int64())
        kept = pc.min_element_wise(all_lengths, pa.scalar(min(self._most, _MOST_KEPT), pa.int32()))
        ends, octets = pc.cumulative_sum_checked(kept).buffers()[1], pa.py_buffer(b"".join(self.parts))
        data = pa.Array.from_buffers(pa.binary(), len(lengths), [None, ends, octets])
        if self.others:
            others = self.others.values()
            is_other = np.zeros(len(data), bool)
            is_other[list(self.others)] = True
            mask = pa.array(is_other)
            known = [one.data[: self._most] if isinstance(one, Cut) else None for one in others]
            data = pc.replace_with_mask(data, mask, pa.array(known, pa.binary()))
            sent = [None if one is None else min(one.length, MOST) for one in others]
            lengths = pc.replace_with_mask(lengths, mask, pa.array(sent, pa.int64()))
        mask = lengths.is_null() if lengths.null_count else None
        return pa.StructArray.from_arrays([lengths, data], fields=list(OCTETS_TYPE), mask=mask)


def sizes_of(lists: pa.Array) -> pa.Array:
    """The number of octets on the wire, for each value in a column of lists of octets; at most what 63 bits hold."""
    lengths = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), lists.values.field(0)]))
    sums = lengths.take(lists.offsets)
    sizes = pc.subtract(sums[1:], sums[:-1])
    # A frame may claim so many octets that those before it in its message are too many: the sum wraps to below 0.
    return pc.if_else(pc.less(sizes, 0), MOST, sizes) if (pc.min(sizes).as_py() or 0) < 0 else sizes


def lengths_only(lists: pa.Array) -> pa.Array:
    """A column of lists of octets of which the lengths alone are kept."""
    lengths = lists.values.field(0)
    bare = pa.StructArray.from_arrays([lengths, pa.nulls(len(lengths), pa.binary())], fields=list(OCTETS_TYPE))
    return pa.ListArray.from_arrays(lists.offsets, bare, OCTETS_LISTS)


def packet_columns(name: str, packets: ArrayLike, origin: RowOrigin) -> dict[str, Any]:
    """The columns of packets that events name, 0 for none."""
    if not np.any(packets):
        return {}
    paths, numbers = origin.packets.columns(packets, origin.files)
    return {name: numbers, f"{name}_file": paths}


def time_columns(times_ns: Any) -> dict[str, Any]:
    """The columns that follow from the times of events, nanoseconds since the Unix epoch."""
    times = number_column(times_ns)
    return {"date": date_column(times), "time": time_column(times), "time_ns": times}


def address_columns(name: str, addresses: Sequence[str | None]) -> dict[str, Any]:
    """The columns of an address: it, and its port."""
    texts = text_column(addresses)
    ports = pa.array(map(_port, texts.dictionary.to_pylist()), pa.int32())
    return {name: texts, f"{name}_port": ports.take(texts.indices)}


@lru_cache(4096)
def _port(address: str | None) -> int | None:
    if address is None or address.startswith(_PORTLESS):
        return None
    return port_of(address)


def integer_column(values: "array[int]") -> pa.Array:
    """A column of integers that are one already, but for its name."""
    return pa.array(np.asarray(values))


def sums_of(values: "array[int]") -> pa.Array:
    """The sum of integers up to each: of lengths, the first of them 0, where values begin, and the last one ends."""
    return pc.cumulative_sum_checked(integer_column(values))


def number_column(values: Any) -> pa.Array:
    """A column of integers. Numbers beyond 64 bits, which only broken captures have, become the largest one."""
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([value if value is None else max(min(value, MOST), -MOST) for value in values], pa.int64())


def time_column(times_ns: Any) -> pa.Array:
    """A column of timestamps, from nanoseconds since the Unix epoch."""
    return pc.divide(number_column(times_ns), 1000).cast(_TIMESTAMP)


def date_column(times_ns: Any) -> pa.Array:
    """A column of days in UTC, from nanoseconds since the Unix epoch."""
    return pc.divide(number_column(times_ns), _DAY_NS).cast(pa.int32()).cast(pa.date32())


def text_column(values: Sequence[str | None]) -> pa.DictionaryArray:
    """A column of strings. Characters that are no Unicode become escapes."""
    try:
        return pa.array(values, pa.string()).dictionary_encode()
    except UnicodeEncodeError:
        return text_column([value if value is None else plain_text(value) for value in values])


def repeated_column(value: str, count: int) -> pa.DictionaryArray:
    """A column of so many times the same string."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), text_column([value]).dictionary)


def plain_text(value: str) -> str:
    """A string in which characters that are no Unicode are escapes."""
    return value.encode("utf-8", "backslashreplace").decode()
