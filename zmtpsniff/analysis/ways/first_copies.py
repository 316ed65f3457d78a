"""First copies: a publisher sends each publication to all of its subscribers, a copy on each connection.

A publisher may say the same octets again and again, such as "tick". Each subscriber gets these publications in their
order. So the next copy on a connection is of the next publication after the one that the connection had last. Some get
their copies late; but one that comes much later is most likely of a publication that the capture has from nobody else.
"""

from collections import deque

import msgspec

from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop

_TEXTS = 65_536  # messages, by sender and octets, that are remembered
_MOST = 64  # publications of the same octets
_LATE_NS = 1_000_000_000  # of the same octets said again: no copy comes later


class _Text(msgspec.Struct, eq=False):
    """The publications of one sender in the same octets."""

    count: int = 0
    # The first copy of each of the last ones.
    firsts: deque[Hop] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST))
    reached: dict[int, int] = {}  # by connection: the number of the last one that it had

    def awaits(self, flow: int, since_ns: int) -> bool:
        """Whether a connection had no copy yet of the last publication, and others had it before ``since_ns``."""
        return bool(self.firsts) and self.firsts[-1].time_ns < since_ns and self.reached.get(flow, -1) < self.count - 1

    def first_of(self, hop: Hop) -> Hop | None:
        """The first copy of the publication that a message is one more copy of; None if it is the first itself."""
        firsts, now_ns = self.firsts, hop.time_ns
        while self.count > 1 and firsts and now_ns - firsts[0].time_ns > _LATE_NS:
            firsts.popleft()
        oldest = self.count - len(firsts)
        flow = hop.flow
        # A connection that had none of them most likely gets the newest.
        number = max(self.reached.get(flow, self.count - 2) + 1, oldest)
        self.reached[flow] = number
        if number < self.count:
            return firsts[number - oldest]
        self.count += 1
        firsts.append(hop)
        return None


class FirstCopies:
    """The first copies of publications, by their publisher and octets."""

    def __init__(self) -> None:
        """Start without any."""
        self._texts: Ledger[tuple[str, int], _Text] = Ledger(_Text, _TEXTS)

    def first_of(self, hop: Hop) -> Hop | None:
        """The first copy of the publication that a message is one more copy of; None if it is the first itself."""
        return self._texts.at(_key(hop)).first_of(hop)

    def is_one_more(self, hop: Hop, since_ns: int) -> bool:
        """Whether the publisher sent others the same before ``since_ns``, so that a message is a copy of that.

        Whoever repeats a publication at once, as heartbeats do, may be quicker than the copy for the next subscriber.
        """
        text = self._texts.get(_key(hop))
        return text is not None and text.awaits(hop.flow, since_ns)


def _key(hop: Hop) -> tuple[str, int]:
    """The publisher and the octets."""
    return hop.src, hash(tuple(hop.frames))
