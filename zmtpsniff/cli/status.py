"""The line on a terminal that tells how a live capture goes."""

import shutil
import time
from typing import IO, TYPE_CHECKING

from zmtpsniff.render.wording import number

if TYPE_CHECKING:
    from dissectors.events import AnyEvent
    from zmtpsniff.sniffer import Sniffer

_REDRAW_SECONDS = 0.25
_RATE_SECONDS = 1.0
_ERASE = "\r\x1b[K"


class StatusLine:
    """Packets, ZMTP connections, messages and their rate, and what was dropped, on the last line of a terminal."""

    def __init__(self, stream: IO[str], sniffer: "Sniffer", visible: bool) -> None:
        """Draw on ``stream``, if it is to be visible, which needs a terminal."""
        self._visible = visible
        self._stream = stream
        self._sniffer = sniffer
        self._open: set[int] = set()  # flows
        self._messages = 0
        self._rate = 0.0
        self._rate_since = time.monotonic()
        self._rate_messages = 0
        self._drawn_at = 0.0
        self._shown = False

    def erase(self) -> None:
        """Make room for other lines."""
        if self._shown:
            self._stream.write(_ERASE)
            self._stream.flush()
            self._shown = False

    def see(self, events: "list[AnyEvent]") -> None:
        """Count what is about to be shown, and make room for it."""
        if not self._visible:
            return
        if events:
            self.erase()
        from dissectors.events import Beacon, Connection, Message

        for event in events:
            kind = type(event)
            flow = getattr(event, "flow", None)
            if kind is Message:
                self._messages += 1
            if kind is Connection:
                self._open.discard(flow)
            elif flow is not None and kind is not Beacon:
                self._open.add(flow)

    def draw(self) -> None:
        """Draw the line anew, unless that was done a moment ago."""
        now = time.monotonic()
        if not self._visible or (self._shown and now - self._drawn_at < _REDRAW_SECONDS):
            return
        self._drawn_at = now
        elapsed = now - self._rate_since
        if elapsed >= _RATE_SECONDS:
            self._rate = (self._messages - self._rate_messages) / elapsed
            self._rate_since, self._rate_messages = now, self._messages
        text = (
            f"{number(self._sniffer.packets, 'packet')} · {number(len(self._open), 'ZMTP connection')} · "
            f"{number(self._messages, 'message')}, {self._rate:,.0f}/s · {self._sniffer.dropped:,} dropped"
        )
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"{_ERASE}{text[:width]}")
        self._stream.flush()
        self._shown = True
