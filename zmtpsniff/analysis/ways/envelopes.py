"""Joins the legs of a message over brokers, by the routing ids in its envelope (28/REQREP).

Theory
------

A ROUTER puts the routing id of the sender in front of each message that it takes. The broker sends the result on
through another socket, perhaps with more frames in front (a load balancer names the worker, Majordomo has a header).
So the next leg of a request ends with the frames of the leg before, and has the routing id in front of these. On the
way back the ROUTER takes the id off: the next leg of a reply is the end of the leg before, behind the id of the
connection that it goes to. A message may also name its receiver in its first frame: then a broker with ROUTERs on both
sides puts the id of the sender in the place of that name.

The wire does not say which connection has which id, unless the peer chose it (the property Identity). But a
connection has one id as long as it lasts, and no other connection to the same ROUTER has that id. What came over it
keeps that id when it is over: a client that asks again on a new connection has another one. So whichever
connections can have sent a message with an id are those that may have the id; the first message that one connection
alone can have sent tells it for good. Until then the legs with that id wait: they are the beginning of a piece of a
way, whose place is found later.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from dissectors.address import has_bound_port, host_of
from dissectors.events import Octets
from zmtpsniff.analysis.dossier import is_own_id
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop

_ALIKE = 1024  # messages with the same last frame
_DROPPED_NS = 1_000_000_000  # a broker that has not passed a message on for so long has dropped it
_WAITING = 1024  # legs whose id nobody knows yet
_PAST = 4096  # connections that are over, whose ids are remembered
_POSSIBLE = 65_536  # ids of which several connections may have each


class Join(msgspec.Struct, gc=False):
    """The message that another one passes on, or may pass on."""

    before: Hop
    routing_id: Octets
    is_back: bool  # the reply passes the ROUTER on its way back
    flow: int  # the connection with the id: a request came on it, a reply goes on it
    is_whole: bool  # all frames are the same but those in front, so that it is more likely than another one
    is_known: bool  # that the connection has the id


class _WaitingLeg(NamedTuple):
    """A leg whose id several connections may have, with the messages that it may pass on."""

    hop: Hop
    routing_id: Octets
    options: list[Join]


class HeldMessages(dict[int, list[Hop]]):
    """Messages that hosts have taken and may pass on, by the hash of their last frame; the oldest first."""

    def __init__(self) -> None:
        """Start without any."""
        super().__init__()
        self._mixed: set[int] = set()  # frames that came on several connections

    def add(self, hop: Hop) -> None:
        """A host has taken a message."""
        key = hop.held_as = hash(hop.frames[-1])
        hops = self.get(key)
        if hops is None:
            self[key] = [hop]
            return
        if hops[-1].flow != hop.flow:
            self._mixed.add(key)
        hops.append(hop)
        if len(hops) > _ALIKE:
            self.remove(hops[0])

    def on_other_connections(self, last: Octets, flow: int) -> Iterator[Hop]:
        """Those with a last frame that came on other connections.

        It costs little where one sender says the same all the time.
        """
        key = hash(last)
        hops = self.get(key)
        if not hops or (hops[0].flow == flow and key not in self._mixed):
            return iter(())
        return (hop for hop in hops if hop.flow != flow)

    def pass_on(self, before: Hop, hop: Hop) -> None:
        """The host has passed a message on with the same last frame, and the next one has it."""
        key = before.held_as
        if key is not None and len(self[key]) == 1:
            self[key][0], hop.held_as, before.held_as = hop, key, None
        else:
            self.remove(before)
            self.add(hop)

    def remove(self, hop: Hop) -> None:
        """The host has passed a message on, or answered it, or its way is over."""
        key, hop.held_as = hop.held_as, None
        if key is None:
            return
        hops = self[key]
        if len(hops) == 1:
            del self[key]
            self._mixed.discard(key)
        else:
            hops.remove(hop)


class RoutingIds(dict[tuple[int, str], Octets]):
    """The id of a connection at a ROUTER, by both, as far as it is known. Between two ROUTERs it has one at each."""

    def __init__(self) -> None:
        """Start without knowing any."""
        super().__init__()
        self._flows: dict[tuple[str, Octets], int] = {}  # by the address of the ROUTER and the id
        self._routers: dict[int, list[str]] = {}  # by connection: those at which its id is known
        self._past: Ledger[tuple[int, str], Octets] = Ledger(limit=_PAST)  # of connections that are over
        self._missed: set[int] = set()  # the capture lacks what they announced
        # By the host and the id: the connections that may have it.
        self._possible: Ledger[tuple[str, Octets], set[int]] = Ledger(limit=_POSSIBLE)

    def learn(self, flow: int, router: str, routing_id: Octets) -> None:
        """A connection has this id at the ROUTER with this address."""
        if (flow, router) not in self:
            self._routers.setdefault(flow, []).append(router)
        self[flow, router] = routing_id
        self._flows[router, routing_id] = flow

    def miss(self, flow: int) -> None:
        """The capture lacks the beginning of a connection, so its peer may have chosen an id."""
        self._missed.add(flow)

    def forget(self, flow: int) -> None:
        """The connection is over."""
        self._missed.discard(flow)
        for router in self._routers.pop(flow, ()):
            routing_id = self._past[flow, router] = self.pop((flow, router))
            if self._flows.get((router, routing_id)) == flow:
                del self._flows[router, routing_id]

    def of(self, flow: int, router: str) -> Octets | None:
        """The id of a connection at a ROUTER. It may be over: a broker may still hold what came over it."""
        key = (flow, router)
        routing_id = self.get(key)
        return self._past.get(key) if routing_id is None and self._past else routing_id

    def narrow(self, host: str, routing_id: Octets, flows: set[int]) -> set[int]:
        """The connections that may have an id at this host, now that it is one of ``flows`` that has it."""
        place = (host, routing_id)
        left = flows & (self._possible.pop(place, flows) or flows)
        self._possible[place] = left
        return left

    def among(self, ids: Sequence[Octets], flow: int, router: str) -> Octets | None:
        """The first of some ids that a connection can have whose id is not known; None if it can have none of them."""
        for routing_id in ids:
            if (is_own_id(routing_id) or (flow in self._missed and len(ids) == 1)) and self._flows.get(
                (router, routing_id), flow
            ) == flow:
                return routing_id
        return None


class Envelopes:
    """Finds the message that a message of a request or a reply passes on."""

    def __init__(self, held: HeldMessages) -> None:
        """``held`` has the messages that may be passed on."""
        self.ids = RoutingIds()
        self._held = held
        self._waiting: deque[_WaitingLeg] = deque(maxlen=_WAITING)
        self._guessed: list[tuple[Hop, Join]] = []  # legs that waited, and their most likely places
        self.has_learnt = False  # or guessed, since the last look at those that wait

    def find(self, hop: Hop, asked: Hop | None) -> Join | None:
        """The message that another one passes on. None if there is nothing, or if several connections may have its id.

        ``asked`` is the request on the same connection that it answers, if that is known. A REP only answers, so it
        passes nothing on, though its answer may end as a request does.
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
        else:
            options = self._options(hop, alike)
            options = [one for one in options if one.is_whole] or options
        if not options:
            return None
        if asked is not None and len(options) > 1:
            options = [one for one in options if not one.is_back or self._may_answer(one.before, asked)] or options
        known = [one for one in options if one.is_known]
        if known:
            return self._settle(hop, known)
        flows = {one.flow for one in options}
        ids = {one.routing_id for one in options}
        if len(ids) == 1:
            routing_id = next(iter(ids))
            flows = self.ids.narrow(hop.stream.src_host, routing_id, flows)
            if len(flows) == 1:
                options = [one for one in options if one.flow in flows]
                left = [one for one in options if not self._is_claimed(one)]
                if left:
                    return self._settle(hop, left)
                self._learn(hop, options[0])
                return None
            self._waiting.append(_WaitingLeg(hop, routing_id, options))
            return None
        return self._guess(hop, options) if len(flows) == 1 else None

    def is_passed_on(self, hop: Hop) -> bool:
        """Whether the message that find() took last passes on a request, though nobody knows which one yet."""
        if not self._waiting or self._waiting[-1].hop is not hop:
            return False
        return not any(one.is_back for one in self._waiting[-1].options)

    def can_pass_on(self, hop: Hop, before: Hop) -> bool:
        """Whether a message may be an earlier one with the id of its connection in front, or without it."""
        return self._option(hop, before) is not None

    def _option(self, hop: Hop, before: Hop) -> Join | None:
        """The message before, if this one may pass it on, with the id that the connection would have."""
        frames = hop.frames
        extra = len(frames) - len(before.frames)
        if before.flow == hop.flow or before.time_ns > hop.time_ns or before.stream.sends != "request":
            return None
        if not extra:
            return self._readdressed(hop, before)
        is_back = extra < 0
        if is_back:
            stream, kind, flow, router = hop.stream, hop.stream.src_kind, hop.flow, hop.src
            extra, longer, shorter = -extra, before.frames, frames
        else:
            stream, kind, flow, router = before.stream, before.stream.dst_kind, before.flow, before.dst
            longer, shorter = frames, before.frames
        if kind != "ROUTER" and not (stream.is_late and _may_be_router(kind, router, hop, before)):
            return None
        is_whole = longer[extra:] == shorter
        if is_whole:
            ids = longer[extra - 1 : extra]
        elif all(frame in longer for frame in _envelope(shorter)):
            ids = longer[:-1]  # a protocol of brokers, such as Majordomo, changes what stands between
        else:
            return None  # another one has the same body
        known = self.ids.of(flow, router)
        routing_id = self.ids.among(ids, flow, router) if known is None else known if known in ids else None
        return None if routing_id is None else Join(before, routing_id, is_back, flow, is_whole, known is not None)

    def _readdressed(self, hop: Hop, before: Hop) -> Join | None:
        """The message before, if this one is the same from its sender to the peer that its first frame named.

        A ROUTER takes it, and sends it with the id of the sender where that of the receiver stood.
        """
        frames, sent = hop.frames, before.frames
        is_routed = hop.stream.src_kind == before.stream.dst_kind == "ROUTER"
        if not is_routed or len(frames) < 2 or frames[1:] != sent[1:]:
            return None
        sender = self.ids.of(before.flow, before.dst) or self.ids.among(frames[:1], before.flow, before.dst)
        receiver = self.ids.of(hop.flow, hop.src) or self.ids.among(sent[:1], hop.flow, hop.src)
        if sender != frames[0] or receiver != sent[0]:
            return None
        if before.reply:
            return Join(before, receiver, True, hop.flow, True, (hop.flow, hop.src) in self.ids)
        return Join(before, sender, False, before.flow, True, (before.flow, before.dst) in self.ids)

    def _options(self, hop: Hop, alike: Sequence[Hop]) -> list[Join]:
        """The messages that this one may pass on, each with the id that the connection would have.

        A broker with several addresses takes messages at one and sends them from another. So messages of other hosts
        count if there is none of the same; of these the ones with the fewest frames in between.
        """
        here = [one for before in alike if _is_there(before, hop) and (one := self._option(hop, before)) is not None]
        if here:
            return here
        on_other_connections: list[Join] = []
        least = 0
        for before in alike:
            one = None if _is_there(before, hop) else self._option(hop, before)
            if one is None:
                continue
            extra = abs(len(hop.frames) - len(before.frames))
            if not on_other_connections or extra <= least:
                if extra < least:
                    on_other_connections.clear()
                least = extra
                on_other_connections.append(one)
        return on_other_connections

    def _settle(self, hop: Hop, options: list[Join]) -> Join:
        join = options[0]
        if hop.time_ns - join.before.time_ns > _DROPPED_NS:
            join = options[-1]  # those before it were dropped
        # Two messages may have one id. But where the message is in doubt because of the ids, its id is, too.
        proves_id = not join.before.is_ambiguous and all(one.routing_id == join.routing_id for one in options)
        if len(options) > 1:
            for one in options:
                one.before.is_ambiguous = True  # whichever is left
        if proves_id and self.ids.get((join.flow, _router(hop, join))) != join.routing_id:
            self._learn(hop, join)
        return join

    def _learn(self, hop: Hop, join: Join) -> None:
        self.ids.learn(join.flow, _router(hop, join), join.routing_id)
        self.has_learnt = True

    def _is_claimed(self, join: Join) -> bool:
        """Whether an earlier message that waits passes the same one on, now that the id is known."""
        return any(
            piece.routing_id == join.routing_id and any(one.before is join.before for one in piece.options)
            for piece in self._waiting
            if piece.hop is piece.hop.way.first
        )

    def _guess(self, hop: Hop, options: list[Join]) -> Join:
        """Take one of several replies, each with the id of a connection that may be the one of ``hop``.

        The request of that reply begins a piece, too. Its place is as doubtful, and so is that of each piece that may
        have been the one instead.
        """
        join = self._settle(hop, options)
        first = join.before.way.first
        for piece in self._waiting:
            mine = [one for one in piece.options if one.flow == join.flow]
            for one in piece.options if mine else ():
                one.before.is_ambiguous = True
            if mine and piece.hop is first:
                self._guessed.append((piece.hop, mine[0]))
                self.has_learnt = True
        return join

    def _may_answer(self, reply: Hop, asked: Hop) -> bool:
        """Whether a reply that a broker took can be the one to this request."""
        first = reply.way.first
        return reply.way is asked.way or any(
            piece.hop is first and any(one.before is asked for one in piece.options) for piece in self._waiting
        )

    def settled(self) -> Iterator[tuple[Hop, Join]]:
        """Legs that waited, and whose place is known now."""
        self.has_learnt = False
        guessed, self._guessed = self._guessed, []
        yield from guessed
        rest: list[_WaitingLeg] = []
        for piece in self._waiting:
            if piece.hop.way is None:
                rest.append(piece)  # find() took it just now; one that was settled before told an id since
                continue
            if piece.hop is not piece.hop.way.first:
                continue  # its place was guessed
            left = [one for one in piece.options if not one.before.is_passed_on]
            known = [one for one in left if self.ids.get((one.flow, _router(piece.hop, one))) == piece.routing_id]
            if not known and len({one.flow for one in left}) == 1:
                known = left
            if known:
                known[0].before.is_passed_on = True
                yield piece.hop, self._settle(piece.hop, known)
            elif left:
                rest.append(piece)
        self._waiting = deque(rest, maxlen=_WAITING)


def _router(hop: Hop, join: Join) -> str:
    """The ROUTER at which the connection of a join has its id."""
    return hop.src if join.is_back else join.before.dst


def _may_be_router(kind: str, address: str, hop: Hop, before: Hop) -> bool:
    """Whether a socket whose type the capture lacks may be the ROUTER that took a message, or that sends it back.

    It must be bound, and the program that took the message before must have the host that sends it on: else a request
    may look like another one on its way back.
    """
    return not kind and has_bound_port(address) and before.stream.dst_host == hop.stream.src_host


def _envelope(frames: Sequence[Octets]) -> Sequence[Octets]:
    """The frames before the delimiter, which brokers keep; none if there is no delimiter."""
    return frames[: frames.index(b"")] if b"" in frames else ()


def _is_there(before: Hop, hop: Hop) -> bool:
    """Whether the host of a sender took the message before. Live, it may, if only one of two processes is known yet."""
    taker, sender = before.stream, hop.stream
    if taker.dst_host == sender.src_host:
        return True
    return taker.knows_receiver is not sender.knows_sender and host_of(before.dst) == host_of(hop.src)
