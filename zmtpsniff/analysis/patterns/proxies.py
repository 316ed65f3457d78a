"""Requests and replies on their way through proxies: the same message once more on another connection.

A ROUTER that gets a message puts the identity of the sender in front. A program like zmq_proxy sends the result on
through a DEALER, and the reply takes the way back. The frames show that a message is the next leg of another one. If
a request can have come from one connection only, its identity belongs to that connection. Of messages with the same
frames from one peer, only one that is alone is certain.
"""

from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import NamedTuple

from dissectors.events import Message, Octets, Place
from dissectors.zmtp.wire import IDENTITY_LIMIT
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.patterns.alike import Alike

_REMEMBERED = 4096  # messages on their way, and identities
_ALIKE = 64  # messages from one peer to remember that have the same frames
OWN_IDENTITY = 5
"""Octets of an identity that libzmq makes: a zero and a counter of four."""


class RelayedReply(NamedTuple):
    """A reply on its way back."""

    place: Place
    answers: Place | None  # the request that it answers, one connection nearer to the requester


_Numbers = tuple[int, int, int]  # those of a Place


class Proxies:
    """Requests that ROUTERs got and may forward, and replies on their way back."""

    def __init__(self) -> None:
        """Start without any."""
        # By the hash of the frames, and the flow that they came on; and those flows by that hash.
        self._requests: OrderedDict[tuple[int, int], Alike[_Numbers]] = OrderedDict()
        self._senders: dict[int, set[int]] = {}
        # By their next flow, and that hash.
        self._replies: OrderedDict[tuple[int, int], Alike[tuple[_Numbers, _Numbers | None]]] = OrderedDict()
        # The flow of a peer, by the identity that it announced; and by the identity that a ROUTER gave to it, with the
        # address of the socket that sends on what the ROUTER got. The ROUTERs of two proxies may give the same ones.
        self._announced: Ledger[bytes, int] = Ledger(limit=_REMEMBERED)
        self._given: Ledger[tuple[str, Octets], int] = Ledger(limit=_REMEMBERED)

    def learn(self, identity: bytes, flow: int) -> None:
        """The peer of this flow announced this identity to a ROUTER."""
        self._announced[identity] = flow
        self._announced.move_to_end(identity)

    @property
    def has_replies(self) -> bool:
        """Whether a reply may be on its way back."""
        return bool(self._replies)

    @property
    def announced(self) -> Container[bytes]:
        """The identities that peers announced."""
        return self._announced

    def _flow(self, proxy: str, identity: Octets) -> int | None:
        flow = self._given.get((proxy, identity))
        return self._announced.get(identity) if flow is None else flow  # type: ignore[arg-type]

    def is_relayed(self, frames: Sequence[Octets]) -> bool:
        """Whether a ROUTER put the first of these frames in front of the others."""
        identity = frames[0]
        if len(frames) == 1 or not isinstance(identity, bytes) or not 0 < len(identity) <= IDENTITY_LIMIT:
            return False
        return (len(identity) == OWN_IDENTITY and identity[0] == 0) or identity in self._announced

    def begin(self, event: Message, *, alone: bool = False) -> None:
        """Remember a request to a ROUTER, which may send it on; ``alone`` if its sender waits for no other reply."""
        self.begin_place(hash(tuple(event.frames)), event.flow, event.packet, event.part, alone)

    def begin_place(self, content: int, flow: int, packet: int, part: int, alone: bool) -> None:
        """Remember a request by the hash of its frames."""
        what, place = (content, flow), (flow, packet, part)
        alike = self._requests.get(what)
        if alike is None:
            self._requests[what] = Alike(_ALIKE, place)
            if content in self._senders:
                self._senders[content].add(flow)
            else:
                self._senders[content] = {flow}
            if len(self._requests) > _REMEMBERED:
                self._forget(next(iter(self._requests)))
            return
        self._requests.move_to_end(what)
        if alone:
            alike.replace(place)
        else:
            alike.add(place)

    def _forget(self, what: tuple[int, int]) -> None:
        del self._requests[what]
        senders = self._senders[what[0]]
        if len(senders) == 1:
            del self._senders[what[0]]
        else:
            senders.remove(what[1])

    def forwarded(self, event: Message, frames: Sequence[Octets]) -> Place | None:
        """Where a request came from, if that is certain; ``frames`` are its own from the identity on."""
        place = self.forwarded_place(event.src, frames[0], hash(tuple(frames[1:])), event.flow)
        return None if place is None else Place(*place)

    def forwarded_place(self, src: str, identity: Octets, content: int, on: int) -> _Numbers | None:
        """The same by the identity in front, the hash of the other frames, and the flow that it is on: in numbers."""
        senders = self._senders.get(content)
        if senders is None:
            return None
        flow = self._flow(src, identity)
        if flow not in senders or flow == on:
            others = senders - {on}
            if len(others) != 1:  # two peers sent the same request, and nobody knows whose this is
                return None
            flow = others.pop()
            self._given[src, identity] = flow
        what = (content, flow)
        alike = self._requests[what]
        place = alike.take(len(alike.waiting))
        if not alike.waiting:
            self._forget(what)
        return place

    def begin_reply(self, event: Message, frames: Sequence[Octets], answers: Place | None) -> None:
        """Remember a reply, whose own ``frames`` have an identity in front: a ROUTER may send it to that peer."""
        request = (0, 0, 0) if answers is None else (answers.flow, answers.packet, answers.part)
        content = hash(tuple(frames[1:]))
        self.begin_reply_place(event.dst, frames[0], content, event.flow, event.packet, event.part, *request)

    def begin_reply_place(
        self, dst: str, identity: Octets, content: int, on: int, packet: int, part: int, answers_flow: int,
        answers: int, answers_part: int,
    ) -> None:  # fmt: skip
        """The same in numbers; ``answers`` is the packet of the request, 0 if it is not known."""
        flow = self._flow(dst, identity)
        if flow is None or flow == on:
            return
        reply = (on, packet, part), (answers_flow, answers, answers_part) if answers else None
        what = (flow, content)
        alike = self._replies.get(what)
        if alike is None:
            self._replies[what] = Alike(_ALIKE, reply)
            if len(self._replies) > _REMEMBERED:
                self._replies.popitem(last=False)
        else:
            self._replies.move_to_end(what)
            alike.add(reply)

    def forwarded_reply(self, event: Message) -> RelayedReply | None:
        """Where a reply of a ROUTER came from, if that is certain."""
        if not self._replies:
            return None
        leg = self._take_reply(event.flow, hash(tuple(event.frames)))
        if leg is None:
            return None
        place, answers = leg
        return RelayedReply(Place(*place), None if answers is None else Place(*answers))

    def forwarded_reply_place(self, flow: int, content: int) -> _Numbers | None:
        """The same by the flow, and the hash of its frames: the place alone, in numbers."""
        leg = self._take_reply(flow, content)
        return None if leg is None else leg[0]

    def expected_reply(self, flow: int, content: int) -> _Numbers | None:
        """Where the request is that a reply answers which may come from elsewhere, in numbers: 0 if that is not known.

        The reply is on this flow, and its frames have this hash. None: it comes from nowhere else.
        """
        alike = self._replies.get((flow, content))
        if alike is None:
            return None
        answers = alike.waiting[0][1] if len(alike.waiting) == 1 and not alike.taken else None
        return answers or (0, 0, 0)

    def _take_reply(self, flow: int, content: int) -> tuple[_Numbers, _Numbers | None] | None:
        what = (flow, content)
        alike = self._replies.get(what)
        if alike is None:
            return None
        leg = alike.take(len(alike.waiting))
        if not alike.waiting:
            del self._replies[what]
        return leg
