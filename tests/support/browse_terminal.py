"""A terminal of zmtpsniff browse for tests: a capture read to its end, and what is on the screen."""

import asyncio
import html
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from textual.events import Key
from textual.pilot import Pilot

from dissectors.zmtp.limits import Limits
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.browse.app import BrowseApp
from zmtpsniff.browse.browse_options import BrowseOptions
from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.packet_store import PacketLog, TappedSource
from zmtpsniff.browse.reader import CaptureReader
from zmtpsniff.browse.virtual_list import VirtualList
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.source import SourceState
from zmtpsniff.dissection import Dissection, open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators

_HOPS = 8  # of a key at most: to the app, the widget with the focus, those that this one lies in, and the app again


def make_reader(path: Path) -> CaptureReader:
    """A reader of a capture file, not started."""
    diagnosis = Diagnosis()
    settings, collaborators = Settings(batches=True), Collaborators(witness=diagnosis)
    return CaptureReader(lambda tap: open_files([path], settings, collaborators, through=tap), diagnosis)


def read_index(path: Path, *, show_secrets: bool = False) -> tuple[RecordIndex, PacketLog]:
    """All records of a capture, and its packets."""
    settings = Settings(limits=Limits(show_secrets=show_secrets), batches=True)
    packets = PacketLog()
    index = RecordIndex()
    tapped = partial(TappedSource, tap=packets.take)
    for events in open_files([path], settings, through=tapped).batches():
        index.take(events)
    return index, packets


class PacketFeed(SourceState):
    """A source whose packets come when a test says so."""

    def __init__(self, packets: list[Packet]) -> None:
        super().__init__()
        self.allowed = 0
        self.is_over = False
        self._packets = packets

    def batches(self) -> Iterator[Block]:
        given = 0
        while not self.is_over or given < self.allowed:
            stop = self.allowed  # which another thread changes
            yield Block.of(self._packets[given:stop])
            given = stop
            time.sleep(0.01)

    def stop(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True


def make_live(feed: PacketFeed) -> CaptureReader:
    """A reader of what a feed gives."""
    diagnosis = Diagnosis()
    settings, collaborators = Settings(batches=True), Collaborators(clock=lambda: 0, witness=diagnosis)
    return CaptureReader(lambda tap: Dissection(feed, settings, collaborators, through=tap, stop=feed.stop), diagnosis)


class Screenful:
    """The app as a test sees it."""

    def __init__(self, app: BrowseApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def is_all_shown(self) -> bool:
        """Whether the list has all records, and the tree has one of them."""
        records = len(self.app.view.records)
        has_all = self.app.view.list_pane.virtual_size.height == records == len(self.app.view.records.selection)
        return has_all and (not records or len(self.app.view.tree_lines) > 0)

    async def press(self, *keys: str) -> None:
        """Press keys one after the other, each when what the one before asked for is shown."""
        for key in keys:
            await self._send(key, key if len(key) == 1 else None)

    async def type(self, text: str) -> None:
        """Type a text: each character is a key, whatever that key is called."""
        for char in text:
            await self._send("space" if char == " " else char, char)

    async def _send(self, key: str, character: str | None) -> None:
        # As Pilot.press does, but for its waiting until the processor is idle: 40 ms a key, and on a busy machine more.
        self.app.post_message(Key(key, character))
        await self.settle()

    async def settle(self) -> None:
        """Wait until all that was asked for is shown."""
        await self._go_round()
        while True:
            await self.until(lambda: self._is_settled)
            drawn = asyncio.Event()
            self.app.screen.call_after_refresh(drawn.set)
            await drawn.wait()
            await self._go_round()
            if self._is_settled:
                return

    async def _go_round(self) -> None:
        """Let each widget handle its messages, and those that it gets of them from others."""
        quiet = 0
        for _ in range(_HOPS):
            await self.pilot.pause(0)  # the queues may be empty while a widget still handles its last message
            widgets = (self.app, *self.app.screen.walk_children(with_self=True))
            quiet = 0 if any(each.message_queue_size for each in widgets) else quiet + 1
            if quiet == 2:
                return

    @property
    def _is_settled(self) -> bool:
        """Whether nothing is made for a view any more, and the screen in front has all its lines."""
        is_made = all(worker.is_finished for worker in self.app.workers if worker.group in ("view", "selection"))
        screen = self.app.screen
        lists = screen.query(VirtualList)
        has_lines = all(each.virtual_size.height == len(each.lines) for each in lists)
        is_laid_out = any(each.region.area for each in lists)
        return is_made and screen.is_mounted and is_laid_out and has_lines

    def lines(self) -> list[str]:
        """The lines on the screen."""
        found: dict[float, list[tuple[float, str]]] = {}
        for x, y, text in re.findall(
            r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', self.svg()
        ):
            found.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
        lines = []
        for _, parts in sorted(found.items()):
            line = ""
            for x, text in sorted(parts):
                line = line.ljust(round(x / 12.2)) + text
            lines.append(line.rstrip())
        return lines

    def svg(self) -> str:
        return self.app.export_screenshot(simplify=True)

    def text(self) -> str:
        return "\n".join(self.lines())

    async def until(self, done: Callable[[], bool], seconds: float = 60, pause: float = 0.01) -> None:
        """Wait until something holds, and look each ``pause`` seconds; a machine that does much else may be slow."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if done():
                return
            await self.pilot.pause(pause)
        raise AssertionError(f"not so after {seconds} s:\n{self.text()}")

    async def until_shown(self, text: str) -> None:
        await self.until(lambda: text in self.text(), pause=0.05)  # to make the text takes 10 ms


@asynccontextmanager
async def browsing(
    reader: CaptureReader, size: tuple[int, int] = (80, 24), look: BrowseOptions | None = None, *, wait: bool = True
) -> AsyncIterator[Screenful]:
    """The app with a reader, once all is read and shown, unless told not to wait."""
    app = BrowseApp(reader, look or BrowseOptions("capture.pcap", utc=True))
    async with app.run_test(size=size) as pilot:
        shown = Screenful(app, pilot)
        if wait:
            await shown.until(lambda: reader.is_over and shown.is_all_shown)
            await shown.settle()
        yield shown
