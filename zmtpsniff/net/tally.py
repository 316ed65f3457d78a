"""Counts packets without TCP by kind, so that the totals of a capture without flows name its contents.

A kind of packet is a number as in ``encapsulation.py``. Most kinds cannot hold TCP (ARP, spanning tree, ICMP): the
totals name them only if the capture has nothing else. The other kinds may hold TCP: a problem names each of them once.
"""

from zmtpsniff.net.encapsulation import (
    ARP,
    ERSPAN,
    ERSPAN_III,
    FAMILY,
    GENEVE_PORT,
    GRE,
    GTP_PORT,
    IP_PROTOCOL,
    LINK_TYPE,
    LLC_SAP,
    LLDP,
    MPLS,
    MPLS_CHANNEL,
    MPLS_MULTICAST,
    NSH,
    OLD_VXLAN_PORT,
    OTHER,
    PPP,
    PPPOE_DISCOVERY,
    SNAP_OUI,
    UDP_PORT,
    VXLAN_PORT,
)
from zmtpsniff.words.counts import were

PLAIN_UDP = IP_PROTOCOL | 17
TOO_DEEP = OTHER | 2  # tunnels in tunnels
_MANY = OTHER | 3  # kinds beyond those that are counted one by one
_MOST_KINDS = 256
_MOST_TOLD = 4  # problems; one more is for the rest
_MOST_LISTED = 5  # in a sentence

# The name of each registry's numbers, and how they are written.
_REGISTRIES = {
    0: "EtherType 0x{:04X}",
    LINK_TYPE: "link type {}",
    LLC_SAP: "LLC SAP 0x{:02X}",
    SNAP_OUI: "SNAP OUI 0x{:06X}",
    PPP: "PPP protocol 0x{:04X}",
    IP_PROTOCOL: "IP protocol {}",
    UDP_PORT: "UDP port {}",
    FAMILY: "address family {}",
}

_WIREGUARD = 51820  # a port that other programs may get for a while, so the octets must look like the tunnel, too
_WIREGUARD_DATA = b"\4\0\0\0"
_CARRIER_PORTS = {
    1194: "OpenVPN",
    1701: "L2TP",
    GTP_PORT: "GTP-U",
    3544: "Teredo",
    4341: "LISP",
    4500: "IPsec",
    4754: "GRE",
    VXLAN_PORT: "VXLAN",
    4790: "VXLAN-GPE",
    5247: "CAPWAP",
    GENEVE_PORT: "Geneve",
    6635: "MPLS",
    OLD_VXLAN_PORT: "VXLAN on Linux's old port",
    _WIREGUARD: "WireGuard",
}

_WITH_TCP = {
    MPLS: "MPLS",
    MPLS_MULTICAST: "MPLS multicast",
    ERSPAN: "ERSPAN",
    ERSPAN_III: "ERSPAN type III",
    NSH: "NSH",
    0x22F3: "TRILL",
    0x4305: "B.A.T.M.A.N.",
    0x876B: "compressed TCP/IP",
    0x880B: "PPP",
    0x883E: "WCCP",
    0x8870: "jumbo frames",
    0x88BB: "LWAPP",
    0x88E5: "MACsec",
    0x88E7: "provider backbone bridges",
    0x8903: "FabricPath",
    0x8909: "Cisco TrustSec",
    0x890D: "802.11 in Ethernet",
    0x8926: "VN-Tag",
    0x892F: "HSR",
    0x893F: "802.1BR",
    SNAP_OUI | 0x0080C2: "bridged LAN",
    PPP | 0x002D: "compressed TCP/IP",
    PPP | 0x002F: "compressed TCP/IP",
    PPP | 0x0031: "bridged LAN",
    PPP | 0x003D: "multilink",
    PPP | 0x0053: "encryption",
    PPP | 0x00FD: "compression",
    IP_PROTOCOL | GRE: "GRE",
    IP_PROTOCOL | 50: "ESP",
    IP_PROTOCOL | 51: "AH",
    IP_PROTOCOL | 55: "minimal encapsulation",
    IP_PROTOCOL | 97: "EtherIP",
    IP_PROTOCOL | 108: "IPComp",
    IP_PROTOCOL | 115: "L2TP",
    IP_PROTOCOL | 142: "ROHC",
    IP_PROTOCOL | 143: "Ethernet",
    TOO_DEEP: "more than eight tunnels, one inside the other,",
    _MANY: "other kinds",
} | {
    LINK_TYPE | link: name
    for link, name in {
        **dict.fromkeys(range(147, 163), "private use"),
        3: "AX.25",
        6: "Token Ring",
        8: "SLIP",
        10: "FDDI",
        11: "RFC 1483 ATM",
        19: "classical IP over ATM",
        99: "Symantec Firewall",
        105: "IEEE 802.11",
        107: "Frame Relay",
        109: "OpenBSD enc",
        117: "OpenBSD pflog",
        119: "IEEE 802.11, Prism header",
        120: "Aironet header",
        122: "IP over Fibre Channel",
        123: "SunATM",
        127: "IEEE 802.11, radiotap header",
        129: "ARCNET",
        138: "IP over FireWire",
        143: "DOCSIS",
        149: "private use; PKTAP of macOS",
        163: "IEEE 802.11, AVS header",
        177: "Linux LAPD",
        187: "Bluetooth HCI",
        189: "USB",
        192: "PPI",
        195: "IEEE 802.15.4",
        197: "ERF",
        201: "Bluetooth HCI",
        220: "USB",
        226: "Solaris IPNET",
        227: "CAN",
        230: "IEEE 802.15.4",
        240: "netANALYZER",
        242: "IP over InfiniBand",
        247: "InfiniBand",
        249: "USB",
        253: "netlink",
        254: "Bluetooth monitor",
        258: "PKTAP",
        259: "EPON",
        266: "USB",
        272: "DisplayPort",
        283: "IEEE 802.15.4",
    }.items()
}

_WITHOUT_TCP = {
    ARP: "ARP",
    PPPOE_DISCOVERY: "PPPoE discovery",
    LLDP: "LLDP",
    MPLS_CHANNEL: "MPLS channel",
    0x0842: "Wake-on-LAN",
    0x0BAD: "VINES",
    0x2000: "CDP",
    0x22EA: "SRP",
    0x22F0: "AVTP",
    0x22F4: "IS-IS",
    0x6002: "DEC MOP",
    0x6003: "DECnet",
    0x6004: "DEC LAT",
    0x8035: "RARP",
    0x809B: "AppleTalk",
    0x80F3: "AppleTalk ARP",
    0x8137: "IPX",
    0x8808: "flow control",
    0x8809: "LACP",
    0x887B: "HomePlug",
    0x888E: "802.1X",
    0x8892: "PROFINET",
    0x8899: "loop detection",
    0x88A2: "ATA over Ethernet",
    0x88A4: "EtherCAT",
    0x88AB: "POWERLINK",
    0x88B8: "GOOSE",
    0x88BA: "sampled values",
    0x88C7: "802.1X",
    0x88CA: "TIPC",
    0x88CD: "SERCOS III",
    0x88D9: "LLTD",
    0x88E1: "HomePlug AV",
    0x88E3: "MRP",
    0x88F5: "MVRP",
    0x88F6: "MMRP",
    0x88F7: "PTP",
    0x88FB: "PRP",
    0x8902: "CFM",
    0x8906: "FCoE",
    0x8914: "FCoE",
    0x8915: "RoCE",
    0x893A: "IEEE 1905.1",
    0x9000: "loopback test",
    0xFEFE: "OSI",
    LLC_SAP | 0x42: "spanning tree",
    LLC_SAP | 0xE0: "IPX",
    LLC_SAP | 0xF0: "NetBIOS",
    LLC_SAP | 0xFE: "OSI",
    LLC_SAP | 0xFF: "IPX",
    SNAP_OUI | 0x00000C: "Cisco",
    SNAP_OUI | 0x000081: "Nortel",
    SNAP_OUI | 0x00E02B: "Extreme",
    SNAP_OUI | 0x00E052: "Foundry",
    PPP | 0x0023: "OSI",
    PPP | 0x0029: "AppleTalk",
    PPP | 0x002B: "IPX",
    IP_PROTOCOL | 1: "ICMP",
    IP_PROTOCOL | 2: "IGMP",
    IP_PROTOCOL | 8: "EGP",
    PLAIN_UDP: "UDP",
    IP_PROTOCOL | 33: "DCCP",
    IP_PROTOCOL | 46: "RSVP",
    IP_PROTOCOL | 58: "ICMPv6",
    IP_PROTOCOL | 59: "IPv6 without contents",
    IP_PROTOCOL | 88: "EIGRP",
    IP_PROTOCOL | 89: "OSPF",
    IP_PROTOCOL | 103: "PIM",
    IP_PROTOCOL | 112: "VRRP",
    IP_PROTOCOL | 113: "PGM",
    IP_PROTOCOL | 124: "IS-IS",
    IP_PROTOCOL | 132: "SCTP",
    IP_PROTOCOL | 136: "UDP-Lite",
    IP_PROTOCOL | 240: "pfsync",
}


def udp_kind(source: int, destination: int, payload: bytes) -> int:
    """The kind of a datagram between two UDP ports, which may show a tunnel."""
    port = destination if destination in _CARRIER_PORTS else source
    if port not in _CARRIER_PORTS or (port == _WIREGUARD and not payload.startswith(_WIREGUARD_DATA)):
        return PLAIN_UDP
    return UDP_PORT | port


class Tally:
    """Counts packets without TCP by kind. If there are very many kinds, it counts the rest together."""

    def __init__(self) -> None:
        """Start without packets."""
        self.packets: dict[int, int] = {}

    def add(self, kind: int) -> None:
        """Count one more packet of this kind."""
        packets = self.packets
        if kind in packets:
            packets[kind] += 1
        elif len(packets) < _MOST_KINDS:
            packets[kind] = 1
        else:
            packets[_MANY] = packets.get(_MANY, 0) + 1

    def unread(self) -> list[tuple[str, str]]:
        """Problem codes, with sentences about the packets that may hold TCP. They name the most frequent kinds."""
        kinds = [kind for kind in self._ranked() if _may_hold_tcp(kind)]
        most = len(kinds) if len(kinds) <= _MOST_TOLD + 1 else _MOST_TOLD
        told = [
            (
                "link-type-unknown" if kind & -(1 << 24) == LINK_TYPE else "packets-not-read",
                f"{were(self.packets[kind], 'packet', f' of {_description(kind)}')} not looked into",
            )
            for kind in kinds[:most]
        ]
        if rest := sum(self.packets[kind] for kind in kinds[most:]):
            told.append(("packets-not-read", f"{were(rest, 'packet', ' of other kinds')} not looked into"))
        return told

    def others(self) -> str:
        """The packets that hold no TCP, the most frequent kinds by name: ``12 ARP, 3 ICMP``; "" if there are none."""
        kinds = [kind for kind in self._ranked() if not _may_hold_tcp(kind)]
        words = [
            f"{self.packets[kind]:,} {_WITHOUT_TCP.get(kind) or f'of {_description(kind)}'}"
            for kind in kinds[:_MOST_LISTED]
        ]
        if rest := sum(self.packets[kind] for kind in kinds[_MOST_LISTED:]):
            words.append(f"{rest:,} of other kinds")
        return ", ".join(words)

    def _ranked(self) -> list[int]:
        return sorted(self.packets, key=lambda kind: (-self.packets[kind], kind))


def _may_hold_tcp(kind: int) -> bool:
    if kind in _WITHOUT_TCP:
        return False
    registry, number = kind & -(1 << 24), kind & 0xFF_FFFF
    if registry == PPP:
        return number < 0x4000  # above are protocols that control links and networks (RFC 1661, section 2)
    # EtherTypes begin at 0x600; below are Linux's own numbers, and keepalives of GRE.
    return registry not in (LLC_SAP, FAMILY) and (registry > 0 or number >= 0x600)


def _description(kind: int) -> str:
    """``EtherType 0x88E5 (MACsec)``."""
    registry, number = kind & -(1 << 24), kind & 0xFF_FFFF
    name = _CARRIER_PORTS.get(number) if registry == UDP_PORT else _WITH_TCP.get(kind) or _WITHOUT_TCP.get(kind)
    if registry not in _REGISTRIES:
        return str(name)
    text = _REGISTRIES[registry].format(number)
    return f"{text} ({name})" if name else text
