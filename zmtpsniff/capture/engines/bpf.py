"""Packet filters for the kernel (classic BPF). libpcap compiles them; this module fits them to packet sockets."""

import struct

from zmtpsniff.capture.source import CaptureError

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false (both relative), operand."""

# linux/filter.h: operands that stand for what the kernel knows beside the octets
_ANCILLARY = 0x1_0000_0000 - 0x1000
_PACKET_TYPE = _ANCILLARY + 4
_HARDWARE_TYPE = _ANCILLARY + 28
_NETWORK_HEADER = 0x1_0000_0000 - 0x10_0000  # added to an offset: counts from the IP header on

_LOAD, _JUMP, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x05, 0x15, 0x06
_LOADS_FROM_PACKET = frozenset((0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xB1))  # absolute, indexed, IP header length

DLT_ETHERNET, DLT_RAW = 1, 12  # what libpcap compiles for, not LINKTYPE_ numbers
ARPHRD_ETHERNET, ARPHRD_LOOPBACK = 1, 772
_OUTGOING = 4


def program(capture_filter: str, snaplen: int) -> bytes:
    """The program that passes ``snaplen`` octets of each packet that the filter matches; all packets if it is empty.

    It works on any packet socket, whatever its interface's link type is, also on one for all interfaces. Of packets
    over loopback, which pass it twice, it takes one. Raises CaptureError with the words of libpcap's compiler.
    """
    ethernet = _fitted(_compile(capture_filter, DLT_ETHERNET), snaplen)
    others = _fitted(_compile(capture_filter, DLT_RAW, ethernet_too=True), snaplen)
    others = [_from_network_header(instruction) for instruction in others]
    instructions: list[Instruction] = [
        (_LOAD, 0, 0, _HARDWARE_TYPE),
        (_JUMP_IF_EQUAL, 2, 0, ARPHRD_ETHERNET),
        (_JUMP_IF_EQUAL, 2, 0, ARPHRD_LOOPBACK),
        (_JUMP, 0, 0, 4 + len(ethernet)),  # to the others
        (_JUMP, 0, 0, 3),  # to Ethernet
        (_LOAD, 0, 0, _PACKET_TYPE),
        (_JUMP_IF_EQUAL, 0, 1, _OUTGOING),
        (_RETURN, 0, 0, 0),
        *ethernet,
        *others,
    ]
    return b"".join([struct.pack("=HBBI", *instruction) for instruction in instructions])


def _compile(capture_filter: str, link_type: int, ethernet_too: bool = False) -> list[Instruction]:
    if not capture_filter:
        return [(_RETURN, 0, 0, 1)]
    from scapy.arch.common import compile_filter
    from scapy.error import Scapy_Exception

    try:
        compiled = compile_filter(capture_filter, linktype=link_type)
    except ImportError:
        raise CaptureError("-f: needs libpcap (apt install libpcap0.8)") from None
    except Scapy_Exception as error:
        if ethernet_too:  # what speaks of Ethernet matches nothing elsewhere
            return [(_RETURN, 0, 0, 0)]
        words = str(error).partition("(")[2].rstrip(") ") or str(error)
        raise CaptureError(f"-f {capture_filter!r}: {words} (man pcap-filter describes the language)") from None
    count: int = compiled.bf_len
    return [(i.code, i.jt, i.jf, i.k & 0xFFFFFFFF) for i in compiled.bf_insns[:count]]


def _fitted(instructions: list[Instruction], snaplen: int) -> list[Instruction]:
    """Return as many octets of the packet as the capture wants, not as many as the compiler was told."""
    return [(code, t, f, snaplen if code == _RETURN and k else k) for code, t, f, k in instructions]


def _from_network_header(instruction: Instruction) -> Instruction:
    """Count from the IP header, since packet sockets have link headers of different lengths before it."""
    code, jump_true, jump_false, operand = instruction
    if code in _LOADS_FROM_PACKET and operand < 0x8000_0000:
        operand += _NETWORK_HEADER
    return (code, jump_true, jump_false, operand)
