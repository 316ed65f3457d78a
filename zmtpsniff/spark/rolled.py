"""Rows of messages that wait for a verdict: one for those that came together in a packet, with the frames of all.

What a verdict changes is the same for all of them, and so is every column but their frames.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zmtpsniff.spark.tables import arrow_schema

MESSAGES = arrow_schema("messages")
_OCTETS_LIST = MESSAGES.field("frames").type
_OF_EACH = ("frames", "size")
ROLLED = pa.schema(
    [
        *(field for field in MESSAGES if field.name not in _OF_EACH),
        pa.field("counts", pa.list_(pa.int32()), False),  # frames of each message
        pa.field("octets", _OCTETS_LIST, False),  # frames of all messages
    ]
)
"""The columns of such rows, those of the table but for ``frames`` and ``size``."""


def unrolled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each message, without the columns that tables do not have."""
    counts = rows.column("counts")
    which = pc.list_parent_indices(counts)
    lists, sizes = octet_lists(offsets_of(pc.list_flatten(counts)), pc.list_flatten(rows.column("octets")))
    made = {"frames": lists, "size": sizes}
    fields = [field for field in MESSAGES if field.name in made or field.name in rows.schema.names]
    arrays = [made[field.name] if field.name in made else rows.column(field.name).take(which) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def octet_lists(offsets: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """A column of lists of octets that begin and end at such offsets, and how many octets there are in each list."""
    lengths = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), values.field(0)]))
    sums = lengths.take(offsets)
    return pa.ListArray.from_arrays(offsets, values, _OCTETS_LIST), pc.subtract(sums[1:], sums[:-1])


def offsets_of(lengths: Iterable[int] | Any) -> pa.Array:
    """Where lists of such lengths, numbers or a column of them, begin and end among their values."""
    column = lengths if isinstance(lengths, pa.Array) else pa.array([*lengths], pa.int32())
    return pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), column]))
