"""Requests and replies on their way through proxies: the same message once more on another connection.

A ROUTER that gets a message puts the identity of the sender in front. A program like zmq_proxy sends the result on
through a DEALER, and the reply takes the way back. The frames show that a message is the second leg of another one. If
a request can have come from one connection only, its identity belongs to that connection.
"""

from collections import OrderedDict
from typing import TypeVar

from dissectors.events import Message, Octets, Place

_Key = TypeVar("_Key", int, tuple[int, int])

_REMEMBERED = 4096  # messages on their way, and identities
_ALIKE = 64  # places to remember of messages with the same frames
_LONGEST_IDENTITY = 255  # octets
_OWN_IDENTITY = 5  # octets of an identity that libzmq makes: a zero and a counter of four


class Proxies:
    """Requests that ROUTERs got and may forward, and replies on their way back."""

    def __init__(self) -> None:
        """Start without any."""
        self._requests: OrderedDict[int, list[Place]] = (
            OrderedDict()
        )  # hash of the frames to the places of such messages, in order
        self._replies: OrderedDict[tuple[int, int], list[Place]] = OrderedDict()  # by their next flow, and that hash
        self._flows: OrderedDict[bytes, int] = OrderedDict()  # the flow of a peer, by its identity

    def learn(self, identity: bytes, flow: int) -> None:
        """A ROUTER knows the peer of this flow by this identity."""
        self._flows[identity] = flow
        self._flows.move_to_end(identity)
        if len(self._flows) > _REMEMBERED:
            self._flows.popitem(last=False)

    def is_identity(self, frame: Octets) -> bool:
        """Whether a ROUTER put this frame in front of the others."""
        if not isinstance(frame, bytes) or not 0 < len(frame) <= _LONGEST_IDENTITY:
            return False
        return (len(frame) == _OWN_IDENTITY and frame[0] == 0) or frame in self._flows

    def begin(self, event: Message) -> None:
        """Remember a request to a ROUTER, which may send it on."""
        _remember(self._requests, hash(tuple(event.frames)), event)

    def forwarded(self, event: Message) -> Place | None:
        """Where a request with an identity in front came from, if that is certain. A proxy forwards it only once."""
        what = hash(tuple(event.frames[1:]))
        places = self._requests.get(what)
        if not places:
            return None
        identity = event.frames[0]
        assert isinstance(identity, bytes)  # is_identity
        known = self._flows.get(identity)
        flows = {place.flow for place in places if place.flow != event.flow}
        if known not in flows:
            if len(flows) != 1:  # two peers sent the same request, and nobody knows whose this is
                return None
            known = flows.pop()
            self.learn(identity, known)
        place = next(place for place in places if place.flow == known)
        places.remove(place)
        if not places:
            del self._requests[what]
        return place

    def begin_reply(self, event: Message) -> None:
        """Remember a reply with an identity in front. A ROUTER may send it back to the peer with that identity."""
        flow = self._flows.get(event.frames[0])  # type: ignore[arg-type]
        if flow is not None and flow != event.flow:
            _remember(self._replies, (flow, hash(tuple(event.frames[1:]))), event)

    def forwarded_reply(self, event: Message) -> Place | None:
        """Where a reply of a ROUTER came from."""
        if not self._replies:
            return None
        what = (event.flow, hash(tuple(event.frames)))
        places = self._replies.get(what)
        if places is None:
            return None
        place = places.pop(0)
        if not places:
            del self._replies[what]
        return place


def _remember(table: "OrderedDict[_Key, list[Place]]", what: _Key, event: Message) -> None:
    """Add a message to those with the same frames; forget the oldest ones."""
    places = table.get(what)
    if places is None:
        table[what] = [Place(event.flow, event.packet)]
        if len(table) > _REMEMBERED:
            table.popitem(last=False)
        return
    table.move_to_end(what)
    places.append(Place(event.flow, event.packet))
    if len(places) > _ALIKE:
        del places[0]
