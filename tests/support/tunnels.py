"""Tunnels that the native core reads: frames of Ethernet in datagrams of VXLAN and Geneve, and IP in IP or GRE."""

import struct

TUNNELS = {
    "VXLAN": (4789, "0800 0000 0000 0700"),
    "VXLAN on Linux's old port": (8472, "0800 0000 0000 0700"),
    "Geneve": (6081, "0000 6558 0000 0700"),
    "Geneve with an option": (6081, "0100 6558 0000 0700 ffff 0000"),
}

IN_IP = {
    "IP in IP": (4, ""),
    "IPv6 in IP": (41, ""),
    "GRE": (47, "0000 0800"),
    "GRE with IPv6": (47, "0000 86dd"),
}


def in_ip(frame: bytes, protocol: int, header: str, ipv6: bool = False) -> bytes:
    """A frame of Ethernet whose packet another one of IP carries, behind a header of GRE if there is one."""
    payload = bytes.fromhex(header) + frame[14:]
    return _in_frame(payload, protocol, ipv6)


def in_tunnel(frame: bytes, port: int, header: str, ipv6: bool = False) -> bytes:
    """A frame of Ethernet in a datagram."""
    payload = bytes.fromhex(header) + frame
    return _in_frame(struct.pack("!HHHH", 50_000, port, 8 + len(payload), 0) + payload, 17, ipv6)


def _in_frame(payload: bytes, protocol: int, ipv6: bool) -> bytes:
    """A frame of Ethernet with a packet of IP."""
    if ipv6:
        return bytes(12) + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + bytes(32) + payload
    return bytes(12) + b"\x08\x00" + struct.pack("!HHIBBH8x", 0x4500, 20 + len(payload), 0, 64, protocol, 0) + payload
