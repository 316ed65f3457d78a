"""Keys of CURVE in pcapng files: put there, kept there, found there, and no trouble to others."""

import os
import shutil
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import FIXTURES
from tests.support.saved_files import ORIGIN, packet, read, ring_files
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.key_block import put_keys
from zmtpsniff.capture.pcapng import MOST_KEY_LINES
from zmtpsniff.capture.pcapng_writer import key_block
from zmtpsniff.capture.ring import FileRing
from zmtpsniff.capture.saver import Saver
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.capture.tls_keys import brings_secrets

LINES = [f"CURVE_SHARED_KEY - - {bytes([number]) * 32!r}" for number in range(3)]


def test_the_block_to_the_letter() -> None:
    assert key_block(["# a", "b"]) == struct.pack("<4I", 10, 28, 0x5A4D544B, 6) + b"# a\nb\n\0\0" + struct.pack(
        "<I", 28
    )
    assert key_block([]) == struct.pack("<5I", 10, 20, 0x5A4D544B, 0, 20)


def test_keys_are_put_into_a_file_and_found(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    shutil.copy(FIXTURES / "m31_pcapng_file.pcapng", path)
    before = read(path)[0]
    put_keys(str(path), LINES)
    put_keys(str(path), ["one more"])
    packets, source = read(path)
    assert packets == before
    assert source.key_lines == ["one more", *LINES]
    assert source.faults == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["capture.pcapng"]
    assert not brings_secrets(str(path))  # none of TLS


def test_many_keys_take_several_blocks(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    shutil.copy(FIXTURES / "m31_pcapng_file.pcapng", path)
    lines = [f"# {number}" for number in range(10_000)]
    put_keys(str(path), lines)
    assert read(path)[1].key_lines == lines


def test_keys_in_either_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "big.pcapng"
    path.write_bytes(struct.pack(">IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28))
    put_keys(str(path), LINES)
    assert read(path)[1].key_lines == LINES


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        ((FIXTURES / "m31_req_rep.pcap").read_bytes(), "not a pcapng file, and only pcapng holds keys"),
        (b"", "not a pcapng file"),
        (struct.pack("<IIIHHqI", 0x0A0D0D0A, 27, 0x1A2B3C4D, 1, 0, -1, 28), "claims 27 octets"),
        (struct.pack("<IIIHH", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0), "cut short"),
    ],
)
def test_files_that_cannot_hold_keys_stay_as_they_are(tmp_path: Path, octets: bytes, reason: str) -> None:
    path = tmp_path / "capture"
    path.write_bytes(octets)
    with pytest.raises(CaptureError, match=reason):
        put_keys(str(path), LINES)
    assert path.read_bytes() == octets
    assert os.listdir(tmp_path) == ["capture"]


@pytest.mark.parametrize("length", [7, 1 << 30])
def test_a_block_that_claims_too_much_is_damage(tmp_path: Path, length: int) -> None:
    path = tmp_path / "capture.pcapng"
    header = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    path.write_bytes(header + struct.pack("<4I4sI", 10, 24, 0x5A4D544B, length, b"a\nb\n", 24))
    source = read(path)[1]
    assert source.key_lines == []
    assert [fault.code for fault in source.faults] == ["capture-corrupt"]


def test_lines_that_wait_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    header = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    path.write_bytes(header + key_block(["a"] * 60_000) * 3)
    assert len(read(path)[1].key_lines) == MOST_KEY_LINES


def test_keys_that_come_while_packets_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "saved.pcapng"
    saver = Saver(str(path), ORIGIN, key_lines=["first"])
    saver.write(Block.of([packet(1)]))
    saver.add_keys(["second", "third"])
    saver.write(Block.of([packet(2)]))
    saver.add_keys(["last"])
    saver.close()
    packets, source = read(path)
    assert len(packets) == 2
    assert [line for line in source.key_lines if not line.startswith("#")] == ["first", "second", "third", "last"]
    content = path.read_bytes()
    places = [content.index(part) for part in (b"first", packet(1)[2], b"second", packet(2)[2], b"last")]
    assert places == sorted(places)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_each_file_of_a_ring_has_all_keys_so_far(tmp_path: Path) -> None:
    saver = Saver(str(tmp_path / "saved.pcapng"), ORIGIN, FileRing(packets=1), key_lines=[])
    for number in range(3):
        saver.add_keys([f"key {number}"])
        saver.write(Block.of([packet(number)]))
    saver.close()
    found = [
        [line for line in read(path)[1].key_lines if not line.startswith("#")]
        for path in ring_files(tmp_path / "saved.pcapng")
    ]
    assert [keys[: number + 1] for number, keys in enumerate(found)] == [
        ["key 0"], ["key 0", "key 1"], ["key 0", "key 1", "key 2"]
    ]  # fmt: skip


def test_files_without_keys_have_no_block(tmp_path: Path) -> None:
    path = tmp_path / "saved.pcapng"
    saver = Saver(str(path), ORIGIN)
    saver.write(Block.of([packet(1)]))
    saver.close()
    assert b"KTMZ" not in path.read_bytes()


@pytest.mark.skipif(not all(map(shutil.which, ("capinfos", "tshark"))), reason="Wireshark's programs are not installed")
def test_wireshark_opens_the_file(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    shutil.copy(FIXTURES / "m31_pcapng_file.pcapng", path)
    put_keys(str(path), LINES)
    for command in (["capinfos", "-c", str(path)], ["tshark", "-r", str(path)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
