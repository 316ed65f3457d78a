"""Packets that are saved and read back, for the tests of saving."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.paths import PROJECT
from tests.support.runner import run
from tests.world.tap import save as save_packets
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.files import Captures, open_captures
from zmtpsniff.capture.pcapng_writer import Provenance
from zmtpsniff.capture.ring import FileRing
from zmtpsniff.capture.saver import Saver

ETHERNET, LOOPBACK, RAW, SLL = 1, 0, 101, 113
SECOND = 1_000_000_000
NOW = 1_795_282_200 * SECOND
PROGRAM = [sys.executable, "-m", "zmtpsniff"]
PATIENCE = 60.0  # seconds; a machine that does much else may be slow
ORIGIN = Provenance("zmtpsniff test")


def packet(number: int, size: int = 60, time_ns: int | None = None, link: int = ETHERNET) -> Packet:
    octets = number.to_bytes(4, "big") + bytes(size - 4)
    return NOW + number * 1_000_000 if time_ns is None else time_ns, link, octets, size, None


def read(*names: Path | str) -> tuple[list[Packet], Captures]:
    """The packets of files one after the other, and the source of the last."""
    packets: list[Packet] = []
    for name in names:
        source = open_captures([str(name)])
        assert isinstance(source, Captures)
        for batch in source.batches():
            packets += batch
    return packets, source


def without_keys(capture: Path, folder: Path) -> tuple[Path, Path]:
    """A copy of a capture without its keys, and a file with these, in a folder."""
    given, source = read(capture)
    copy, keys = folder / "capture.pcap", folder / "keys"
    save_packets(copy, given)
    keys.write_text("\n".join(source.key_lines) + "\n")
    return copy, keys


def save(
    path: Path, batches: list[list[Packet]], ring: FileRing | None = None, origin: Provenance = ORIGIN
) -> list[Path]:
    """Save the packets; returns the files that are there, in the order of their names."""
    saver = Saver(str(path), origin, ring)
    for batch in batches:
        saver.write(Block.of(batch))
    saver.close()
    assert saver.faults == []
    assert saver.packets == sum(map(len, batches))
    return ring_files(path)


def ring_files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.stem}*"))


def program(*arguments: Path | str, cwd: Path = PROJECT, **options: object) -> "subprocess.CompletedProcess[str]":
    """Run zmtpsniff; with ``options`` of a process that are not None, in one of its own."""
    if not any(options.values()):
        return run(*arguments, cwd=cwd)
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=cwd, **options)  # type: ignore[call-overload,no-any-return]


def records(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def many(path: Path, count: int, size: int = 500) -> list[Packet]:
    """Make a capture of so many packets."""
    packets = [packet(number, size) for number in range(count)]
    save(path, [packets])
    return packets
