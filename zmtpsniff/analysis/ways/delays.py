"""How long each place had the message of a way, and what it did meanwhile.

Theory
------

From the moment a message arrives at a program until the program passes it on, or answers it, three things can happen.
The program works on it (*inside*). It works on others, which came before (*queue*): a program that has one thread sends
the others first, so the last message of another way that it sent shows until when. Or the peer to which the message
goes is *away*: the socket has no connection yet, or the peer closed it with the message in hand. Until the program
answers in its place, it waits for that peer.

If the capture point is not on the program's host, the time also has the way of the packets to that host and back
(*network*). The handshake of the connection shows how long that takes. If the network loses a message behind the
capture point, the program gets it when TCP sends it again: until then the time is the network's, too.
"""

from collections.abc import Iterator

import msgspec

from zmtpsniff.analysis.ways.hops import Hop, OpenWay
from zmtpsniff.analysis.ways.way_records import Slowest, What

_WHATS: tuple[What, ...] = ("inside", "queue", "network")


class Passage(msgspec.Struct, gc=False):
    """The time from a message that a program took to the one that it sent then, in four parts."""

    taken: Hop
    passed: Hop
    queue_ns: int  # the program worked on others
    inside_ns: int  # the program worked on this one
    away_ns: int  # the next peer was not there
    network_ns: int  # packets were on their way
    resent_ns: int = 0  # the part of network_ns until TCP sent the message again
    dropped: Hop | None = (
        None  # a worker closed its connection with this in hand, and the program answered in its place
    )

    @property
    def at(self) -> str:
        """The address of the socket that took the message."""
        return self.taken.dst


def passages(way: OpenWay) -> Iterator[Passage]:
    """The passages of a way, in the order of its legs. Publications about a request have none."""
    for hop in way.hops:
        if hop.before is not None and not hop.is_side_publication:
            yield _passage(hop.before, hop)


def _passage(before: Hop, hop: Hop) -> Passage:
    """The passage between a message and the next one of its way.

    The parts are taken off in this order, each from the time that is left: network, away, queue; the rest is inside.
    """
    taken_ns = before.time_ns
    left_ns = hop.time_ns - taken_ns
    if left_ns <= 0:
        return Passage(before, hop, 0, 0, 0, 0)
    network_ns = resent_ns = away_ns = queue_ns = 0
    stream = before.stream
    if stream.round_trip_ns or stream.resent:
        resent_ns = _resent_ns(before, hop.time_ns)
        network_ns = min(stream.round_trip_ns + resent_ns, left_ns)
        left_ns -= network_ns
    dropped = _dropped(before, hop) if hop.flow == before.flow else None
    if dropped is not None:
        away_ns, left_ns = left_ns, 0
    elif hop.stream.connected_ns > taken_ns:
        away_ns = min(max(hop.stream.connected_ns - taken_ns - network_ns, 0), left_ns)
        left_ns -= away_ns
    if hop.busy_until_ns > taken_ns:
        queue_ns = hop.busy_until_ns - taken_ns - network_ns - away_ns
        queue_ns = 0 if queue_ns < 0 else left_ns if queue_ns > left_ns else queue_ns
        left_ns -= queue_ns
    return Passage(before, hop, queue_ns, left_ns, away_ns, network_ns, resent_ns, dropped)


def _dropped(taken: Hop, answer: Hop) -> Hop | None:
    """The message that a program had passed on to a peer that closed its connection without a reply; else None."""
    for one in taken.way.hops:
        if one.before is taken and one is not answer and one.is_dropped(answer.time_ns):
            return one
    return None


def _resent_ns(taken: Hop, until_ns: int) -> int:
    """How long after a message TCP sent that again, or octets in front; 0 if it did not."""
    taken_ns = taken.time_ns
    for offset, time_ns in reversed(taken.stream.resent):
        if time_ns <= taken_ns:
            break
        if offset <= taken.offset and time_ns <= until_ns:
            return time_ns - taken_ns
    return 0


def slowest(way: OpenWay, until_ns: int) -> Slowest | None:
    """The place that had the message of a way for longest, until then; None if the way has one leg.

    Where a message was passed on several times, the last time counts: the place still had it in hand until then.
    """
    last: dict[Hop, Hop] = {}  # by message: the last one that came of it
    for hop in way.hops:
        if hop.before is not None and hop.time_ns <= until_ns and not hop.is_side_publication:
            last[hop.before] = hop
    if not last:
        return None
    spent: dict[str, int] = {}  # by address
    for before, hop in last.items():
        length_ns = hop.time_ns - before.time_ns
        at = before.dst
        spent[at] = spent.get(at, 0) + (length_ns if length_ns > 0 else 0)
    at = max(spent, key=spent.__getitem__)
    its_passages = [_passage(before, hop) for before, hop in last.items() if before.dst == at]
    parts = [
        sum([one.inside_ns for one in its_passages]),
        sum([one.queue_ns + one.away_ns for one in its_passages]),
        sum([one.network_ns for one in its_passages]),
    ]
    return Slowest(at, spent[at], _WHATS[parts.index(max(parts))])
