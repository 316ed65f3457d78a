"""Beacons of ZRE, and the connections of the peers that they announce."""

from collections import OrderedDict

from dissectors.address import host_of
from dissectors.events import Beacon, Connection, Peer

_REMEMBERED = 10_000
_IDENTITY = b"\x01"  # stands before the UUID in a peer's identity (36/ZRE; not in 20/ZRE)


class BeaconPeers:
    """The peers that have announced themselves, by address and by UUID."""

    def __init__(self) -> None:
        """Start without any."""
        self._packets: OrderedDict[str | bytes, int] = OrderedDict()  # number of the packet with the first beacon

    def beacon(self, event: Beacon) -> None:
        """A peer announces itself, or takes leave."""
        if event.port:
            self._remember(f"{host_of(event.src)}:{event.port}", event.packet)
            self._remember(bytes.fromhex(event.uuid), event.packet)
            self._remember(_IDENTITY + bytes.fromhex(event.uuid), event.packet)

    def _remember(self, name: str | bytes, packet: int) -> None:
        self._packets.setdefault(name, packet)
        self._packets.move_to_end(name)
        if len(self._packets) > _REMEMBERED:
            self._packets.popitem(last=False)

    def end(self, event: Connection) -> None:
        """Add the beacons of both peers to the summary of their connection."""
        if self._packets:
            for peer in (event.client, event.server):
                peer.beacon = self._packet(peer)

    def _packet(self, peer: Peer) -> int | None:
        packet = self._packets.get(peer.identity) if isinstance(peer.identity, bytes) else None
        return self._packets.get(peer.address) if packet is None else packet
