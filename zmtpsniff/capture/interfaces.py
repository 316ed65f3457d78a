"""The interfaces that can be captured on, and with which engines."""

import os
import re
import shutil
import socket
import subprocess
import sys
from typing import NamedTuple, get_args

from zmtpsniff.capture.engines.engine import EngineName
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.errors import naming

ANY = "any"
_ON_LINUX = sys.platform == "linux"
_ASK_SECONDS = 10.0
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40  # IFF_*, the same on every system
_LINK_TYPES = {  # ARPHRD_*
    1: "Ethernet", 32: "InfiniBand", 512: "PPP", 768: "IP tunnel", 769: "IPv6 tunnel", 772: "loopback", 776: "SIT",
    778: "GRE", 801: "802.11", 802: "802.11", 803: "802.11", 823: "IPv6 GRE", 65534: "IP",
}  # fmt: skip
_LISTED = re.compile(r"\d+\. ?(\S+)(?: \((.*?)\))?(?: \[.*\])?")


class Interface(NamedTuple):
    """Something to capture on. Fields that do not apply, or are not known, are None or empty."""

    name: str
    addresses: list[str]  # addresses that are valid on this link only come with their scope: "fe80::1%eth0"
    up: bool | None = None  # switched on; only then can it be captured on
    running: bool | None = None  # has a carrier
    loopback: bool | None = None
    link_type: str = ""  # "Ethernet"
    kind: str = ""  # of a virtual one: "veth", "bridge"
    mtu: int | None = None  # octets
    description: str = ""
    engines: tuple[str, ...] = ()  # that can capture on it here and now


def interface_names() -> list[str]:
    """The names of all interfaces, quickly; for the completion of what is typed."""
    return [*([ANY] if _ON_LINUX else []), *(name for _, name in socket.if_nameindex())]


def list_interfaces(engines: tuple[str, ...], everything: bool = False) -> list[Interface]:
    """All network interfaces, those that are up first, and on Linux ``any`` before them.

    ``engines`` are those that may capture, as allowed_engines() says. With ``everything`` also what capture programs
    know beside, such as extcap interfaces. Raises CaptureError if the system does not tell its interfaces.
    """
    with naming("the interfaces cannot be listed", CaptureError):
        known = _from_kernel() if _ON_LINUX else _from_scapy()
    known = [each._replace(engines=engines) if each.up else each for each in known]
    found = sorted(known, key=lambda each: not each.up)
    if _ON_LINUX:
        found.insert(0, Interface(ANY, [], description="all interfaces", engines=engines))
    return found + _listed_by_programs(engines, {each.name for each in found}) if everything else found


def allowed_engines() -> tuple[str, ...]:
    """The engines that may capture for this user. They try to open an interface, without capturing anything."""
    names = get_args(EngineName)
    opened = _ask({name: [name, "-L", "-i", _one_interface()] for name in ("dumpcap", "tcpdump") if name in names})
    allowed = {
        **{name: answer is not None for name, answer in opened.items()},
        "scapy": _may_open_packet_socket(),
        "tshark": opened.get("dumpcap") is not None and shutil.which("tshark") is not None,
    }
    return tuple(name for name in names if allowed.get(name))


def _one_interface() -> str:
    """One that can be opened by whoever may capture."""
    return ANY if _ON_LINUX else next((each.name for each in _from_scapy() if each.up), "lo0")


def _may_open_packet_socket() -> bool:
    if not _ON_LINUX:
        return any(os.access(device, os.R_OK) for device in ("/dev/bpf", "/dev/bpf0"))
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    except OSError:
        return False
    return True


def _ask(commands: dict[str, list[str]]) -> dict[str, str | None]:
    """The outputs of the programs, None for one that is not installed or fails. All run at the same time."""
    running = {}
    for name, command in commands.items():
        try:
            running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding=sys.getfilesystemencoding(),
                errors="surrogateescape",
            )
        except OSError:  # not installed, or not for this user
            continue
    said: dict[str, str | None] = dict.fromkeys(commands)
    for name, process in running.items():
        try:
            words, _ = process.communicate(timeout=_ASK_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        else:
            said[name] = words if process.returncode == 0 else None
    return said


def _from_kernel() -> list[Interface]:
    from zmtpsniff.capture.netlink import links

    return [
        Interface(
            link.name,
            link.addresses,
            bool(link.flags & _UP),
            bool(link.flags & _RUNNING),
            bool(link.flags & _LOOPBACK),
            _LINK_TYPES.get(link.hardware, f"type {link.hardware}"),
            link.kind,
            link.mtu,
            link.alias,
        )
        for link in links()
    ]


def _from_scapy() -> list[Interface]:
    """The interfaces that scapy knows. It knows less of them, but works on other systems than Linux, too."""
    from scapy.all import conf

    conf.ifaces.reload()  # scapy keeps what it knew when it was imported, or when a capture began
    found = []
    for each in conf.ifaces.values():
        flags = int(each.flags)
        loopback = bool(flags & _LOOPBACK)
        addresses = [*each.ips[4], *(_scoped(address, each.name) for address in each.ips[6])]
        found.append(
            Interface(
                each.network_name,
                addresses,
                bool(flags & _UP),
                bool(flags & _RUNNING),
                loopback,
                "loopback" if loopback else "",
                description=each.description if each.description != each.name else "",
            )
        )
    return found


def _scoped(address: str, name: str) -> str:
    return f"{address}%{name}" if address.lower().startswith("fe80:") and "%" not in address else address


def _listed_by_programs(allowed: tuple[str, ...], known: set[str]) -> list[Interface]:
    """The interfaces that capture programs list and the kernel does not."""
    found: dict[str, Interface] = {}
    programs = [name for name in get_args(EngineName) if name in ("dumpcap", "tcpdump", "tshark")]
    for engine, words in _ask({name: [name, "-D"] for name in programs}).items():
        for match in map(_LISTED.fullmatch, (words or "").splitlines()):
            if match and match[1] not in known:
                before = found.get(match[1], Interface(match[1], []))
                description = before.description or match[2] or ""
                found[match[1]] = before._replace(description=description, engines=(*before.engines, engine))
    return [
        # Programs of their own (extcap) capture on interfaces that only tshark lists. They need no right from us.
        each if each.engines == ("tshark",) else each._replace(engines=tuple(e for e in each.engines if e in allowed))
        for each in found.values()
    ]
