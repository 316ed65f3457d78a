"""Several captures read as one, and which of them has which packet."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence

from zmtpsniff.capture.files import merged, open_captures
from zmtpsniff.capture.source import CaptureError, Fault, Packet

_RUNS = 200_000  # runs of packets from one capture to remember; if captures take turns, a run is short


class Places:
    """A Source over capture files, merged by time. It remembers from which file each packet comes."""

    def __init__(self, names: Sequence[str]) -> None:
        """Open all of them; raises CaptureError for the first that is no capture."""
        if list(names).count("-") > 1:
            raise CaptureError("standard input: given more than once, but it can be read only once")
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []
        self._names = names
        self._sources = [open_captures([name]) for name in names]
        self._pending: list[deque[Packet]] = [deque() for _ in names]  # packets that merged() holds back
        self._read = [0] * len(names)
        self._told = [(0, 0)] * len(names)  # faults and comments of each that are told
        # A run of packets of one capture: the number of its first, the capture's place, that packet's number there.
        self._firsts: list[int] = []
        self._runs: list[tuple[int, int]] = []

    def batches(self) -> Iterator[list[Packet]]:
        """Yield the packets by time."""
        number = 0
        last = -1
        for packets in merged([self._noted(place) for place in range(len(self._names))]):
            for packet in packets:
                number += 1
                # merged() passes on the same objects, and those of one capture in their order.
                if last < 0 or not self._is_next(last, packet):
                    last = next(place for place in range(len(self._names)) if self._is_next(place, packet))
                    self._firsts.append(number)
                    self._runs.append((last, self._read[last] + 1))
                self._pending[last].popleft()
                self._read[last] += 1
            if len(self._firsts) > _RUNS:
                del self._firsts[: _RUNS // 2], self._runs[: _RUNS // 2]
            self._tell()
            yield packets
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

    def _is_next(self, place: int, packet: Packet) -> bool:
        pending = self._pending[place]
        return bool(pending) and pending[0] is packet

    def _noted(self, place: int) -> Iterator[list[Packet]]:
        for packets in self._sources[place].batches():
            self._pending[place].extend(packets)
            yield packets

    def _tell(self) -> None:
        self.dropped = sum(source.dropped for source in self._sources)
        for place, source in enumerate(self._sources):
            faults, comments = self._told[place]
            self.faults += source.faults[faults:]
            self.comments += source.comments[comments:]
            self._told[place] = (len(source.faults), len(source.comments))
            self.key_lines += source.key_lines
            source.key_lines.clear()
