"""The questions of Wireshark to an extcap program, and our answers: lines of words and values in braces.

Wireshark's Developer's Guide has the protocol ("Extcap: Developer Guide"). Wireshark asks for the interfaces, their
link types and their options. It makes a dialog of the options, and then starts a capture with them.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zmtpsniff.extcap.pdus import ZMTP
from zmtpsniff.words.link_types import WIRESHARK_UPPER_PDU

LIVE = "zmtpsniff"
FILE = "zmtpsniff_file"
INTERFACES = {LIVE: "ZeroMQ messages, live", FILE: "ZeroMQ messages of a capture file"}


class Argument(NamedTuple):
    """An option that Wireshark's dialog offers."""

    call: str  # as it stands on the command line
    display: str
    kind: str  # what Wireshark calls its type
    tooltip: str
    default: str = ""
    required: bool = False
    values: Sequence[str] = ()  # to choose from


_OPTIONS = (
    Argument(
        "--curve-keys", "Keys of CURVE", "fileselect", "A file with keys, as zmtpsniff keys writes it: opens CURVE"
    ),
    Argument("--filter", "Filter", "string", "zmtpsniff's display filter, such as: socket_type == \"REP\""),
    Argument("--decode-as", "Decode as", "string", "A port to take for ZMTP, such as: tcp.port==5555,zmtp"),
    Argument(
        "--dissector", "Dissector", "string",
        "zmtp: whole records (Wireshark 4.2 and later); json, data, ...: each frame's body to this dissector",
        default=ZMTP,
    ),
)  # fmt: skip
_MACHINE_KEYS = Argument(
    "--auto-keys", "Keys of this machine", "boolflag",
    "Opens CURVE with the keys of this machine's programs: of all of them as root, else of one's own",
)  # fmt: skip
_FILE = Argument("--file", "Capture file", "fileselect", "The capture file to take messages from", required=True)


def interface_lines(version: str) -> Iterator[str]:
    """The answer to ``--extcap-interfaces``."""
    yield _line("extcap", version=version, display="zmtpsniff")
    for name, display in INTERFACES.items():
        yield _line("interface", value=name, display=display)


def link_type_lines() -> Iterator[str]:
    """The answer to ``--extcap-dlts``."""
    yield _line("dlt", number=str(WIRESHARK_UPPER_PDU), name="WIRESHARK_UPPER_PDU", display="Wireshark exported PDUs")


def option_lines(interface: str, names: Sequence[str]) -> Iterator[str]:
    """The answer to ``--extcap-config``; ``names`` are those of the network interfaces of this machine."""
    first, *others = _FILE, *_OPTIONS
    if interface == LIVE:
        others = [*_OPTIONS, _MACHINE_KEYS] if sys.platform == "linux" else others
        tooltip = "The network interface to capture on"
        first = Argument(
            "--interface", "Interface", "selector", tooltip, default=names[0] if names else "", values=names
        )
    for number, each in enumerate((first, *others)):
        fields = {"number": str(number), "call": each.call, "display": each.display, "type": each.kind}
        fields["tooltip"] = each.tooltip
        if each.default:
            fields["default"] = each.default
        if each.kind == "fileselect":
            fields["mustexist"] = "true"
        fields["required"] = "true" if each.required else "false"
        yield _line("arg", **fields)
        for place, value in enumerate(each.values):
            default = {} if place else {"default": "true"}
            yield _line("value", arg=str(number), value=value, display=value, **default)


def _line(word: str, **fields: str) -> str:
    return f"{word} {''.join(f'{{{name}={_safe(value)}}}' for name, value in fields.items())}"


def _safe(value: str) -> str:
    """A value without what would end it, or the line."""
    return "".join(" " if sign in "{}" or not sign.isprintable() else sign for sign in value)
