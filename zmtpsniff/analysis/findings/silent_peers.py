"""Peers of a ROUTER that fall silent while others do not: worker-silent, worker-closed, heartbeat-lost.

Theory
------

A ROUTER and its DEALERs may send one-way messages both ways: work and results, with heartbeats between them. No message
is the reply to another one. Then silence alone proves nothing. A worker without work says nothing, and so does a client
that has no question. Two things tell more.

Work piles up. A worker that said something after every few messages to it, and then says nothing while twice as many
come as ever before, has stopped, if others of the same ROUTER go on to take messages and to speak. A subscriber, and a
member of a chat, gets more than it says: who got a quarter more than it said before is no worker.

Heartbeats stop. A peer that spoke by itself, more often than it was spoken to, at a steady pace, and then says nothing
for five times the longest pause, has stopped, if all the others of the same ROUTER keep that pace to the end. Progress
of a job has a pace, too, and its last message is the result: so the last message must be as long as those before.

A peer that closes may have been told to. If it spoke at such a pace until then, and its last message is as long as
those before, so that it is no farewell, it may as well have been killed: that is a note.

Missing octets may be what a peer said.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from dissectors.events import Connection
from zmtpsniff.analysis.findings.finding import Claim, Occurrences
from zmtpsniff.analysis.findings.rhythms import Rhythm
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about

_TURNS = 10  # so often a peer spoke between two messages to it
_BEATS = 10  # so often it spoke by itself, and at a steady pace
_LONGER = 5  # so many times as long as ever before
_PILE = 2  # likewise, messages
_GAP = 3  # likewise, times between two messages of one that has work
_SHARE = 4  # a fourth of its pauses are as long as a timer
_SPEAKERS = 2  # that keep the pace
_ALIKE = 2  # paces differ by less
_GOES_ON_NS = 1_000_000_000


class RhythmicPeer(NamedTuple):
    """A peer of a ROUTER or a PUSH, by its rhythm until its connection was over, or as far as the capture goes."""

    address: str
    socket: str  # whose peer it is: the ROUTER or the PUSH
    given: Rhythm  # of that socket
    spoken: Rhythm  # of the peer
    flow: int
    packet: int  # the last one of the connection
    start_ns: int
    until_ns: int
    is_open: bool
    closed: bool  # by the peer
    is_blind: bool

    @property
    def talks(self) -> bool:
        """Whether it says about as much as it gets: it is no subscriber, and no member of a chat."""
        return self.given.said - self.given.run <= self.spoken.said + self.spoken.said // 4 + 1

    @property
    def is_steady(self) -> bool:
        """Whether it spoke by itself, at a steady pace."""
        said = self.spoken
        is_paced = said.long_gaps >= _BEATS and _SHARE * said.long_gaps >= said.said
        return is_paced and said.said - self.given.said + self.given.run >= _BEATS

    @property
    def habit(self) -> str:
        """How it spoke until it fell silent, in words."""
        said = self.spoken
        return f"it had spoken by itself {said.said:,} times, every {about(said.longest_gap_ns)} at the latest"

    @property
    def ends_as_before(self) -> bool:
        """Whether its last message is as long as those before: it is no result, and no farewell."""
        return self.spoken.least <= self.spoken.size <= self.spoken.most

    def is_piled_up(self) -> bool:
        """Whether more messages to it wait than ever before, though it had always spoken in between."""
        given = self.given
        return given.turns >= _TURNS and given.run > _PILE * given.longest_run and self.talks

    def goes_on(self, since_ns: int, until_ns: int) -> bool:
        """Whether it gets messages, and speaks, in the second half of a time."""
        middle_ns = (since_ns + until_ns) // 2
        return min(self.given.last_ns, self.spoken.last_ns) >= middle_ns and self.talks and not self.is_piled_up()

    def keeps_pace(self, pause_ns: int) -> bool:
        """Whether it spoke to its end at a steady pace, at which another one paused for ``pause_ns`` at most."""
        longest_ns = self.spoken.longest_gap_ns
        is_alike = longest_ns <= _ALIKE * pause_ns and self.until_ns - self.spoken.last_ns <= _ALIKE * longest_ns
        return self.is_steady and is_alike

    def is_silent(self, timeout_ns: int) -> bool:
        """Whether it spoke at a steady pace, and then no more."""
        silent_ns = self.until_ns - self.spoken.last_ns
        return self.is_steady and silent_ns >= max(timeout_ns, _LONGER * self.spoken.longest_gap_ns)


def peer_of(
    event: Connection, rhythms: Sequence[Rhythm], asker: str, until_ns: int, packet: int, is_blind: bool
) -> RhythmicPeer | None:
    """The peer of a bound ROUTER at the other end of a connection; None if these are other sockets."""
    peer, router = event.client, event.server
    if router.socket_type != "ROUTER" or peer.socket_type != "DEALER" or not rhythms:
        return None
    spoken, given = rhythms[asker == peer.address], rhythms[asker == router.address]
    return RhythmicPeer(
        peer.address,
        router.address,
        given,
        spoken,
        event.flow,
        packet,
        event.start_ns,
        until_ns,
        not event.is_closed,
        event.closed_by == "client",
        is_blind,
    )


def silent_peers(peers: Sequence[RhythmicPeer], timeout_ns: int, kind: Literal["ROUTER", "PUSH"]) -> Iterator[Claim]:
    """The claims about those peers of one socket, of that ``kind``, that fell silent."""
    for one in peers:
        if one.is_blind:
            continue
        others = [other for other in peers if other is not one and other.until_ns > one.given.since_ns]
        if one.is_piled_up():
            yield from _with_work(one, others, timeout_ns, kind)
        elif kind == "PUSH":
            continue  # its workers send nothing but results
        elif one.is_open:
            yield from _without_beats(one, others, timeout_ns)
        elif one.closed:
            yield from _without_farewell(one, others)


def _with_work(one: RhythmicPeer, others: Iterable[RhythmicPeer], timeout_ns: int, kind: str) -> Iterator[Claim]:
    given, spoken = one.given, one.spoken
    waited_ns, silent_ns = one.until_ns - given.since_ns, one.until_ns - spoken.last_ns
    least_ns = timeout_ns if one.is_open else _GOES_ON_NS
    is_long = waited_ns >= max(least_ns, _LONGER * given.longest_wait_ns) and silent_ns >= _GAP * spoken.longest_gap_ns
    going_on = [other for other in others if other.goes_on(given.since_ns, one.until_ns)]
    mute = [other for other in others if other.is_piled_up()]
    if not is_long or len(going_on) <= len(mute):
        return
    if one.closed and max(other.until_ns for other in going_on) - one.until_ns < _GOES_ON_NS:
        return
    count = plural(given.run, "message")
    seen = Occurrences()
    seen.add(given.since_ns, one.packet, one.flow, given.run)
    known = (
        f"before, it spoke {spoken.said:,} times, after {plural(given.longest_run, 'message')} at the latest; "
        f"{plural(len(going_on), 'other')} of the same {kind} still {'does' if len(going_on) == 1 else 'do'}"
    )
    words = f"says nothing any more: {count} went to it in {about(waited_ns)}, while others go on"
    if one.closed:
        words = f"closed its connection with {count} in hand, after it had said nothing for {about(waited_ns)}"
    code = "worker-closed" if one.closed else "worker-silent"
    yield _claim(code, one, f"the worker {one.address} of {one.socket} {words}", known, seen)


def _without_beats(one: RhythmicPeer, others: Sequence[RhythmicPeer], timeout_ns: int) -> Iterator[Claim]:
    spoken = one.spoken
    silent_ns = one.until_ns - spoken.last_ns
    if not (one.is_silent(timeout_ns) and one.ends_as_before):
        return
    now = [other for other in others if other.until_ns > one.until_ns - silent_ns // 2]
    paced = [other for other in now if other.keeps_pace(spoken.longest_gap_ns) and other.start_ns < spoken.last_ns]
    mute = sum(other.is_open and other.is_silent(timeout_ns) for other in now)
    if len(paced) < max(_SPEAKERS, mute + 2) or len(paced) + mute < len(now):
        return
    yield _claim(
        "heartbeat-lost",
        one,
        f"the DEALER {one.address} says nothing to {one.socket} any more, for {about(silent_ns)}, while "
        f"{plural(len(paced), 'other')} of the same ROUTER do",
        f"{one.habit}, and so do the others",
        Occurrences.of([(spoken.last_ns, one.packet, one.flow)]),
    )


def _without_farewell(one: RhythmicPeer, others: Sequence[RhythmicPeer]) -> Iterator[Claim]:
    spoken = one.spoken
    is_in_time = one.until_ns - spoken.last_ns <= _ALIKE * spoken.longest_gap_ns
    if not (is_in_time and one.is_steady and one.ends_as_before):
        return
    later_ns = one.until_ns + _GOES_ON_NS
    paced = [other for other in others if other.until_ns >= later_ns and other.keeps_pace(spoken.longest_gap_ns)]
    gone = sum(not other.is_open and other.until_ns < later_ns for other in others)
    if len(paced) < max(_SPEAKERS, 2 * gone + 1):
        return
    claim = _claim(
        "worker-closed",
        one,
        f"the DEALER {one.address} closed its connection to {one.socket}, while {plural(len(paced), 'other')} of the "
        "same ROUTER go on",
        f"{one.habit}, and its last message is like those before: it may have been killed, or told to stop",
        Occurrences.of([(one.until_ns, one.packet, one.flow)]),
    )
    yield claim._replace(severity="note", certainty="possible")


def _claim(code: str, one: RhythmicPeer, summary: str, known: str, seen: Occurrences) -> Claim:
    ends = [one.address, one.socket]
    return Claim(code, summary, known, seen, ends, certainty="likely", subject=one.address)
