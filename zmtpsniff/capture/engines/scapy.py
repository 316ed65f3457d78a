"""scapy's packet sockets: they capture inside this process, on Linux, and need only Python packages."""

import contextlib
import ctypes
import fcntl
import logging
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.engines.bpf import program
from zmtpsniff.capture.engines.engine import HOW_TO_BE_ALLOWED, EngineMissingError, LiveOptions, Piece, PrivilegeError
from zmtpsniff.capture.engines.packet_ring import RETIRE_MS, PacketRing, block_of
from zmtpsniff.capture.interfaces import ANY
from zmtpsniff.capture.source import CaptureError, Fault, SourceState

if TYPE_CHECKING:
    from scapy.arch.linux import L2ListenSocket

_SO_ATTACH_FILTER = 26
_ETH_P_ALL = 3
_SIOCGIFFLAGS, _IFF_UP = 0x8913, 1
_WAIT_MS = 1000
_BUSY_WAIT_MS = 100  # while an interface is down
_STATISTICS_SECONDS = 0.5
_LAST_SECONDS = 2.0  # for which the end waits for blocks


class ScapyEngine(SourceState):
    """Reads scapy's sockets. The packets come through a ring, since a call for each would cost too much."""

    name = "scapy"

    def __init__(self, options: LiveOptions) -> None:
        """Nothing is opened before start()."""
        super().__init__()
        self.failure: str | None = None
        self._options = options
        self._rings: dict[str, PacketRing] = {}
        self._numbers: dict[str, int] = {}  # the kernel's numbers of the interfaces; another may get the same name
        self._lost = 0  # packets dropped on interfaces that are gone
        self._failed: dict[str, float] = {}  # interfaces that are down, and since when; not reported yet
        self._down: set[str] = set()  # interfaces that are reported to be down
        self._woken, self._wake = os.pipe()
        self._stopped = False

    def start(self) -> None:
        """Open a socket for each interface, with its filter in the kernel."""
        if sys.platform != "linux":
            raise EngineMissingError("scapy: captures on Linux only; install dumpcap or tcpdump")
        try:
            _load_scapy()
            for interface in self._options.interfaces:
                self._rings[interface] = self._open(interface)
        except PermissionError:
            self.close()
            raise PrivilegeError(HOW_TO_BE_ALLOWED) from None
        except OSError as error:
            self.close()
            raise CaptureError(f"{interface}: {error.strerror or error} (see zmtpsniff interfaces)") from None
        except CaptureError:
            self.close()
            raise

    def _open(self, interface: str) -> PacketRing:
        if interface != ANY:
            try:  # scapy would capture on another
                self._numbers[interface] = socket.if_nametoindex(interface)
            except OSError:  # each Python says something else
                raise CaptureError(f"{interface}: no interface with this name (see zmtpsniff interfaces)") from None
        # Asked for first, since scapy says it in other words.
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
        filter_program = program(self._options.capture_filter, self._options.snaplen)
        opened = _listen(interface, self._options.promiscuous)
        packet_socket = socket.socket(fileno=opened.ins.detach())  # else it goes with the object
        try:
            if interface == ANY:
                _bind_to_all(packet_socket)
            memory = ctypes.create_string_buffer(filter_program)
            attached = struct.pack("HL", len(filter_program) // 8, ctypes.addressof(memory))
            packet_socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, attached)
            # Packets from before the filter are thrown away when the ring is made.
            return PacketRing(packet_socket, self._options.buffer_mib)
        except OSError:
            packet_socket.close()
            raise

    def pieces(self) -> Iterator[Piece]:
        """Yield blocks of packets as the kernel hands them over, at most RETIRE_MS after they passed."""
        poll = select.poll()
        names = {ring.fileno(): name for name, ring in self._rings.items()}
        for number in (*names, self._woken):
            poll.register(number, select.POLLIN | select.POLLERR)
        looked = time.monotonic()
        try:
            while not self._stopped and self._rings:
                gone = set()
                for number, event in poll.poll(_BUSY_WAIT_MS if self._failed or self._down else _WAIT_MS):
                    name = names.get(number)
                    if name is not None and event & ~select.POLLIN and not self._recovers(name):
                        gone.add(name)
                if time.monotonic() - looked > _STATISTICS_SECONDS:
                    looked = time.monotonic()
                    gone |= self._look_around()
                for ring in self._rings.values():
                    yield from map(_piece, ring.blocks())
                for name in gone:
                    number = self._rings[name].fileno()
                    poll.unregister(number)
                    del names[number]
                    self._end(name)
            yield from self._last_pieces()
            self._count_drops()
        finally:
            self.close()

    def _last_pieces(self) -> Iterator[Piece]:
        """Yield the blocks that are being filled. They are handed over within their time, on a busy machine later."""
        filling = {ring: ring.filling for ring in self._rings.values()}
        deadline = time.monotonic() + _LAST_SECONDS
        time.sleep(1.2 * RETIRE_MS / 1000)
        while True:
            for ring in self._rings.values():
                yield from map(_piece, ring.blocks())
            late = [ring for ring, place in filling.items() if place is not None and ring.filling == place]
            if not late or time.monotonic() > deadline:
                return
            time.sleep(0.1 * RETIRE_MS / 1000)

    def packets(self, payloads: Iterator[tuple[int, bytes]]) -> Iterator[Block]:
        """Find the packets in the kernel's blocks."""
        for count, octets in payloads:
            yield block_of(count, octets)

    def _look_around(self) -> set[str]:
        """Look after interfaces that are down; returns those that are gone.

        An interface that is deleted goes down first, and the kernel reports only one error for both. So this waits
        before it reports that an interface is down.
        """
        self._count_drops()
        gone = {name for name in (*self._failed, *self._down) if not self._exists(name)}
        for name in [name for name in self._down - gone if _is_up(self._numbers[name])]:
            self._down.remove(name)
            self.faults.append(Fault("interface-up", f"{name} is up again"))
        for name, since in [*self._failed.items()]:
            if name not in gone and time.monotonic() - since > _STATISTICS_SECONDS:
                del self._failed[name]
                self._down.add(name)
                self.faults.append(Fault("interface-down", f"{name} went down; the capture goes on when it is up"))
        return gone

    def count_drops(self) -> None:
        """Done all the time, where the packets are read."""

    def _count_drops(self) -> None:
        for ring in self._rings.values():
            with contextlib.suppress(OSError):
                ring.count_drops()
        self.dropped = self._lost + sum(ring.dropped for ring in self._rings.values())

    def _recovers(self, name: str) -> bool:
        """Whether the interface can still be captured on, after an error of its socket."""
        error = self._rings[name].error()
        if error is None or name == ANY:
            return True
        if self._exists(name):
            if name not in self._down:
                self._failed.setdefault(name, time.monotonic())
            return True
        return False

    def _exists(self, name: str) -> bool:
        # Not from /sys, which shows the network namespace in which it was mounted.
        try:
            return bool(socket.if_indextoname(self._numbers[name]))
        except OSError:
            return False

    def _end(self, name: str) -> None:
        """Report that an interface is gone. Its packets have been given out before."""
        ring = self._rings.pop(name)
        self._failed.pop(name, None)
        self._down.discard(name)
        with contextlib.suppress(OSError):
            ring.count_drops()
        ring.close()
        self._lost += ring.dropped
        detail = f"{name} went away"
        self.faults.append(Fault("capture-ended", detail if not self._rings else f"{detail}; the others go on"))
        if not self._rings:
            self.failure = detail

    def stop(self) -> None:
        """End the capture; pieces() then ends with what had come."""
        self._stopped = True
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    def close(self) -> None:
        """Close the sockets."""
        self._stopped = True
        for ring in self._rings.values():
            ring.close()
        self._rings = {}
        for number in (self._woken, self._wake):
            with contextlib.suppress(OSError):
                os.close(number)
        self._woken = self._wake = -1


def _piece(block: tuple[int, bytes]) -> Piece:
    return Piece(len(block[1]), block[0], block)


def _load_scapy() -> None:
    # scapy warns of link types for which it has no class; we take octets only.
    logging.getLogger("scapy").setLevel(logging.ERROR)
    try:
        import scapy.arch.linux  # noqa: F401
        from scapy.data import MANUFDB
    except (ImportError, UnicodeDecodeError) as error:  # the latter from the name of some interface
        raise EngineMissingError(f"scapy: cannot be loaded ({error}); install dumpcap or tcpdump") from None
    MANUFDB.d.clear()  # 50,000 names of vendors that nobody asks for: 12 MB for as long as the capture lasts


def _listen(interface: str, promiscuous: bool) -> "L2ListenSocket":
    from scapy.arch.linux import L2ListenSocket
    from scapy.config import conf

    conf.ifaces.reload()  # one may have come since
    conf.bufsize = 1 << 16  # what comes before there is a ring is thrown away
    anywhere = interface == ANY
    # scapy's socket belongs to one interface, which must be up.
    up = next((name for number, name in socket.if_nameindex() if _is_up(number)), "lo")
    return L2ListenSocket(iface=up if anywhere else interface, promisc=promiscuous and not anywhere, nofilter=1)


def _bind_to_all(packet_socket: socket.socket) -> None:
    # Python's bind() wants the name of an interface.
    address = struct.pack("=HHi12x", socket.AF_PACKET, socket.htons(_ETH_P_ALL), 0)
    if ctypes.CDLL(None, use_errno=True).bind(packet_socket.fileno(), address, len(address)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _is_up(number: int) -> bool:
    try:
        request = struct.pack("16sH14x", os.fsencode(socket.if_indextoname(number)), 0)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            flags: int = struct.unpack_from("=H", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)[0]
    except OSError:
        return False
    return bool(flags & _IFF_UP)
