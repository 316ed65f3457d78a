"""Joins the legs of a message over brokers, by the routing ids in its envelope (28/REQREP).

Theory
------

A ROUTER puts the routing id of the sender in front of each message that it takes. The broker sends the result on
through another socket, perhaps with more frames in front (a load balancer names the worker, Majordomo has a header).
So the next leg of a request ends with the frames of the leg before, and has the routing id in front of these. On the
way back the ROUTER takes the id off: the next leg of a reply is the end of the leg before, behind the id of the
connection that it goes to. A message may also name its receiver in its first frame: then a broker with ROUTERs on both
sides puts the id of the sender in the place of that name.

The wire does not say which connection has which id, unless the peer chose it (the property Identity). Two rules find
it out: a connection has one id as long as it lasts, and no other connection to the same ROUTER has that id. A client
that asks again on a new connection has a new id; what came over the old one keeps the old id.

So an id goes through these states:

- *possible*: several connections may have it, since each sent a message that fits. Each further message with the id
  leaves only those connections that fit it, too. Legs with the id wait; each begins a way of its own meanwhile.
- *known*: one connection alone fits, or its peer announced the id. It stays known. Now the legs that waited find their
  places: ``settled()`` gives them, and the way that each began becomes a piece of another one.
- *past*: the connection is over. A broker may still hold messages that came over it.

A program that begins anew may give the same ids again, while the capture does not show yet that the connections from
before are over: a RST waits for octets that it may have overtaken. So once a ROUTER refuses a connection, each id there
is possible for other connections, too; the known ones keep it.

A join is certain if the id is known, and if no other message fits as well (``Hop.is_ambiguous``). Where a reply fits
one connection only, by several ids, its leg does not wait: it takes the most likely place, and that is ambiguous.

Invariant: no two connections that last have one id at a ROUTER; what a capture lacks may break that, so an id that
``learn()`` gets again replaces the one before.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from dissectors.address import has_bound_port, host_of
from dissectors.events import Octets
from zmtpsniff.analysis.dossier import is_own_id
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop, Stream

_ALIKE = 1024  # held messages with the same last frame
_LOOKED_THROUGH = 16  # if so many have the same last frame, a table finds the equal ones
_DROPPED_NS = 1_000_000_000  # a broker that has not passed a message on for so long has dropped it
_WAITING = 1024  # legs that wait for their id to be known
_PAST = 4096  # ids that are remembered of connections that are over
_POSSIBLE = 65_536  # ids that several connections may have
EARLY_NS = 10_000_000
"""Packets overtake others by less than that, in a network card with several queues."""


class Join(msgspec.Struct, gc=False):
    """A message that another one passes on, or may pass on, and how that is known."""

    before: Hop
    routing_id: Octets
    is_back: bool  # a reply on its way back, whose id the ROUTER takes off
    flow: int  # the connection with the id: the request came on it, or the reply goes on it
    is_whole: bool  # all frames behind the id are the same, so it is more likely than a join that is not
    is_known: bool  # it is known that the connection has the id


class _WaitingLeg(NamedTuple):
    """A leg whose id several connections may have, with the joins of which one is right."""

    hop: Hop
    routing_id: Octets
    options: list[Join]


class _FrameIndex(dict[tuple[str, int], list[Hop]]):
    """Messages that end with one frame: by the host that took them and the hash of all frames, the oldest first."""

    def __init__(self, hops: Iterable[Hop]) -> None:
        """Start with some messages."""
        super().__init__()
        self._several: set[tuple[str, int]] = set()  # the keys of those that several sockets sent
        for hop in hops:
            self.add(hop)

    def add(self, hop: Hop) -> None:
        """A host has taken a message."""
        key = hop.stream.dst_host, hash(tuple(hop.frames))
        equal = self.get(key)
        if equal is None:
            self[key] = [hop]
            return
        if equal[-1].src != hop.src:
            self._several.add(key)
        equal.append(hop)

    def remove(self, hop: Hop, host: str) -> None:
        """The host holds a message no longer."""
        key = host, hash(tuple(hop.frames))
        equal = self[key]
        if len(equal) == 1:
            del self[key]
            self._several.discard(key)
        else:
            equal.remove(hop)

    def at(self, host: str, hop: Hop) -> Sequence[Hop]:
        """Those of a host that are the same, but for equal hashes; none if one socket sent them, and this one, too.

        A publisher on the loopback interface sends many copies of the same: nobody passes these on.
        """
        key = host, hash(tuple(hop.frames))
        equal = self.get(key, [])
        return () if equal and equal[0].src == hop.src and key not in self._several else equal


class HeldMessages(dict[int, list[Hop]]):
    """Messages that hosts have taken and may pass on: by the hash of their last frame, the oldest first.

    If many end with the same frame, those of them that are the same as a whole are found without a look at each.
    """

    def __init__(self) -> None:
        """Start without any."""
        super().__init__()
        self._mixed: set[int] = set()  # hashes of last frames that came on several connections
        self._equal: dict[int, _FrameIndex] = {}  # by the hashes of last frames that many messages have, or had

    def add(self, hop: Hop) -> None:
        """A host has taken a message, and holds it from now on."""
        key = hop.held_as = hash(hop.frames[-1])
        hops = self.get(key)
        if hops is None:
            self[key] = [hop]
            return
        if hops[-1].flow != hop.flow:
            self._mixed.add(key)
        hops.append(hop)
        if key in self._equal:
            self._equal[key].add(hop)
        elif len(hops) > _LOOKED_THROUGH:
            self._equal[key] = _FrameIndex(hops)
        if len(hops) > _ALIKE:
            self.remove(hops[0])

    def equal_at(self, host: str, hop: Hop) -> list[Hop]:
        """The messages with the same octets that a host took on other connections, and may pass on; oldest first.

        They may lack those that the sender of this one sent itself.
        """
        frames = list(hop.frames)
        key = hash(frames[-1])
        if self.is_of_one(frames[-1], hop.flow):
            return []
        hops: Sequence[Hop] = self.get(key, ())
        if key in self._equal:
            hops = self._equal[key].at(host, hop)
        return [
            one for one in hops if one.flow != hop.flow and one.stream.dst_host == host and list(one.frames) == frames
        ]

    def move_stream(self, stream: Stream, before: str) -> None:
        """Live: the messages of a stream were taken by a host that is known better now than as ``before``."""
        for equal in self._equal.values():
            for hop in [hop for (host, _), hops in equal.items() if host == before for hop in hops]:
                if hop.stream is stream:
                    equal.remove(hop, before)
                    equal.add(hop)

    def is_of_one(self, last: Octets, flow: int) -> bool:
        """Whether all held messages with this last frame came on connection ``flow``."""
        key = hash(last)
        hops = self.get(key)
        return hops is not None and hops[0].flow == flow and key not in self._mixed

    def on_other_connections(self, last: Octets, flow: int) -> Iterator[Hop]:
        """The held messages with this last frame that came on other connections than ``flow``.

        Where one sender says the same all the time, the answer is empty at once: none of its messages is looked at.
        """
        key = hash(last)
        hops = self.get(key)
        if not hops or self.is_of_one(last, flow):
            return iter(())
        return (hop for hop in hops if hop.flow != flow)

    def latest(self, last: Octets, flow: int) -> list[Hop]:
        """The latest messages with this last frame that came on other connections, the newest first; not too many."""
        newest = islice(reversed(self.get(hash(last), ())), _LOOKED_THROUGH)
        return [hop for hop in newest if hop.flow != flow]

    def pass_on(self, before: Hop, hop: Hop) -> None:
        """The host has passed a message on as ``hop``, with the same last frame: the next host holds it."""
        key = before.held_as
        if key is not None and len(self[key]) == 1:
            self[key][0], hop.held_as, before.held_as = hop, key, None
            self._equal.pop(key, None)
        else:
            self.remove(before)
            self.add(hop)

    def remove(self, hop: Hop) -> None:
        """The host holds a message no longer: it is passed on, or answered, or its way is over."""
        key, hop.held_as = hop.held_as, None
        if key is None:
            return
        hops = self[key]
        if len(hops) == 1:
            del self[key]
            self._mixed.discard(key)
            self._equal.pop(key, None)
            return
        hops.remove(hop)
        if key in self._equal:
            self._equal[key].remove(hop, hop.stream.dst_host)


class RoutingIds(dict[tuple[int, str], Octets]):
    """The routing ids that are known, by connection and the address of the ROUTER.

    A connection between two ROUTERs has an id at each of them.
    """

    def __init__(self) -> None:
        """Start without any."""
        super().__init__()
        self._flows: dict[str, dict[Octets, int]] = {}  # the reverse: connections by ROUTER, and by id
        self._routers: dict[int, list[str]] = {}  # by connection: the ROUTERs at which its id is known
        self._past: Ledger[tuple[int, str], Octets] = Ledger(limit=_PAST)  # those of connections that are over
        self._missed: set[int] = set()  # connections of which the capture lacks what the peers announced
        # By the host of the ROUTER and the id: the connections that may have it.
        self._possible: Ledger[tuple[str, Octets], set[int]] = Ledger(limit=_POSSIBLE)

    def learn(self, flow: int, router: str, routing_id: Octets) -> None:
        """A connection has this id at the ROUTER with this address."""
        if (flow, router) not in self:
            self._routers.setdefault(flow, []).append(router)
        self[flow, router] = routing_id
        self._flows.setdefault(router, {})[routing_id] = flow

    def miss(self, flow: int) -> None:
        """The capture lacks the beginning of a connection, so its peer may have chosen an id."""
        self._missed.add(flow)

    def forget(self, flow: int) -> None:
        """A connection is over: its ids are past."""
        self._missed.discard(flow)
        for router in self._routers.pop(flow, ()):
            routing_id = self._past[flow, router] = self.pop((flow, router))
            flows = self._flows.get(router, {})
            if flows.get(routing_id) == flow:
                del flows[routing_id]
                if not flows:
                    del self._flows[router]

    def begin_anew(self, router: str) -> None:
        """A ROUTER refuses connections: if its program begins anew, it gives the same ids to other connections.

        The connections that have them may be over, though the capture does not show it yet.
        """
        for routing_id in self._flows.pop(router, ()):
            self._possible.pop((host_of(router), routing_id), None)

    def of(self, flow: int, router: str) -> Octets | None:
        """The id of a connection at a ROUTER, also if the connection is over; None if it is not known."""
        key = (flow, router)
        routing_id = self.get(key)
        return self._past.get(key) if routing_id is None and self._past else routing_id

    def narrow(self, host: str, routing_id: Octets, flows: set[int]) -> set[int]:
        """Of the connections ``flows``, one has this id at the host: return those of them that still may."""
        place = (host, routing_id)
        left = flows & (self._possible.pop(place, flows) or flows)
        self._possible[place] = left
        return left

    def first_possible(self, ids: Sequence[Octets], flow: int, router: str) -> Octets | None:
        """The first of these ids that a connection can have at a ROUTER; None if it can have none of them.

        It can have an id that a ROUTER makes up, unless another connection has it. If the capture lacks what the peer
        announced, it can have a single one of any form.
        """
        flows = self._flows.get(router, {})
        for routing_id in ids:
            if (is_own_id(routing_id) or (flow in self._missed and len(ids) == 1)) and flows.get(
                routing_id, flow
            ) == flow:
                return routing_id
        return None


class Envelopes:
    """Finds the held message that a request or a reply passes on."""

    def __init__(self, held: HeldMessages) -> None:
        """``held`` has the messages that may be passed on."""
        self.ids = RoutingIds()
        self._held = held
        self._waiting: deque[_WaitingLeg] = deque(maxlen=_WAITING)
        self._guessed: list[tuple[Hop, Join]] = []  # legs that waited, and got their most likely places
        self.has_learnt = False  # settled() may find something

    def find(self, hop: Hop, paired: Hop | None) -> Join | None:
        """The message that ``hop`` passes on. None if there is none, or if several connections may have its id.

        ``paired`` is the request that it answers by the patterns, if there is one. A REP only answers: it passes
        nothing on, even if its reply looks like a request that it took.
        """
        if hop.stream.src_kind == "REP":
            return None
        alike = self._held.get(hash(hop.frames[-1]))
        if alike is None:
            return None
        if len(alike) == 1:  # as nearly always
            only = self._option(hop, alike[0])
            if only is None:
                return None
            if only.is_known:
                return only
            options = [only]
        elif self._held.is_of_one(hop.frames[-1], hop.flow):
            return None  # nobody passes a message on over the connection on which it came
        else:
            options = self._options(hop, alike)
            options = [one for one in options if one.is_whole] or options
        if not options:
            return None
        if paired is not None and len(options) > 1:
            options = [one for one in options if not one.is_back or self._may_answer(one.before, paired)] or options
        known = [one for one in options if one.is_known]
        if known:
            return self._choose(hop, known)
        flows = {one.flow for one in options}
        ids = {one.routing_id for one in options}
        if len(ids) == 1:
            routing_id = next(iter(ids))
            flows = self.ids.narrow(hop.stream.src_host, routing_id, flows)
            if len(flows) == 1:
                options = [one for one in options if one.flow in flows]
                left = [one for one in options if not self._is_claimed(one)]
                if left:
                    return self._choose(hop, left)
                self._learn(hop, options[0])
                return None
            self._waiting.append(_WaitingLeg(hop, routing_id, options))
            return None
        return self._guess(hop, options) if len(flows) == 1 else None

    def is_passed_on(self, hop: Hop) -> bool:
        """Whether the message that find() took last passes a request on, and waits to learn which one."""
        if not self._waiting or self._waiting[-1].hop is not hop:
            return False
        return not any(one.is_back for one in self._waiting[-1].options)

    def early_leg(self, hop: Hop) -> tuple[Hop, Join] | None:
        """The leg in which a broker seems to have passed a message on before it took that; None if there is none.

        Packets that overtake others make it look so. That leg begins a way, or is joined to one leg too early.
        """
        alike = self._held[hop.held_as] if hop.held_as is not None else ()
        if len(alike) == 1:
            return None  # the message itself, as nearly always
        for held in islice(reversed(alike), _LOOKED_THROUGH):
            one = held
            if not _sender_took(hop, held) and held.way is not hop.way and hop.tokens:  # else others may be like it
                one = held.way.first  # the next hosts have passed it on meanwhile, so that it is not held any more
            if _sender_took(hop, one) and abs(hop.time_ns - one.time_ns) <= EARLY_NS and self._has_no_place(one, hop):
                join = self._option(one, hop, EARLY_NS)
                if join is None:
                    continue
                is_only = all(other is hop or not _sender_took(other, one) for other in alike)
                if join.is_known or (is_only and self._may_learn(one, join)):
                    return one, join
        return None

    def _may_learn(self, hop: Hop, join: Join) -> bool:
        """Whether a leg shows the id of a connection, since no other one may have it. Then it is known from now on."""
        flows = {join.flow}
        shows = join.is_whole and self.ids.narrow(hop.stream.src_host, join.routing_id, flows) == flows
        if shows:
            self._learn(hop, join)
        return shows

    def _has_no_place(self, early: Hop, hop: Hop) -> bool:
        """Whether a leg begins a way, or seems to come of a message from which this one, its original, comes."""
        before = early.before
        if before is None:
            return early is early.way.first
        return (
            hop is hop.way.last and hop.before is None and _sender_took(before, hop) and self.can_pass_on(hop, before)
        )

    def can_pass_on(self, hop: Hop, before: Hop) -> bool:
        """Whether a message may be the earlier one, passed on: with the id of its connection in front, or without."""
        return self._option(hop, before) is not None

    def _option(self, hop: Hop, before: Hop, early_ns: int = 0) -> Join | None:
        """The join of a message to an earlier one, with the id that the connection would have; None if it is none.

        The earlier one may stand up to ``early_ns`` behind it.

        A request has more frames than the one before, with the id in front. A reply has fewer, without it. As many
        frames have the two if a name of the receiver stood where the id of the sender stands.
        """
        extra = len(hop.frames) - len(before.frames)
        if before.flow == hop.flow or before.time_ns > hop.time_ns + early_ns or before.stream.sends != "request":
            return None
        join = self._lengthened(hop, before, extra) if extra else self._readdressed(hop, before)
        is_routed = hop.stream.src_kind == before.stream.dst_kind == "ROUTER"
        if join is None and is_routed and _sender_took(before, hop):
            return self._rewritten(hop, before, extra)
        return join

    def _lengthened(self, hop: Hop, before: Hop, extra: int) -> Join | None:
        """The join of a message that has the id in front of the frames of the one before, or no longer."""
        frames = hop.frames
        is_back = extra < 0
        if is_back:
            stream, kind, flow, router = hop.stream, hop.stream.src_kind, hop.flow, hop.src
            extra, longer, shorter = -extra, before.frames, frames
        else:
            stream, kind, flow, router = before.stream, before.stream.dst_kind, before.flow, before.dst
            longer, shorter = frames, before.frames
        if kind != "ROUTER" and not (stream.is_late and _may_be_router(kind, hop, before)):
            return None
        is_whole = longer[extra:] == shorter
        if is_whole:
            ids = longer[extra - 1 : extra]
        elif all(frame in longer for frame in _envelope(shorter)):
            ids = longer[:-1]  # a protocol of brokers, such as Majordomo, changes the frames in between
        else:
            return None  # it is another message with the same body
        known = self.ids.of(flow, router)
        routing_id = self.ids.first_possible(ids, flow, router) if known is None else known if known in ids else None
        if routing_id is None or not (kind == "ROUTER" or has_bound_port(router) or is_own_id(routing_id)):
            return None  # a ROUTER that connects, as those of some brokers do, shows by the ids that it makes up
        if not (is_back or _sender_took(before, hop)):
            in_front = frames[: extra - 1 if is_whole else list(frames).index(routing_id)]
            if any(map(is_own_id, in_front)):
                return None  # another ROUTER put an id in front: the leg to that one is missing, or has been overtaken
        return Join(before, routing_id, is_back, flow, is_whole, known is not None)

    def _rewritten(self, hop: Hop, before: Hop, extra: int) -> Join | None:
        """The join of a message whose broker put the id of the sender among frames of its own; None if it is none.

        For the id it took as many frames away, or more: a command, or the name of the service. On the way back it is
        the other way round.
        """
        forth = hop, before, False, before.flow, before.dst
        back = before, hop, True, hop.flow, hop.src
        either = (back, forth) if before.reply else (forth, back)  # the names of both change places, perhaps
        for longer, shorter, is_back, flow, router in either if not extra else [forth] if extra < 0 else [back]:
            new = [frame for frame in longer.frames[:-1] if frame not in shorter.frames]
            known = self.ids.of(flow, router)
            if known is None:
                routing_id = self.ids.first_possible([*filter(is_own_id, new)], flow, router)
            else:
                routing_id = known if known in new else None
            if routing_id is not None:
                return Join(before, routing_id, is_back, flow, False, known is not None)
        return None

    def _readdressed(self, hop: Hop, before: Hop) -> Join | None:
        """The join of a message that a broker with ROUTERs on both sides sends on, with another first frame.

        The sender put the id of the receiver there, and the broker the id of the sender in its place.
        """
        frames, sent = hop.frames, before.frames
        is_routed = hop.stream.src_kind == before.stream.dst_kind == "ROUTER"
        if not is_routed or len(frames) < 2 or frames[1:] != sent[1:]:
            return None
        sender = self.ids.of(before.flow, before.dst) or self.ids.first_possible(frames[:1], before.flow, before.dst)
        receiver = self.ids.of(hop.flow, hop.src) or self.ids.first_possible(sent[:1], hop.flow, hop.src)
        if sender != frames[0] or receiver != sent[0]:
            return None
        if before.reply:
            return Join(before, receiver, True, hop.flow, True, (hop.flow, hop.src) in self.ids)
        return Join(before, sender, False, before.flow, True, (before.flow, before.dst) in self.ids)

    def _options(self, hop: Hop, alike: Sequence[Hop]) -> list[Join]:
        """The possible joins of a message to those ``alike``, which have the same last frame.

        Those that its host took come first. A broker with several addresses takes messages at one and sends them from
        another: so if its host took none, others count, and of these the ones with the fewest frames more or less.
        """
        here = [one for before in alike if _sender_took(before, hop) and (one := self._option(hop, before)) is not None]
        if here:
            return here
        on_other_connections: list[Join] = []
        least = 0
        for before in alike:
            one = None if _sender_took(before, hop) else self._option(hop, before)
            if one is None:
                continue
            extra = abs(len(hop.frames) - len(before.frames))
            if not on_other_connections or extra <= least:
                if extra < least:
                    on_other_connections.clear()
                least = extra
                on_other_connections.append(one)
        return on_other_connections

    def _choose(self, hop: Hop, options: list[Join]) -> Join:
        """Choose one of several joins: that to the oldest message, or to the newest if the others seem dropped.

        A choice makes all of these messages ambiguous. It still proves the id if all of them have the same.
        """
        join = options[0]
        if hop.time_ns - join.before.time_ns > _DROPPED_NS:
            join = options[-1]
        proves_id = not join.before.is_ambiguous and all(one.routing_id == join.routing_id for one in options)
        if len(options) > 1:
            for one in options:
                one.before.is_ambiguous = True
        if proves_id and self.ids.get((join.flow, _router(hop, join))) != join.routing_id:
            self._learn(hop, join)
        return join

    def _learn(self, hop: Hop, join: Join) -> None:
        """The id of a connection is known now: legs that wait may have their places."""
        self.ids.learn(join.flow, _router(hop, join), join.routing_id)
        self.has_learnt = True

    def _is_claimed(self, join: Join) -> bool:
        """Whether an earlier leg that waits passes the same message on, as it turns out now that the id is known."""
        return any(
            leg.routing_id == join.routing_id and any(one.before is join.before for one in leg.options)
            for leg in self._waiting
            if leg.hop is leg.hop.way.first
        )

    def _guess(self, hop: Hop, options: list[Join]) -> Join:
        """Choose one of several replies with different ids: any of these may be the id of the connection of ``hop``.

        The request of that reply may be a leg that waits. It gets its place from that, which is as ambiguous, and so
        are the places of other legs that may have had it.
        """
        join = self._choose(hop, options)
        first = join.before.way.first
        for leg in self._waiting:
            same_flow = [one for one in leg.options if one.flow == join.flow]
            for one in leg.options if same_flow else ():
                one.before.is_ambiguous = True
            if same_flow and leg.hop is first:
                self._guessed.append((leg.hop, same_flow[0]))
                self.has_learnt = True
        return join

    def _may_answer(self, reply: Hop, request: Hop) -> bool:
        """Whether a reply that a broker took can be the one to this request."""
        first = reply.way.first
        return reply.way is request.way or any(
            leg.hop is first and any(one.before is request for one in leg.options) for leg in self._waiting
        )

    def settled(self) -> Iterator[tuple[Hop, Join]]:
        """The legs that waited and have their places now. They wait no longer."""
        self.has_learnt = False
        guessed, self._guessed = self._guessed, []
        yield from guessed
        rest: list[_WaitingLeg] = []
        for leg in self._waiting:
            if leg.hop.way is None:
                rest.append(leg)  # find() has only just taken it, and no way has it yet
                continue
            if leg.hop is not leg.hop.way.first:
                continue  # it has a place already, by a guess
            left = [one for one in leg.options if not one.before.is_passed_on]
            known = [one for one in left if self.ids.get((one.flow, _router(leg.hop, one))) == leg.routing_id]
            if not known and len({one.flow for one in left}) == 1:
                known = left
            if known:
                known[0].before.is_passed_on = True
                yield leg.hop, self._choose(leg.hop, known)
            elif left:
                rest.append(leg)
        self._waiting = deque(rest, maxlen=_WAITING)


def _router(hop: Hop, join: Join) -> str:
    """The ROUTER at which the connection of a join has its id."""
    return hop.src if join.is_back else join.before.dst


def _may_be_router(kind: str, hop: Hop, before: Hop) -> bool:
    """Whether a socket whose type the capture lacks may be the ROUTER that took a message, or that sends it back.

    The host that took the message must be the one that sends it on: else a request may look like another one on its way
    back.
    """
    return not kind and before.stream.dst_host == hop.stream.src_host


def _envelope(frames: Sequence[Octets]) -> Sequence[Octets]:
    """The frames in front of the delimiter, which brokers keep; none if there is no delimiter."""
    return frames[: frames.index(b"")] if b"" in frames else ()


def is_early_reply(early: Hop, hop: Hop) -> bool:
    """Whether a broker passed a reply back as ``early``, whose packet came here shortly before that of the reply."""
    is_other = early.reply and early is not hop and early is not hop.before and early.flow != hop.flow
    if not is_other or abs(hop.time_ns - early.time_ns) > EARLY_NS:
        return False
    return _sender_took(hop, early) and early.frames[-1:] == hop.frames[-1:]


def _sender_took(before: Hop, hop: Hop) -> bool:
    """Whether the host that sends ``hop`` took the message before.

    Live, where the process is known of one of the two only, their addresses count.
    """
    taker, sender = before.stream, hop.stream
    if taker.dst_host == sender.src_host:
        return True
    return taker.knows_receiver is not sender.knows_sender and host_of(before.dst) == host_of(hop.src)
