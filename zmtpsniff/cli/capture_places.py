"""Which of several captures that are read as one has which packet."""

from bisect import bisect_right

from zmtpsniff.capture.files import Captures
from zmtpsniff.capture.merge import Run

_RUNS = 200_000  # runs of packets from one capture to remember; if captures take turns, a run is short


class Places:
    """Remembers from which of several files each packet comes, as they are read."""

    def __init__(self, captures: Captures) -> None:
        """Of these captures, of which nothing has been read."""
        self._names = captures.names
        self._read = [0] * len(captures.names)
        self._number = 1  # of the next packet
        # A run of packets of one capture: the number of its first, the capture's place, that packet's number there.
        self._firsts: list[int] = []
        self._runs: list[tuple[int, int]] = []
        captures.tell_runs = self._note

    def of(self, packet: int) -> tuple[str, int] | None:
        """The capture that has a packet, and the packet's number there; None if the packet is too old."""
        index = bisect_right(self._firsts, packet) - 1
        if index < 0:
            return None
        place, first = self._runs[index]
        return self._names[place], first + packet - self._firsts[index]

    def _note(self, runs: list[Run]) -> None:
        for place, count in runs:
            if not self._runs or place != self._runs[-1][0]:
                self._firsts.append(self._number)
                self._runs.append((place, self._read[place] + 1))
            self._number += count
            self._read[place] += count
        if len(self._firsts) > _RUNS:
            del self._firsts[: _RUNS // 2], self._runs[: _RUNS // 2]
