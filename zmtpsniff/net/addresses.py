"""The two ends of a flow: octets as packets name them, and text for people."""

import struct
from functools import lru_cache
from typing import Literal

import msgspec


class Address(msgspec.Struct, frozen=True, gc=False):
    """One end of a flow, as people read it."""

    text: str  # "10.0.0.1:5555", "[::1]:5555"; of Unix domain sockets "pid-4711:9" and "peer-of-pid-4711:9"
    port: int  # -1 if it is none
    transport: Literal["tcp", "ipc"] = "tcp"


LABEL = struct.Struct("!BI")
"""Stands, perhaps twice, before a key whose network has addresses in common with another: a kind, and a number."""
VLAN, VNI, GRE_KEY = range(3)  # kinds
_KINDS = "vlan", "vni", "gre"

# The octets of a key behind that: source, destination, and the port of each.
_IPV4, _UNIX, _IPV6 = (struct.Struct(f"!{size}s{size}sHH") for size in (4, 8, 16))
_LAYOUTS = {layout.size: layout for layout in (_IPV4, _UNIX, _IPV6)}
MOST_LABELS = 2
_ZONES = {layout.size + zone: zone for layout in (_IPV4, _IPV6) for zone in (LABEL.size, MOST_LABELS * LABEL.size)}


@lru_cache(512)
def addresses(key: bytes) -> tuple[Address, Address]:
    """The two ends of a direction's key: source and destination."""
    zone, plain = split_zone(key)
    layout = _LAYOUTS[len(plain)]
    source, destination, source_port, destination_port = layout.unpack(plain)
    if layout is _UNIX:
        return _process(source), _process(destination)
    return _end(source, source_port, zone), _end(destination, destination_port, zone)


def split_zone(key: bytes) -> tuple[bytes, bytes]:
    """The labels before a key, mostly none, and the key without them."""
    size = _ZONES.get(len(key), 0)
    return key[:size], key[size:]


def zone_name(zone: bytes) -> str:
    """The labels as text, such as ``vlan7``."""
    return ".".join(f"{_KINDS[kind]}{number}" for kind, number in LABEL.iter_unpack(zone))


def reverse(key: bytes) -> bytes:
    """The key of the other direction."""
    zone, plain = split_zone(key)
    layout = _LAYOUTS[len(plain)]
    source, destination, source_port, destination_port = layout.unpack(plain)
    return zone + layout.pack(destination, source, destination_port, source_port)


def end_of(key: bytes) -> bytes:
    """The address and the port of the destination of a key without labels."""
    half = (len(key) - 4) // 2
    return key[half:-4] + key[-2:]


def host_of_end(key: bytes) -> bytes:
    """The address of the destination of a key without labels, without its port."""
    return end_of(key)[:-2]


def are_of_other_hosts(key: bytes, other: bytes) -> bool:
    """Whether two keys without labels differ in a host: NAT changes that of the sender, or of the receiver, or both."""
    return any(host_of_end(one) != host_of_end(same) for one, same in ((key, other), (reverse(key), reverse(other))))


def composed(source: bytes, destination: bytes) -> bytes | None:
    """The key with the source of one key and the destination of another; None if these are of different kinds."""
    if len(source) != len(destination):
        return None
    half = (len(source) - 4) // 2
    return source[:half] + destination[half:-4] + source[-4:-2] + destination[-2:]


def is_own(key: bytes) -> bool:
    """Whether a socket has connected to itself, so that nothing tells its two directions apart."""
    return key[-4:-2] == key[-2:] and key == reverse(key)


@lru_cache(512)
def _end(host: bytes, port: int, zone: bytes) -> Address:
    return Address(f"{_host(host, zone)}:{port}", port)


@lru_cache(256)
def _host(octets: bytes, zone: bytes) -> str:
    """The text of an IP address in front of a port. It is remembered, since a few hosts have most connections."""
    name = f"%{zone_name(zone)}" if zone else ""
    if len(octets) == 4:
        return ".".join(map(str, octets)) + name
    from socket import AF_INET6, inet_ntop  # slow to import, and many captures have no IPv6

    return f"[{inet_ntop(AF_INET6, octets)}{name}]"


def _process(name: bytes) -> Address:
    """The text of an end of a Unix domain socket: its process's number, from strace also thread and descriptor."""
    number = int.from_bytes(name, "big")
    thread, descriptor = number >> 32 & 0x3FFF_FFFF, number & 0xFFFF
    text = f"pid-{thread}:{descriptor}" if thread else f"pid-{number & 0xFFFF_FFFF}:0"
    return Address(f"peer-of-{text}" if number >> 63 else text, -1, "ipc")
