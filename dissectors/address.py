"""Addresses as records have them: ``192.0.2.1:5555``, ``[2001:db8::1]:5555``.

Where networks have addresses in common, a zone as that of RFC 4007 names one: ``192.0.2.1%vlan7:5555``.
"""

from functools import lru_cache

FIRST_CLIENT_PORT = 32_768  # the first port that Linux chooses for a client; other systems begin later


def has_bound_port(address: str) -> bool:
    """Whether the port of an address is none that a system chooses for a client, so that a socket is bound there."""
    return 0 < port_of(address) < FIRST_CLIENT_PORT


@lru_cache(1024)
def host_of(address: str) -> str:
    """The host of an address, without the port if it has one."""
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdecimal() else address


def port_of(address: str) -> int:
    """The port of an address; 0 if the address has none."""
    digits = address.rpartition(":")[2]
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 6 else 0


def without_zone(address: str) -> str:
    """The address without the name of its network."""
    before, percent, behind = address.partition("%")
    end = behind.find("]" if before.startswith("[") else ":") if percent else -1
    return before if end < 0 else before + behind[end:]


@lru_cache(4096)
def is_loopback(address: str) -> bool:
    """Whether an ``address:port`` is one of the machine itself."""
    import ipaddress  # slow to import, and few commands ask

    host = without_zone(host_of(address)).strip("[]")
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return False
    inner = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (inner or parsed).is_loopback
