"""The rhythm of each side of a connection: how often it speaks, and how long the other side lets it wait."""

from collections.abc import Sequence

import msgspec

from dissectors.columns import RHYTHM


class Rhythm(msgspec.Struct, eq=False):
    """How one side of a connection speaks; the native core has the same layout."""

    said: int = 0  # messages
    run: int = 0  # messages since the other side spoke
    longest_run: int = 0  # of those before
    turns: int = 0  # runs that the other side ended
    long_gaps: int = 0  # times between its messages that are half of the longest, or longer
    since_ns: int = 0  # when the first message of the run came
    longest_wait_ns: int = 0  # from the first message of a run until the other side spoke
    last_ns: int = 0
    longest_gap_ns: int = 0  # between two of its messages
    offset: int = 0  # in its stream, behind the last message
    size: int = 0  # octets of the last one
    least: int = 0  # and of those before, but for the first, which may introduce it
    most: int = 0

    def say(self, time_ns: int, offset: int) -> None:
        """The side says one more message, which ends at that ``offset`` of its stream."""
        if self.said:
            gap_ns = time_ns - self.last_ns
            if gap_ns > self.longest_gap_ns:
                self.long_gaps = self.long_gaps + 1 if 2 * self.longest_gap_ns >= gap_ns else 1
                self.longest_gap_ns = gap_ns
            elif 2 * gap_ns >= self.longest_gap_ns:
                self.long_gaps += 1
        if self.said > 1:
            self.least = self.size if self.said == 2 else min(self.least, self.size)
            self.most = max(self.most, self.size)
        if not self.run:
            self.since_ns = time_ns
        self.said += 1
        self.run += 1
        self.last_ns = time_ns
        self.size, self.offset = offset - self.offset, offset

    def hear(self, time_ns: int) -> None:
        """The other side says a message."""
        if self.run:
            self.turns += 1
            self.longest_run = max(self.longest_run, self.run)
            self.longest_wait_ns = max(self.longest_wait_ns, time_ns - self.since_ns)
            self.run = 0


def packed(rhythms: Sequence[Rhythm]) -> bytes:
    """Rhythms for the native core."""
    return b"".join(RHYTHM.pack(*msgspec.structs.astuple(one)) for one in rhythms)


def unpacked(octets: bytes) -> list[Rhythm]:
    """Rhythms from the native core."""
    return [Rhythm(*one) for one in RHYTHM.iter_unpack(octets)]
