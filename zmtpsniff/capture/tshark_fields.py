"""Makes plain IP packets again of tshark's lines about each packet, in its form ``ek``.

Each packet becomes one packet of link type RAW: an IP and a TCP header made of the fields of the innermost TCP segment
in it, and that segment's payload. So packets keep their numbers, and the rest of the program sees what it always sees.
A packet without TCP becomes an empty one.
"""

import struct
from socket import AF_INET6, inet_aton, inet_pton
from typing import Any

import msgspec

from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.plaintexts import Plaintexts
from zmtpsniff.capture.source import Fault
from zmtpsniff.words.link_types import RAW, USER0

FIELDS = (
    "frame.time_epoch", "frame.len", "frame.cap_len", "frame.encap_type", "frame.protocols", "frame.comment",
    "ip.src", "ip.dst", "ipv6.src", "ipv6.dst",
    "tcp.srcport", "tcp.dstport", "tcp.seq_raw", "tcp.ack_raw", "tcp.flags", "tcp.len", "tcp.payload",
)  # fmt: skip
TLS_FIELDS = ("tls.record.content_type", "tls.record.opaque_type", "tls.record.length", "tls.app_data", "data.data")
# Wireshark's numbers of what it takes in (WTAP_ENCAP_): link types for private use; and what is no capture, but tshark
# opens it all the same: MIME, JSON, RFC 7468, MP4 (which it also takes short texts for).
_ENCAP_USER0 = 45
_ENCAP_NO_CAPTURE = frozenset((134, 175, 202, 209))
_REMEMBERED = 4096

_IPV4 = struct.Struct("!BxHxxxxBBxx4s4sHHIIBBHxxxx")
_PORTS = struct.Struct("!HH")
_WINDOW = 0xFFFF  # which windows are closed is not asked
_IPV6 = struct.Struct("!IHBB16s16sHHIIBBHxxxx")
_CUT = _IPV4.pack(0x45, 40, 64, 6, bytes(4), bytes(4), 0, 0, 0, 0, 0x50, 0, 0)[:20]  # an IP header with nothing behind
_MALFORMED = _IPV4.pack(0x45, 40, 64, 6, bytes(4), bytes(4), 0, 0, 0, 0, 0, 0, 0)  # a TCP header of no octets


# All values of each field, in the order of their layers.
_LAYERS = msgspec.defstruct(
    "_Layers", [(name.replace(".", "_"), list[str], []) for name in (*FIELDS, *TLS_FIELDS)], gc=False
)
# Every other line only names the index of Elasticsearch for the next line.
_LINE = msgspec.defstruct("_Line", [("layers", _LAYERS | None, None)], gc=False)


class _Stack(msgspec.Struct, gc=False):
    """The place of the segment, as a list of protocols says it."""

    ipv6: bool = False
    ip: int = -1  # the number of the IP layer, of that version, around the innermost TCP segment; -1 without TCP
    segments: int = 0
    only_ip: bool = False  # nothing is known behind an IP header


class NoCaptureError(Exception):
    """tshark reads the file, but it is no capture of packets."""


class LineReader:
    """Makes packets of lines; remembers what lists of protocols and addresses mean."""

    def __init__(self, decrypted: Plaintexts | None = None) -> None:
        """Start at the beginning of a capture; what tshark decrypts of TLS goes to ``decrypted``."""
        self._decrypted = decrypted
        self.packets = 0
        self.left_out = 0  # segments that share their packet with another
        self._decode = msgspec.json.Decoder(_LINE).decode_lines
        self._rest = b""
        self._time = 0
        self._stacks: dict[str, _Stack] = {}
        self._addresses: dict[str, bytes] = {}

    def feed(self, octets: bytes) -> list[Packet]:
        """The packets of the lines that are whole now.

        Raises NoCaptureError at the first packet if the file is no capture, and msgspec.DecodeError for a line that
        tshark does not write.
        """
        end = octets.rfind(b"\n") + 1
        if not end:
            self._rest += octets
            return []
        whole = self._rest + octets[:end]
        self._rest = octets[end:]
        try:
            lines: list[Any] = self._decode(whole)
        except msgspec.DecodeError:  # a comment in some other encoding
            lines = self._decode(whole.decode(errors="replace").encode())
        return [self._packet(line.layers) for line in lines if line.layers is not None]

    def faults(self, title: str) -> list[Fault]:
        """Problems of the packets so far; ``title`` is the name of the capture."""
        if not self.left_out:
            return []
        detail = f"{title}: {self.left_out} TCP segments are left out: tshark gives only the last one of each packet"
        return [Fault("segments-left-out", detail)]

    def _packet(self, layers: Any) -> Packet:
        if not self.packets and layers.frame_encap_type and int(layers.frame_encap_type[0]) in _ENCAP_NO_CAPTURE:
            raise NoCaptureError
        self.packets += 1
        if layers.frame_time_epoch:  # a simple packet block has none
            self._time = _nanoseconds(layers.frame_time_epoch[0])
        comment = "\n".join(layers.frame_comment) or None
        protocols = layers.frame_protocols[0] if layers.frame_protocols else ""
        stack = self._stacks.get(protocols)
        if stack is None:
            if len(self._stacks) >= _REMEMBERED:
                self._stacks.clear()
            stack = self._stacks[protocols] = _read_stack(protocols)
        if stack.ip >= 0:
            data, wire = self._datagram(layers, stack)
            return self._time, RAW, data, wire, comment
        wire = int(layers.frame_len[0]) if layers.frame_len else 0
        if stack.only_ip and _is_cut(layers):
            return self._time, RAW, _CUT, wire, comment
        if protocols.startswith("user_dlt") and layers.frame_encap_type:
            # tshark does not know it either, unless the user says what it is.
            return self._time, USER0 + int(layers.frame_encap_type[0]) - _ENCAP_USER0, b"", wire, comment
        return self._time, RAW, b"", wire, comment

    def _datagram(self, layers: Any, stack: _Stack) -> tuple[bytes, int]:
        """An IP packet with the innermost segment, and its length on the wire."""
        lengths = layers.tcp_len
        sources, destinations = (layers.ipv6_src, layers.ipv6_dst) if stack.ipv6 else (layers.ip_src, layers.ip_dst)
        # tshark gives up a header that cannot be right before its flags.
        if not len(lengths) == len(layers.tcp_flags) == stack.segments or len(destinations) <= stack.ip:
            return (_CUT if _is_cut(layers) else _MALFORMED), 40
        length = int(lengths[-1])
        payload = b""
        if length:
            payloads = layers.tcp_payload
            # The last one is missing if none of its octets was captured.
            if len(payloads) == stack.segments - lengths.count("0"):
                payload = bytes.fromhex(payloads[-1])
        if stack.segments > 1:
            self._count_neighbours(layers)
        source, destination = self._address(sources[stack.ip]), self._address(destinations[stack.ip])
        if self._decrypted is not None and layers.tls_record_length:
            self._decrypted.put(
                source + destination + _PORTS.pack(int(layers.tcp_srcport[-1]), int(layers.tcp_dstport[-1])),
                layers.tls_record_content_type,
                layers.tls_record_opaque_type,
                layers.tls_record_length,
                layers.tls_app_data,
                layers.data_data,
            )
        tcp = (
            int(layers.tcp_srcport[-1]),
            int(layers.tcp_dstport[-1]),
            int(layers.tcp_seq_raw[-1]),
            int(layers.tcp_ack_raw[-1]),
            0x50,
            int(layers.tcp_flags[-1], 16) & 0xFF,
            _WINDOW,
        )
        # Longer than the field can say: 0, as network cards leave it (TSO); then the length on the wire counts.
        if stack.ipv6:
            total = length + 20
            header = _IPV6.pack(0x60000000, total if total < 0x10000 else 0, 6, 64, source, destination, *tcp)
            return header + payload, total + 40
        total = length + 40
        header = _IPV4.pack(0x45, total if total < 0x10000 else 0, 64, 6, source, destination, *tcp)
        return header + payload, total

    def _address(self, text: str) -> bytes:
        address = self._addresses.get(text)
        if address is None:
            if len(self._addresses) >= _REMEMBERED:
                self._addresses.clear()
            address = inet_pton(AF_INET6, text) if ":" in text else inet_aton(text)
            self._addresses[text] = address
        return address

    def _count_neighbours(self, layers: Any) -> None:
        """Count segments that are beside the innermost one, not around it, as in aggregated 802.11 frames."""
        inner = layers.tcp_payload[-1] if int(layers.tcp_len[-1]) and layers.tcp_payload else ""
        for length, payload in zip(layers.tcp_len[:-1], layers.tcp_payload + [""] * len(layers.tcp_len), strict=False):
            if int(length) < int(layers.tcp_len[-1]) + 40 or inner not in payload:
                self.left_out += 1


def _nanoseconds(text: str) -> int:
    """``1700000000.123456789`` without rounding."""
    seconds, _, fraction = text.partition(".")
    nanoseconds = int(f"{fraction:0<9.9}")
    return int(seconds) * 1_000_000_000 + (-nanoseconds if seconds.startswith("-") else nanoseconds)


def _is_cut(layers: Any) -> bool:
    return bool(layers.frame_cap_len != layers.frame_len)


def _read_stack(protocols: str) -> _Stack:
    """Find the innermost TCP segment in a list of protocols, outermost first, with colons between."""
    names = protocols.split(":")
    segments = names.count("tcp")
    if not segments:
        return _Stack(only_ip=names[-1] in ("ip", "ipv6"))
    tcp = len(names) - 1 - names[::-1].index("tcp")
    before = names[:tcp]
    ips = [name for name in before if name in ("ip", "ipv6")]
    # An ICMP error quotes a packet that came before, or never arrived.
    if not ips or "icmp" in before or "icmpv6" in before:
        return _Stack()
    return _Stack(ipv6=ips[-1] == "ipv6", ip=ips.count(ips[-1]) - 1, segments=segments)
