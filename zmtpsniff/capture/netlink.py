"""Network interfaces from the Linux kernel (rtnetlink, see rtnetlink(7)).

The standard library is enough, and takes any name that the kernel takes. scapy and psutil fail on a name that is not
UTF-8. /sys shows the interfaces of the network namespace in which it was mounted, not those of ours.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

_GET_LINKS, _GET_ADDRESSES = 18, 22
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_NAME, _MTU, _INFO, _ALIAS = 3, 4, 18, 20  # IFLA_*
_INFO_KIND = 1
_PEER, _LOCAL = 1, 2  # IFA_ADDRESS, IFA_LOCAL
_SCOPE_LINK = 253


class LinkInfo(NamedTuple):
    """A network interface."""

    number: int  # of the interface, unique in its network namespace
    name: str  # octets that are not UTF-8 as surrogates, as os.fsencode() takes them
    flags: int  # IFF_*, see netdevice(7)
    hardware: int  # ARPHRD_*
    mtu: int | None  # octets
    kind: str  # of a virtual one: "veth", "bridge"; else empty
    alias: str  # what the administrator calls it
    addresses: list[str]  # addresses that are valid on this link only come with their scope: "fe80::1%eth0"


def links() -> list[LinkInfo]:
    """The interfaces of our network namespace, in the order of their numbers. Raises OSError."""
    found = {}
    for body in _dump(_GET_LINKS, bytes(_LINK.size)):
        _, hardware, index, flags, _ = _LINK.unpack_from(body)
        attributes = _attributes(body[_LINK.size :])
        mtu = attributes.get(_MTU)
        found[index] = LinkInfo(
            index,
            _string(attributes.get(_NAME, b"")),
            flags,
            hardware,
            int.from_bytes(mtu, sys.byteorder) if mtu else None,
            _string(_attributes(attributes.get(_INFO, b"")).get(_INFO_KIND, b"")),
            _string(attributes.get(_ALIAS, b"")),
            [],
        )
    for body in _dump(_GET_ADDRESSES, bytes(_ADDRESS.size)):
        family, _, _, scope, index = _ADDRESS.unpack_from(body)
        attributes = _attributes(body[_ADDRESS.size :])
        octets = attributes.get(_LOCAL) or attributes.get(_PEER)
        if index in found and octets and family in (socket.AF_INET, socket.AF_INET6):
            text = socket.inet_ntop(family, octets)
            link = found[index]
            link.addresses.append(f"{text}%{link.name}" if family == socket.AF_INET6 and scope == _SCOPE_LINK else text)
    return [found[index] for index in sorted(found)]


def _dump(kind: int, body: bytes) -> Iterator[bytes]:
    """The bodies of all messages that answer a request with this body (netlink(7)). Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as connection:
        connection.settimeout(5)
        connection.send(_HEADER.pack(_HEADER.size + len(body), kind, _DUMP, 1, 0) + body)
        while True:
            data = connection.recv(1 << 18)
            while len(data) >= _HEADER.size:
                length, answer, *_ = _HEADER.unpack_from(data)
                found = data[_HEADER.size : length]
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    code = -struct.unpack_from("=i", found)[0]
                    raise OSError(code, os.strerror(code))
                yield found
                data = data[_aligned(length) :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind & 0x3FFF] = data[_ATTRIBUTE.size : length]  # the upper bits say how it is encoded
        data = data[_aligned(max(length, _ATTRIBUTE.size)) :]
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _string(octets: bytes) -> str:
    return os.fsdecode(octets.rstrip(b"\0"))
