"""Dissecting the segments of tuples in order, without Spark: what those that are joined are held against.

Segments come sorted by tuple, then as ``read`` merges files: by time, each file in its own order. Nothing is held but
the connections of one tuple.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, repeat
from operator import itemgetter
from typing import NamedTuple

from dissectors.events import AnyEvent
from dissectors.zmtp.stream import Limits as DissectorLimits
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.flows import Limits
from zmtpsniff.packets import HeaderDecoder
from zmtpsniff.segment import Segment
from zmtpsniff.spark.inputs import PlacedSource
from zmtpsniff.spark.join import Join
from zmtpsniff.spark.pieces import Identity, marks, placed
from zmtpsniff.spark.watch import reverse

_BATCH = 4096


class Ordered(NamedTuple):
    """A segment and its place among those of its tuple: they sort as they are to be taken."""

    key: bytes  # the tuple
    segment: Segment  # its packet as ``placed`` numbers it


class Dissected(NamedTuple):
    """Events of one tuple, in order."""

    key: bytes
    events: list[AnyEvent]
    identities: dict[int, Identity]  # by the events' flow
    unsure: bool  # something came again of which a state had not kept enough: it is to be dissected anew
    at_end: bool  # they tell of what is open when the series is over


def read_segments(
    source: PlacedSource, file: int, wanted: Container[bytes] | None = None, decoder: HeaderDecoder | None = None
) -> Iterator[list[Ordered]]:
    """The segments of a file, in its order; of the tuples ``wanted`` alone if they are given.

    ``decoder`` is that of the file before, if fragmented datagrams may begin there and end here.
    """
    decoder = decoder or HeaderDecoder()
    number = 1
    latest = 0
    tuples: dict[bytes, bytes | None] = {}
    for packets in source.batches():
        orders = list(accumulate((packet[0] for packet in packets), max, initial=latest))[1:]
        numbers = map(placed, orders, repeat(file), marks(number, source.offsets))
        out = []
        for segment in decoder.segments(packets, numbers):
            key = segment[2]
            name = tuples.get(key, b"")
            if name == b"":
                name = min(key, reverse(key))
                if wanted is not None and name not in wanted:
                    name = None
                tuples[key] = name
            if name is not None:
                out.append(Ordered(name, segment))
        yield out
        number += len(packets)
        latest = orders[-1] if orders else latest


def dissect_sorted(
    segments: Iterable[Ordered],
    ends_ns: Callable[[bytes], int],
    states: Callable[[bytes], bytes | None] = lambda key: None,
    dissector_limits: DissectorLimits | None = None,
    flow_limits: Limits | None = None,
    decode_as: Sequence[DecodeAs] = (),
) -> Iterator[Dissected]:
    """Dissect segments sorted by tuple and place.

    ``ends_ns`` says of a tuple when the last segment of its series came, ``states`` what it begins with.
    """
    for key, group in groupby(segments, key=itemgetter(0)):
        join = Join(states(key), dissector_limits, flow_limits, decode_as)
        batch: list[Segment] = []
        for _, segment in group:
            batch.append(segment)
            if len(batch) == _BATCH:
                yield Dissected(key, join.dissect(batch), join.identities, join.unsure, at_end=False)
                batch = []
        yield Dissected(key, join.dissect(batch), join.identities, join.unsure, at_end=False)
        yield Dissected(key, join.finish(ends_ns(key)), join.identities, join.unsure, at_end=True)
