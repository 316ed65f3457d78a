"""Headers in front of IP, of links and of tunnels: what follows each header, and where it begins.

The protocol of the octets behind a header is a number. An EtherType stands for itself. Numbers of other registries have
the bits of their registry above them: ``IP_PROTOCOL | 47`` is GRE in IP. ``HEADERS`` has a function for each header
that this module reads. The function takes the captured octets, the place where the header begins, and the place where
the packet ended on the wire. It returns what follows and where. If nothing follows, it returns a negative number that
says why: ``CUT``, ``MALFORMED``, or ``~number`` for a header of this kind with unknown contents. Each header has at
least one octet. So taking them off ends, in time linear in the packet.

IP itself is read by ``packets.py``, which also looks for tunnels in it.
"""

import struct
from collections.abc import Callable
from functools import partial

from zmtpsniff.words import link_types

Next = tuple[int, int]
"""The protocol after a header, and where it begins."""
Header = Callable[[bytes, int, int], Next]

# The registries, beside that of EtherTypes.
LINK_TYPE, LLC_SAP, SNAP_OUI, PPP, IP_PROTOCOL, UDP_PORT, FAMILY, OTHER = (number << 24 for number in range(1, 9))

# Why nothing follows. The last two are for UDP only: octets of another program, and a header with no packet inside.
CUT, MALFORMED, NO_TUNNEL, NO_TCP = -1, -2, -3, -4

# EtherTypes: https://www.iana.org/assignments/ieee-802-numbers
IPV4, IPV6 = 0x0800, 0x86DD
MPLS, MPLS_MULTICAST, PPPOE = 0x8847, 0x8848, 0x8864
ERSPAN, ERSPAN_III = 0x88BE, 0x22EB
TRANSPARENT_ETHERNET = 0x6558  # in GRE
ARP, PPPOE_DISCOVERY, LLDP, NSH = 0x0806, 0x8863, 0x88CC, 0x894F
_LEAST_ETHERTYPE = 0x0600  # what is below is the length of an 802.3 frame

IP_IN_IP, IPV6_IN_IP, GRE, MPLS_IN_IP = 4, 41, 47, 137
VXLAN_PORT, GENEVE_PORT, GTP_PORT = 4789, 6081, 2152
OLD_VXLAN_PORT = 8472  # which Linux takes if nobody names another, and so flannel and Cilium

IPV4_FAMILY = 2
IPV6_FAMILIES = frozenset((10, 24, 28, 30))  # AF_INET6 of Linux, NetBSD and OpenBSD, FreeBSD, macOS
MPLS_CHANNEL = OTHER | 1  # what watches over a pseudowire (RFC 4385, section 5)
_SNAP, _IP_SAP = b"\xaa\xaa\x03", b"\x06\x06\x03"
_WITH_ETHERTYPE = frozenset((0x000000, 0x0000F8, 0x080007))  # OUIs in whose SNAP headers an EtherType follows
_IN_LLC = frozenset((_SNAP, b"\x42\x42\x03", b"\xfe\xfe\x03"))  # SNAP, spanning tree, IS-IS
_IN_ETHERNET = frozenset((ARP, LLDP, MPLS, MPLS_MULTICAST, PPPOE_DISCOVERY, PPPOE)) | link_types.VLAN_TAGS
_PPP_PROTOCOLS = {0x0021: IPV4, 0x0057: IPV6, 0x0281: MPLS, 0x0283: MPLS_MULTICAST}
_VXLAN_VALID, _VXLAN_NAMED = 0x08, 0x04  # the second says that the header names what is inside
_VXLAN_PROTOCOLS = {1: IPV4, 2: IPV6, 3: TRANSPARENT_ETHERNET, 4: NSH, 5: MPLS}
_GTP_G_PDU = 255
_NFLOG_PAYLOAD = 9


def _short(end: int, stop: int) -> Next:
    """A header of which less was captured than up to ``end``."""
    return (MALFORMED if stop < end else CUT), end


def _two(data: bytes, at: int) -> int:
    return data[at] << 8 | data[at + 1]


# ------------------------------------------------------------------ Ethernet and its like


def _with_ethertype(size: int, data: bytes, start: int, stop: int) -> Next:
    """Ethernet or the tag of a VLAN, at whose end stands an EtherType, or a length if LLC follows."""
    end = start + size
    if len(data) < end:
        return _short(end, stop)
    protocol = data[end - 2] << 8 | data[end - 1]  # without a call, as this is what most packets have
    return (protocol, end) if protocol >= _LEAST_ETHERTYPE else _llc(data, end, stop)


_ethernet, _vlan = partial(_with_ethertype, 14), partial(_with_ethertype, 4)


def _llc(data: bytes, start: int, stop: int) -> Next:
    """LLC (IEEE 802.2), and SNAP in it."""
    if len(data) < start + 3:
        return _short(start + 3, stop)
    head = data[start : start + 3]
    if head == _IP_SAP:
        return _ip(data, start + 3, stop)
    if head != _SNAP:
        return LLC_SAP | head[0], start + 3
    if len(data) < start + 8:
        return _short(start + 8, stop)
    oui = data[start + 3] << 16 | _two(data, start + 4)
    return (_two(data, start + 6) if oui in _WITH_ETHERTYPE else SNAP_OUI | oui), start + 8


def _cooked(size: int, place: int, data: bytes, start: int, stop: int) -> Next:
    """Linux's own header. Numbers below the first EtherType are Linux's own; one of them is LLC (ETH_P_802_2)."""
    if len(data) < start + size:
        return _short(start + size, stop)
    protocol = _two(data, start + place)
    return _llc(data, start + size, stop) if protocol == 4 else (protocol, start + size)


def _loopback(data: bytes, start: int, stop: int) -> Next:
    """A family, in the byte order of the capturing machine (null) or big-endian (loop). Every family fits an octet."""
    if len(data) < start + 4:
        return _short(start + 4, stop)
    family = min(struct.unpack_from(">I", data, start)[0], struct.unpack_from("<I", data, start)[0])
    if family > 0xFF:
        return MALFORMED, start
    return (IPV4 if family == IPV4_FAMILY else IPV6 if family in IPV6_FAMILIES else FAMILY | family), start + 4


def _ip(data: bytes, start: int, stop: int) -> Next:
    """No header at all: IP, whose first octet says the version."""
    if len(data) <= start:
        return _short(start + 1, stop)
    version = data[start] >> 4
    return (IPV4 if version == 4 else IPV6 if version == 6 else MALFORMED), start


def _nflog(data: bytes, start: int, stop: int) -> Next:
    """Linux's NFLOG: a family, then fields in the byte order of the capturing machine; one field is the packet."""
    start += 4
    # The first field is short.
    field = struct.Struct(">HH" if data[start : start + 1] == b"\0" else "<HH")
    while len(data) >= start + 4:
        length, kind = field.unpack_from(data, start)
        if length < 4:
            return MALFORMED, start
        if kind & 0x3FFF == _NFLOG_PAYLOAD:  # above are flags
            return _ip(data, start + 4, stop)
        start += (length + 3) & ~3
    return _short(start + 4, stop)


# ------------------------------------------------------------------ PPP


def _ppp(data: bytes, start: int, stop: int) -> Next:
    """PPP (RFC 1661), with address and control or without, the protocol in two octets or in one (RFC 1662)."""
    if data[start : start + 1] == b"\xff":  # the address; no protocol begins so
        start += 2
    end = start + (1 if len(data) > start and data[start] & 1 else 2)
    if len(data) < end:
        return _short(end, stop)
    protocol = data[start] if end == start + 1 else _two(data, start)
    return _PPP_PROTOCOLS.get(protocol, PPP | protocol), end


def _ppp_hdlc(data: bytes, start: int, stop: int) -> Next:
    """PPP, or Cisco's HDLC, which begins with another address."""
    return (_cisco_hdlc if data[start : start + 1] in (b"\x0f", b"\x8f") else _ppp)(data, start, stop)


def _cisco_hdlc(data: bytes, start: int, stop: int) -> Next:
    if len(data) < start + 4:
        return _short(start + 4, stop)
    return _two(data, start + 2), start + 4


def _pppoe(data: bytes, start: int, stop: int) -> Next:
    """A session of PPPoE (RFC 2516)."""
    if len(data) < start + 6:
        return _short(start + 6, stop)
    return _ppp(data, start + 6, stop) if data[start] == 0x11 and not data[start + 1] else (MALFORMED, start)


# ------------------------------------------------------------------ MPLS, and headers that do not name what they hold


def _mpls(data: bytes, start: int, stop: int) -> Next:
    """A stack of labels (RFC 3032), in front of IP, or of Ethernet with a control word (RFC 4448) or without."""
    is_last = 0
    while not is_last:
        if len(data) < start + 4:
            return _short(start + 4, stop)
        is_last = data[start + 2] & 1
        start += 4
    if len(data) > start and data[start] >> 4 == 1:
        return MPLS_CHANNEL, start
    return _unnamed(MPLS, data, start, stop)


def _unnamed(of: int, data: bytes, start: int, stop: int) -> Next:
    """The kind of octets behind a header ``of`` a kind that does not name them: IP, Ethernet, or unknown.

    The addresses of Ethernet may begin as IP does, or as a control word, which has four octets. So IP must fit by its
    length, and Ethernet by the type that it names.
    """
    if len(data) <= start:
        return _short(start + 1, stop)
    version = data[start] >> 4
    if _fits_ip(version, data, start, stop):
        return (IPV4 if version == 4 else IPV6), start
    for begin in (start + 4, start) if not version else (start,):
        if _fits_ethernet(data, begin):
            return TRANSPARENT_ETHERNET, begin
    return (CUT if len(data) < min(start + 21, stop) else ~of), start


def _fits_ip(version: int, data: bytes, start: int, stop: int) -> bool:
    if version not in (4, 6) or len(data) < start + 6:
        return version in (4, 6)
    if version == 6:
        return 40 + _two(data, start + 4) <= stop - start
    total, header = _two(data, start + 2), (data[start] & 0x0F) * 4
    return header >= 20 and (not total or header <= total <= stop - start)  # 0: left to the network card


def _fits_ethernet(data: bytes, start: int) -> bool:
    if len(data) < start + 17:
        return False
    protocol = _two(data, start + 12)
    if protocol in (IPV4, IPV6):
        return data[start + 14] >> 4 == (4 if protocol == IPV4 else 6)
    return protocol in _IN_ETHERNET or (protocol < _LEAST_ETHERTYPE and data[start + 14 : start + 17] in _IN_LLC)


# ------------------------------------------------------------------ tunnels in IP


def _gre(data: bytes, start: int, stop: int) -> Next:
    """GRE (RFC 2784, RFC 2890)."""
    if len(data) < start + 4:
        return _short(start + 4, stop)
    flags, protocol = struct.unpack_from("!HH", data, start)
    if flags & 0x4007:  # routing, which nobody uses, or another version
        return ~(IP_PROTOCOL | GRE), start
    if protocol == ERSPAN and not flags & 0x1000:
        protocol = TRANSPARENT_ETHERNET  # type I has no header of its own, nor a sequence number
    # Checksum, key, sequence number.
    return protocol, start + 4 + 4 * ((flags >> 15 & 1) + (flags >> 13 & 1) + (flags >> 12 & 1))


def _erspan(data: bytes, start: int, stop: int) -> Next:
    """ERSPAN, type II (draft-foschiano-erspan, section 4.2)."""
    if len(data) < start + 8:
        return _short(start + 8, stop)
    return (TRANSPARENT_ETHERNET if data[start] >> 4 == 1 else ~ERSPAN), start + 8


def _erspan_iii(data: bytes, start: int, stop: int) -> Next:
    """ERSPAN, type III (section 4.3). A header of the platform follows it if the last bit says so."""
    if len(data) < start + 12:
        return _short(start + 12, stop)
    end = start + (20 if data[start + 11] & 1 else 12)
    frame = data[start + 10] >> 2 & 0x1F
    if data[start] >> 4 != 2 or frame not in (0, 2):
        return ~ERSPAN_III, start
    return (TRANSPARENT_ETHERNET, end) if not frame else _ip(data, end, stop)


def _cut_tunnel(end: int, stop: int) -> Next:
    """The result for a UDP payload without the tunnel's header: it is cut off, or another program uses the port."""
    return (NO_TUNNEL if stop < end else CUT), end


def _vxlan(data: bytes, start: int, stop: int) -> Next:
    """VXLAN (RFC 7348), also with the type of what is inside (draft-ietf-nvo3-vxlan-gpe)."""
    if len(data) < start + 8:
        return _cut_tunnel(start + 8, stop)
    flags = data[start]
    if not flags & _VXLAN_VALID:
        return NO_TUNNEL, start
    inner = _VXLAN_PROTOCOLS.get(data[start + 3], NO_TUNNEL) if flags & _VXLAN_NAMED else TRANSPARENT_ETHERNET
    return inner, start + 8


def _geneve(data: bytes, start: int, stop: int) -> Next:
    """Geneve (RFC 8926). With another version, or reserved bits that are set, the port is another program's."""
    if len(data) < start + 8:
        return _cut_tunnel(start + 8, stop)
    protocol = _two(data, start + 2)
    if data[start] & 0xC0 or data[start + 1] & 0x3F or data[start + 7] or protocol < _LEAST_ETHERTYPE:
        return NO_TUNNEL, start
    return protocol, start + 8 + (data[start] & 0x3F) * 4


def _gtp(data: bytes, start: int, stop: int) -> Next:
    """GTP-U (3GPP TS 29.281): version 1, packets of users. No field names what is inside: IP, or Ethernet."""
    if len(data) < start + 8:
        return _cut_tunnel(start + 8, stop)
    flags = data[start]
    if flags & 0xF8 != 0x30:
        return NO_TUNNEL, start
    if data[start + 1] != _GTP_G_PDU:
        return NO_TCP, start
    start += 8
    if flags & 0x07:  # sequence number, N-PDU number, type of the next header: with any of them, all have their place
        start += 4
        while flags & 0x04 and len(data) > start and data[start - 1]:
            if not data[start]:
                return MALFORMED, start
            start += data[start] * 4
    return _unnamed(UDP_PORT | GTP_PORT, data, start, stop)


HEADERS: dict[int, Header] = {
    LINK_TYPE | link_types.NULL: _loopback,
    LINK_TYPE | link_types.ETHERNET: _ethernet,
    LINK_TYPE | link_types.PPP: _ppp,
    LINK_TYPE | link_types.PPP_HDLC: _ppp_hdlc,
    LINK_TYPE | link_types.PPPOE: _pppoe,
    LINK_TYPE | link_types.C_HDLC: _cisco_hdlc,
    LINK_TYPE | link_types.LOOP: _loopback,
    LINK_TYPE | link_types.LINUX_SLL: partial(_cooked, 16, 14),
    LINK_TYPE | link_types.PPP_PPPD: lambda data, start, stop: _ppp(data, start + 2, stop),  # behind the direction
    LINK_TYPE | link_types.PPP_WITH_DIRECTION: lambda data, start, stop: _ppp(data, start + 1, stop),
    LINK_TYPE | link_types.NFLOG: _nflog,
    LINK_TYPE | link_types.LINUX_SLL2: partial(_cooked, 20, 0),
    MPLS: _mpls,
    MPLS_MULTICAST: _mpls,
    PPPOE: _pppoe,
    TRANSPARENT_ETHERNET: _ethernet,
    ERSPAN: _erspan,
    ERSPAN_III: _erspan_iii,
    IP_PROTOCOL | IP_IN_IP: _ip,
    IP_PROTOCOL | IPV6_IN_IP: _ip,
    IP_PROTOCOL | GRE: _gre,
    IP_PROTOCOL | MPLS_IN_IP: _mpls,
}
HEADERS |= {LINK_TYPE | link: _ip for link in link_types.IP} | dict.fromkeys(link_types.VLAN_TAGS, _vlan)

IP_TUNNELS = frozenset((IP_IN_IP, IPV6_IN_IP, GRE, MPLS_IN_IP))  # protocols of IP whose header is read
UDP_TUNNELS: dict[int, Header] = {
    VXLAN_PORT: _vxlan,
    OLD_VXLAN_PORT: _vxlan,
    GENEVE_PORT: _geneve,
    GTP_PORT: _gtp,
}
