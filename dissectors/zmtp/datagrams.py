"""What one sender sends to a group or a host in datagrams: RADIO's messages over UDP, ZMTP 1.0 over PGM.

Nothing is said before the messages: no greeting, no handshake, no socket type.
"""

from typing import Literal

from dissectors.events import AnyEvent, Connection, Cut, End, Message, Octets, Peer, Sides
from dissectors.zmtp import wire
from dissectors.zmtp.framing import FrameStream
from dissectors.zmtp.stream import Limits

# The first 2 octets of each packet's data say where the first message that begins in it does, or that none does.
_OFFSET_SIZE = 2
_NO_MESSAGE = 0xFFFF
_PLAUSIBLE_LENGTH = 1 << 32


class Radio:
    """Dissects what a RADIO sends over UDP: group length, group, body in each datagram (48/RADISH, libzmq)."""

    rejected = False

    def __init__(self, out: list[AnyEvent], flow: int, src: str, dst: str, limits: Limits | None = None) -> None:
        """Append events to ``out``, as sent by ``src`` to ``dst`` in flow ``flow``."""
        self._stream = FrameStream(out, flow, src, dst, limits or Limits())
        self._stream.socket_type = "RADIO"

    def datagram(self, payload: bytes, missing: int, time_ns: int, packet: int) -> None:
        """Take a datagram, of which ``missing`` octets at the end were not captured."""
        stream = self._stream
        stream.time_ns, stream.packet = time_ns, packet
        length = len(payload) + missing
        stream.octets += length
        if missing:
            stream.problem_once("packets-cut", "datagrams are cut short by the snaplen")
        if not length or (payload and 1 + payload[0] > length):
            stream.problem("bad-radio-datagram", f"a datagram of {length} octets that cannot hold its group")
            return
        if not payload:
            return
        end = 1 + payload[0]
        keep = stream.limits.keep
        group: Octets = payload[1:end] if end <= len(payload) else Cut(payload[1:], payload[0])
        body: Octets = payload[end:]
        if len(payload) < length or length - end > keep:
            body = Cut(payload[end : end + keep], length - end)
        stream.messages += 1
        place = time_ns, packet, stream.flow, stream.src, stream.dst
        stream.out.append(Message(*place, [group, body], "RADIO", incomplete=missing > 0))

    def feed(self, tsdu: bytes, begins: bool, time_ns: int, packet: int) -> None:
        """Take data of PGM, which never comes here."""

    def lost(self, packets: int, time_ns: int, packet: int) -> None:
        """Learn of losses of PGM, which never come here."""

    def cut(self, time_ns: int, packet: int) -> None:
        """Learn of packets of PGM, which never come here."""

    def finish(self, end: End, start_ns: int, end_ns: int, repaired: int = 0, parity: int = 0) -> None:
        """The sender is silent, or the capture is over: the summary."""
        stream = self._stream
        stream.out.append(
            _summary(stream, "udp", None, end, start_ns, end_ns, socket_types=("RADIO", "DISH")),
        )


class _Multicast(FrameStream):
    """ZMTP 1.0 frames out of PGM packets: they can be joined wherever a packet says that a message begins."""

    __slots__ = ("joined",)

    def __init__(self, out: list[AnyEvent], flow: int, src: str, dst: str, limits: Limits) -> None:
        super().__init__(out, flow, src, dst, limits)
        self.joined = False

    @property
    def unfinished(self) -> bool:
        """Whether a message has begun and is not over."""
        return bool(self._held or self._parts or self._collects)

    def join(self) -> None:
        self.joined = True
        self._damaged = False
        self._plain = True
        self._start_frames(1)

    def leave(self) -> None:
        """What follows does not hang together with what came: give out what there is of the message."""
        if self._state == self._frames_v1 and self._held:
            self._open_body()
        self._flush_message()
        self._chunks = []
        self._held = 0
        self.joined = False
        self._state = self._dead

    def _die(self) -> None:
        self.leave()


class Multicast:
    """Dissects what a sender sends over PGM or EPGM.

    Nothing is reported before a packet shows frames of ZMTP 1.0; ``rejected`` becomes true when one shows something
    else.
    """

    def __init__(
        self,
        out: list[AnyEvent],
        flow: int,
        transport: Literal["pgm", "epgm"],
        src: str,
        dst: str,
        limits: Limits | None = None,
        forced: bool = False,
    ) -> None:
        """Append events to ``out``, as sent by ``src`` to ``dst`` in flow ``flow``; ``forced`` if it must be ZMTP."""
        self.rejected = False
        self._transport: Literal["pgm", "epgm"] = transport
        self._accepted = forced
        self._stream = _Multicast(out, flow, src, dst, limits or Limits())

    def datagram(self, payload: bytes, missing: int, time_ns: int, packet: int) -> None:
        """Take a datagram of UDP, which never comes here."""

    def feed(self, tsdu: bytes, begins: bool, time_ns: int, packet: int) -> None:
        """Take the data of the next packet; ``begins`` is false if it continues the one before without an offset."""
        stream = self._stream
        stream.time_ns, stream.packet = time_ns, packet
        size = _OFFSET_SIZE if begins else 0
        stream.octets += size
        data = tsdu[size:]
        offset = int.from_bytes(tsdu[:size], "big") if begins else _NO_MESSAGE
        if len(tsdu) < size or (offset != _NO_MESSAGE and offset > len(data)):
            if self._accepted:
                stream.problem(
                    "bad-message-offset", f"a packet of {len(tsdu)} octets says that a message begins at {offset}"
                )
                stream.leave()
            else:
                self.rejected = True
            return
        if not stream.joined:
            if offset == _NO_MESSAGE:
                stream.octets += len(data)
                return
            stream.octets += offset
            data = data[offset:]
            if not self._accepted and data:
                self._accepted = _is_zmtp(data)
                self.rejected = not self._accepted
            if not self._accepted:
                return
            stream.join()
        if data:
            stream.feed(data, time_ns, packet)

    def lost(self, packets: int, time_ns: int, packet: int) -> None:
        """Learn that so many packets will never come."""
        stream = self._stream
        if not self._accepted:
            return
        stream.time_ns, stream.packet = time_ns, packet
        what = "1 data packet is" if packets == 1 else f"{packets} data packets are"
        stream.problem("multicast-lost", f"{what} not in the capture, and no repair of it")
        stream.leave()

    def cut(self, time_ns: int, packet: int) -> None:
        """Learn that a packet was captured only in part, so that it cannot be used."""
        stream = self._stream
        if self._accepted:
            stream.time_ns, stream.packet = time_ns, packet
            stream.problem_once("packets-cut", "packets are cut short by the snaplen")

    def finish(self, end: End, start_ns: int, end_ns: int, repaired: int = 0, parity: int = 0) -> None:
        """The sender is silent, or the capture is over: the summary."""
        if not self._accepted:
            return
        stream = self._stream
        if repaired:
            what = "1 data packet was" if repaired == 1 else f"{repaired} data packets were"
            stream.problem(
                "multicast-repaired", f"{what} lost on the way to a receiver or to the capture, and repaired"
            )
        if parity:
            what = "1 packet of parity is" if parity == 1 else f"{parity} packets of parity are"
            stream.problem("multicast-parity", f"{what} not used: what only they could repair is told as lost")
        if stream.unfinished:
            stream.problem("capture-ends-inside", "the last message is not whole")
        stream.leave()
        stream.out.append(_summary(stream, self._transport, "1.0", end, start_ns, end_ns))


def _is_zmtp(data: bytes) -> bool:
    """Whether data that begin with a message chain as frames of ZMTP 1.0 with flags that libzmq sends."""
    position = 0
    frames = 0
    while position + 2 <= len(data):
        size = 10 if data[position] == wire.LENGTH_ESCAPE_V1 else 2
        if position + size > len(data):
            break
        length = int.from_bytes(data[position + 1 : position + 9], "big") if size == 10 else data[position]
        if not 0 < length <= _PLAUSIBLE_LENGTH or data[position + size - 1] not in wire.FLAGS_SEEN_V1:
            return False
        position += size - 1 + length
        frames += size == 10 or position <= len(data)
    return frames > 0


def _summary(
    stream: FrameStream,
    transport: Literal["udp", "pgm", "epgm"],
    version: str | None,
    end: End,
    start_ns: int,
    end_ns: int,
    socket_types: tuple[str | None, str | None] = (None, None),
) -> Connection:
    return Connection(
        flow=stream.flow,
        transport=transport,
        client=Peer(stream.src, socket_type=socket_types[0]),
        server=Peer(stream.dst, socket_type=socket_types[1]),
        messages=Sides(stream.messages, 0),
        octets=Sides(stream.octets, 0),
        start_ns=start_ns,
        end_ns=max(start_ns, end_ns),
        end=end,
        version=version,
    )
