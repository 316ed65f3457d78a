"""Datagrams that one sender sends to a group or a host: RADIO's messages over UDP, ZMTP 1.0 over PGM.

The messages come at once: there is no greeting, no handshake and no socket type.
"""

from typing import Literal

from dissectors.events import AnyEvent, Connection, Cut, End, Message, Octets, Peer, Sides
from dissectors.zmtp import frame_headers, wire
from dissectors.zmtp.buffer import Buffer
from dissectors.zmtp.framing import FrameReader
from dissectors.zmtp.journal import Journal
from dissectors.zmtp.limits import Limits
from dissectors.zmtp.security import Security
from dissectors.zmtp.session import Session

# The first 2 octets of each packet's data are the offset of the first message that begins in it, or say that none does.
_OFFSET_SIZE = 2
_NO_MESSAGE = 0xFFFF


class Radio:
    """Dissects a RADIO's datagrams: each is a group's length, a group and a body (48/RADISH, libzmq)."""

    rejected = False

    def __init__(self, out: list[AnyEvent], flow: int, src: str, dst: str, limits: Limits) -> None:
        """Append events to ``out``, as sent by ``src`` to ``dst`` in flow ``flow``."""
        self._journal = Journal(out, flow, src, dst)
        self._keep = limits.keep
        self._octets = 0

    def datagram(self, payload: bytes, missing: int, time_ns: int, packet: int) -> None:
        """Take a datagram; the capture lacks ``missing`` octets at its end."""
        journal, keep = self._journal, self._keep
        journal.time_ns, journal.packet = time_ns, packet
        length = len(payload) + missing
        self._octets += length
        if missing:
            journal.problem_once("packets-cut", "datagrams are cut short by the snaplen")
        if not length or (payload and 1 + payload[0] > length):
            journal.problem("bad-radio-datagram", f"a datagram of {length} octets that cannot hold its group")
            return
        if not payload:
            return
        end = 1 + payload[0]
        group: Octets = payload[1:end] if end <= len(payload) else Cut(payload[1:], payload[0])
        body: Octets = payload[end:]
        if len(payload) < length or length - end > keep:
            body = Cut(payload[end : end + keep], length - end)
        part = journal.count()
        frames = [group, body]
        journal.out.append(Message(*journal.place(), frames, "RADIO", part=part, incomplete=missing > 0))

    def feed(self, tsdu: bytes, begins: bool, time_ns: int, packet: int) -> None:
        """Take data of PGM, which never comes here."""

    def lost(self, packets: int, time_ns: int, packet: int) -> None:
        """Learn of losses of PGM, which never come here."""

    def cut(self, time_ns: int, packet: int) -> None:
        """Learn of packets of PGM, which never come here."""

    def finish(self, end: End, start_ns: int, end_ns: int, repaired: int = 0, parity: int = 0) -> None:
        """The sender is silent, or the capture is over: the summary."""
        summary = _summary(self._journal, "udp", self._octets, end, start_ns, end_ns)
        summary.client.socket_type, summary.server.socket_type = "RADIO", "DISH"
        self._journal.out.append(summary)


class Multicast:
    """Dissects what a sender sends over PGM or EPGM.

    It reports nothing before a packet shows frames of ZMTP 1.0. ``rejected`` becomes true when a packet shows
    something else.
    """

    def __init__(
        self,
        out: list[AnyEvent],
        flow: int,
        transport: Literal["pgm", "epgm"],
        src: str,
        dst: str,
        limits: Limits,
        accepted: bool,
    ) -> None:
        """Append events to ``out``, as sent by ``src`` to ``dst`` in flow ``flow``.

        It is ``accepted`` from the beginning if the user knows that it is ZMTP.
        """
        self._transport = transport
        self.accepted = accepted
        self.rejected = False
        self._joined = False  # frames can be read, since it is known where one begins
        self._journal = Journal(out, flow, src, dst)
        self._buffer = Buffer()
        security = Security()
        security.skip()
        self._session = Session(self._journal, "client", security, limits)
        self._reader = FrameReader(self._buffer, self._session, 1)

    def datagram(self, payload: bytes, missing: int, time_ns: int, packet: int) -> None:
        """Take a datagram of UDP, which never comes here."""

    def feed(self, tsdu: bytes, begins: bool, time_ns: int, packet: int) -> None:
        """Take the data of the next packet; ``begins`` is false if it continues the one before without an offset."""
        journal, buffer = self._journal, self._buffer
        journal.time_ns, journal.packet = time_ns, packet
        size = _OFFSET_SIZE if begins else 0
        buffer.octets += size
        data = tsdu[size:]
        offset = int.from_bytes(tsdu[:size], "big") if begins else _NO_MESSAGE
        if len(tsdu) < size or (offset != _NO_MESSAGE and offset > len(data)):
            if self.accepted:
                journal.problem(
                    "bad-message-offset", f"a packet of {len(tsdu)} octets says that a message begins at {offset}"
                )
                self._leave()
            else:
                self.rejected = True
            return
        buffer.octets += len(data)
        if not self._joined:
            if offset == _NO_MESSAGE:
                return
            data = data[offset:]
            if not self.accepted and data:
                self.accepted = _is_zmtp(data)
                self.rejected = not self.accepted
            if not self.accepted:
                return
            self._joined = True
        whole = buffer.add(data)
        if whole is not None:
            buffer.run(self._reader.read, whole)
        if self._reader.failure is not None:
            self._leave()

    def _leave(self) -> None:
        """The next octets do not continue the last ones: report the part of a message that has come."""
        reader = self._reader
        reader.open()
        self._session.flush(reader.rest)
        self._buffer.clear()
        self._reader = FrameReader(self._buffer, self._session, 1)
        self._joined = False

    def lost(self, packets: int, time_ns: int, packet: int) -> None:
        """Learn that so many packets will never come."""
        journal = self._journal
        if not self.accepted:
            return
        journal.time_ns, journal.packet = time_ns, packet
        what = "1 data packet is" if packets == 1 else f"{packets} data packets are"
        journal.problem("multicast-lost", f"{what} not in the capture, nor is a repair")
        self._leave()

    def cut(self, time_ns: int, packet: int) -> None:
        """Learn that the capture has only a part of a packet, so the packet is useless."""
        journal = self._journal
        if self.accepted:
            journal.time_ns, journal.packet = time_ns, packet
            journal.problem_once("packets-cut", "packets are cut short by the snaplen")

    def finish(self, end: End, start_ns: int, end_ns: int, repaired: int = 0, parity: int = 0) -> None:
        """The sender is silent, or the capture is over: the summary."""
        if not self.accepted:
            return
        journal, session = self._journal, self._session
        if repaired:
            what = "1 data packet was" if repaired == 1 else f"{repaired} data packets were"
            journal.problem(
                "multicast-repaired", f"{what} lost on the way to a receiver or to the capture, and repaired"
            )
        if parity:
            what = "1 packet of parity" if parity == 1 else f"{parity} packets of parity"
            journal.problem(
                "multicast-parity", f"zmtpsniff does not use {what}: what only parity repairs counts as lost"
            )
        if self._buffer.held or session.parts or self._reader.body is not None:
            journal.problem("capture-ends-inside", "the last message is not whole")
        self._leave()
        summary = _summary(journal, self._transport, self._buffer.octets, end, start_ns, end_ns)
        summary.version = "1.0"
        journal.out.append(summary)


def _is_zmtp(data: bytes) -> bool:
    """Whether data that begin with a message are frames of ZMTP 1.0, one after the other, with flags of libzmq."""
    position = 0
    frames = 0
    while position + 2 <= len(data):
        header = frame_headers.read_v1(data, position)
        if isinstance(header, int):
            break
        flags, begin, length = header
        if not 0 <= length < wire.PLAUSIBLE_LENGTH or flags not in wire.FLAGS_SEEN_V1:
            return False
        frames += begin - position > 2 or begin + length <= len(data)
        position = begin + length
    return frames > 0


def _summary(
    journal: Journal,
    transport: Literal["udp", "pgm", "epgm"],
    octets: int,
    end: End,
    start_ns: int,
    end_ns: int,
) -> Connection:
    return Connection(
        flow=journal.flow,
        transport=transport,
        client=Peer(journal.src),
        server=Peer(journal.dst),
        messages=Sides(journal.messages, 0),
        octets=Sides(octets, 0),
        start_ns=start_ns,
        end_ns=max(start_ns, end_ns),
        end=end,
    )
