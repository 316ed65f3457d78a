"""The line on a terminal that tells how a live capture goes."""

import sys
import time
from typing import TYPE_CHECKING, TextIO

from zmtpsniff.cli.last_line import QUIET_SECONDS, LastLine, shares_terminal
from zmtpsniff.words.counts import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dissectors.events import AnyEvent
    from zmtpsniff.dissection import Dissection

_RATE_SECONDS = 1.0


class StatusLine(LastLine):
    """Packets, ZMTP connections, messages and their rate, and what was dropped, on the last line of a terminal."""

    def __init__(self, stream: TextIO, capture: "Dissection", visible: bool, yields: bool = False) -> None:
        """Draw on ``stream`` if the line is to be visible, which needs a terminal.

        If it ``yields``, another program may show the records on the same terminal a moment after they are written.
        Then the line is drawn only while no records come.
        """
        super().__init__(stream)
        self._visible = visible
        self._yields = yields
        self._draw_from = 0.0
        self._is_written = False  # records have been written since it was to be drawn
        self._capture = capture
        self._open: set[int] = set()  # flows
        self._messages = 0
        self._rate = 0.0
        self._rate_since = time.monotonic()
        self._rate_messages = 0

    def see(self, events: "Sequence[AnyEvent]", shown: "Sequence[object]") -> None:
        """Count events, and make room for what is about to be shown."""
        if not self._visible:
            return
        if shown:
            self.erase()
            self._is_written = True
        from dissectors.batches import MessageBatch
        from dissectors.events import Beacon, Connection, Message

        for event in events:
            kind = type(event)
            flow = getattr(event, "flow", None)
            if kind is Message:
                self._messages += 1
            elif isinstance(event, MessageBatch):
                self._messages += len(event)
                self._open.update(side.flow for side in event.senders if side.flow)
            if kind is Connection:
                self._open.discard(flow)
            elif flow is not None and kind is not Beacon:
                self._open.add(flow)

    def draw(self) -> None:
        """Draw the line anew, unless that was done a moment ago."""
        if not self._visible or not self.is_due:
            return
        now = time.monotonic()
        if self._yields and self._is_written:  # its reader may be slow: the time counts from when it has read them all
            self._draw_from = now + QUIET_SECONDS
        self._is_written = False
        if now < self._draw_from:
            return
        elapsed = now - self._rate_since
        if elapsed >= _RATE_SECONDS:
            self._rate = (self._messages - self._rate_messages) / elapsed
            self._rate_since, self._rate_messages = now, self._messages
        self.show(
            f"{plural(self._capture.packets, 'packet')} · {plural(len(self._open), 'ZMTP connection')} · "
            f"{plural(self._messages, 'message')}, {self._rate:,.0f}/s · {self._capture.dropped:,} dropped"
        )


def make_status_line(capture: "Dissection", file: str | None, is_wanted: bool | None = None) -> StatusLine:
    """The line for a capture whose output goes to ``file``; None: it is wanted if somebody would see it."""
    if is_wanted is None:
        is_wanted = sys.stderr is not None and sys.stderr.isatty()
    return StatusLine(sys.stderr, capture, is_wanted, is_wanted and shares_terminal(sys.stderr, file))
