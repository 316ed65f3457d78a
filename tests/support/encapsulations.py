"""Headers of all kinds put around the packets of a recorded conversation, and packets that hold something else."""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from scapy.contrib.erspan import ERSPAN_I, ERSPAN_II, ERSPAN_III, ERSPAN_PlatformSpecific
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, LLC, SNAP, Dot1Q, Dot3, Ether
from scapy.layers.ppp import HDLC, PPP, PPPoE
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

from tests.support.paths import FIXTURES
from tests.world.tap import load
from zmtpsniff.capture.block import Packet

ETHERNET, RAW = 1, 101
CONVERSATIONS = ("m31_req_rep.pcap", "m31_ipv6.pcap")
MAC: dict[str, Any] = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
OUTER = Ether(**MAC) / IP(src="192.0.2.1", dst="192.0.2.2")
OUTER6 = Ether(**MAC) / IPv6(src="fd00::1", dst="fd00::2")


@cache
def recorded(name: str) -> tuple[Packet, ...]:
    packets = tuple(load(FIXTURES / name))
    assert {packet[1] for packet in packets} == {ETHERNET}
    return packets


def captured(*octets: bytes, link: int = ETHERNET) -> list[Packet]:
    return [(number, link, data, len(data), None) for number, data in enumerate(octets)]


def ip(protocol: int, payload: bytes = bytes(40)) -> bytes:
    return bytes(Ether(**MAC) / IP(src="192.0.2.1", dst="192.0.2.2", proto=protocol) / Raw(payload))


def frame(kind: int, payload: bytes = bytes(46)) -> bytes:
    return bytes(Ether(**MAC, type=kind) / Raw(payload))


def datagram(source: int, destination: int, payload: bytes = b"\x45" + bytes(40)) -> bytes:
    return bytes(OUTER / UDP(sport=source, dport=destination) / Raw(payload))


Wrap = Callable[[bytes, bytes, bytes], ScapyPacket | bytes]
"""Takes an Ethernet frame, its EtherType and the IP packet in it."""


def version(kind: bytes, four: int, six: int) -> int:
    return four if kind == b"\x08\x00" else six


def ethertype(kind: bytes) -> int:
    return int.from_bytes(kind, "big")


def ppp(kind: bytes) -> bytes:
    return struct.pack("!H", version(kind, 0x21, 0x57))


def labels(*numbers: int) -> ScapyPacket:
    stack = [MPLS(label=number, s=0) for number in numbers]
    stack[-1].s = 1
    packet = stack[0]
    for label in stack[1:]:
        packet /= label
    return packet


def mpls(*numbers: int) -> ScapyPacket:
    return Ether(**MAC, type=0x8847) / labels(*numbers)


def of_mac(frame: bytes, mac: str) -> Raw:
    """The same frame to another address."""
    return Raw(bytes.fromhex(mac) + frame[6:])


def geneve(kind: int, octets: bytes) -> ScapyPacket:
    options = GeneveOptions(classid=0x0102, type=0x80, data=bytes(8))
    return OUTER / UDP(sport=40000, dport=6081) / GENEVE(vni=7, proto=kind, options=[options]) / Raw(octets)


def gtp(octets: bytes, header: bytes) -> ScapyPacket:
    return OUTER / UDP(sport=2152, dport=2152) / Raw(header + octets)


def nflog(order: str, ip: bytes) -> bytes:
    prefix = struct.pack(f"{order}HH", 9, 10) + b"zeros" + bytes(3)
    hook = struct.pack(f"{order}HHI", 8, 0x8000 | 19, 0)  # with a flag
    return b"\2\0\0\5" + prefix + hook + struct.pack(f"{order}HH", len(ip) + 4, 9) + ip


ON_ETHERNET: dict[str, Wrap] = {
    "MPLS": lambda frame, kind, ip: mpls(16) / Raw(ip),
    "MPLS, four labels": lambda frame, kind, ip: mpls(1, 16, 17, 2) / Raw(ip),
    "MPLS multicast": lambda frame, kind, ip: Ether(**MAC, type=0x8848) / labels(16) / Raw(ip),
    "MPLS behind a VLAN tag": lambda frame, kind, ip: Ether(**MAC) / Dot1Q(vlan=7, type=0x8847) / labels(16) / Raw(ip),
    "MPLS in GRE": lambda frame, kind, ip: OUTER / GRE(proto=0x8847) / Raw(bytes(labels(16)) + ip),
    "MPLS in IP": lambda frame, kind, ip: Ether(**MAC) / IP(proto=137) / Raw(bytes(labels(16)) + ip),
    "pseudowire": lambda frame, kind, ip: mpls(16, 17) / Raw(frame),
    "pseudowire with control word": lambda frame, kind, ip: mpls(16, 17) / Raw(b"\0\0\0\x09" + frame),
    # Addresses that begin as a control word does, or IPv4, or IPv6.
    "pseudowire to 00": lambda frame, kind, ip: mpls(17) / of_mac(frame, "001b21aabbcc"),
    "pseudowire to 45": lambda frame, kind, ip: mpls(17) / of_mac(frame, "45ffeeaabbcc"),
    "pseudowire to 62": lambda frame, kind, ip: mpls(17) / of_mac(frame, "62aabbccddee"),
    "pseudowire with VLAN tag": lambda frame, kind, ip: mpls(17) / Raw(frame[:12] + b"\x81\0\0\3" + frame[12:]),
    "pseudowire with SNAP": lambda frame, kind, ip: (
        mpls(17) / Dot3(**MAC) / LLC() / SNAP(code=ethertype(kind)) / Raw(ip)
    ),
    "PPPoE": lambda frame, kind, ip: Ether(**MAC, type=0x8864) / PPPoE(sessionid=3) / PPP(ppp(kind)) / Raw(ip),
    "PPPoE, padded": lambda frame, kind, ip: (
        bytes(Ether(**MAC, type=0x8864) / PPPoE(sessionid=3) / PPP(ppp(kind)) / ip) + bytes(9)
    ),
    "PPPoE, protocol in one octet": lambda frame, kind, ip: (
        Ether(**MAC, type=0x8864) / PPPoE(sessionid=3) / Raw(ppp(kind)[1:] + ip)
    ),
    "PPPoE with MPLS": lambda frame, kind, ip: (
        Ether(**MAC, type=0x8864) / PPPoE() / Raw(b"\x02\x81" + bytes(labels(16)) + ip)
    ),
    "SNAP": lambda frame, kind, ip: Dot3(**MAC) / LLC() / SNAP(OUI=0, code=ethertype(kind)) / Raw(ip),
    "SNAP, bridge": lambda frame, kind, ip: Dot3(**MAC) / LLC() / SNAP(OUI=0xF8, code=ethertype(kind)) / Raw(ip),
    "SNAP behind a VLAN tag": lambda frame, kind, ip: (
        frame[:12] + struct.pack("!HHH", 0x8100, 7, len(ip) + 8) + b"\xaa\xaa\x03\0\0\0" + kind + ip
    ),
    "IP in LLC": lambda frame, kind, ip: Dot3(**MAC) / LLC(dsap=6, ssap=6, ctrl=3) / Raw(ip),
    "Geneve": lambda frame, kind, ip: geneve(0x6558, frame),
    "Geneve with IP": lambda frame, kind, ip: geneve(ethertype(kind), ip),
    "Geneve without options": lambda frame, kind, ip: (
        OUTER6 / UDP(sport=40000, dport=6081) / GENEVE(proto=0x6558) / Raw(frame)
    ),
    "VXLAN, named": lambda frame, kind, ip: (
        OUTER / UDP(dport=4789) / Raw(bytes([0x0C, 0, 0, version(kind, 1, 2), 0, 0, 5, 0]) + ip)
    ),
    "GTP-U": lambda frame, kind, ip: OUTER / UDP(sport=2152, dport=2152) / GTP_U_Header(gtp_type=255, teid=9) / Raw(ip),
    "GTP-U, sequence": lambda frame, kind, ip: gtp(ip, b"\x32\xff" + struct.pack("!HIHBB", len(ip) + 4, 9, 1, 0, 0)),
    "GTP-U, PDU session": lambda frame, kind, ip: (
        OUTER6
        / UDP(sport=2152, dport=2152)
        / GTP_U_Header(gtp_type=255, teid=9, E=1, next_ex=0x85)
        / GTPPDUSessionContainer(type=1, QFI=3)
        / Raw(ip)
    ),
    "GTP-U, two extensions": lambda frame, kind, ip: gtp(
        ip, b"\x34\xff" + struct.pack("!HI", len(ip) + 16, 1) + b"\0\0\0\xc0" + b"\1\0\0\x40" + b"\2" + bytes(7)
    ),
    "GTP-U with Ethernet": lambda frame, kind, ip: gtp(frame, b"\x30\xff" + struct.pack("!HI", len(frame), 9)),
    "ERSPAN type I": lambda frame, kind, ip: OUTER / GRE(proto=0x88BE) / ERSPAN_I() / Raw(frame),
    "ERSPAN type II": lambda frame, kind, ip: (
        OUTER / GRE(proto=0x88BE, seqnum_present=1) / ERSPAN_II(vlan=3) / Raw(frame)
    ),
    "ERSPAN type III": lambda frame, kind, ip: (
        OUTER6 / GRE(proto=0x22EB, seqnum_present=1) / ERSPAN_III(vlan=3) / Raw(frame)
    ),
    "ERSPAN type III, platform": lambda frame, kind, ip: (
        OUTER / GRE(proto=0x22EB, seqnum_present=1) / ERSPAN_III(o=1) / ERSPAN_PlatformSpecific(platf_id=3) / Raw(frame)
    ),
    "ERSPAN type III with IP": lambda frame, kind, ip: (
        OUTER / GRE(proto=0x22EB, seqnum_present=1) / ERSPAN_III(ft=2) / Raw(ip)
    ),
    "AH in IPv4": lambda frame, kind, ip: (
        Ether(**MAC) / IP(proto=51) / Raw(bytes([version(kind, 4, 41), 4, 0, 0]) + bytes(20) + ip)
    ),
    "several": lambda frame, kind, ip: OUTER / GRE() / (geneve(0x8847, bytes(labels(16)) + b"\0\0\0\1" + frame)[IP]),
    "VXLAN": lambda frame, kind, ip: OUTER / UDP(dport=4789) / VXLAN(vni=7) / Raw(frame),
    "VXLAN on Linux's old port": lambda frame, kind, ip: OUTER / UDP(dport=8472) / VXLAN(vni=7) / Raw(frame),
    "VXLAN over IPv6": lambda frame, kind, ip: OUTER6 / UDP(dport=4789) / VXLAN(vni=7) / Raw(frame),
    "GRE": lambda frame, kind, ip: OUTER / GRE(proto=ethertype(kind)) / Raw(ip),
    "GRE with key": lambda frame, kind, ip: (
        OUTER / GRE(chksum_present=1, key_present=1, seqnum_present=1, key=3, proto=ethertype(kind)) / Raw(ip)
    ),
    "GRE with Ethernet": lambda frame, kind, ip: OUTER / GRE(proto=0x6558) / Raw(frame),
    "IP in IP": lambda frame, kind, ip: Ether(**MAC) / IP(proto=version(kind, 4, 41)) / Raw(ip),
    "IP in IPv6": lambda frame, kind, ip: Ether(**MAC) / IPv6(nh=version(kind, 4, 41)) / Raw(ip),
}
OF_LINKS: dict[str, tuple[int, Wrap]] = {
    "MPLS in cooked": (113, lambda frame, kind, ip: bytes(14) + b"\x88\x47" + bytes(labels(16)) + ip),
    "SNAP in cooked": (113, lambda frame, kind, ip: bytes(14) + b"\0\4\xaa\xaa\x03\0\0\0" + kind + ip),
    "SNAP in cooked 2": (276, lambda frame, kind, ip: b"\0\4" + bytes(18) + b"\xaa\xaa\x03\0\0\0" + kind + ip),
    "PPP": (9, lambda frame, kind, ip: ppp(kind) + ip),
    "PPP with address and control": (9, lambda frame, kind, ip: HDLC() / PPP(ppp(kind)) / Raw(ip)),
    "PPP, protocol in one octet": (9, lambda frame, kind, ip: ppp(kind)[1:] + ip),
    "PPP in HDLC": (50, lambda frame, kind, ip: b"\xff\3" + ppp(kind) + ip),
    "PPP in HDLC, compressed": (50, lambda frame, kind, ip: ppp(kind)[1:] + ip),
    "Cisco HDLC as PPP": (50, lambda frame, kind, ip: b"\x0f\0" + kind + ip),
    "PPPoE without Ethernet": (51, lambda frame, kind, ip: PPPoE(sessionid=3) / PPP(ppp(kind)) / Raw(ip)),
    "PPP of pppd": (166, lambda frame, kind, ip: b"\1\3" + ppp(kind) + ip),
    "PPP with direction": (204, lambda frame, kind, ip: b"\0" + ppp(kind) + ip),
    "PPP with direction, address and control": (204, lambda frame, kind, ip: b"\1\xff\3" + ppp(kind)[1:] + ip),
    "Cisco HDLC": (104, lambda frame, kind, ip: b"\x8f\0" + kind + ip),
    "NFLOG": (239, lambda frame, kind, ip: nflog("<", ip)),
    "NFLOG, big-endian": (239, lambda frame, kind, ip: nflog(">", ip)),
}
WRAPPED = {name: (ETHERNET, wrap) for name, wrap in ON_ETHERNET.items()} | OF_LINKS


@cache
def wrapped(name: str, conversation: str) -> list[Packet]:
    link, wrap = WRAPPED[name]
    out: list[Packet] = []
    for time_ns, _, frame, _, comment in recorded(conversation):
        octets = bytes(wrap(frame, frame[12:14], frame[14:]))
        out.append((time_ns, link, octets, len(octets), comment))
    return out
