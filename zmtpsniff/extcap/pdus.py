"""Events as exported PDUs of Wireshark: octets without the packets that carried them.

In front of the octets stand tags (wsutil/exported_pdu_tlvs.h of Wireshark): the dissector that Wireshark shall call,
the addresses and the ports. So it needs no rule that says which ports speak ZMTP, and no keys of what we decrypted.

Every record becomes frames of ZMTP 3.1 without encryption, whatever its connection speaks: Wireshark's dissector knows
these. Greetings, and commands that hold boxes which no key opened, are left out. They would tell that dissector to look
for encryption, which we have undone.
"""

import re
import socket
import struct
from collections.abc import Iterator, Sequence

import msgspec

from dissectors.address import without_zone
from dissectors.events import (
    AnyEvent,
    Command,
    Connection,
    Message,
    Octets,
    Subscription,
    WireEvent,
    at_hand,
)
from dissectors.zmtp.encoder import encodings, frame_head
from dissectors.zmtp.wire import MORE
from zmtpsniff.capture.block import Packet
from zmtpsniff.render.payload import frames_to_show
from zmtpsniff.words.link_types import WIRESHARK_UPPER_PDU

# the most octets of a packet, with its tags, that Wireshark reads (WTAP_MAX_PACKET_SIZE_STANDARD)
LARGEST_PDU = 262_144
ZMTP = "zmtp"  # the dissector that takes frames; any other takes bodies

_END, _DISSECTOR_NAME, _ORIGINAL_FRAME, _PROTOCOL_COLUMN = 0, 12, 30, 33  # tags
_IPV4, _IPV6 = (20, 21), (22, 23)  # source and destination
_PORT_TYPE, _PORTS = 24, (25, 26)
_TCP, _UDP = 2, 3  # port types
_IP_END = re.compile(r"\[?([0-9a-fA-F:.]+)\]?:(\d+)")
_ENCRYPTION = ("version", "server_key", "box", "token")  # what commands of CURVE and GSSAPI have
_NO_FLAGS = 0x5000  # a header of TCP without options, nor any flag
_LARGEST_WINDOW = 0xFFFF  # of which Wireshark has nothing to say
_NOT_CAPTURED = "zmtpsniff's, not captured: the messages of a connection follow"


class PduEncoder:
    """Makes PDUs of events."""

    def __init__(self, dissector: str = ZMTP, show_secrets: bool = False) -> None:
        """``dissector`` is one of Wireshark's. zmtp gets whole records, any other gets the bodies of messages.

        Frames with credentials are cut off unless ``show_secrets``.
        """
        self._dissector = dissector
        self._show_secrets = show_secrets
        self._flows: set[int] = set()  # that Wireshark knows

    def packets(self, events: Sequence[AnyEvent]) -> Iterator[Packet]:
        """The PDUs of some events as packets. A PDU that is cut has its length on the wire."""
        for event in events:
            if isinstance(event, Connection):
                self._flows.discard(event.flow)
            if not isinstance(event, WireEvent):
                continue
            for octets, length in self._contents(event):
                if self._dissector == ZMTP and event.flow not in self._flows:
                    self._flows.add(event.flow)
                    name, header = _transport_header(event)
                    yield _packet(event, name, header, len(header), _NOT_CAPTURED)
                yield _packet(event, self._dissector, octets, length)

    def _contents(self, event: WireEvent) -> Iterator[tuple[bytes, int]]:
        """The octets of each PDU, and how many there would be if all were at hand."""
        if isinstance(event, Message):
            frames = frames_to_show(event, self._show_secrets)
            if self._dissector == ZMTP:
                yield _framed(frames)
            else:
                yield from ((at_hand(frame), len(frame)) for frame in frames if at_hand(frame))
        elif self._dissector == ZMTP and isinstance(event, Subscription | Command):
            if isinstance(event, Command):
                if event.properties is None and any(getattr(event, name) is not None for name in _ENCRYPTION):
                    return
                event = msgspec.structs.replace(event, client_key=None, cookie=None, nonce=None, box=None)
            for pieces in encodings(event):
                octets = b"".join([piece.octets for piece in pieces])
                yield octets, len(octets)
                break  # the others are those of ZMTP 1.0 and of closed boxes


def _framed(frames: Sequence[Octets]) -> tuple[bytes, int]:
    """Frames with their headers, as far as their octets are at hand; and how many octets all frames have."""
    parts: list[bytes] = []
    total = 0
    is_whole = True
    for place, frame in enumerate(frames):
        length = len(frame)
        head = frame_head(length, MORE if place < len(frames) - 1 else 0)
        total += len(head) + length
        if is_whole:
            parts += (head, at_hand(frame))
            is_whole = isinstance(frame, bytes)
    return b"".join(parts), total


def _packet(event: WireEvent, dissector: str, octets: bytes, length: int, comment: str | None = None) -> Packet:
    tags = _tags(event, dissector)
    return event.time_ns, WIRESHARK_UPPER_PDU, tags + octets[: LARGEST_PDU - len(tags)], len(tags) + length, comment


def _tags(event: WireEvent, dissector: str) -> bytes:
    parts = [_tag(_DISSECTOR_NAME, dissector.encode("ascii", "replace")), _tag(_PROTOCOL_COLUMN, b"ZMTP")]
    ends = [_IP_END.fullmatch(without_zone(end)) for end in (event.src, event.dst)]
    for side, end in enumerate(ends):
        if end is not None:
            family, names = (socket.AF_INET6, _IPV6) if ":" in end[1] else (socket.AF_INET, _IPV4)
            parts.append(_tag(names[side], socket.inet_pton(family, end[1])))
    parts.append(_number(_PORT_TYPE, _UDP if _is_datagram(event) else _TCP))
    for side, end in enumerate(ends):
        parts.append(_number(_PORTS[side], 0 if end is None else int(end[2])))
    parts += (_number(_ORIGINAL_FRAME, event.packet & 0xFFFF_FFFF), _tag(_END, b""))
    return b"".join(parts)


def _transport_header(event: WireEvent) -> tuple[str, bytes]:
    """The dissector of a header without anything after it, and that header.

    Wireshark's ZMTP dissector looks for a conversation of Wireshark, which the dissectors of TCP and UDP begin.
    """
    ends = [_IP_END.fullmatch(without_zone(end)) for end in (event.src, event.dst)]
    source, destination = (0 if end is None else int(end[2]) for end in ends)
    if _is_datagram(event):
        return "udp", struct.pack(">4H", source, destination, 8, 0)
    return "tcp", struct.pack(">HHIIHHHH", source, destination, 0, 0, _NO_FLAGS, _LARGEST_WINDOW, 0, 0)


def _is_datagram(event: WireEvent) -> bool:
    """Whether it came by UDP or PGM: then it has no place in a stream."""
    return not getattr(event, "offset", 0)


def _tag(number: int, value: bytes) -> bytes:
    value += bytes(-len(value) % 4)
    return struct.pack(">HH", number, len(value)) + value


def _number(number: int, value: int) -> bytes:
    return struct.pack(">HHI", number, 4, value)
