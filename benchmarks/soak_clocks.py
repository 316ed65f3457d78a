"""Packets whose times jump, for a diagnosis that reads them from a pipe: it should tell no more than without jumps."""

from __future__ import annotations

import json
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import traffic

PACKETS = 10_000
_HOUR_S = 3600
JUMPS_S = (0, _HOUR_S, 0, 24 * _HOUR_S, 30 * 365 * 24 * _HOUR_S)
"""By how much the clock is ahead in each part of the packets: set forward, back, and forward twice."""
_HEADER = struct.Struct("=IIII")  # of a packet in a pcap file: seconds, their fraction, octets captured, on the wire
_FILE_HEADER = 24
_STOP_S = 120.0


@contextmanager
def recording(path: Path) -> Iterator[None]:
    """Record the first packets that pass meanwhile, without those of the flood."""
    command = ["tcpdump", "-i", "any", "-w", str(path), "-c", str(PACKETS), "-s", "0", "-Z", "root"]
    command.append(f"tcp and not port {traffic.PORT}")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        try:
            yield
        finally:
            program.terminate()


def findings(command: Sequence[str], path: Path, ahead_s: Sequence[int]) -> Counter[tuple[str, str]]:
    """How many findings of each severity and code there are, if the clock is ahead by so much in each part."""
    told = subprocess.run(
        [*command, "diagnose", "-T", "json", "-"],
        input=b"".join(_stream(path.read_bytes(), ahead_s)),
        capture_output=True,
        timeout=_STOP_S,
        check=False,
    ).stdout
    records = map(json.loads, told.splitlines())
    return Counter((one["severity"], one["code"]) for one in records if one["type"] == "finding")


def _stream(octets: bytes, ahead_s: Sequence[int]) -> Iterator[bytes]:
    yield octets[:_FILE_HEADER]
    place, number = _FILE_HEADER, 0
    while place + _HEADER.size <= len(octets):
        seconds, fraction, captured, wire = _HEADER.unpack_from(octets, place)
        place += _HEADER.size
        part = min(number * len(ahead_s) // PACKETS, len(ahead_s) - 1)
        yield _HEADER.pack(seconds + ahead_s[part], fraction, captured, wire)
        yield octets[place : place + captured]
        place, number = place + captured, number + 1
