"""Rules of the user about the protocol on a port, in Wireshark's words: ``tcp.port==5555,zmtp``."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from dissectors.zmtp.sockets import STABLE
from zmtpsniff.errors import Error

_RULE = re.compile(
    r"(?P<transport>tcp|udp)\.port==(?P<first>\d+)(?:-(?P<last>\d+))?,(?P<protocol>[\w.-]+)(?:/(?P<type>\w+))?"
)
_PROTOCOLS = {"zmtp": 0, "zmtp1": 1, "zmtp2": 2, "zmtp3": 3}


class DecodeAsError(Error, ValueError):
    """A rule cannot be used. The text says which and why, but not which option gave it."""


class DecodeAs(NamedTuple):
    """A rule: connections with a port in this range, on either side, are ZMTP of this version, or RADIO's datagrams."""

    transport: str
    first_port: int
    last_port: int
    version: int  # 1, 2, 3; 0 to find out which
    payload: str = ""  # the name of the dissector of their messages' payloads, if the rule says that
    socket_type: str = ""  # of the socket bound to the port, for connections that do not say it

    def matches(self, transport: str, *ports: int) -> bool:
        """Whether it is a rule for this transport and one of the ports is in the range."""
        return self.transport == transport and any(self.first_port <= port <= self.last_port for port in ports)


def first_match(rules: Iterable[DecodeAs], transport: str, *ports: int) -> DecodeAs | None:
    """The first rule for this transport that one of the ports matches; None if there is none."""
    return next((rule for rule in rules if rule.matches(transport, *ports)), None)


def parse(rule: str) -> DecodeAs:
    """Read a rule; DecodeAsError says what is wrong with it."""
    match = _RULE.fullmatch(rule.replace(" ", ""))
    if not match:
        raise DecodeAsError(f"{rule!r} is no rule like tcp.port==5555,zmtp")
    if match["transport"] == "udp" and match["protocol"] != "zmtp":
        raise DecodeAsError(f"{match['protocol']} is not for udp: udp.port=={match['first']},zmtp")
    first = int(match["first"])
    last = int(match["last"] or first)
    if not first <= last <= 65_535:
        raise DecodeAsError(f"{first}-{last} is no range of ports (0 to 65535)")
    protocol = match["protocol"]  # of ZMTP's messages if it is not ZMTP; which there are is known later
    payload = "" if protocol in _PROTOCOLS else protocol
    kind = (match["type"] or "").upper()
    if kind and (kind not in STABLE or payload or match["transport"] == "udp"):
        raise DecodeAsError(f"{match['protocol']}/{match['type']}: a socket type is {', '.join(STABLE)}, behind zmtp/")
    return DecodeAs(match["transport"], first, last, _PROTOCOLS.get(protocol, 0), payload, kind)
