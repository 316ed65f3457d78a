"""TCP proxies: programs that forward octets between two connections, and know nothing of messages.

Theory
------

HAProxy, socat, ``ssh -L`` and ``kubectl port-forward`` accept a connection, connect to the server, and pass each octet
on. So one conversation appears as two connections, the *near* one to the proxy and the *far* one from it. Each octet
comes on the one first, and later on the other:

- The client's greeting and READY come on the near connection first, then on the far one. The server's come on the far
  one first, and last on the near one. So the handshake of the far connection lies inside that of the near one. A
  program that speaks ZMTP itself greets whoever connects at once, and does not wait for another peer to do so.
- Each message of the far connection is the next one that the proxy took on the near one, and vice versa.

Several clients may connect at once, with handshakes that look alike. Then the near connection whose handshake is
complete first is taken for that of the far one whose handshake is. The first message that differs shows that it is
not. Then the connection gets the first other one that began with the same message.

A connection may be between two proxies, and so have a partner at each end. If packets overtake others, or the capture
lacks a handshake, a proxy is not found here. Then equal octets alone join its messages.
"""

from collections import deque
from functools import partial
from itertools import islice, takewhile
from typing import Any

from dissectors.address import host_of
from dissectors.events import Command, Connection, Greeting
from zmtpsniff.analysis.dossier import says_ready
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop

_ANNOUNCEMENTS = frozenset({"HELLO", "WELCOME", "INITIATE", "READY"})
_LEAST_SAID = 2  # announcements of one side: the order of fewer may be chance
_WITHIN_NS = 250_000_000  # the handshake of the near connection ends at most so long after that of the far one
_OPENINGS = 4096  # connections that are remembered
_ALIKE = 64  # connections whose handshakes look alike, among which a partner is sought
_TAKEN = 1024  # messages that a proxy has taken on one connection, and not yet passed on

_CHAIN = 4  # proxies one behind the other
_SKIPPED = 64  # of these, so many may be missing on the other connection


class _Side:
    """One side of a connection: what it announced and when, and the messages that it took."""

    def __init__(self, flow: int, address: str) -> None:
        """Start without any."""
        self.flow, self.address = flow, address
        self.said: list[tuple[Any, ...]] = []
        self.times: list[int] = []
        self.taken: deque[Hop] = deque(maxlen=_TAKEN)
        self.other: _Side | None = None  # at the other end of the connection, once both have announced their types
        self.partner: _Side | None = None  # if this side is a proxy's: its side of the other connection
        self.opened_ns = 0  # when both had
        self.is_near = False  # of the two connections, this one leads to the client
        self.is_proven = False  # a message that the proxy sent on one of the two was one that it took on the other
        self.is_over = False

    def key(self, peer: "_Side") -> tuple[str, int, int]:
        """The same for two connections of one proxy: its host, and what the client and the server said.

        ``peer`` is the client's side of a near connection; of a far one, it is the proxy's own side.
        """
        server = self if peer is not self else self.other
        assert server is not None
        return host_of(self.address), hash(tuple(peer.said)), hash(tuple(server.said))

    def encloses(self, far: "_Side") -> bool:
        """Whether the handshake of a far connection lies inside that of this near one."""
        client, server = self.other, far.other
        assert client is not None
        assert server is not None
        return (
            len(self.said) >= _LEAST_SAID
            and len(client.said) >= _LEAST_SAID
            and self.times[-1] - server.times[-1] <= _WITHIN_NS
            and all(one < later for one, later in zip(client.times, far.times, strict=True))
            and all(one < later for one, later in zip(server.times, self.times, strict=True))
        )

    def forget(self) -> None:
        """Let go what it took, unless its partner may still pass that on."""
        if self.partner is None:
            self.taken.clear()

    def next_taken(self, hop: Hop) -> Hop | None:
        """Take out the message that this side took, and that the proxy passes on as ``hop``; None if it is none.

        Messages before it are let go: the capture may lack how they were passed on.
        """
        for skipped, one in enumerate(islice(self.taken, _SKIPPED)):
            if one.time_ns <= hop.time_ns and list(one.frames) == list(hop.frames):
                for _ in range(skipped + 1):
                    self.taken.popleft()
                return one
        return None

    def begins_with(self, hop: Hop) -> bool:
        """Whether the first message that this side took has the octets of another one."""
        return len(self.taken) > 0 and list(self.taken[0].frames) == list(hop.frames)


class TcpProxies:
    """Finds the connections that are one conversation, and the original of a message that a proxy passes on."""

    def __init__(self) -> None:
        """Start without any."""
        self.is_active = False
        """Whether a connection is a proxy's, or may still turn out to be one."""
        # By flow: the sides of connections that are opening, or have just been.
        self._openings: Ledger[int, dict[str, _Side]] = Ledger(dict, _OPENINGS)
        self._until_ns = 0  # until then, the oldest of them may find its other half
        # By an address of a proxy: the peer behind it, to whom that address belongs; "" if there are several.
        self._behind: Ledger[str, str] = Ledger(str, _OPENINGS)
        self._sides: dict[tuple[int, str], _Side] = {}  # by flow and address: those that are a proxy's, or seemed so
        # By host and what both sides said: connections that may be one half.
        self._nears: Ledger[tuple[str, int, int], deque[_Side]] = Ledger(partial(deque, (), _ALIKE), _OPENINGS)
        self._fars: Ledger[tuple[str, int, int], deque[_Side]] = Ledger(partial(deque, (), _ALIKE), _OPENINGS)

    def announce(self, event: Greeting | Command) -> None:
        """A side of a connection announces something. Once both have told their types, the other half is sought."""
        if isinstance(event, Command) and event.name not in _ANNOUNCEMENTS:
            return
        self.is_active = True
        sides = self._openings.at(event.flow)
        side = sides.get(event.src)
        if side is None:
            side = sides[event.src] = _Side(event.flow, event.src)
        if side.other is not None:
            return
        side.said.append(_content(event))
        side.times.append(event.time_ns)
        if event.socket_type is not None and len(sides) == 2 and all(map(_has_type, sides.values())):
            one, other = sides.values()
            one.other, other.other = other, one
            for own in (one, other):
                own.opened_ns = event.time_ns
                self._open(own)
            self._forget_old(event.time_ns)

    def _open(self, side: _Side) -> None:
        """A connection is open: if ``side`` is a proxy's, it may be a far one, or the near one of one before it."""
        assert side.other is not None
        near, begun_ns = side.key(side.other), side.other.times[0]
        # A far connection opens while the near one does; of several, the first one counts.
        latest = takewhile(lambda one: one.opened_ns > begun_ns, reversed(self._fars.get(near, ())))
        fars = [one for one in latest if one.partner is None and not one.is_over and side.encloses(one)]
        if fars:
            self._pair(side, fars[-1])
        self._nears.at(near).append(side)
        self._fars.at(side.key(side)).append(side)

    def _pair(self, near: _Side, far: _Side) -> None:
        """Two connections seem to be one conversation."""
        self._part(near)
        self._part(far)
        near.partner, near.is_near = far, True
        far.partner, far.is_near = near, False
        for side, partner in ((near, far), (far, near)):
            self._sides[side.flow, side.address] = side
            assert partner.other is not None
            peer = partner.other.address
            # Connections that were taken for one conversation before may have shown the wrong client.
            is_same = side is far or self._behind.get(side.address, peer) == peer
            self._behind.renew(side.address, peer if is_same else "")

    @staticmethod
    def _part(side: _Side) -> None:
        """Two connections are not one conversation, though their handshakes looked so. Each may find another half."""
        if side.partner is not None:
            side.partner.partner = None
            side.partner = None

    def _forget_old(self, now_ns: int) -> None:
        """Connections that have been open for some time, and have no other half, find none any more."""
        while self._openings:
            flow, sides = next(iter(self._openings.items()))
            last_ns = max(side.times[-1] for side in sides.values())
            if now_ns - last_ns <= _WITHIN_NS:
                self._until_ns = last_ns + _WITHIN_NS
                return
            for side in self._openings.pop(flow).values():
                side.forget()
        self.is_active = len(self._sides) > 0

    def behind(self, address: str) -> str:
        """The peer for which an address of a proxy stands; the address itself if it is no proxy's, or has several.

        For the address at which clients reach the proxy that is the server, for the one at which it reaches a server
        the client.
        """
        found = address
        for _ in range(_CHAIN):
            found = self._behind.get(found) or found
        return found

    # ------------------------------------------------------------------ messages

    def forwarded(self, hop: Hop) -> Hop | None:
        """A message has come: the one that its sender, a proxy, passes on with it; None if the sender is no proxy.

        Its receiver may be a proxy, too, and pass it on.
        """
        if hop.time_ns > self._until_ns:
            self._forget_old(hop.time_ns)
        side = self._sides.get((hop.flow, hop.dst)) or self._openings.get(hop.flow, {}).get(hop.dst)
        if side is not None:
            side.taken.append(hop)
        return self._original(hop)

    def _original(self, hop: Hop) -> Hop | None:
        """The message of the other half that a proxy passes on as ``hop``; None if its sender is no proxy."""
        side = self._sides.get((hop.flow, hop.src))
        if side is None:
            return None
        partner = side.partner
        found = None if partner is None else partner.next_taken(hop)
        # Findings may follow the connections only some time after they began: then nothing was taken.
        if found is None and not side.is_proven and (partner is None or partner.taken):
            partner = self._another_half(side, hop)
            found = None if partner is None else partner.next_taken(hop)
            if found is None:
                self._part(side)
                del self._sides[hop.flow, hop.src]
        if found is not None and partner is not None:
            side.is_proven = partner.is_proven = True
        if found is None or found.way is None or found.way.is_over:  # without a way: a broker's heartbeat
            return None
        # READY of a worker is no request: the two connections have one each.
        return None if found.stream.shared.has_ready_worker and says_ready(found.frames) else found

    def _another_half(self, side: _Side, hop: Hop) -> _Side | None:
        """Another connection, which began with the message that the proxy passes on here."""
        assert side.other is not None
        if side.is_near:
            for far in self._fars.get(side.key(side.other), ()):
                if not far.is_proven and side.encloses(far) and far.begins_with(hop):
                    self._pair(side, far)
                    return far
        else:
            for near in self._nears.get(side.key(side), ()):
                if not near.is_proven and near.encloses(side) and near.begins_with(hop):
                    self._pair(near, side)
                    return near
        return None

    def end(self, event: Connection) -> None:
        """A connection is over. The proxy may still have something to pass on to the other one."""
        for side in self._openings.pop(event.flow, {}).values():
            side.forget()
        for address in (event.client.address, event.server.address):
            own = self._sides.pop((event.flow, address), None)
            if own is not None:
                own.is_over = True
                if own.partner is None or own.partner.is_over:
                    own.taken.clear()


def _has_type(side: _Side) -> bool:
    return any(one[1] is not None for one in side.said)


def _content(event: Greeting | Command) -> tuple[Any, ...]:
    """The content of an announcement, equal for two with the same octets."""
    if isinstance(event, Greeting):
        return event.version, event.socket_type, event.identity, event.mechanism, event.as_server
    properties = None if event.properties is None else tuple(event.properties.items())
    return event.name, event.socket_type, event.identity, properties
