"""Capture files of all formats: written by hand or by scapy, read back; cut short, damaged, piped."""

import contextlib
import gzip
import lzma
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap, wrpcapng

from tests.support.examples import crossed, examples
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.files import Captures, open_captures
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.words.zstd import zstd

ETHERNET = 1
SECOND = 1_000_000_000
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "xz": lzma.compress,
}

packets_st = st.lists(
    st.tuples(
        st.integers(0, 2**32 - 1), st.integers(0, 999_999_999), st.binary(max_size=120), st.integers(0, 2**32 - 1)
    ),
    max_size=12,
)


def pcap(
    packets: list[tuple[int, int, bytes, int]],
    order: str = "<",
    magic: int = 0xA1B23C4D,
    snaplen: int = 262_144,
    network: int = ETHERNET,
) -> bytes:
    out = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, network)]
    for seconds, fraction, octets, wire in packets:
        out.append(struct.pack(order + "4I", seconds, fraction, len(octets), wire))
        if magic == 0xA1B2CD34:
            out.append(struct.pack(order + "IHBB", 1, 0x0800, 0, 0))
        out.append(octets)
    return b"".join(out)


class Ng:
    """Writes pcapng blocks."""

    def __init__(self, order: str = "<") -> None:
        self.order = order

    def block(self, kind: int, layout: str, *fields: int, data: bytes = b"", options: bytes = b"") -> bytes:
        body = struct.pack(self.order + layout, *fields) + data + b"\0" * (-len(data) % 4) + options
        length = struct.pack(self.order + "I", len(body) + 12)
        return struct.pack(self.order + "I", kind) + length + body + length

    def option(self, code: int, value: bytes) -> bytes:
        return struct.pack(self.order + "HH", code, len(value)) + value + b"\0" * (-len(value) % 4)

    def section(self, options: bytes = b"", length: int = -1) -> bytes:
        return self.block(0x0A0D0D0A, "IHHq", 0x1A2B3C4D, 1, 0, length, options=options)

    def interface(self, link: int = ETHERNET, snaplen: int = 0, options: bytes = b"") -> bytes:
        return self.block(1, "HHI", link, 0, snaplen, options=options)

    def packet(self, index: int, stamp: int, octets: bytes, wire: int, options: bytes = b"") -> bytes:
        fields = (index, stamp >> 32, stamp & 0xFFFFFFFF, len(octets), wire)
        return self.block(6, "5I", *fields, data=octets, options=options)


def read(tmp_path: Path, *contents: bytes) -> tuple[list[Packet], Captures]:
    names = []
    for number, content in enumerate(contents):
        path = tmp_path / f"capture{number}"
        path.write_bytes(content)
        names.append(str(path))
    source = open_captures(names)
    assert isinstance(source, Captures)
    return [packet for batch in source.batches() for packet in batch], source


def codes(source: Captures) -> list[str]:
    return [fault.code for fault in source.faults]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


SOME = [(1, 5, b"first", 5), (2, 6, b"second packet", 1500), (2, 7, b"", 0)]


@given(packets=packets_st, order=st.sampled_from("<>"))
def test_what_was_written_is_read_back(folder: Path, packets: list[tuple[int, int, bytes, int]], order: str) -> None:
    ng = Ng(order)
    blocks = [ng.packet(0, s * SECOND + f, octets, wire) for s, f, octets, wire in packets]
    in_ng = b"".join([ng.section(), ng.interface(options=ng.option(9, b"\x09")), *blocks])
    for content in (pcap(packets, order), in_ng):
        got, source = read(folder, content)
        assert got == [(s * SECOND + f, ETHERNET, octets, wire, None) for s, f, octets, wire in packets]
        assert not source.faults


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1), (0xA1B2CD34, 1000)])
def test_pcap_magic_numbers(tmp_path: Path, order: str, magic: int, unit: int) -> None:
    got, _ = read(tmp_path, pcap(SOME, order, magic))
    assert [(time, octets) for time, _, octets, _, _ in got] == [
        (s * SECOND + f * unit, octets) for s, f, octets, _ in SOME
    ]


def test_link_type_is_the_low_half_of_the_network_field(tmp_path: Path) -> None:
    got, _ = read(tmp_path, pcap(SOME, network=0x24000071))
    assert {packet[1] for packet in got} == {0x71}


def test_record_over_snaplen_is_read_and_noted_once(tmp_path: Path) -> None:
    got, source = read(tmp_path, pcap(SOME, snaplen=4))
    assert len(got) == 3
    assert codes(source) == ["record-over-snaplen"]
    assert not read(tmp_path, pcap(SOME, snaplen=0))[1].faults


def test_implausible_record_ends_the_file(tmp_path: Path) -> None:
    content = pcap(SOME)
    got, source = read(tmp_path, content + struct.pack("<4I", 3, 0, 0x7FFFFFFF, 60) + b"x" * 100)
    assert len(got) == 3
    assert codes(source) == ["capture-corrupt"]
    assert f"offset {len(content)}" in source.faults[0].detail
    assert "capture0" in source.faults[0].detail


@pytest.mark.parametrize(
    ("resolution", "stamp", "time"),
    [
        (None, 1_500_000, 1_500_000_000),
        (b"\x00", 7, 7 * SECOND),
        (b"\x09", 1_500_000, 1_500_000),
        (b"\x0c", 1_500_000, 1_500),
        (b"\x8a", 1024 + 512, SECOND * 3 // 2),
        (b"\xa0", 3 << 31, SECOND * 3 // 2),
    ],
)
@pytest.mark.parametrize("order", "<>")
def test_pcapng_time_units(tmp_path: Path, order: str, resolution: bytes | None, stamp: int, time: int) -> None:
    ng = Ng(order)
    options = ng.option(9, resolution) if resolution is not None else b""
    options += ng.option(14, struct.pack(order + "q", -3)) + ng.option(0, b"")
    got, _ = read(tmp_path, ng.section() + ng.interface(options=options) + ng.packet(0, stamp, b"abc", 3))
    assert got == [(time - 3 * SECOND, ETHERNET, b"abc", 3, None)]


def test_pcapng_interface_described_between_packets_of_another(tmp_path: Path) -> None:
    """Its unit of time is its own."""
    ng = Ng()
    packets = [ng.packet(0, 1_000_000, b"abc", 3), ng.interface(options=ng.option(9, b"\x09"))]
    packets += [ng.packet(index, 1_000_000, b"abc", 3) for index in (0, 1)]
    got, _ = read(tmp_path, ng.section() + ng.interface() + b"".join(packets))
    assert [packet[0] for packet in got] == [SECOND, SECOND, SECOND // 1000]


def test_pcapng_sections_interfaces_and_blocks_of_all_kinds(tmp_path: Path) -> None:
    little, big = Ng("<"), Ng(">")
    first = little.section(little.option(1, b"the first section"), length=0x1000)
    first += little.interface(113, 0xFFFF, little.option(1, b"the cable")) + little.interface(101, 8)
    first += little.block(0x0BAD, "I", 7, data=b"whatever is in it")
    first += little.packet(1, 1_000_000, b"raw ip", 6, little.option(1, b"look here") + little.option(1, b"and here"))
    first += little.block(4, "I", 0)  # names
    second = big.section(big.option(1, "zweite Übung".encode())) + big.interface(ETHERNET, 4)
    second += big.packet(0, 2_000_000, b"eth", 3)
    second += big.block(3, "I", 100, data=b"simp")
    second += big.block(2, "HHIIII", 0, 5, 0, 3_000_000, 3, 9, data=b"old")
    second += big.block(5, "III", 0, 0, 0, options=big.option(1, b"stopped") + big.option(1, b"by hand"))
    got, source = read(tmp_path, first + second)
    assert got == [
        (SECOND, 101, b"raw ip", 6, "look here\nand here"),
        (2 * SECOND, ETHERNET, b"eth", 3, None),
        (2 * SECOND, ETHERNET, b"simp", 100, None),
        (3 * SECOND, ETHERNET, b"old", 9, None),
    ]
    assert source.comments == ["the first section", "the cable", "zweite Übung", "stopped", "by hand"]
    assert source.dropped == 5
    assert not source.faults


def test_drops_are_counted_once(tmp_path: Path) -> None:
    ng = Ng()
    statistics = [
        ng.block(5, "III", 0, 0, 0, options=ng.option(5, struct.pack("<Q", n)) + ng.option(7, struct.pack("<Q", 1)))
        for n in (3, 10)
    ]
    content = ng.section() + ng.interface() + ng.interface()
    content += ng.packet(0, 1, b"a", 1, ng.option(4, struct.pack("<Q", 2))) + statistics[0]
    content += ng.packet(1, 1, b"a", 1, ng.option(4, struct.pack("<Q", 7))) + statistics[1]
    _, source = read(tmp_path, content)
    assert source.dropped == 11 + 7


@pytest.mark.parametrize(
    "block",
    [
        struct.pack("<II", 6, 8) + b"\0" * 40,
        struct.pack("<II", 6, 33) + b"\0" * 40,
        struct.pack("<II", 6, 0x7FFFFFFC) + b"\0" * 40,
        Ng().packet(0, 0, b"abcd", 4)[:-4] + b"\x10\0\0\0",
        Ng().packet(3, 0, b"abcd", 4),
        Ng().block(6, "5I", 0, 0, 0, 400, 400, data=b"abcd"),
        Ng().block(6, "I", 0),
        Ng().block(1, ""),
        Ng().block(0x0A0D0D0A, "IHHq", 0, 1, 0, -1),
        Ng().block(0x0A0D0D0A, "IHHq", 0x1A2B3C4D, 2, 0, -1),
    ],
)
def test_bad_block_ends_the_file(tmp_path: Path, block: bytes) -> None:
    ng = Ng()
    good = ng.section() + ng.interface() + ng.packet(0, 0, b"good", 4)
    got, source = read(tmp_path, good + block + ng.packet(0, 0, b"after", 5))
    assert [packet[2] for packet in got] == [b"good"]
    assert codes(source) == ["capture-corrupt"]
    assert f"offset {len(good)}" in source.faults[0].detail


@pytest.mark.parametrize(("writer", "compression"), crossed([wrpcap, wrpcapng], [None, *COMPRESSIONS]))
def test_what_scapy_writes(tmp_path: Path, writer: object, compression: str | None) -> None:
    sent = [Ether() / IP(dst="10.0.0.1") / TCP(dport=5555, seq=number) / (b"x" * number) for number in range(60)]
    for number, packet in enumerate(sent):
        packet.time = 1_700_000_000 + number
    path = tmp_path / "scapy"
    writer(str(path), sent)  # type: ignore[operator]
    content = path.read_bytes()
    got, source = read(tmp_path, COMPRESSIONS[compression](content) if compression else content)
    assert [packet[2] for packet in got] == [bytes(packet) for packet in sent]
    assert [packet[0] for packet in got] == [(1_700_000_000 + number) * SECOND for number in range(60)]
    assert not source.faults


# ---------------------------------------------------------------- damage

PCAP = pcap([(number, 0, bytes([number]) * (number % 50), 60) for number in range(100)])
PCAPNG = (
    Ng(">").section(Ng(">").option(1, b"comment"))
    + Ng(">").interface()
    + b"".join(Ng(">").packet(0, number, bytes([number]) * (number % 50), 60) for number in range(100))
    + Ng(">").block(5, "III", 0, 0, 0)
)
FORMS = {"pcap": PCAP, "pcapng": PCAPNG}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_truncation_yields_a_prefix(folder: Path, form: str, compression: str | None, data: st.DataObject) -> None:
    content = FORMS[form]
    whole = read(folder, content)[0]
    packed = COMPRESSIONS[compression](content) if compression else content
    cut = data.draw(st.integers(0, len(packed)))
    try:
        got, source = read(folder, packed[:cut])
    except CaptureError:  # not even the file header is whole
        assert compression or cut < 48
        return
    assert got == whole[: len(got)]
    if compression and cut < len(packed):
        assert codes(source) == ["capture-truncated"]
    assert set(codes(source)) <= {"capture-truncated"}
    if cut == len(packed):
        assert len(got) == 100
        assert not source.faults


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_damage_raises_nothing_but_capture_error(
    folder: Path, form: str, compression: str | None, data: st.DataObject
) -> None:
    content = FORMS[form]
    packed = bytearray(COMPRESSIONS[compression](content) if compression else content)
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CaptureError):
        read(folder, bytes(packed) + data.draw(st.binary(max_size=40)))


@given(content=st.binary(max_size=200))
@example(content=b"<... ")
@example(content=b"+++ exited with 0 +++")
@example(content=b"strace: \n")
@example(content=b"read(")
def test_random_octets_are_no_capture(folder: Path, content: bytes) -> None:
    with pytest.raises(CaptureError, match="capture0: "):
        read(folder, content)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_members_follow_each_other(tmp_path: Path, compression: str) -> None:
    compress = COMPRESSIONS[compression]
    packed = b"".join(compress(PCAP[start : start + 700]) for start in range(0, len(PCAP), 700))
    if compression == "zstd":
        packed += struct.pack("<II", 0x184D2A53, 5) + b"skip!"
    got, source = read(tmp_path, packed)
    assert len(got) == 100
    assert not source.faults


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_is_before_a_wrong_checksum_is_delivered(tmp_path: Path, compression: str) -> None:
    if compression == "zstd":
        packed = bytearray(zstd.compress(PCAP, options={zstd.CompressionParameter.checksum_flag: 1}))
    else:
        packed = bytearray(COMPRESSIONS[compression](PCAP))
    # gzip: CRC32 and length close the member; xz: 12 octets of footer, index and the check before them
    packed[{"gzip": -8, "zstd": -1, "xz": -40}[compression]] ^= 0xFF
    got, source = read(tmp_path, bytes(packed))
    assert len(got) > 90
    assert codes(source)[0] == "capture-corrupt"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_large_compressed_file(tmp_path: Path, compression: str) -> None:
    packets = [(number, 0, bytes(1400), 1400) for number in range(2000)]
    got, source = read(tmp_path, COMPRESSIONS[compression](pcap(packets)))
    assert [packet[0] // SECOND for packet in got] == list(range(2000))
    assert all(packet[2] == bytes(1400) for packet in got)
    assert not source.faults


def test_batches_stay_small(tmp_path: Path) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(pcap([(number, 0, bytes(100), 100) for number in range(100_000)])))
    assert max(len(batch) for batch in open_captures([str(path)]).batches()) < 5000


# ---------------------------------------------------------------- files that are none


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"hello, world\n", "it looks like text"),
        (b"BZh91AY&SY", "bzip2: unpack it first"),
        (gzip.compress(b"hello, world", mtime=0), "what its gzip data hold is not a capture file"),
        (gzip.compress(PCAP, mtime=0)[:4], "the gzip data are cut short"),
        (PCAP[:20], "cut short in its file header"),
        (PCAPNG[:20], "cut short in its section header"),
        (PCAP[:4] + b"\x09" + PCAP[5:], "pcap version 9.4"),
    ],
)
def test_what_is_no_capture(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(CaptureError, match=message) as raised:
        read(tmp_path, content)
    assert str(tmp_path / "capture0") in str(raised.value)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="missing: No such file"):
        open_captures([str(tmp_path / "missing")])
    with pytest.raises(CaptureError, match="directory"):
        open_captures([str(tmp_path)])
    with pytest.raises(CaptureError, match="more than once"):
        open_captures(["-", "-"])
    with pytest.raises(CaptureError, match="null"):
        open_captures(["a\0b"])


def test_all_files_are_checked_before_any_is_read(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(PCAP)
    (tmp_path / "bad").write_bytes(b"nothing of the kind")
    with pytest.raises(CaptureError, match="bad: not a capture"):
        open_captures([str(tmp_path / "good"), str(tmp_path / "bad")])


# ---------------------------------------------------------------- several files


@given(files=st.lists(st.lists(st.integers(0, 20)), min_size=1, max_size=4))
def test_merging_is_a_stable_sort_of_sorted_files(folder: Path, files: list[list[int]]) -> None:
    if len(files) > 1:
        files = [sorted(times) for times in files]
    contents = [pcap([(time, 0, bytes([number]), 1) for time in times]) for number, times in enumerate(files)]
    got, _ = read(folder, *contents)
    together = [(time * SECOND, number) for number, times in enumerate(files) for time in times]
    if len(files) > 1:
        together.sort(key=lambda pair: pair[0])
    assert [(packet[0], packet[2][0]) for packet in got] == together


def test_merging_long_files(tmp_path: Path) -> None:
    odd = pcap([(time, 0, bytes(90), 90) for time in range(1, 20_000, 2)])
    even = pcap([(time, 0, bytes(90), 90) for time in range(0, 20_000, 2)])
    late = pcap([(time, 0, bytes(90), 90) for time in range(20_000, 30_000)])
    got, _ = read(tmp_path, late, odd, even)
    assert [packet[0] // SECOND for packet in got] == list(range(30_000))


# ---------------------------------------------------------------- standard input

READER = """
import sys
from zmtpsniff.capture.files import open_captures
for batch in open_captures(["-"]).batches():
    print(*[packet[2].decode() for packet in batch], flush=True)
"""


def flushed_gzip(parts: list[bytes]) -> list[bytes]:
    deflate = zlib.compressobj(wbits=31)
    return [deflate.compress(part) + deflate.flush(zlib.Z_SYNC_FLUSH) for part in parts]


def flushed_zstd(parts: list[bytes]) -> list[bytes]:
    frame = zstd.ZstdCompressor()
    return [frame.compress(part, frame.FLUSH_BLOCK) for part in parts]


@pytest.mark.parametrize("compress", [list, flushed_gzip, flushed_zstd])
@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_standard_input_is_read_as_it_comes(compress: object, form: str) -> None:
    words = [b"one", b"two", b"three"]
    ng = Ng()
    if form == "pcap":
        parts = [pcap([])] + [pcap([(1, 0, word, 5)])[24:] for word in words]
    else:
        parts = [ng.section() + ng.interface()] + [ng.packet(0, 1, word, 5) for word in words]
    parts = compress(parts)  # type: ignore[operator]
    with subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        os.write(reader.stdin.fileno(), parts[0])
        for word, part in zip(words, parts[1:], strict=True):
            os.write(reader.stdin.fileno(), part)
            assert reader.stdout.readline().split() == [word]
        reader.stdin.close()
        assert reader.stdout.read() == b""
    assert reader.returncode == 0


def test_standard_input_octet_by_octet() -> None:
    with subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for octet in pcap([(1, 0, b"a", 1), (2, 0, b"b", 1)]):
            os.write(reader.stdin.fileno(), bytes([octet]))
        reader.stdin.close()
        assert reader.stdout.read().split() == [b"a", b"b"]


def test_a_url_is_a_file(tmp_path: Path) -> None:
    """Of this machine, by Hadoop's name; what has no file system is told in a line."""
    path = tmp_path / "a b.pcap"
    path.write_bytes(pcap([(1, 0, b"octets", 6)]))
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")
    wanted = [packet for batch in open_captures([str(path)]).batches() for packet in batch]
    assert [packet for batch in open_captures([path.as_uri()]).batches() for packet in batch] == wanted != []
    for url, said in (
        ("ftp://here/x", "files of this machine are known"),
        ((tmp_path / "no").as_uri(), "no such file"),
    ):
        with pytest.raises(CaptureError, match=said):
            open_captures([url])


def test_without_pyarrow_a_url_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyarrow.fs"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CaptureError, match=r"^s3://here/x\.pcap: pyarrow is not installed: pip install pyarrow$"):
        open_captures(["s3://here/x.pcap"])
