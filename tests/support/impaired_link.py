"""A link between two network namespaces that delays, reorders, duplicates and loses TCP segments, as netem does.

Many kernels lack netem, and what it does cannot be repeated. So each namespace gets a TAP device, and a thread here is
the wire between the two. The wire has two stretches with a capture point between them:

    left ── first stretch ── middle ── second stretch ── right

Both stretches impair both directions. A segment that is lost on the stretch behind the middle has been captured there,
one that is lost on the stretch before it has not. Chance is seeded for each stretch and direction: the fate of the n-th
frame is always the same, though which frame is the n-th is up to the kernel.
"""

import fcntl
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.support.live_program import wait_for
from tests.support.namespaces import Side, run, separate_namespaces
from tests.support.ticker import StandstillError
from zmtpsniff.capture.block import Packet

LEFT, RIGHT = 0, 1
ETHERNET = 1
_TAP_PATH = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME_SIZE = 2048  # octets, over an MTU of 1500: a TAP device without offloads gets no longer ones
_DISCARD_PORT = 9
_MARK = b"the end of the capture"
_SEND_MARK = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto({!r}, (sys.argv[1], {}))"

_STANDSTILL_NS = 500_000_000  # half of what an answer to a heartbeat may take
_OVER = {"TIME-WAIT", "FIN-WAIT-2"}  # states of connections that send nothing but answers

needs_tap = pytest.mark.skipif(not os.access(_TAP_PATH, os.R_OK | os.W_OK), reason=f"TAP devices need {_TAP_PATH}")
needs_tcpdump = pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")


class Impairment(NamedTuple):
    """The treatment of each frame with a TCP segment on a stretch of the link, in either direction."""

    delay: float = 0.0  # seconds
    jitter: float = 0.0  # seconds that are added to the delay at most; frames overtake each other by it
    loss: float = 0.0  # share of the frames that are lost
    duplication: float = 0.0  # share of the frames that come twice, each with a delay of its own


class _Frame(NamedTuple):
    """A frame on its way."""

    due_ns: int  # of the monotonic clock: when it is at the end of its stretch
    number: int  # unique, so that nothing else is compared
    entered: int  # how many frames had entered the link before it
    source: int  # LEFT or RIGHT
    stretches_left: int
    octets: bytes


class Wire:
    """The carrier of frames between two TAP devices."""

    def __init__(self, taps: tuple[int, int], impairment: Impairment, seed: int) -> None:
        self.middle: list[Packet] = []  # what passed the capture point between the stretches
        self.lost = self.duplicated = self.overtaken = 0  # frames
        self.lateness_ns = 0  # by how much a frame came later than it was to
        self._taps = taps
        self._impairment = impairment
        self._chances = {(side, left): Random(f"{seed} {side} {left}") for side in (LEFT, RIGHT) for left in (0, 1)}
        self._on_the_way: list[_Frame] = []
        self._numbers = 0
        self._latest = [0, 0]  # by source: the frame that has arrived and entered the link after all others
        self._end, self._end_of_test = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self) -> None:
        while True:
            left_ns = self._on_the_way[0].due_ns - time.monotonic_ns() if self._on_the_way else None
            timeout = None if left_ns is None else max(left_ns, 0) / 1e9
            ready, _, _ = select.select([*self._taps, self._end], [], [], timeout)
            if self._end in ready:
                return
            for source, tap in enumerate(self._taps):
                if tap in ready:
                    self._take(source, os.read(tap, _FRAME_SIZE))
            while self._on_the_way and self._on_the_way[0].due_ns <= (now_ns := time.monotonic_ns()):
                self.lateness_ns = max(self.lateness_ns, now_ns - self._on_the_way[0].due_ns)
                self._move(heappop(self._on_the_way))

    @property
    def is_idle(self) -> bool:
        """Whether no frame is on its way."""
        return not self._on_the_way

    def stop(self) -> None:
        """Carry no more frames."""
        os.close(self._end_of_test)
        self._thread.join()
        os.close(self._end)

    def _take(self, source: int, octets: bytes) -> None:
        """A frame enters the link; what is no TCP (ARP, the mark) passes at once."""
        if not _is_tcp(octets):
            os.write(self._taps[1 - source], octets)
            return
        self._numbers += 1
        self._impair(_Frame(0, 0, self._numbers, source, 1, octets))

    def _impair(self, frame: _Frame) -> None:
        """A frame begins a stretch."""
        chance = self._chances[frame.source, frame.stretches_left]
        # As many numbers for each frame, so that its fate does not depend on that of others.
        loss, duplication, *jitters = (chance.random() for _ in range(4))
        if loss < self._impairment.loss:
            self.lost += 1
            return
        copies = 1 + (duplication < self._impairment.duplication)
        self.duplicated += copies - 1
        for jitter in jitters[:copies]:
            delay = self._impairment.delay + jitter * self._impairment.jitter
            self._numbers += 1
            due_ns = time.monotonic_ns() + int(delay * 1e9)
            heappush(self._on_the_way, frame._replace(due_ns=due_ns, number=self._numbers))

    def _move(self, frame: _Frame) -> None:
        """A frame is at the end of a stretch."""
        if frame.stretches_left:
            self.middle.append((time.time_ns(), ETHERNET, frame.octets, len(frame.octets), None))
            self._impair(frame._replace(stretches_left=frame.stretches_left - 1))
            return
        self.overtaken += frame.entered < self._latest[frame.source]
        self._latest[frame.source] = max(frame.entered, self._latest[frame.source])
        os.write(self._taps[1 - frame.source], frame.octets)


def _is_tcp(frame: bytes) -> bool:
    return frame[12:14] == b"\x08\0" and frame[23] == 6


class Link(NamedTuple):
    """Two namespaces and the wire between them; captures at both ends are being written."""

    sides: tuple[Side, Side]
    captures: tuple[Path, Path]
    wire: Wire

    def finish(self) -> None:
        """Wait until all connections are over, no frame is on its way and both captures hold all that passed.

        Raises LostEndError if one of the captures has no end of a connection, StandstillError if it tests nothing.
        """
        wait_for(lambda: self.wire.is_idle and not any(set(_states(side)) - _OVER for side in self.sides))
        if any("FIN-WAIT-2" in _states(side) for side in self.sides):
            raise LostEndError
        # A capture is in the order of time: what is before this datagram has been written.
        left, right = self.sides
        run(*left.command(sys.executable, "-c", _SEND_MARK.format(_MARK, _DISCARD_PORT), right.ipv4))
        wait_for(lambda: all(_MARK in path.read_bytes() for path in self.captures))
        if self.wire.lateness_ns > _STANDSTILL_NS:
            raise StandstillError


def _states(side: Side) -> list[str]:
    """The states of the TCP connections of a namespace."""
    listed = subprocess.run(["ss", "-N", side.namespace, "-Htan"], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in listed.stdout.splitlines()]


@contextmanager
def impaired_link(impairment: Impairment, seed: int, folder: Path) -> Iterator[Link]:
    """Two namespaces joined by two such stretches; tcpdump writes left.pcap and right.pcap into ``folder``."""
    with separate_namespaces() as sides, ExitStack() as stack:
        taps = tuple(stack.enter_context(_tap(side)) for side in sides)
        for side in sides:
            side.bring_up()
        wire = Wire((taps[LEFT], taps[RIGHT]), impairment, seed)
        stack.callback(wire.stop)
        captures = folder / "left.pcap", folder / "right.pcap"
        for side, path in zip(sides, captures, strict=True):
            stack.enter_context(_tcpdump(side, path))
        yield Link(sides, captures, wire)


@contextmanager
def _tap(side: Side) -> Iterator[int]:
    """The wire's end of a TAP device that is the interface of a namespace."""
    tap = os.open(_TAP_PATH, os.O_RDWR)
    try:
        try:
            fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", side.interface.encode(), _IFF_TAP | _IFF_NO_PI))
        except OSError as error:
            pytest.skip(f"no TAP device can be made here: {error}")
        run("ip", "link", "set", side.interface, "netns", side.namespace)
        yield tap
    finally:
        os.close(tap)


class DroppedError(Exception):
    """The machine was too busy to capture all packets, so what was captured tests nothing."""


class LostEndError(Exception):
    """The link lost a RST, which nobody repeats: behind it no capture can show how that connection ended.

    A program that waits for that end, in FIN-WAIT-2, does so for a minute. Which frames are lost depends on how busy
    the machine is, for that decides how many there are.
    """


@contextmanager
def _tcpdump(side: Side, path: Path) -> Iterator[None]:
    """A capture of all that a namespace sends and gets, which must not lose a packet itself."""
    # Each packet is written as it comes; the user stays the one who owns the folder.
    options = ("-n", "-U", "--immediate-mode", "-B", "65536", "-Z", "root", "-w", str(path))
    command = side.command("tcpdump", "-i", side.interface, *options, f"tcp or udp port {_DISCARD_PORT}")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            begun = process.stderr.readline()
            assert "listening on" in begun, begun
            yield
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
        finally:
            process.kill()
    if not re.search(r"^0 packets dropped by kernel", said, re.MULTILINE):
        raise DroppedError(said)
