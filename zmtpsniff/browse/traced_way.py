"""One request, job or publication on its way over brokers and services, and the answer on its way back."""

from typing import NamedTuple

from dissectors.events import Command, Greeting
from zmtpsniff.analysis.ways.hops import OpenWay
from zmtpsniff.analysis.ways.way_records import Way
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.browse.blocks import ITEMS
from zmtpsniff.browse.index import RecordIndex

_AROUND = 100_000  # records before and after the chosen one that are looked through


class Traced(NamedTuple):
    """The rows of the messages of a way, in order of time, and the way itself; None if the way is not known."""

    rows: list[int]
    way: Way | None


def trace(index: RecordIndex, row: int) -> Traced:
    """The way that the message in ``row`` belongs to; its rows are at least that one."""
    begin = max(row - _AROUND, 0)
    end = min(row + _AROUND, len(index))
    batch: dict[int, int] = {}  # the number of the row, from 1, by the id of its record
    ways = Ways(lambda message: batch[id(message)], in_order=False)
    announced = index.rows_of(begin, Greeting, Command)
    ways.take([index.event(each) for each in announced[-_AROUND:]])
    for start in range(begin, end, ITEMS):
        events = list(index.events(start, min(start + ITEMS, end)))
        batch = {id(event): number for number, event in enumerate(events, start + 1)}
        for way in ways.take(events):
            if (rows := _rows(way, row)) is not None:
                return Traced(rows, ways.record(way))
    for way in ways.finish():
        if (rows := _rows(way, row)) is not None:
            return Traced(rows, ways.record(way) if end == len(index) else None)
    return Traced([row], None)


def _rows(way: OpenWay, row: int) -> list[int] | None:
    """The rows of a way that a row belongs to."""
    rows = sorted(hop.mark - 1 for hop in way.hops)
    return rows if row in rows else None
