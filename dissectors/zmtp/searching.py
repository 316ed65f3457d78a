"""Finding frames again in one direction of a connection: window by window, and long ones between the windows."""

from dissectors.events import AnyEvent
from dissectors.zmtp import resync
from dissectors.zmtp.following import TAIL, LongFrames
from dissectors.zmtp.stream import Limits, OctetStream

_WINDOW_LIMIT = 1 << 17
# How many octets are searched without a pause. After that headers of long frames are all that is looked for between
# two windows, in so many octets at a time.
_SEARCH_LIMIT = 1 << 20
_BLOCK = 1 << 15
_MOST_BETWEEN = 16 << 20
# A flow of which nothing is known is given up after so many octets without the header of a long frame that leads to a
# place before the second limit.
_GIVE_UP_LIMIT = 64 << 20
_MOST_SEARCHED = 256 << 20


class FrameSearch(OctetStream):
    """A direction in which frames can be looked for."""

    __slots__ = ("_between", "_cut", "_ends", "_long_frames", "_searched", "_try_at", "framing", "known")

    def __init__(self, out: list[AnyEvent], flow: int, src: str, dst: str, limits: Limits) -> None:
        """Append events to ``out``, as sent by ``src`` to ``dst`` in connection ``flow``."""
        super().__init__(out, flow, src, dst, limits)
        self.framing = 0  # 1: ZMTP 1.0, 2: ZMTP 2.0 and later, 0: not known
        self.known = False  # the connection is known to be ZMTP, so that less evidence will do
        self._searched = 0  # octets searched before those held
        self._try_at = 0  # the number of octets at which the next attempt is made
        self._between = 0  # octets until the next window
        self._long_frames: LongFrames | None = None
        self._ends = False  # a gap comes after the octets held
        self._cut = 0

    # ------------------------------------------------------------------ for those who read frames

    def _start_frames(self, framing: int) -> None:
        """Read frames from here on."""

    def _found(self, framing: int, doubtful: int, skipped: int) -> None:
        """Frames begin here, after ``skipped`` octets; messages of the first ``doubtful`` may lack their beginning."""

    def _is_believed(self, window: bytes, found: resync.Found) -> bool:
        """Whether frames that chain in ``window`` are of ZMTP, on a connection not known to be."""
        return True

    def _search_failed(self) -> None:
        """No frames have been found in as much as is searched."""

    # ------------------------------------------------------------------ the search

    @property
    def _searches(self) -> bool:
        """Whether frames are being looked for."""
        return self._state in (self._search, self._between_windows)

    @property
    def window(self) -> tuple[bytes, list[int]]:
        """The octets that are being searched, and the offsets at which segments begin among them."""
        return b"".join(self._chunks), self._starts

    def _start_search(self) -> None:
        self._searched = 0
        self._long_frames = LongFrames()
        self._searching = True
        self._restart_search()

    def _restart_search(self) -> None:
        """Search from the beginning of a segment on."""
        self._chunks = []
        self._held = 0
        self._starts = [0]
        self._begin_window()

    def _begin_window(self, try_at: int = 0) -> None:
        self._state = self._search
        self._try_at = try_at
        self._need = max(try_at, 1)

    def _search(self, data: bytes, position: int) -> int:
        """Look for a chain of frames that is certain enough."""
        window = data[position:]
        if len(window) < self._try_at:
            self._need = self._try_at
            return position
        found = resync.find_frames(window, self._starts, self.framing, self.known, self._cut)
        if found is not None and (self.known or self._is_believed(window, found)):
            return position + self._go_on(found)
        if self._ends:
            return position + self._follow(window, len(window))
        if len(window) < _WINDOW_LIMIT:
            self._need = self._try_at = min(len(window) + max(64, len(window) // 2), _WINDOW_LIMIT)
            return position
        if self._searched > _SEARCH_LIMIT:
            if self._is_hopeless():
                self._search_failed()
            else:
                self._pause()
            return position
        # Keep the later half: a chain may have begun in it.
        self._try_at = _WINDOW_LIMIT
        return position + self._follow(window, len(window) // 2)

    def _is_hopeless(self) -> bool:
        """Whether nothing speaks for it that this is ZMTP."""
        if self.known or self._searched <= _GIVE_UP_LIMIT:
            return False
        return self._long_frames is None or not self._long_frames.leads_before(_MOST_SEARCHED)

    def _pause(self) -> None:
        """The longer nothing is found, the more lies between two windows."""
        if self.known:
            self._between = min(self._searched // 4, _MOST_BETWEEN)
        else:
            self._between = min(self._searched, max(_GIVE_UP_LIMIT - self._searched, _MOST_BETWEEN))
        self._try_at = _BLOCK
        self._state = self._between_windows

    def _between_windows(self, data: bytes, position: int) -> int:
        """Octets in which only long frames are looked for."""
        block = data[position:]
        if len(block) < self._try_at:
            self._need = self._try_at
            return position
        self._try_at = self._need = _BLOCK
        reached = self._follow(block, len(block) if self._ends else max(len(block) - TAIL, 0))
        if self._state == self._between_windows:
            self._between -= reached
            if self._between <= 0:
                # One attempt is enough for what most likely is something else.
                self._begin_window(0 if self.known else _WINDOW_LIMIT)
        return position + reached

    def _follow(self, block: bytes, size: int) -> int:
        """Follow long frames through ``size`` octets; returns how many are done with."""
        assert self._long_frames is not None
        found = self._long_frames.take(block, size, self._starts, self.framing, self.known)
        if found is not None:
            return self._go_on(found)
        self._searched += size
        self._starts = [start - size for start in self._starts if start >= size]
        return size

    def _go_on(self, found: resync.Found) -> int:
        """Frames are found; returns where they begin."""
        self._searching = False
        self._long_frames = None
        self._found(found.framing, found.doubtful, self._searched + found.offset)
        return found.offset

    def search_now(self, cut: int = 0, before_gap: bool = False) -> None:
        """Search in what there is, because no more will come that hangs together with it.

        ``cut`` octets are missing at its end because of the snaplen. What there is before a gap is searched for the
        last time; else it stays, since the other side may yet show what it is.
        """
        if self._searches and self._held:
            self._try_at = 0
            self._cut, self._ends = cut, before_gap
            self.resume()
            self._cut, self._ends = 0, False

    def _forget_place(self) -> None:
        """Nobody knows how many octets are missing here."""
        if self._long_frames is not None:
            self._long_frames.forget()

    def _search_behind_gap(self, length: int) -> None:
        """Go on after ``length`` octets that are missing; before them all has been searched."""
        assert self._long_frames is not None
        self._searched += self._held + length
        self._long_frames.skip(self._held + length)
        paused = self._state == self._between_windows
        self._restart_search()
        if self.known and self._searched > _WINDOW_LIMIT:
            # Where hole follows hole no window grows, so there is a pause after each of them instead.
            if paused:
                self._try_at = _BLOCK
                self._state = self._between_windows
            else:
                self._pause()
