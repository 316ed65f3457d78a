"""Tunnels that the native core reads: VXLAN and Geneve, with frames of Ethernet in datagrams."""

import struct

TUNNELS = {
    "VXLAN": (4789, "0800 0000 0000 0700"),
    "VXLAN on Linux's old port": (8472, "0800 0000 0000 0700"),
    "Geneve": (6081, "0000 6558 0000 0700"),
    "Geneve with an option": (6081, "0100 6558 0000 0700 ffff 0000"),
}


def in_tunnel(frame: bytes, port: int, header: str, ipv6: bool = False) -> bytes:
    """A frame of Ethernet in a datagram."""
    payload = bytes.fromhex(header) + frame
    datagram = struct.pack("!HHHH", 50_000, port, 8 + len(payload), 0) + payload
    if ipv6:
        return bytes(12) + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(datagram), 17, 64) + bytes(32) + datagram
    return bytes(12) + b"\x08\x00" + struct.pack("!HHIBBH8x", 0x4500, 20 + len(datagram), 0, 64, 17, 0) + datagram
