"""Several captures read as one, and which of them has which packet."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.merge import merged_runs
from zmtpsniff.capture.source import SourceState, refuse_twice

_RUNS = 200_000  # runs of packets from one capture to remember; if captures take turns, a run is short


class Places(SourceState):
    """A Source over capture files, merged by time. It remembers from which file each packet comes."""

    def __init__(self, names: Sequence[str]) -> None:
        """Open all of them; raises CaptureError for the first that is no capture."""
        refuse_twice(names)
        super().__init__()
        self._names = names
        self._sources = [open_captures([name]) for name in names]
        self._read = [0] * len(names)
        self._told = [(0, 0)] * len(names)  # faults and comments of each that are told
        # A run of packets of one capture: the number of its first, the capture's place, that packet's number there.
        self._firsts: list[int] = []
        self._runs: list[tuple[int, int]] = []

    def batches(self) -> Iterator[Block]:
        """Yield the packets by time."""
        number = 1
        last = -1
        for block, runs in merged_runs([source.batches() for source in self._sources], self.interruptions):
            for place, count in runs:
                if place != last:
                    last = place
                    self._firsts.append(number)
                    self._runs.append((place, self._read[place] + 1))
                number += count
                self._read[place] += count
            if len(self._firsts) > _RUNS:
                del self._firsts[: _RUNS // 2], self._runs[: _RUNS // 2]
            self._tell()
            yield block
        self._tell()

    def close(self) -> None:
        """Close the files."""
        for source in self._sources:
            source.close()

    def of(self, packet: int) -> tuple[str, int] | None:
        """The capture that has a packet, and the packet's number there; None if the packet is too old."""
        index = bisect_right(self._firsts, packet) - 1
        if index < 0:
            return None
        place, first = self._runs[index]
        return self._names[place], first + packet - self._firsts[index]

    def _tell(self) -> None:
        self.dropped = sum(source.dropped for source in self._sources)
        for place, source in enumerate(self._sources):
            faults, comments = self._told[place]
            self.faults += source.faults[faults:]
            self.comments += source.comments[comments:]
            self._told[place] = (len(source.faults), len(source.comments))
            self.key_lines += source.key_lines
            source.key_lines.clear()
