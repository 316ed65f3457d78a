"""Whatever peers put into octets and names: no control character reaches the terminal, nothing is taken for markup."""

import asyncio
from collections.abc import Iterator

import pytest

from dissectors.events import AnyEvent
from tests.render.test_output_safety import NASTY, conversations
from tests.support.browse_terminal import browsing
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.statistics.record_maker import report
from zmtpsniff.analysis.statistics.statistics import Statistics
from zmtpsniff.browse.browse_options import BrowseOptions
from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.ladder_lines import LadderLines
from zmtpsniff.browse.packet_store import PacketLog
from zmtpsniff.browse.panes import ConversationLines, RecordClock, RecordLines, TreeLines
from zmtpsniff.browse.reader import CaptureReader
from zmtpsniff.browse.selection import EveryRow
from zmtpsniff.browse.sheet import make_sheet
from zmtpsniff.browse.view_tables import conversations as conversation_table
from zmtpsniff.browse.view_tables import problems, services, topics
from zmtpsniff.browse.virtual_list import LineSource
from zmtpsniff.browse.wire_image import WireFinder
from zmtpsniff.words.text import CONTROL_OR_UNSEEN


class EventFeed:
    """A stand-in for a dissection: events that are there already."""

    position = None
    dropped = 0

    def __init__(self, events: list[AnyEvent]) -> None:
        self._events = events

    def batches(self) -> Iterator[list[AnyEvent]]:
        yield self._events

    def stop(self) -> None: ...

    def close(self) -> None: ...


def plain(lines: LineSource, width: int) -> list[str]:
    return [lines.line(place, width).plain for place in range(len(lines))]


@pytest.mark.parametrize("name", NASTY)
def test_no_line_holds_a_control_character(name: str) -> None:
    events = conversations(NASTY[name])
    index = RecordIndex()
    index.take(events)
    clock = RecordClock(index, utc=True)
    every = EveryRow(index)
    statistics = Statistics()
    statistics.take(events)
    counted = report(statistics)
    ends = [(talk.flow, end) for talk in index.talks.values() for end in (talk.client, talk.server)]
    ladder = LadderLines(index, every, clock, False, ends)
    sources: list[LineSource] = [
        RecordLines(index, every, clock), ConversationLines(index, every, clock), ladder, conversation_table(index),
        problems(index), topics(counted), services(index, counted),
    ]  # fmt: skip
    finder = WireFinder(index, PacketLog())
    for row in range(len(index)):
        tree = TreeLines()
        tree.show(make_sheet(index.event(row), finder.image(row), ""))
        sources.append(tree)
    for width in (80, 200):
        for source in sources:
            for line in plain(source, width):
                assert CONTROL_OR_UNSEEN.search(line) is None, line
                line.encode()
    assert CONTROL_OR_UNSEEN.search(ladder.heading) is None


def test_nothing_is_taken_for_markup() -> None:
    events = conversations(b"[bold red]x[/] [@click=app.quit]y[/]")
    reader = CaptureReader(lambda tap: EventFeed(events), Diagnosis())  # type: ignore[arg-type,return-value]

    async def look() -> str:
        async with browsing(reader, (200, 50), BrowseOptions("[bold]title[/]", utc=True)) as shown:
            text = shown.text()
            for key in ("2", "3", "5", "6", "8", "c"):
                await shown.press(key, "escape")
            return text

    text = asyncio.run(look())
    assert "[bold red]x[/]" in text
    assert "[bold]title[/]" in text
