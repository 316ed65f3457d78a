"""Requests that a peer of a ROUTER left open when it closed its connection, for the one that it comes back with.

A ROUTER sends a reply to whichever connection has the identity that the request came with. If a peer with an identity
of its own gives up and connects anew, the reply to its old request goes to the new connection. So a reply there may
answer either.
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

from dissectors.events import Octets
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.patterns.requests import Request

_PEERS = 1000
_REQUESTS = 1025  # of one peer: with more than 1,024 of one envelope it is never certain which is meant
_ALL = 65_536
PATIENCE_NS = 60_000_000_000
"""No reply comes so long after its request."""

Peer = tuple[str, Octets]
"""The address of a ROUTER, and the identity of one of its peers."""


class ReturningPeers:
    """Peers with identities of their own, and the requests that they left open."""

    def __init__(self) -> None:
        """Start without any."""
        self._flows: dict[Peer, set[int]] = {}  # those that are not over
        self._left: OrderedDict[Peer, list[Request]] = OrderedDict()

    def come(self, dossier: Dossier) -> Peer | None:
        """A connection of a peer of a ROUTER; None if it has no identity."""
        for address, kind in dossier.types.items():
            identity = dossier.identity_of_other(address) if kind == "ROUTER" else None
            if identity:
                peer = (address, identity)
                self._flows.setdefault(peer, set()).add(dossier.flow)
                return peer
        return None

    def has_left(self, peer: Peer | None, flow: int) -> bool:
        """Whether replies to requests on other connections of this peer may come on this one."""
        return peer is not None and (peer in self._left or not self._flows.get(peer, set()) <= {flow})

    def go(self, peer: Peer | None, flow: int, waiting: Iterable[Request], *, by_peer: bool) -> None:
        """A connection is over with requests that wait. The ROUTER answers them later only if the peer closed it."""
        if peer is None:
            return
        flows = self._flows.get(peer, set())
        flows.discard(flow)
        if not flows:
            self._flows.pop(peer, None)
        left = list(islice(waiting, _REQUESTS)) if by_peer else []
        if left:
            self._left[peer] = (self._left.pop(peer, []) + left)[:_REQUESTS]
            while len(self._left) > _PEERS or sum(map(len, self._left.values())) > _ALL:
                self._left.popitem(last=False)

    def inherit(self, peer: Peer | None, now_ns: int) -> list[Request]:
        """The requests that other connections of a peer left, and that may still get a reply; each is told once."""
        if peer is None:
            return []
        return [one for one in self._left.pop(peer, ()) if now_ns - one.time_ns < PATIENCE_NS]
