"""Beacons of ZRE, and the connections of the peers that they announce."""

from dissectors.address import host_of
from dissectors.events import Beacon, Connection, Peer
from zmtpsniff.analysis.ledger import Ledger

_IDENTITY = b"\x01"  # stands before the UUID in a peer's identity (36/ZRE; not in 20/ZRE)


class BeaconPeers:
    """The peers that have announced themselves, by address and by UUID."""

    def __init__(self) -> None:
        """Start without any."""
        self._packets: Ledger[str | bytes, int] = Ledger()  # number of the packet with the first beacon

    def beacon(self, event: Beacon) -> None:
        """A peer announces itself, or takes leave."""
        if event.port:
            uuid = bytes.fromhex(event.uuid)
            for name in (f"{host_of(event.src)}:{event.port}", uuid, _IDENTITY + uuid):
                self._packets[name] = self._packets.pop(name, event.packet)

    def end(self, event: Connection) -> None:
        """Add the beacons of both peers to the summary of their connection."""
        if self._packets:
            for peer in (event.client, event.server):
                peer.beacon = self._packet(peer)

    def _packet(self, peer: Peer) -> int | None:
        packet = self._packets.get(peer.identity) if isinstance(peer.identity, bytes) else None
        return self._packets.get(peer.address) if packet is None else packet
