"""The one address that a replay may use, as the user names it."""

import re
import socket
from ipaddress import ip_address
from typing import NamedTuple

from zmtpsniff.errors import Error

_TCP = re.compile(r"tcp://(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:;/\s]+):(?P<port>[0-9]{1,5})")


class Endpoint(NamedTuple):
    """Where to connect to, or what to bind."""

    name: str  # as the user wrote it
    address: str  # what ZeroMQ gets: with numbers only, so that it looks nothing up again
    shown: str  # as records name it: 127.0.0.1:5555
    is_ipv6: bool
    is_local: bool  # nobody beyond this machine gets anything


def parse_endpoint(name: str, bound: bool) -> Endpoint:
    """Parse ``tcp://HOST:PORT`` or ``ipc://PATH``, and look HOST up; raises Error.

    ``bound``: it is to be bound, so that whoever can reach it gets what is sent; HOST may be ``*`` then.
    """
    if name.startswith("ipc://") and len(name) > len("ipc://"):
        return Endpoint(name, name, name, False, True)
    parts = _TCP.fullmatch(name)
    if parts is None or not 0 < int(parts["port"]) < 65536 or (parts["host"] == "*" and not bound):
        raise Error(f"{name}: must be tcp://HOST:PORT or ipc://PATH")
    host, port = parts["host"].strip("[]"), int(parts["port"])
    if host == "*":
        return Endpoint(name, name, f"*:{port}", False, False)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Error(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    family, _, _, _, sockaddr = found[0]
    number = str(sockaddr[0])
    is_ipv6 = family == socket.AF_INET6
    shown = f"[{number}]:{port}" if is_ipv6 else f"{number}:{port}"
    loopback = ip_address(number.partition("%")[0]).is_loopback
    return Endpoint(name, f"tcp://{shown}", shown, is_ipv6, loopback or (not bound and _is_own(family, number)))


def _is_own(family: int, number: str) -> bool:
    """Whether an address is one of this machine: only those can be bound."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((number, 0))
        except OSError:
            return False
    return not ip_address(number.partition("%")[0]).is_multicast
