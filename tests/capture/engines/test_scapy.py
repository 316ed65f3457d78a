"""The engine that reads scapy's sockets through a ring: what only it must see to, with the kernel's help."""

import ctypes
import fcntl
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.support.live_program import needs_privilege
from tests.support.paths import FIXTURES
from tests.world.tap import load
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.engines import packet_ring
from zmtpsniff.capture.engines.engine import LiveOptions
from zmtpsniff.capture.engines.packet_ring import PacketRing
from zmtpsniff.capture.engines.scapy import ScapyEngine
from zmtpsniff.capture.source import CaptureError

pytestmark = [
    needs_privilege,
    pytest.mark.xdist_group("any interface"),  # at the same time these would see each other's packets
]

_PATIENCE = 60.0  # seconds; a machine that does much else may be slow
_TUNSETIFF, _TAP, _TUN, _NO_PACKET_INFO = 0x400454CA, 2, 1, 0x1000
_CLONE_NEWNET = 0x4000_0000
_numbers = itertools.count()
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _UP = 0x8913, 0x8914, 1


def in_a_namespace(function: Callable[[], list[Packet]]) -> list[Packet]:
    """Run a function in a network namespace of its own, where no other test has interfaces; returns its result."""
    libc = ctypes.CDLL(None, use_errno=True)

    def run() -> list[Packet]:
        if libc.unshare(_CLONE_NEWNET):  # of this thread alone; gone with it
            raise OSError(ctypes.get_errno(), "unshare")
        return function()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


@contextmanager
def own_interface(kind: int) -> Iterator[tuple[str, int]]:
    """A TUN or TAP interface that is up, and the descriptor through which packets come in on it."""
    if not os.path.exists("/dev/net/tun"):
        pytest.skip("there is no /dev/net/tun here")
    # No name comes back: who lists interfaces twice knows by it whether one was there all the time.
    name = f"zt{os.getpid() % 10_000_000}{'n' if kind == _TUN else 'p'}{next(_numbers)}"
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH14x", name.encode(), kind | _NO_PACKET_INFO))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("16sH14x", name.encode(), 0)
            flags = struct.unpack_from("=H", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request), 16)[0]
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), flags | _UP))
        yield name, descriptor
    finally:
        os.close(descriptor)


def captured(engine: ScapyEngine, seconds: float = 0.3) -> list[Packet]:
    """The packets that the engine has after so long."""
    threading.Timer(seconds, engine.stop).start()
    payloads = (piece.payload for piece in engine.pieces())
    return [packet for batch in engine.packets(payloads) for packet in batch]


@pytest.mark.parametrize("interfaces", ["its own", "any"])
@pytest.mark.parametrize("capture_filter", ["", "tcp port 20201"])
def test_a_tunnel_without_link_headers(interfaces: str, capture_filter: str) -> None:
    sent = [packet[2][14:] for packet in load(FIXTURES / "m31_push_pull.pcap")]

    def through_a_tunnel() -> list[Packet]:
        with own_interface(_TUN) as (name, descriptor):
            engine = ScapyEngine(LiveOptions([name if interfaces == "its own" else "any"], capture_filter))
            engine.start()
            for octets in sent:
                os.write(descriptor, octets)
            return captured(engine)

    packets = in_a_namespace(through_a_tunnel)
    ours = [packet for packet in packets if packet[1] == 101 and packet[2] in sent]
    when = ", ".join(f"#{sent.index(packet[2])} at {(packet[0] - ours[0][0]) / 1e6:.3f} ms" for packet in ours)
    assert [packet[2] for packet in ours] == sent, when
    if capture_filter:
        assert all(b"\x4e\xe9" in packet[2] for packet in packets), "others than of port 20201"


def test_a_filter_for_another_port_lets_nothing_through() -> None:
    with own_interface(_TUN) as (name, descriptor):
        engine = ScapyEngine(LiveOptions([name], "tcp port 20202"))
        engine.start()
        for packet in load(FIXTURES / "m31_push_pull.pcap"):
            os.write(descriptor, packet[2][14:])
        assert captured(engine) == []


def test_a_vlan_tag_that_the_kernel_took_out_is_put_back() -> None:
    sent = [packet[2] for packet in load(FIXTURES / "m31_vlan_tag.pcap")]
    assert all(octets[12:14] == b"\x81\x00" for octets in sent)
    with own_interface(_TAP) as (name, descriptor):
        engine = ScapyEngine(LiveOptions([name]))
        engine.start()
        for octets in sent:
            os.write(descriptor, octets)
        packets = captured(engine)
    assert [packet[2] for packet in packets if packet[2] in sent] == sent
    assert all(packet[3] == len(packet[2]) for packet in packets)


def test_what_the_kernel_hands_over_late_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine lets its timers wait: here the kernel has one that is too late for the end of the capture."""
    monkeypatch.setattr(packet_ring, "RETIRE_MS", 700)
    with udp_over_loopback() as (send, port):
        engine = ScapyEngine(LiveOptions(["lo"], f"udp port {port}"))
        engine.start()
        send(b"x")
        assert len(captured(engine, 0.1)) == 1


@contextmanager
def udp_over_loopback() -> Iterator[tuple[Callable[[bytes], object], int]]:
    """A function that sends a datagram and comes back when it is there, and the port that it sends to.

    A busy kernel passes datagrams on later, and drops those that become too many.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(_PATIENCE)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(receiver.getsockname())

            def send(octets: bytes) -> None:
                sender.send(octets)
                assert receiver.recv(1 << 16) == octets

            yield send, receiver.getsockname()[1]


def test_what_the_kernel_drops_is_counted() -> None:
    with udp_over_loopback() as (send, port):
        engine = ScapyEngine(LiveOptions(["lo"], f"udp port {port}", buffer_mib=1))
        engine.start()
        for _ in range(2000):  # nobody reads the ring meanwhile
            send(bytes(1400))
        packets = captured(engine)
    assert 0 < len(packets) < 2000
    assert len(packets) + engine.dropped == 2000


def test_what_was_dropped_before_the_ring_was_there_does_not_count() -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as packet_socket:
        packet_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        packet_socket.bind(("lo", 0))
        with udp_over_loopback() as (send, _):
            for _ in range(500):  # more than fits
                send(bytes(1400))
        ring = PacketRing(packet_socket, 4)
        ring.count_drops()
    assert ring.dropped < 500  # of what others send meanwhile, at most
    ring.close()


def test_time_is_the_kernels_and_each_packet_over_loopback_comes_once() -> None:
    with udp_over_loopback() as (send, port):
        engine = ScapyEngine(LiveOptions(["lo"], f"udp port {port}"))
        engine.start()
        before = time.time_ns()
        for number in range(50):
            send(b"%05d" % number)
        after = time.time_ns()
        packets = captured(engine)
    assert [packet[2][42:47] for packet in packets] == [b"%05d" % number for number in range(50)]
    assert all(before <= packet[0] <= after for packet in packets)


def test_whole_packets_or_as_much_as_is_asked_for() -> None:
    for snaplen, expected in ((262_144, 60_042), (96, 96)):
        with udp_over_loopback() as (send, port):
            engine = ScapyEngine(LiveOptions(["lo"], f"udp port {port}", snaplen=snaplen))
            engine.start()
            send(bytes(60_000))
            (packet,) = captured(engine)
        assert (len(packet[2]), packet[3]) == (expected, 60_042)


def test_a_filter_that_speaks_of_ethernet_only() -> None:
    with udp_over_loopback() as (send, port):
        engine = ScapyEngine(LiveOptions(["any"], f"ether proto 0x0800 and udp port {port}"))
        engine.start()
        send(b"x")
        assert len(captured(engine)) == 1


@pytest.mark.parametrize(("options", "said"), [(("lo", "tcp porrt"), "syntax error"), (("nowhere9", ""), "nowhere9")])
def test_what_cannot_be_captured(options: tuple[str, str], said: str) -> None:
    engine = ScapyEngine(LiveOptions([options[0]], options[1]))
    with pytest.raises(CaptureError, match=said):
        engine.start()
