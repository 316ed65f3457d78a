"""Captures of peers of ZMTP 3.1 as if some of their hosts had older libraries.

Times, directions and the borders of packets stay. Each connection gets the greetings and frames of the older of its two
sides. What that does not know is left out, and subscriptions become messages, of which a SUB of ZMTP 1.0 sends none.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from tests.world.octets import NUMBERS, SIGNATURE, frame, frame_v1
from zmtpsniff.capture.block import Packet

Version = tuple[int, int]
_ETHERNET, _TCP, _GREETING, _MODULO = 14, 6, 64, 1 << 32
_FIN, _SYN, _ACK = 1, 2, 16
_End = tuple[bytes, bytes]  # address and port


class _Rewriting:
    """The stream of one side, old and new. Positions of the old one have places in the new one."""

    def __init__(self) -> None:
        self.isn = 0
        self.pieces: dict[int, bytes] = {}  # by offset
        self.new = bytearray()
        self._knots = [(0, 0)]

    @property
    def old(self) -> bytes:
        """The octets of the side, up to the first that the capture lacks."""
        stream = bytearray()
        for offset in sorted(self.pieces):
            if offset <= len(stream):
                stream[offset : offset + len(self.pieces[offset])] = self.pieces[offset]
        return bytes(stream)

    def put(self, octets: bytes, until: int) -> None:
        """Put octets in the place of the old ones up to a position."""
        self.new += octets
        self._knots.append((until, len(self.new)))

    def place(self, number: int) -> int:
        """The new sequence number in place of an old one; a part of a frame stands for at most as many octets."""
        position = (number - self.isn - 1) % _MODULO
        if position >= _MODULO // 2:  # the SYN, or a probe
            return number
        index = bisect_right(self._knots, (position, _MODULO)) - 1
        old, new = self._knots[index]
        if index + 1 < len(self._knots):
            position = old + min(position - old, self._knots[index + 1][1] - new)
        return (self.isn + 1 + new + position - old) % _MODULO

    def between(self, number: int, after: int) -> bytes:
        """The new octets between two new sequence numbers."""
        begin, end = ((one - self.isn - 1) % _MODULO for one in (number, after))
        return bytes(self.new[begin:end])


def _frames(octets: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Position, length of the header, flags and body of the frames that are whole."""
    position = _GREETING
    while position + 2 <= len(octets):
        header = 9 if octets[position] & 2 else 2
        length = int.from_bytes(octets[position + 1 : position + header], "big")
        body = octets[position + header : position + header + length]
        if len(body) < length:
            return
        yield position, header, octets[position], body
        position += header + length


def _announced(octets: bytes, name: bytes) -> bytes:
    """The property of a READY, which is the first frame."""
    body = next((body for _, _, flags, body in _frames(octets) if flags & 4), b"")
    begin = body.find(bytes([len(name)]) + name) + 1 + len(name)
    return body[begin + 4 : begin + 4 + int.from_bytes(body[begin : begin + 4], "big")] if begin > len(name) else b""


def _rewrite(side: _Rewriting, own: Version, both: Version) -> None:
    """Write the new stream of a side of version ``own`` where both sides speak the version ``both``."""
    old = side.old
    identity, kind = _announced(old, b"Identity"), _announced(old, b"Socket-Type")
    signature = SIGNATURE[:1] + struct.pack(">Q", len(identity) + 1) + SIGNATURE[-1:]
    if own == (1, 0):
        side.put(frame_v1(identity), 10)
    else:
        side.put(signature, 10)
    if both == (1, 0):
        side.put(b"" if own == both else identity, _GREETING)
    elif both == (2, 0):
        side.put(b"\1" if own == both else b"\3", 11)
        side.put(bytes([NUMBERS.get(kind, 0)]), _GREETING)
    else:
        side.put(bytes([3, own[1]]), 12)
        side.put(old[12:_GREETING], _GREETING)
    make = frame_v1 if both == (1, 0) else frame
    for position, header, flags, body in _frames(old):
        name, data = (body[1 : 1 + body[0]], body[1 + body[0] :]) if flags & 4 else (b"", b"")
        end = position + header + len(body)
        is_topic = name in (b"SUBSCRIBE", b"CANCEL")
        if is_topic or (kind in (b"SUB", b"XSUB") and not flags & 4):
            topic = bytes([name == b"SUBSCRIBE"]) + data if is_topic else body
            side.put(b"" if own == (1, 0) else make(topic), end)
        elif name == b"READY" and both < (3, 0):
            side.put(frame(identity) if both == (2, 0) else b"", end)
        elif name in (b"PING", b"PONG"):
            side.put(b"", end)
        elif flags & 4:
            side.put(old[position:end], end)
        else:
            octets = make(body, flags & 1)
            side.put(octets[: len(octets) - len(body)], position + header)
            side.put(body, end)


def with_older_peers(packets: Sequence[Packet], version_of: Callable[[str], Version]) -> list[Packet]:
    """The packets of IPv4 and TCP in Ethernet if each host had this version; it is given as (major, minor)."""
    sides: dict[tuple[_End, _End], _Rewriting] = {}
    read = []
    connections: list[tuple[_End, _End, _Rewriting, _Rewriting]] = []
    for time_ns, link, octets, _, comment in packets:
        ip = octets[_ETHERNET:]
        if len(ip) < 40 or ip[0] >> 4 != 4 or ip[9] != _TCP:
            continue
        begin = (ip[0] & 15) * 4
        source, target = (ip[12:16], ip[begin : begin + 2]), (ip[16:20], ip[begin + 2 : begin + 4])
        number, _ = struct.unpack_from(">II", ip, begin + 4)
        body, flags = begin + (ip[begin + 12] >> 4) * 4, ip[begin + 13]
        payload = ip[body : struct.unpack_from(">H", ip, 2)[0]]
        if flags & _SYN and not flags & _ACK and (source, target) not in sides:
            sides[source, target], sides[target, source] = one, other = _Rewriting(), _Rewriting()
            connections.append((source, target, one, other))
        side, other = sides[source, target], sides[target, source]
        if flags & _SYN:
            side.isn = number
        elif payload:
            side.pieces[(number - side.isn - 1) % _MODULO] = payload
        read.append((time_ns, link, octets, comment, begin, body, payload, side, other))
    for source, target, one, other in connections:
        mine, yours = (version_of(".".join(map(str, end[0]))) for end in (source, target))
        _rewrite(one, mine, min(mine, yours))
        _rewrite(other, yours, min(mine, yours))
    return [_rewritten(*one) for one in read]


def _rewritten(
    time_ns: int, link: int, octets: bytes, comment: str | None, begin: int, body: int, payload: bytes,
    side: _Rewriting, other: _Rewriting,
) -> Packet:  # fmt: skip
    ip = bytearray(octets[_ETHERNET : _ETHERNET + body])
    number, ack = struct.unpack_from(">II", ip, begin + 4)
    flags = ip[begin + 13]
    placed = number if flags & _SYN else side.place(number)
    new = side.between(placed, side.place((number + len(payload)) % _MODULO)) if payload else b""
    struct.pack_into(">II", ip, begin + 4, placed, other.place(ack) if flags & _ACK else ack)
    struct.pack_into(">H", ip, 2, len(ip) + len(new))
    frame_octets = octets[:_ETHERNET] + bytes(ip) + new
    return time_ns, link, frame_octets, len(frame_octets), comment
