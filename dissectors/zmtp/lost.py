"""A place in a stream that is lost: the search for it, and the octets that are held until it is found.

    frames ── a chain of them is certain enough ──▶ found
    frames ── the connection is WebSocket ──▶ messages ── they chain ──▶ found
    frames ── nothing in as much as is searched ──▶ hopeless

In `frames` a :class:`Search` looks for frames of ZMTP, in `messages` a :class:`MessageSearch` for those of WebSocket.
A search that has `found` a place says which reader goes on there. The half reads the octets from that place on once
more, piece by piece, one for each segment (:class:`Repetition`).
"""

from collections import deque
from typing import NamedTuple

import msgspec
from msgspec import field

from dissectors.events import AnyEvent
from dissectors.snapshots import Live, Part
from dissectors.zmtp import agreement
from dissectors.zmtp import websocket_frames as ws
from dissectors.zmtp.buffer import Buffer
from dissectors.zmtp.journal import Moment
from dissectors.zmtp.opening import Opening
from dissectors.zmtp.resync import Discovery
from dissectors.zmtp.search import Judge, Piece, Search
from dissectors.zmtp.session import Session
from dissectors.zmtp.websocket import MessageSearch, WebSocketReader


class Found(NamedTuple):
    """The place where frames begin again."""

    skipped: int  # octets in front of it since the search began
    pieces: list[Piece]  # the octets from it on, if they must be read again
    reader: Discovery | WebSocketReader  # the framing of the frames, or the reader of WebSocket


class Repetition(msgspec.Struct, eq=False):
    """Octets that were searched and are read again."""

    place: Moment  # of the octets read last before
    pieces: deque[Piece] = field(default_factory=deque)
    out: list[AnyEvent] | None = None  # takes the events
    begin: int = 0  # the number of events before them there


class LostPlace(Part):
    """Finds the place in its stream that one side has lost."""

    _buffer: Live[Buffer]  # holds the octets that are searched
    _session: Live[Session]
    _opening: Live[Opening]
    _judge: Live[Judge]  # asked about frames while the connection is not known to be ZMTP
    frames: Search | None = None
    messages: MessageSearch | None = None
    found: Live[Found | None] = None
    hopeless: Live[bool] = False  # nothing speaks for it that this is ZMTP

    def __post_init__(self) -> None:
        """Search for frames, or for messages if the side has upgraded to WebSocket."""
        opening = self._opening
        if opening.upgraded:
            self._begin_messages()
        else:
            named = opening.forced is not None
            self.frames = Search(self._buffer, self._judge, opening.framing, opening.proven, named)

    @property
    def searched(self) -> int:
        """The number of octets searched in vain, without those held."""
        search = self.messages or self.frames
        return 0 if search is None else search.searched

    def skip(self, length: int | None) -> None:
        """Pass over ``length`` missing octets (None: nobody knows how many)."""
        if self.messages is not None:
            self.messages.skip(length or 0)
        elif self.frames is not None:
            self.frames.skip(length)

    # ------------------------------------------------------------------ octets

    def read(self, data: bytes, position: int) -> int:
        """Search ``data`` from ``position`` on; returns how far it got."""
        if self.messages is not None:
            return self._read_messages(self.messages, data, position)
        search = self.frames
        assert search is not None
        octets = data[position:] if position else data
        self._learn_segments(search, octets)
        if self._find_messages(search, octets):
            return len(data)
        reached = search.read(data, position)
        if (found := search.discovery) is not None:
            self.found = Found(search.searched + found.offset, search.pieces(octets, found.offset), found)
            return len(data)
        self.hopeless = search.hopeless
        return reached

    def _learn_segments(self, search: Search, octets: bytes) -> None:
        """Learn which segments brought ``octets``."""
        opening, journal = self._opening, self._session.journal
        early, opening.segments = opening.segments, []
        if early and early[-1].place < len(octets) == self._buffer.octets:  # none of the octets that waited is read
            for segment in early:
                search.begin_with(*segment[1:])
                if segment.place:
                    search.segment(*segment)
        search.begin_with(*journal.moment())

    def _find_messages(self, search: Search, octets: bytes) -> bool:
        """Whether the connection is WebSocket, though the capture lacks the upgrade; then messages are searched.

        The other side shows that, or ``octets`` do, which ``search`` holds.
        """
        opening = self._opening
        known = opening.other.upgraded
        if search.state != "window":
            return False
        begin: int | None = None
        if not known:
            if opening.greeted or opening.other.greeted or len(octets) < search.try_at:
                return False
            begin = ws.find_unknown(octets, search.starts, opening.side == "client")
            if begin is None:
                return False
        opening.upgraded = True
        opening.upgrade = None
        messages = self._begin_messages()
        if begin is None:
            begin = messages.read(octets, 0)
        if begin < len(octets):
            self.found = Found(search.searched + begin, search.pieces(octets, begin), messages.reader)
        return True

    def _begin_messages(self) -> MessageSearch:
        inflater = agreement.inflater(self._opening)
        if inflater is not None:
            inflater.lose()
        self.frames = None
        reader = WebSocketReader(self._buffer, self._session, inflater, False)
        self.messages = MessageSearch(reader, self._opening.side == "client")
        return self.messages

    def _read_messages(self, search: MessageSearch, data: bytes, position: int) -> int:
        reached = search.read(data, position)
        if search.found:
            self.found = Found(search.searched, [], search.reader)
        return reached

    # ------------------------------------------------------------------ snapshots

    def make(self, kind: type[Part]) -> Part:
        """Make a search."""
        if kind is Search:
            return Search(self._buffer, self._judge)
        return MessageSearch(WebSocketReader(self._buffer, self._session, None, False), self._opening.side == "client")
