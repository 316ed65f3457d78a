"""First copies: a publisher sends each publication to all of its subscribers, a copy on each connection.

A publisher may send the same octets again and again, such as "tick". Each subscriber gets these publications in their
order. So the next copy on a connection belongs to the next publication after the one of the last copy there. Some
subscribers get their copies late. But a copy that comes much later most likely belongs to a publication of its own, of
which the capture has no other copy.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop

_TEXTS = 65_536  # pairs of a sender and octets that are remembered
_COPIES = 500_000  # connections of all of those that had a copy
_CONNECTIONS = 50_000  # likewise, of one
_MOST = 64  # publications of the same octets that are remembered
_LATE_NS = 1_000_000_000  # where octets are sent again, no copy comes so much later than the first


class _Text(msgspec.Struct, eq=False):
    """The publications of one sender with the same octets."""

    count: int = 0
    # The first copies of the last publications.
    firsts: deque[Hop] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST))
    reached: dict[int, int] = {}  # by connection: the number of the last publication that came there
    originals: int = 0  # of the publications, if the sender is a proxy: so many came behind their first copies

    def awaits(self, flow: int, since_ns: int) -> bool:
        """Whether a connection lacks a copy of the last publication, of which another one had a copy before then."""
        return bool(self.firsts) and self.firsts[-1].time_ns < since_ns and self.reached.get(flow, -1) < self.count - 1

    def has_copy_of(self, original: Hop) -> bool:
        """Whether the sender, a proxy, sent a copy of a publication shortly before it took that."""
        has_copy = self.originals < self.count and bool(self.firsts)
        if not has_copy or original.time_ns - self.firsts[-1].time_ns > _LATE_NS:
            return False
        self.originals += 1
        return True

    def first_of(self, hop: Hop) -> Hop | None:
        """The first copy of the publication of which a message is one more copy; None if it is the first."""
        firsts, now_ns = self.firsts, hop.time_ns
        while self.count > 1 and firsts and now_ns - firsts[0].time_ns > _LATE_NS:
            firsts.popleft()
        oldest = self.count - len(firsts)
        flow = hop.flow
        # The first copy on a connection most likely belongs to the newest publication.
        number = max(self.reached.get(flow, self.count - 2) + 1, oldest)
        self.reached[flow] = number
        if len(self.reached) > _CONNECTIONS:
            del self.reached[next(iter(self.reached))]
        if number < self.count:
            return firsts[number - oldest]
        self.count += 1
        firsts.append(hop)
        return None


class FirstCopies:
    """The first copies of publications, by their publisher and octets."""

    def __init__(self) -> None:
        """Start without any."""
        self._texts: Ledger[tuple[str, int], _Text] = Ledger(_Text, _TEXTS + 1)
        self._copies = 0  # connections that had a copy, by their texts

    def first_of(self, hop: Hop) -> Hop | None:
        """The first copy of the publication of which a message is one more copy; None if it is the first."""
        texts = self._texts
        text = texts.at(_key(hop))
        copies = len(text.reached)
        first = text.first_of(hop)
        self._copies += len(text.reached) - copies
        while (self._copies > _COPIES and len(texts) > 1) or len(texts) > _TEXTS:
            _, oldest = texts.popitem(last=False)
            self._copies -= len(oldest.reached)
        return first

    def is_one_more(self, hop: Hop, since_ns: int) -> bool:
        """Whether the publisher sent the same to others before then, so that a message is one more copy of that.

        A subscriber that publishes what it got, at once, may be quicker than the copy for the next subscriber.
        """
        text = self._texts.get(_key(hop))
        return text is not None and text.awaits(hop.flow, since_ns)

    def has_copy_of(self, original: Hop, sockets: Iterable[str]) -> bool:
        """Whether a proxy with these sockets sent a copy of a publication shortly before it took that."""
        contents = hash(tuple(original.frames))
        texts = [self._texts.get((socket, contents)) for socket in sockets]
        return any(text is not None and text.has_copy_of(original) for text in texts)


def _key(hop: Hop) -> tuple[str, int]:
    """The publisher and the hash of the octets."""
    return hop.src, hash(tuple(hop.frames))
