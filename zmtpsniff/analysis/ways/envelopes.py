"""Joins the legs of a message over brokers, by the routing ids in its envelope (28/REQREP).

Theory
------

A ROUTER puts the routing id of the sender in front of each message that it takes. The broker sends the result on
through another socket, perhaps with more frames in front (a load balancer names the worker, Majordomo has a header).
So the next leg of a request ends with the frames of the leg before, and has the routing id in front of these. On the
way back the ROUTER takes the id off: the next leg of a reply is the end of the leg before, behind the id of the
connection that it goes to.

The wire does not say which connection has which id, unless the peer chose it (the property Identity). But a
connection has one id as long as it lasts, and no other connection to the same ROUTER has that id. So whichever
connections can have sent a message with an id are those that may have the id; the first message that one connection
alone can have sent tells it for good. Until then the legs with that id wait: they are the beginning of a piece of a
way, whose place is found later.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

from dissectors.events import Octets
from zmtpsniff.analysis.ways.hops import Hop

_ALIKE = 1024  # messages with the same last frame
_OWN_ID = 5  # octets of an id that libzmq makes: a zero and a counter of four
_DROPPED_NS = 1_000_000_000  # a broker that has not passed a message on for so long has dropped it
_WAITING = 1024  # legs whose id nobody knows yet
_POSSIBLE = 65_536  # ids of which several connections may have each


class Join(NamedTuple):
    """The message that another one passes on."""

    before: Hop
    is_certain: bool
    is_back: bool  # the reply passes the ROUTER on its way back
    routing_id: Octets


class _Piece(NamedTuple):
    """A leg whose id several connections may have, with the messages that it may pass on."""

    hop: Hop
    routing_id: Octets
    befores: list[Hop]
    is_back: bool


class Custody:
    """Messages that hosts have taken and may pass on, by their last frame."""

    def __init__(self) -> None:
        """Start without any."""
        self._hops: dict[int, list[Hop]] = {}

    def add(self, hop: Hop) -> None:
        """A host has taken a message."""
        key = hop.held_as = hash(hop.frames[-1])
        hops = self._hops.get(key)
        if hops is None:
            self._hops[key] = [hop]
            return
        hops.append(hop)
        if len(hops) > _ALIKE:
            self.remove(hops[0])

    def alike(self, last: Octets) -> Sequence[Hop]:
        """The messages that end with this frame, the oldest first."""
        return self._hops.get(hash(last), ())

    def remove(self, hop: Hop) -> None:
        """The host has passed a message on, or answered it, or its way is over."""
        key, hop.held_as = hop.held_as, None
        if key is None:
            return
        hops = self._hops[key]
        if len(hops) == 1:
            del self._hops[key]
        else:
            hops.remove(hop)


class RoutingIds:
    """Which connection has which id at the ROUTER that it leads to."""

    def __init__(self) -> None:
        """Start without knowing any."""
        self._of_flow: dict[int, Octets] = {}
        self._flows: dict[tuple[str, Octets], int] = {}  # by the address of the ROUTER and the id
        self._keys: dict[int, tuple[str, Octets]] = {}
        self._announced: set[int] = set()
        # By the host and the id: the connections that may have it.
        self._possible: OrderedDict[tuple[str, Octets], set[int]] = OrderedDict()

    def learn(self, flow: int, router: str, routing_id: Octets) -> None:
        """A connection has this id at the ROUTER with this address."""
        self._of_flow[flow] = routing_id
        self._flows[router, routing_id] = flow
        self._keys[flow] = router, routing_id

    def announce(self, flow: int, router: str, routing_id: Octets) -> None:
        """The peer of the ROUTER chose this id."""
        self._announced.add(flow)
        self.learn(flow, router, routing_id)

    def forget(self, flow: int) -> None:
        """The connection is over."""
        self._of_flow.pop(flow, None)
        self._announced.discard(flow)
        key = self._keys.pop(flow, None)
        if key is not None and self._flows.get(key) == flow:
            del self._flows[key]

    def narrow(self, host: str, routing_id: Octets, flows: set[int]) -> set[int]:
        """The connections that may have an id at this host, now that it is one of ``flows`` that has it."""
        place = (host, routing_id)
        left = flows & (self._possible.pop(place, flows) or flows)
        self._possible[place] = left
        if len(self._possible) > _POSSIBLE:
            self._possible.popitem(last=False)
        return left

    def is_known(self, flow: int, routing_id: Octets) -> bool:
        """Whether the connection is known to have this id."""
        return self._of_flow.get(flow) == routing_id

    def may_be(self, flow: int, router: str, routing_id: Octets) -> bool:
        """Whether the connection can have this id."""
        known = self._of_flow.get(flow)
        if known is not None:
            return known == routing_id
        if not isinstance(routing_id, bytes) or len(routing_id) != _OWN_ID or routing_id[0]:
            return False
        return self._flows.get((router, routing_id), flow) == flow


class Envelopes:
    """Finds the message that a message of a request or a reply passes on."""

    def __init__(self, held: Custody) -> None:
        """``held`` has the messages that may be passed on."""
        self.ids = RoutingIds()
        self._held = held
        self._waiting: deque[_Piece] = deque(maxlen=_WAITING)
        self._has_learnt = False  # since the last look at those that wait

    def find(self, hop: Hop, asked: Hop | None) -> Join | None:
        """The message that another one passes on. None if there is nothing, or if several connections may have its id.

        ``asked`` is the request on the same connection that it answers, if that is known.
        """
        options = self._options(hop)
        if not options:
            return None
        if asked is not None and len(options) > 1:
            options = [one for one in options if not one[2] or self._may_answer(one[0], asked)] or options
        known = [one for one in options if self.ids.is_known(_flow(hop, one[0], one[2]), one[1])]
        if known:
            return self._settle(hop, known)
        flows = {_flow(hop, before, is_back) for before, _, is_back in options}
        ids = {routing_id for _, routing_id, _ in options}
        if len(ids) == 1:
            routing_id = next(iter(ids))
            flows = self.ids.narrow(hop.line.src_host, routing_id, flows)
            if len(flows) == 1:
                return self._settle(hop, [one for one in options if _flow(hop, one[0], one[2]) in flows])
            self._waiting.append(_Piece(hop, routing_id, [before for before, _, _ in options], options[0][2]))
            return None
        return self._settle(hop, options) if len(flows) == 1 else None

    def _options(self, hop: Hop) -> list[tuple[Hop, Octets, bool]]:
        """The messages that this one may pass on, each with the id that the connection would have.

        A broker with several addresses takes messages at one and sends them from another. So messages of other hosts
        count if there is none of the same; of these the ones with the fewest frames in between.
        """
        frames, host = hop.frames, hop.line.src_host
        is_router = hop.line.src_kind == "ROUTER"
        here: list[tuple[Hop, Octets, bool]] = []
        elsewhere: list[tuple[Hop, Octets, bool]] = []
        least = 0
        for before in self._held.alike(frames[-1]):
            leg = before.leg
            extra = len(frames) - len(before.frames)
            if not extra or leg.flow == hop.leg.flow or leg.time_ns > hop.leg.time_ns:
                continue
            is_back = extra < 0
            if is_back:
                if not is_router:
                    continue
                flow, router, ids = hop.leg.flow, hop.leg.src, _in_front(before.frames, frames)
            elif before.line.dst_kind == "ROUTER":
                flow, router, ids = leg.flow, leg.dst, _in_front(frames, before.frames)
            else:
                continue
            for routing_id in ids:
                if self.ids.may_be(flow, router, routing_id):
                    if before.line.dst_host == host:
                        here.append((before, routing_id, is_back))
                    elif not elsewhere or abs(extra) <= least:
                        if abs(extra) < least:
                            elsewhere.clear()
                        least = abs(extra)
                        elsewhere.append((before, routing_id, is_back))
                    break
        return here or elsewhere

    def _settle(self, hop: Hop, options: list[tuple[Hop, Octets, bool]]) -> Join:
        before, routing_id, is_back = options[0]
        if hop.leg.time_ns - before.leg.time_ns > _DROPPED_NS:
            before, routing_id, is_back = options[-1]  # those before it were dropped
        if len(options) > 1:
            for one, _, _ in options:
                one.is_doubtful = True  # whichever is left
        router = hop.leg.src if is_back else before.leg.dst
        flow = _flow(hop, before, is_back)
        if not self.ids.is_known(flow, routing_id):
            self.ids.learn(flow, router, routing_id)
            self._has_learnt = True
        self._held.remove(before)
        return Join(before, not before.is_doubtful, is_back, routing_id)

    def _may_answer(self, reply: Hop, asked: Hop) -> bool:
        """Whether a reply that a broker took can be the one to this request."""
        first = reply.way.first
        return reply.way is asked.way or any(piece.hop is first and asked in piece.befores for piece in self._waiting)

    def settled(self) -> list[tuple[Hop, Join]]:
        """Legs that waited, and whose place is known now."""
        if not self._has_learnt:
            return []
        self._has_learnt = False
        found: list[tuple[Hop, Join]] = []
        rest: list[_Piece] = []
        for piece in self._waiting:
            hop, routing_id, befores, is_back = piece
            left = [one for one in befores if not one.is_passed]
            known = [one for one in left if self.ids.is_known(_flow(hop, one, is_back), routing_id)]
            if not known and len({_flow(hop, one, is_back) for one in left}) == 1:
                known = left
            if known:
                found.append((hop, self._settle(hop, [(one, routing_id, is_back) for one in known])))
                known[0].is_passed = True
            elif left:
                rest.append(piece)
        self._waiting = deque(rest, maxlen=_WAITING)
        return found


def _flow(hop: Hop, before: Hop, is_back: bool) -> int:
    """The connection that has the id: of a request the one that it came on, of a reply the one that it goes on."""
    return hop.leg.flow if is_back else before.leg.flow


def _in_front(longer: Sequence[Octets], shorter: Sequence[Octets]) -> Sequence[Octets]:
    """The frames of the longer message that may be the routing id of the sender of the shorter one."""
    extra = len(longer) - len(shorter)
    if longer[extra:] == shorter:
        return longer[extra - 1 : extra]
    return longer[:-1]  # a protocol of brokers, such as Majordomo, changes what stands between
