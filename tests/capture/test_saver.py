"""Saved packets: what was written is read back alike by us, tshark and capinfos; rings of files."""

import json
import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples, sampled
from tests.support.paths import CAPTURES, FIXTURES
from tests.support.saved_files import (
    ETHERNET,
    LOOPBACK,
    NOW,
    ORIGIN,
    PATIENCE,
    RAW,
    SECOND,
    SLL,
    packet,
    read,
    ring_files,
    save,
)
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.pcapng_writer import Provenance
from zmtpsniff.capture.ring import FileRing, parse_ring, ring_name
from zmtpsniff.capture.saver import Saver, SavingSource

RECORDED = sorted(path for path in [*FIXTURES.glob("*.pcap*"), *CAPTURES.glob("*.pcap*")])

comments_st = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
packets_st = st.lists(
    st.tuples(
        st.integers(NOW, NOW + 10 * SECOND) | st.integers(-(1 << 70), 1 << 70),
        st.sampled_from([ETHERNET, LOOPBACK, SLL]) | st.integers(0, 65_535),
        st.binary(max_size=90),
        st.integers(0, 2**32 - 1),
        st.none() | comments_st,
    ),
    max_size=30,
)


# --- what is written is what is read


@pytest.mark.skipif(not RECORDED, reason="no captures")
@pytest.mark.parametrize("path", sampled(RECORDED), ids=[f"{path.parent.name}-{path.name}" for path in RECORDED])
def test_recorded_capture_is_read_back_alike(path: Path, tmp_path: Path) -> None:
    source = open_captures([str(path)])
    saver = Saver(str(tmp_path / "saved.pcapng"), ORIGIN, comments=source.comments)
    saved = SavingSource(source, saver)
    given_out = [packet for batch in saved.batches() for packet in batch]
    expected, original = read(path)
    packets, copy = read(tmp_path / "saved.pcapng")
    assert expected == given_out == packets
    assert (copy.comments, copy.dropped, copy.faults) == (original.comments, original.dropped, [])
    assert (saved.comments, saved.dropped, saved.faults) == (original.comments, original.dropped, original.faults)
    if shutil.which("capinfos"):
        assert capinfos_counts(tmp_path / "saved.pcapng") == [len(packets)]


def capinfos_counts(*paths: Path) -> list[int]:
    done = subprocess.run(["capinfos", "-M", "-c", *paths], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [int(number) for number in re.findall(r"Number of packets: *(\d+)", done.stdout)]


@given(packets=packets_st, size=st.integers(1, 30), comments=st.lists(comments_st, max_size=2))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_packets_are_read_back_alike(packets: list[Packet], size: int, comments: list[str], tmp_path: Path) -> None:
    path = tmp_path / "any.pcapng"
    saver = Saver(str(path), ORIGIN, comments=comments)
    for begin in range(0, len(packets), size):
        saver.write(Block.of(packets[begin : begin + size]))
    saver.close()
    found, source = read(path)
    assert found == packets
    assert (source.comments, source.faults) == (comments, [])


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_the_same(tmp_path: Path) -> None:
    packets = [
        (NOW + 123_456_789, ETHERNET, bytes(61), 1500, None),
        (NOW + 1, RAW, b"\x45" + bytes(39), 40, "a comment, änd another line\nof it"),
        (12 * SECOND, ETHERNET, bytes(64), 64, None),
        (NOW + 300 * SECOND, SLL, bytes(16), 16, None),
        (NOW + 301 * SECOND, RAW, b"", 0, "y" * 70_000),
    ]
    path = tmp_path / "foreign.pcapng"
    origin = Provenance("zmtpsniff test", "eth7", "tcp port 5555", 4096)
    saver = Saver(str(path), origin, comments=["of the capture", "a second one"])
    saver.write(Block.of(packets[:2]))
    saver.write(Block.of(packets[2:]))
    saver.close(7)
    fields = ["frame.time_epoch", "frame.cap_len", "frame.len", "frame.comment", "frame.interface_name"]
    command = ["tshark", "-r", str(path), "-T", "json", *(part for field in fields for part in ("-e", field))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0
    assert all("Running as user" in line for line in done.stderr.splitlines()), done.stderr
    layers = [frame["_source"]["layers"] for frame in json.loads(done.stdout)]
    assert [int(layer["frame.cap_len"][0]) for layer in layers] == [len(packet[2]) for packet in packets]
    assert [int(layer["frame.len"][0]) for layer in layers] == [packet[3] for packet in packets]
    assert [int(layer["frame.time_epoch"][0].replace(".", "")) for layer in layers] == [packet[0] for packet in packets]
    assert ["".join(layer.get("frame.comment", [])) or None for layer in layers] == [packet[4] for packet in packets]
    assert {layer["frame.interface_name"][0] for layer in layers} == {"eth7"}
    told = subprocess.run(["capinfos", "-M", path], capture_output=True, text=True, timeout=PATIENCE)
    assert told.stderr == ""
    for line in (
        r"File type: .*pcapng",
        r"Number of interfaces in file: 3",
        r"Name = eth7",
        r"Filter string = tcp port 5555",
        r"Capture length = 4096",
        r"Time resolution = 0x09",
        r"Capture application: +zmtpsniff test",
        r"Number of stat entries = 1",
        r"of the capture",
        r"a second one",
    ):
        assert re.search(line, told.stdout), line
    command = ["tshark", "-r", str(path), "-X", "read_format:MIME Files Format", "-V"]  # the blocks themselves
    blocks = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert "Number of Dropped Packets: 7" in blocks.stdout
    assert "Malformed" not in blocks.stdout


def test_comments_longer_than_an_option_keep_every_character(tmp_path: Path) -> None:
    lines = "\n".join(f"line {number} of many" for number in range(9_000))
    one_line = "ä" * 40_000  # 80,000 octets, and no end of a line to cut at
    save(tmp_path / "long.pcapng", [[(*packet(0)[:4], lines), (*packet(1)[:4], one_line)]])
    (first, second), source = read(tmp_path / "long.pcapng")
    assert first[4] == lines
    assert second[4] is not None
    assert second[4].replace("\n", "") == one_line
    assert source.faults == []


def test_comments_that_come_late_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "late.pcapng"
    comments = ["before"]
    saver = Saver(str(path), ORIGIN, comments=comments)
    comments.append("with the first packet")
    saver.write(Block.of([packet(0)]))
    assert read(path)[1].comments == ["before", "with the first packet"]  # whatever happens to us now
    comments.append("after it")
    saver.write(Block.of([packet(1)]))
    saver.close(3)
    packets, source = read(path)
    assert packets == [packet(0), packet(1)]
    assert source.comments == ["before", "with the first packet", "after it"]
    assert source.dropped == 3


def test_losses_of_the_source_are_saved(tmp_path: Path) -> None:
    first = Saver(str(tmp_path / "first"), ORIGIN)
    first.write(Block.of([packet(0)]))
    first.close(5)
    saved = SavingSource(open_captures([str(tmp_path / "first")]), Saver(str(tmp_path / "second"), ORIGIN))
    assert [packet for batch in saved.batches() for packet in batch] == [packet(0)]
    assert saved.dropped == 5
    assert read(tmp_path / "second")[1].dropped == 5


def test_capture_without_packets_is_a_capture(tmp_path: Path) -> None:
    comments: list[str] = []
    saver = Saver(str(tmp_path / "none.pcapng"), ORIGIN, comments=comments)
    assert read(tmp_path / "none.pcapng")[0] == []
    comments.append("nothing came")
    saver.close(0)
    saver.close(0)
    packets, source = read(tmp_path / "none.pcapng")
    assert (packets, source.comments, source.faults) == ([], ["nothing came"], [])


def test_file_is_for_its_owner_only(tmp_path: Path) -> None:
    (path,) = save(tmp_path / "private.pcapng", [[packet(0)]])
    assert path.stat().st_mode & 0o777 == 0o600


# --- rings


def test_ring_by_size_holds_all_in_files_that_are_full_and_not_larger(tmp_path: Path) -> None:
    draw = random.Random(7)
    packets = [packet(n, draw.randrange(40, 900), link=draw.choice([ETHERNET, SLL])) for n in range(400)]
    packets[50] = (*packets[50][:4], "x" * 700)
    batches = [packets[begin : begin + 37] for begin in range(0, 400, 37)]
    saver = Saver(str(tmp_path / "ring.pcapng"), ORIGIN, FileRing(octets=5000))
    for batch in batches:
        saver.write(Block.of(batch), 0)
    saver.close(0)
    files = ring_files(tmp_path / "ring.pcapng")
    assert len(files) > 30
    assert all(re.fullmatch(r"ring_\d{5}_\d{14}\.pcapng", file.name) for file in files)
    assert [int(file.name[5:10]) for file in files] == list(range(1, len(files) + 1))
    found, _ = read(*files)
    assert found == packets
    position = 0
    for file in files[:-1]:
        inside, source = read(file)
        position += len(inside)
        assert source.faults == []
        following = packets[position]
        described = 20 + 12  # an interface description, should the packet need one
        most = 32 + len(following[2]) + 3 + (710 if following[4] else 0) + described + 44
        assert 5000 - most < file.stat().st_size <= 5000
    if shutil.which("capinfos"):
        assert sum(capinfos_counts(*files)) == 400


def test_ring_by_packets_and_by_time(tmp_path: Path) -> None:
    times = [0, 1, 9, 10, 11, 500, 509, 510, 300, 305, 311]  # in between the clock is set back
    packets = [packet(number, time_ns=NOW + when * SECOND) for number, when in enumerate(times)]
    files = save(tmp_path / "time", [packets[:4], packets[4:5], packets[5:]], FileRing(duration_ns=10 * SECOND))
    assert [len(read(file)[0]) for file in files] == [3, 2, 2, 3, 1]
    files = save(tmp_path / "count", [packets[:4], packets[4:5], packets[5:]], FileRing(packets=4))
    assert [len(read(file)[0]) for file in files] == [4, 4, 3]


def test_losses_are_told_once_over_the_files_of_a_ring(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    saver = Saver(str(path), ORIGIN, FileRing(packets=2))
    for number, dropped in enumerate([0, 3, 3, 8, 9]):
        saver.write(Block.of([packet(number)]), dropped)
    saver.close(10)
    assert [read(file)[1].dropped for file in ring_files(path)] == [3, 6, 1]


@given(
    shapes=st.lists(
        st.lists(st.tuples(st.integers(4, 300), st.integers(0, 30), st.sampled_from([0, 1, 101])), max_size=9)
    ),
    ring=st.builds(
        FileRing,
        st.none() | st.integers(1, 2000),
        st.none() | st.integers(1, 60),
        st.none() | st.integers(1, 12),
        st.none() | st.integers(1, 4),
    ),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=examples(60))
def test_any_ring_holds_the_last_packets(
    shapes: list[list[tuple[int, int, int]]], ring: FileRing, tmp_path_factory: pytest.TempPathFactory
) -> None:
    batches, number, now = [], 0, NOW
    for shape in shapes:
        batches.append(
            [packet(number + place, size, now + step, link) for place, (size, step, link) in enumerate(shape)]
        )
        number += len(shape)
        now += 20
    files = save(tmp_path_factory.mktemp("ring") / "ring", batches, ring)
    everything = [packet for batch in batches for packet in batch]
    counts = []
    for file in files:
        packets, source = read(file)
        assert source.faults == []
        counts.append(len(packets))
        assert ring.packets is None or len(packets) <= ring.packets
        assert ring.octets is None or file.stat().st_size <= ring.octets or len(packets) <= 1
        assert ring.duration_ns is None or all(found[0] - packets[0][0] < ring.duration_ns for found in packets)
    found, _ = read(*files)
    assert found == everything[len(everything) - len(found) :]
    assert 0 not in counts or not everything
    if ring.files is None:
        assert len(found) == len(everything)
    else:
        assert len(files) <= ring.files


def test_names_are_those_of_dumpcap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert ring_name("a.pcapng", 1, 1_795_282_200) == "a_00001_20261121173000.pcapng"
        assert ring_name("/b.c/a", 123_456, 1_795_282_200) == "/b.c/a_123456_20261121173000"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_ring_options() -> None:
    assert parse_ring([]) is None
    assert parse_ring(["filesize:5", "files:2"]) == FileRing(octets=5000, files=2)
    assert parse_ring(["duration:1.5", "packets:10"]) == FileRing(duration_ns=1_500_000_000, packets=10)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["files:3"], "to say when a file is full"),
        (["filesize:0"], "N in kB, at least 1"),
        (["filesize:1.5"], "N in kB"),
        (["packets:-1"], "N in packets"),
        (["duration:x"], "N in seconds"),
        (["duration:"], "N in seconds"),
        (["interval:3"], "must be one of filesize:N"),
        (["3"], "must be one of"),
    ],
)
def test_ring_options_that_are_none(values: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_ring(values)
