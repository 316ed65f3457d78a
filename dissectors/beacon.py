"""Beacons of ZRE, by which peers find each other: datagrams of UDP (20/ZRE, 36/ZRE; zeromq/zyre, src/zyre_node.c)."""

from dissectors.events import AnyEvent, Beacon, End

_PREFIX = b"ZRE"
_UUID = slice(4, 20)
_PORT = slice(20, 22)
_SIZE = 22
_WITH_KEY = 3  # Zyre's version with a key of CURVE
_SIZES = {1: _SIZE, _WITH_KEY: _SIZE + 32}
_LATEST = 8  # a later version would be a control character, such as a tab, in a text that begins so
_LONGEST = 90  # read as a message of RADIO, the prefix announces a group of 90 octets, which must not fit


def is_beacon(payload: bytes) -> bool:
    """Whether a datagram is a beacon, by its prefix, its version, its length and a UUID that is not 0.

    Later versions than the known ones may have more octets after the port. Random octets of a beacon's length look
    like a beacon once in 2^26 datagrams.
    """
    if not payload.startswith(_PREFIX) or not _SIZE <= len(payload) <= _LONGEST or not any(payload[_UUID]):
        return False
    version = payload[3]
    return len(payload) == _SIZES[version] if version in _SIZES else 0 < version <= _LATEST


class Beacons:
    """Dissects the beacons that a peer sends to one address. Beacons are no connection, so there is no summary."""

    rejected = False

    def __init__(self, out: list[AnyEvent], flow: int, src: str, dst: str) -> None:
        """Append events to ``out``, as sent by ``src`` to ``dst`` in flow ``flow``."""
        self._out = out
        self._flow = flow
        self._src = src
        self._dst = dst

    def datagram(self, payload: bytes, missing: int, time_ns: int, packet: int) -> None:
        """Take a datagram for which is_beacon() is true. A beacon that was cut is none, so ``missing`` is 0."""
        beacon = Beacon(
            time_ns,
            packet,
            self._flow,
            self._src,
            self._dst,
            version=str(payload[3]),
            uuid=payload[_UUID].hex(),
            port=int.from_bytes(payload[_PORT], "big"),
        )
        if rest := payload[_SIZE:]:
            if payload[3] == _WITH_KEY:
                beacon.public_key = rest
            else:
                beacon.data = rest
        self._out.append(beacon)

    def feed(self, tsdu: bytes, begins: bool, time_ns: int, packet: int) -> None:
        """Take data of PGM, which never comes here."""

    def lost(self, packets: int, time_ns: int, packet: int) -> None:
        """Learn of losses of PGM, which never come here."""

    def cut(self, time_ns: int, packet: int) -> None:
        """Learn of packets of PGM, which never come here."""

    def finish(self, end: End, start_ns: int, end_ns: int, repaired: int = 0, parity: int = 0) -> None:
        """The peer is silent, or the capture is over."""
