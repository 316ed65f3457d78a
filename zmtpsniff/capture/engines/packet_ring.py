"""The ring that Linux shares with a packet socket (TPACKET_V3): packets without a system call for each."""

import mmap
import socket
import struct
from collections.abc import Iterator

from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.engines.bpf import ARPHRD_ETHERNET, ARPHRD_LOOPBACK
from zmtpsniff.native import file_records
from zmtpsniff.words.link_types import ETHERNET, RAW

# linux/if_packet.h
_SOL_PACKET = 263
_PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION = 5, 6, 10
_TPACKET_V3 = 2
_OWNED_BY_US = 1
_VLAN_VALID, _VLAN_TPID_VALID = 1 << 4, 1 << 6

_BLOCK_OCTETS = 512 << 10  # holds the longest packet: 262,144 octets and its header
_FRAME_OCTETS = 2048  # of no meaning in this version, but it must divide the block
RETIRE_MS = 85
"""A block that is not full is handed over after so many milliseconds. Each one wakes the program up, which costs more
than what is in it on a quiet network; and nobody who watches sees the difference."""

_BLOCK = struct.Struct("=IIII")  # tpacket_hdr_v1: status, packets, offset of the first, octets of the block
_HEADER = struct.Struct("=IIIIIIHHIIH")  # tpacket3_hdr up to the VLAN's protocol
_ADDRESS = struct.Struct("=HHiHB")  # sockaddr_ll behind it, up to the packet's type
_ADDRESS_OFFSET = 48
_LIKE_ETHERNET = (ARPHRD_ETHERNET, ARPHRD_LOOPBACK)
_ETHER_TYPE_VLAN = 0x8100


class PacketRing:
    """The packets of a packet socket."""

    def __init__(self, packet_socket: socket.socket, buffer_mib: int) -> None:
        """Share a ring of so many MiB with the kernel; raises OSError if it has no memory for it."""
        self.dropped = 0
        self._socket = packet_socket
        self._blocks = max((buffer_mib << 20) // _BLOCK_OCTETS, 2)
        size = self._blocks * _BLOCK_OCTETS
        frames = size // _FRAME_OCTETS
        request = struct.pack("=7I", _BLOCK_OCTETS, self._blocks, _FRAME_OCTETS, frames, RETIRE_MS, 0, 0)
        packet_socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3)
        packet_socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
        self._drops()  # packets from before the ring, and perhaps the filter, was there: nobody asked for them
        self._memory = mmap.mmap(packet_socket.fileno(), size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._next = 0

    def fileno(self) -> int:
        """The descriptor that poll() waits for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Give the ring and the socket back."""
        self._memory.close()
        self._socket.close()

    def error(self) -> OSError | None:
        """The error of the socket since the last call, such as an interface that went down."""
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return OSError(number, socket.SO_ERROR) if number else None

    def count_drops(self) -> None:
        """Add what the kernel dropped since the last time."""
        self.dropped += self._drops()

    def _drops(self) -> int:
        """The packets that the kernel dropped since it was asked last."""
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 12)
        return int(struct.unpack("=III", statistics)[1])

    @property
    def filling(self) -> int | None:
        """The place of the block that the kernel will hand over next; None while it has no packet."""
        _, count, _, _ = _BLOCK.unpack_from(self._memory, self._next * _BLOCK_OCTETS + 8)
        return self._next if count else None

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield copies of the blocks that are there: the number of packets in each, and their octets with headers."""
        memory = self._memory
        # At most once around, so that nobody else waits for ever.
        for _ in range(self._blocks):
            start = self._next * _BLOCK_OCTETS
            status, count, first, length = _BLOCK.unpack_from(memory, start + 8)
            if not status & _OWNED_BY_US:
                return
            block = memory[start + first : start + length]
            memory[start + 12 : start + 16] = bytes(4)  # without packets, before the kernel may put some into it
            memory[start + 8 : start + 12] = bytes(4)  # the kernel's again
            self._next = (self._next + 1) % self._blocks
            if count:
                yield count, block


def block_of(count: int, octets: bytes) -> Block:
    """The packets of one of the kernel's blocks."""
    rows = file_records.ring_rows(octets, count)
    return Block.of(packets_of(count, octets)) if rows is None else Block(octets, rows)


def packets_of(count: int, block: bytes) -> list[Packet]:
    """The same, one by one; also those out of which the kernel took a tag."""
    header, address = _HEADER.unpack_from, _ADDRESS.unpack_from
    position = 0
    batch: list[Packet] = []
    for _ in range(count):
        step, seconds, nanoseconds, size, length, status, link, network, _, tag, tag_type = header(block, position)
        hardware = address(block, position + _ADDRESS_OFFSET)[3]
        time = seconds * 1_000_000_000 + nanoseconds
        if hardware in _LIKE_ETHERNET:
            start = position + link
            octets = block[start : start + size]
            if status & _VLAN_VALID:  # the kernel took the tag out
                protocol = tag_type if status & _VLAN_TPID_VALID else _ETHER_TYPE_VLAN
                octets = octets[:12] + struct.pack(">HH", protocol, tag & 0xFFFF) + octets[12:]
                length += 4
            batch.append((time, ETHERNET, octets, length, None))
        else:  # a tunnel, or the like: from the IP header on
            skipped = network - link
            start = position + network
            batch.append((time, RAW, block[start : start + size - skipped], length - skipped, None))
        position += step
    return batch
