"""Takes the headers of links, IP and TCP off packets: segments remain, and datagrams of UDP and PGM."""

import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial

from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.native import core
from zmtpsniff.net.encapsulation import (
    CUT,
    HEADERS,
    IP_PROTOCOL,
    IP_TUNNELS,
    IPV4,
    IPV6,
    LINK_TYPE,
    MALFORMED,
    NO_TCP,
    NO_TUNNEL,
    UDP_PORT,
    UDP_TUNNELS,
)
from zmtpsniff.net.fragments import Fragment, Fragments
from zmtpsniff.net.networks import LABELLED, Networks, labels_behind
from zmtpsniff.net.segment import CLOSED, FIN, PGM, PSH, UDP, Datagram, Segment
from zmtpsniff.net.tally import PLAIN_UDP, TOO_DEEP, Tally, udp_kind
from zmtpsniff.words import link_types
from zmtpsniff.words.counts import were

UNIX = link_types.USER0  # as sockdump uses it: receiver and sender, 8 octets each, then the octets sent

TCP = 6
HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION = 0, 43, 44, 51, 60
EXTENSIONS = frozenset((HOP_BY_HOP, ROUTING, DESTINATION, 135, 139, 140))  # with their length in units of 8 octets

_UNIX_SIZE = 16
_MOST_STREAMS = 1 << 16
_MOST_TUNNELS = 8  # one inside the other

_IPV4_HEADER = struct.Struct("!BxHHHBB")  # up to the protocol
_TCP_HEADER = struct.Struct("!4sIIBBH")  # up to the window; both ports in one
Transport = Callable[[int, int, bytes, bytes, int, int, int], Segment | None]
"""Called with the time and the number of a packet, its addresses, and where its transport header begins: see below."""


class _Transports(dict[int, Transport]):
    """The takers of ``data[start:have]`` behind IP, by protocol; on the wire it was ``data[start:stop]``."""

    def __init__(self, other: Callable[..., Segment | None], known: dict[int, Transport]) -> None:
        """``other`` takes all other protocols, with their number."""
        super().__init__(known)
        self._other = other

    def __missing__(self, protocol: int) -> Transport:
        """The taker of a protocol that is not known, which stays unknown."""
        return partial(self._other, protocol)


class HeaderDecoder:
    """Makes segments of packets. It holds the fragments of datagrams that are not whole yet.

    It counts what it leaves out, and :meth:`skipped` reports that. ``malformed`` counts packets with a wrong header,
    up to that of TCP. ``cut`` counts packets captured so short that their TCP header is missing. Packets without TCP,
    or that may be without it, are counted by kind.
    """

    def __init__(
        self, tcp: Transport | None = None, networks: Networks | None = None, sent: dict[bytes, int] | None = None
    ) -> None:
        """Start without fragments. ``tcp`` takes TCP's headers instead of what makes segments of them.

        ``networks`` tells networks with common addresses apart. Without it they are one. ``sent`` has the sequence
        number that follows in each direction of Unix domain sockets, and changes.
        """
        self.malformed = 0
        self.cut = 0
        self._segments = 0
        self._tally = Tally()
        self._fragments = Fragments()
        self.datagrams: list[Datagram] = []  # of UDP and PGM in the packets taken last
        # IP fragments among them: the identity of their datagram, and the number of the packet.
        self.fragments: list[tuple[Hashable, int]] = []
        self._sent = {} if sent is None else sent
        self._depth = 0  # tunnels around what is taken apart
        self._networks = networks
        self._labels = b""  # of the packet's network; the hops are those that it has left
        self._hops = 0
        self._transports = _Transports(self._other, {TCP: tcp or self._tcp, UDP: self._udp, PGM: self._pgm})
        self._transports |= {protocol: partial(self._tunnel, protocol) for protocol in IP_TUNNELS}

    def segments(self, packets: Iterable[Packet], numbers: int | Iterable[int]) -> list[Segment]:
        """Return the TCP segments in ``packets``.

        The packets' ``numbers`` count up from a first one, or are given one by one. Afterwards :attr:`datagrams` has
        the datagrams of UDP and PGM among them.
        """
        self._forget_datagrams()
        numbered = enumerate(packets, numbers) if isinstance(numbers, int) else zip(numbers, packets, strict=True)
        found = [self.segment(time, number, link, data, wire) for number, (time, link, data, wire, _) in numbered]
        segments = [segment for segment in found if segment is not None]
        self._segments += len(segments)
        return segments

    def segments_of(self, block: Block, numbers: Sequence[int]) -> list[Segment]:
        """Return the same of the packets of a block; by the native core, if there is one."""
        if core is None or block.odd:
            return self.segments(block.packets(), numbers)

        def other(place: int) -> Segment | None:
            ((time, link, data, wire, _),) = block.packets(place, place + 1)
            return self.segment(time, numbers[place], link, data, wire)

        self._forget_datagrams()
        found: list[Segment] = core.segments(block.octets, block.rows, numbers, other)
        self._segments += len(found)
        return found

    def _forget_datagrams(self) -> None:
        if self.datagrams:
            self.datagrams = []
        if self.fragments:
            self.fragments = []

    def skipped(self) -> list[tuple[str, str]]:
        """Problem codes for packets left out so far, each with a sentence that says how many."""
        told = self._tally.unread()
        if self.cut:
            told.append(("packets-cut", f"{were(self.cut, 'packet')} captured too short to hold the TCP header"))
        if self.malformed:
            packets = were(self.malformed, "packet")
            told.append(("malformed-headers", f"{packets} skipped for wrong headers"))
        if dropped := self._fragments.dropped:
            told.append(("fragments-dropped", f"{were(dropped, 'fragmented datagram')} given up, fragments and all"))
        if self._networks is not None:
            told += self._networks.problems()
        return told

    def other_packets(self) -> str:
        """The packets so far without a connection, as in ``12 ARP, 3 ICMP``; "" if there were none."""
        resets = f"{self._segments:,} TCP resets" if self._segments else ""  # all others begin a connection
        return ", ".join(filter(None, (resets, self._tally.others())))

    def segment(self, time: int, number: int, link: int, data: bytes, wire: int) -> Segment | None:
        """The TCP segment of any packet, whatever headers it has in front; None if it has none."""
        size = len(data)
        if not size and (link in link_types.IP or not wire):  # as an engine gives a packet that it has looked into
            return None
        stop = wire if wire > size else size
        self._labels = b""
        following, start = LINK_TYPE | link, 0
        if (header := HEADERS.get(following)) is not None:
            following, start = header(data, 0, stop)
            if following == IPV4:  # as nearly always: it saves a call
                return self._ipv4(time, number, data, start, stop)
        elif link == UNIX and size >= _UNIX_SIZE:
            return self._unix(time, number, data, wire)
        return self._network(time, number, following, data, start, stop)

    def _unix(self, time: int, number: int, data: bytes, wire: int) -> Segment | None:
        """Octets sent through a Unix domain socket, numbered as TCP would. Nothing marks the end of the stream."""
        key = data[8:16] + data[:8] + bytes(4)
        payload = data[_UNIX_SIZE:]
        missing = max(wire - len(data), 0)
        sequence = self._sent.pop(key, 1)
        if len(self._sent) >= _MOST_STREAMS:
            self._sent.pop(next(iter(self._sent)))
        self._sent[key] = (sequence + len(payload) + missing) & 0xFFFF_FFFF
        return time, number, key, sequence, 0, PSH if payload or missing else FIN, payload, missing

    def _network(self, time: int, number: int, following: int, data: bytes, start: int, stop: int) -> Segment | None:
        """Take headers off ``data[start:]``, up to IP, if there is IP. ``following`` is the kind of the first one.

        On the wire the packet was ``data[:stop]``.
        """
        while following != IPV4 and (header := HEADERS.get(following)) is not None:
            if following in LABELLED:
                self._labels = labels_behind(self._labels, following, data, start)
            following, start = header(data, start, stop)
        if following == IPV4:
            return self._ipv4(time, number, data, start, stop)
        if following == IPV6:
            return self._ipv6(time, number, data, start, stop)
        if following in (CUT, MALFORMED):
            return self._short(following == MALFORMED)
        self._tally.add(following if following >= 0 else ~following)
        return None

    def _ipv4(self, time: int, number: int, data: bytes, ip: int, wire: int) -> Segment | None:
        size = len(data)
        if size < ip + 20:
            return self._short(wire < ip + 20)
        version, total, identification, fragment, self._hops, protocol = _IPV4_HEADER.unpack_from(data, ip)
        header = (version & 0x0F) * 4
        if not total:
            total = wire - ip  # a length of 0: the sending machine lets its network card cut the packet (TSO)
        if version >> 4 != 4 or header < 20 or total < header:
            return self._short(True)
        start, stop = ip + header, ip + total
        addresses = data[ip + 12 : ip + 20]
        if not fragment & 0x3FFF:
            have = stop if stop < size else size
            return self._transports[protocol](time, number, addresses, data, start, have, stop)
        key, offset, more = (addresses, protocol, identification), (fragment & 0x1FFF) * 8, bool(fragment & 0x2000)
        part = Fragment(key, time, protocol, offset, data[start:stop], stop - start, more)
        return self._fragment(number, addresses, part)

    def _ipv6(self, time: int, number: int, data: bytes, ip: int, wire: int) -> Segment | None:
        size = len(data)
        if size < ip + 40:
            return self._short(wire < ip + 40)
        length, protocol = struct.unpack_from("!HB", data, ip + 4)
        if data[ip] >> 4 != 6:
            return self._short(True)
        start = ip + 40
        stop = start + length if length else wire  # 0: a jumbogram (RFC 2675), or left to the network card
        addresses = data[ip + 8 : ip + 40]
        self._hops = data[ip + 7]
        return self._extensions(time, number, protocol, addresses, data, start, min(stop, size), stop)

    def _extensions(
        self, time: int, number: int, protocol: int, addresses: bytes, data: bytes, start: int, have: int, stop: int
    ) -> Segment | None:
        """Skip the extension headers of IPv6 up to the transport header."""
        while protocol not in self._transports:
            if protocol in EXTENSIONS or protocol == AUTHENTICATION:
                if have < start + 8:
                    return self._short(stop < start + 8)
                length = (data[start + 1] + 2) * 4 if protocol == AUTHENTICATION else (data[start + 1] + 1) * 8
                protocol = data[start]
                start += length
            elif protocol == FRAGMENT:
                if have < start + 8:
                    return self._short(stop < start + 8)
                protocol, field, identification = struct.unpack_from("!BxHI", data, start)
                start += 8
                if field & 0xFFF9:  # else it is whole all the same (RFC 6946)
                    key, offset, more = (addresses, identification), field & 0xFFF8, bool(field & 1)
                    part = Fragment(key, time, protocol, offset, data[start:stop], stop - start, more)
                    return self._fragment(number, addresses, part)
            else:
                self._tally.add(IP_PROTOCOL | protocol)
                return None
        return self._transports[protocol](time, number, addresses, data, start, have, stop)

    def _fragment(self, number: int, addresses: bytes, part: Fragment) -> Segment | None:
        """Keep a fragment; take the datagram if it is whole now."""
        if part.length <= 0 or (part.more and part.length % 8):
            return self._short(True)
        self.fragments.append((part.key, number))
        whole = self._fragments.add(part)
        if whole is None:
            return None
        protocol, payload, length = whole
        time = part.time_ns
        if len(addresses) == 32:
            return self._extensions(time, number, protocol, addresses, payload, 0, len(payload), length)
        return self._transports[protocol](time, number, addresses, payload, 0, len(payload), length)

    def _other(
        self, protocol: int, time: int, number: int, addresses: bytes, data: bytes, start: int, have: int, stop: int
    ) -> Segment | None:
        """A protocol in IP that carries nothing to take apart, or with a header of IPv6 in front of that."""
        if protocol == AUTHENTICATION:
            return self._extensions(time, number, protocol, addresses, data, start, have, stop)
        self._tally.add(IP_PROTOCOL | protocol)
        return None

    def _tcp(
        self, time: int, number: int, addresses: bytes, data: bytes, start: int, have: int, stop: int
    ) -> Segment | None:
        if have < start + 20:
            return self._short(stop < start + 20)
        ports, sequence, acknowledgment, offset, flags, window = _TCP_HEADER.unpack_from(data, start)
        begin = start + ((offset & 0xF0) >> 2)
        if begin < start + 20 or begin > stop:
            return self._short(True)
        missing = stop - (begin if begin > have else have)
        if not window:
            flags |= CLOSED
        key = addresses + ports
        if self._labels and self._networks is not None:
            key = self._networks.key(self._labels, key, self._hops, sequence, acknowledgment, flags)
        return time, number, key, sequence, acknowledgment, flags, data[begin:have], missing

    def _udp(
        self, time: int, number: int, addresses: bytes, data: bytes, start: int, have: int, stop: int
    ) -> Segment | None:
        if have < start + 8:
            self._tally.add(PLAIN_UDP)
            return None
        source, destination, length = struct.unpack_from("!HHH", data, start)
        if 8 <= length < stop - start:
            stop = start + length
        payload, length = data[start + 8 : min(have, stop)], stop - start - 8
        kind = udp_kind(source, destination, payload)
        if (tunnel := UDP_TUNNELS.get(destination)) is not None:
            following, begin = tunnel(payload, 0, length)
            if following == NO_TCP:
                kind = PLAIN_UDP
            elif following != NO_TUNNEL:
                if UDP_PORT | destination in LABELLED:
                    self._labels = labels_behind(self._labels, UDP_PORT | destination, payload, 0)
                return self._inside(time, number, following, payload, begin, length)
        key = self._zone() + addresses + data[start : start + 4]
        self.datagrams.append((time, number, UDP, key, payload, length - len(payload)))
        self._tally.add(kind)
        return None

    def _tunnel(
        self, protocol: int, time: int, number: int, addresses: bytes, data: bytes, start: int, have: int, stop: int
    ) -> Segment | None:
        """A packet inside IP, with a header of its own or without."""
        return self._inside(time, number, IP_PROTOCOL | protocol, data[start:have], 0, stop - start)

    def _inside(self, time: int, number: int, following: int, data: bytes, start: int, stop: int) -> Segment | None:
        """A packet inside a tunnel. Its headers begin at ``start``; on the wire it ended at ``stop``.

        The tunnel is no part of the key, unless networks have addresses in common. A capture on all interfaces of a
        tunnel's end has each packet again without the tunnel, and both must belong to the same flow.
        """
        if self._depth == _MOST_TUNNELS:
            self._tally.add(TOO_DEEP)
            return None
        self._depth += 1
        try:
            return self._network(time, number, following, data, start, stop)
        finally:
            self._depth -= 1

    def _pgm(self, time: int, number: int, addresses: bytes, data: bytes, start: int, have: int, stop: int) -> None:
        if have >= start + 4:
            key = self._zone() + addresses + data[start : start + 4]
            self.datagrams.append((time, number, PGM, key, data[start:have], stop - have))
        self._tally.add(IP_PROTOCOL | PGM)

    def _zone(self) -> bytes:
        """The labels before the key of a datagram."""
        return self._networks.zone(self._labels) if self._labels and self._networks is not None else b""

    def _short(self, malformed: bool) -> Segment | None:
        """Count a packet that makes no segment: it is malformed, or the capture cut too much off."""
        if malformed:
            self.malformed += 1
        else:
            self.cut += 1
        return None
