"""The tshark engine: the same records as our own reader, and those that only tshark can get at."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scapy.layers.dot11 import Dot11, RadioTap
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import LLC, SNAP, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw
from scapy.utils import rdpcap, wrpcap

from tests.support.examples import sampled
from tests.support.paths import CAPTURES, FIXTURES
from tests.support.runner import assert_refused, read_json, run
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.source import Fault
from zmtpsniff.net.packets import HeaderDecoder

WITHOUT = "tshark is not installed (apt install tshark)"
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason=WITHOUT)
needs_editcap = pytest.mark.skipif(shutil.which("editcap") is None, reason="editcap is not installed")
REQ_REP = FIXTURES / "m31_req_rep.pcap"
SAME = [
    "app_jupyter", "bad_huge_length", "m31_backpressure", "m31_bigendian_pcap", "m31_frame_sizes", "m31_ipv6",
    "m31_linux_sll", "m31_linux_sll2", "m31_nanosecond_pcap", "m31_pcap_gz_file", "m31_pcapng_file", "m31_raw_ip",
    "m31_vlan_tag", "mix_link_types", "net_four_tuple_reuse", "net_gap", "net_ip_fragments", "net_no_syn",
    "net_out_of_order", "net_overlap", "net_retransmissions", "net_rst", "net_seq_wrap", "net_snaplen96",
    "sec_curve_ps_435_435", "ws_plain", "x_220_to_408",
]  # fmt: skip


def through_tshark(*arguments: str | Path) -> list[dict[str, Any]]:
    return read_json("--engine", "tshark", *arguments)


def summary(records: list[dict[str, Any]]) -> tuple[int, int]:
    return records[-1]["zmtp_flows"], records[-1]["messages"]


def source_of(*names: str | Path, options: tuple[str, ...] = ()) -> Any:
    from zmtpsniff.capture.tshark_packets import open_with_tshark, parse_option

    return open_with_tshark(
        [str(name) for name in names], [word for option in options for word in parse_option(option)]
    )


def packets_of(*names: str | Path) -> list[Packet]:
    return [packet for batch in source_of(*names).batches() for packet in batch]


def rewrite(path: Path, wrap: Callable[[ScapyPacket], ScapyPacket], source: Path = REQ_REP) -> Path:
    """The packets of a real capture, each wrapped."""
    out = []
    for packet in rdpcap(str(source)):
        wrapped = wrap(packet)
        wrapped.time = packet.time
        out.append(wrapped)
    wrpcap(str(path), out)
    return path


# ---------------------------------------------------------------- the same as our own reader


@needs_tshark
@pytest.mark.parametrize("name", sampled(SAME))
def test_same_records_as_the_native_reader(name: str) -> None:
    found = [path for folder in (FIXTURES, CAPTURES) for path in folder.glob(f"{name}.pcap*")]
    if not found:
        pytest.skip(f"{name} is not among the captures here (ZMTPSNIFF_CAPTURES)")
    assert through_tshark(found[0]) == read_json(found[0])


@needs_tshark
def test_tls_without_keys_is_told_beside_the_same_records() -> None:
    path = CAPTURES / "net_mixed_traffic.pcap"
    if not path.exists():
        pytest.skip("net_mixed_traffic is not among the captures here (ZMTPSNIFF_CAPTURES)")
    *mine, totals = read_json(path)
    *tsharks, problem, tsharks_totals = through_tshark(path)
    assert (tsharks, problem["code"]) == (mine, "tls-no-keys")
    assert tsharks_totals == {**totals, "problems": totals["problems"] + 1}


@needs_tshark
def test_several_files_are_merged_by_time(tmp_path: Path) -> None:
    packets = rdpcap(str(REQ_REP))
    parts = [tmp_path / "odd.pcap", tmp_path / "even.pcap"]
    wrpcap(str(parts[0]), packets[1::2])
    wrpcap(str(parts[1]), packets[::2])
    assert through_tshark(*parts) == read_json(*parts)


@needs_tshark
def test_standard_input() -> None:
    done = run("read", "-T", "json", "--engine", "tshark", "-", octets=REQ_REP.read_bytes())
    assert done.stdout == run("read", "-T", "json", REQ_REP).stdout


@needs_tshark
def test_stopping_after_some_packets_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a folder that no other tshark writes to
    records = through_tshark("-c", "5", REQ_REP)
    assert records == read_json("-c", "5", REQ_REP)
    assert list(tmp_path.iterdir()) == []


@needs_tshark
def test_the_process_is_gone_when_reading_is_given_up() -> None:
    batches = source_of(REQ_REP).batches()
    assert next(batches)
    batches.close()
    assert "tshark" not in names_of_children()


def names_of_children() -> list[str]:
    """The names of processes that this one has started, ps among them, and has not seen end."""
    command = ["ps", "--ppid", str(os.getpid()), "-o", "comm="]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@needs_tshark
@needs_editcap
def test_comments_of_packets(tmp_path: Path) -> None:
    path = tmp_path / "commented.pcapng"
    text = 'first "line"\nsecond\tline \\ ü'
    subprocess.run(["editcap", "-a", f"3:{text}", "-a", "5:other", str(REQ_REP), str(path)], check=True)
    records = through_tshark(path)
    assert [(r["packet"], r["text"]) for r in records if r["type"] == "comment"] == [(3, text), (5, "other")]
    assert records == read_json(path)


# ---------------------------------------------------------------- what only tshark takes apart


def ip_part(packet: ScapyPacket) -> ScapyPacket:
    part: ScapyPacket = packet[IPv6] if IPv6 in packet else packet[IP]
    return part


# With addresses, for which scapy would ask the network.
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
OUTER = ETHER / IP(src="192.0.2.1", dst="192.0.2.2")
WRAPPED: dict[str, tuple[Callable[[ScapyPacket], ScapyPacket], list[str]]] = {
    "vxlan on another port": (
        lambda packet: OUTER / UDP(sport=40000, dport=8888) / VXLAN(vni=5, flags="Instance") / Ether(bytes(packet)),
        ["--tshark-option", "udp.port==8888,vxlan"],
    ),
    "802.11": (
        lambda packet: RadioTap() / Dot11(type=2, FCfield=1) / LLC() / SNAP(code=0x800) / ip_part(packet),
        [],
    ),
}


@needs_tshark
@pytest.mark.parametrize("kind", WRAPPED)
def test_what_our_reader_does_not_look_into(tmp_path: Path, kind: str) -> None:
    wrap, options = WRAPPED[kind]
    path = rewrite(tmp_path / "wrapped.pcap", wrap)
    assert summary(read_json(path)) == (0, 0)
    assert through_tshark(path, *options) == read_json(REQ_REP)


@needs_tshark
def test_inside_wireguard() -> None:
    path, keys = FIXTURES / "tunnels" / "wireguard.pcap", FIXTURES / "tunnels" / "wireguard.keys"
    assert summary(through_tshark(path)) == (0, 0)
    inside = through_tshark("--tshark-option", f"wg.keylog_file:{keys}", path)
    # All is the same but for the two packets of the handshake.
    assert list(map(without_place, inside)) == list(map(without_place, read_json(REQ_REP)))


def without_place(record: dict[str, Any]) -> dict[str, Any]:
    names = {"packet", "packets", "request"}
    return {name: value for name, value in record.items() if name not in names}


@needs_tshark
def test_an_option_is_needed_for_another_port(tmp_path: Path) -> None:
    path = rewrite(tmp_path / "wrapped.pcap", WRAPPED["vxlan on another port"][0])
    assert summary(through_tshark(path)) == (0, 0)


@needs_tshark
def test_what_an_icmp_error_quotes_is_no_segment(tmp_path: Path) -> None:
    packets = rdpcap(str(REQ_REP))
    quotes = [ETHER / IP(src="192.0.2.9", dst="192.0.2.1") / ICMP(type=3, code=3) / ip_part(p) for p in packets]
    for quote, packet in zip(quotes, packets, strict=True):
        quote.time = packet.time
    path = tmp_path / "quotes.pcap"
    wrpcap(str(path), quotes)
    records = through_tshark(path)
    assert (records[-1]["packets"], records[-1]["flows"]) == (len(packets), 0)
    assert len(records) == 1


def aggregated(first: ScapyPacket, second: ScapyPacket) -> ScapyPacket:
    """An 802.11 frame with two packets in it (A-MSDU)."""
    subframes = b""
    for packet in (first, second):
        content = bytes(LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(code=0x800) / ip_part(packet))
        subframes += bytes(12) + struct.pack("!H", len(content)) + content
        subframes += bytes(-len(subframes) % 4)
    quality = b"\x80\x00"  # of service: an A-MSDU is present
    return RadioTap() / Raw(bytes(Dot11(type=2, subtype=8, FCfield=1))[:24] + quality + subframes)


@needs_tshark
def test_segments_beside_each_other_are_told(tmp_path: Path) -> None:
    packets = rdpcap(str(REQ_REP))
    path = tmp_path / "aggregated.pcap"
    wrpcap(str(path), [aggregated(packets[0], packets[1]), aggregated(packets[2], packets[3])])
    source = source_of(path)
    batches = [packet for batch in source.batches() for packet in batch]
    assert len(HeaderDecoder().segments(batches, 1)) == 2
    assert [fault.code for fault in source.faults] == ["segments-left-out"]
    assert "2 TCP segments" in source.faults[0].detail


@needs_tshark
@needs_editcap
@pytest.mark.parametrize("form", sampled(["snoop", "netmon2", "visual", "5views", "ngsniffer"]))
def test_other_file_formats(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    subprocess.run(["editcap", "-F", form, str(REQ_REP), str(path)], check=True, capture_output=True)
    assert run("read", path).returncode == 2
    mine, tsharks = read_json(REQ_REP), through_tshark(path)
    # Some of these formats keep time less exactly.
    assert [without_times(record) for record in tsharks] == [without_times(record) for record in mine]


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.endswith("_ns")}


# ---------------------------------------------------------------- segments, exactly


def segments(path: Path) -> list[Any]:
    return HeaderDecoder().segments(packets_of(path), 1)


@needs_tshark
def test_long_and_short_segments(tmp_path: Path) -> None:
    header = TCP(sport=5555, dport=40000, seq=2**32 - 5, ack=2**31, flags="PA")
    payloads = [os.urandom(length) for length in (0, 1, 1448, 65_000, 80_000)]
    # The longest as the network card gets it (TSO).
    ips = [[IP(), IPv6()], [IP(len=0), IPv6(plen=0)]]
    path = tmp_path / "them.pcap"
    wrpcap(str(path), [ETHER / ip / header / payload for payload in payloads for ip in ips[len(payload) > 65_000]])
    expected = [(2**32 - 5, 2**31, 0x18, payload, 0) for payload in payloads for _ in range(2)]
    assert [segment[3:] for segment in segments(path)] == expected


@needs_tshark
@needs_editcap
@pytest.mark.parametrize("snaplen", sampled([14, 30, 40, 54, 66, 70, 90], 3))
def test_cut_packets_are_told_as_by_the_native_reader(tmp_path: Path, snaplen: int) -> None:
    path = tmp_path / "cut.pcap"
    subprocess.run(["editcap", "-s", str(snaplen), str(REQ_REP), str(path)], check=True)
    if snaplen == 14:  # not one octet of the IP header: nothing says that there is TCP
        assert through_tshark(path)[-1]["packets"] == read_json(path)[-1]["packets"]
    else:
        assert through_tshark(path) == read_json(path)


@needs_tshark
def test_wrong_tcp_headers_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "wrong.pcap"
    wrpcap(str(path), [ETHER / IP() / TCP(dataofs=2) / b"hello"])
    decoder = HeaderDecoder()
    assert decoder.segments(packets_of(path), 1) == []
    assert (decoder.malformed, decoder.cut) == (1, 0)


@needs_tshark
def test_what_tshark_does_not_know_is_told_by_its_link_type(tmp_path: Path) -> None:
    path = tmp_path / "user.pcap"
    path.write_bytes(
        struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 150) + struct.pack("<4I", 1, 0, 4, 4) + b"abcd"
    )
    assert [r["detail"] for r in through_tshark(path) if r["type"] == "problem"] == [
        "1 packet of link type 150 (private use) was not looked into"
    ]


def line(protocols: str, **fields: list[str]) -> bytes:
    common = {
        "frame_time_epoch": ["1700000000.000000001"], "frame_len": ["200"], "frame_cap_len": ["200"],
        "frame_protocols": [protocols], "ip_src": ["192.0.2.1", "10.0.0.1"], "ip_dst": ["192.0.2.2", "10.0.0.2"],
        "tcp_srcport": ["443", "5555"], "tcp_dstport": ["40000", "40001"], "tcp_seq_raw": ["10", "20"],
        "tcp_ack_raw": ["30", "40"], "tcp_flags": ["0x0018", "0x0010"],
    }  # fmt: skip
    return json.dumps({"timestamp": "1", "layers": common | fields}).encode() + b"\n"


@pytest.mark.parametrize(
    ("lengths", "payloads", "payload", "missing"),
    [
        (["44", "4"], ["00" * 40 + "61626364", "61626364"], b"abcd", 0),
        (["40", "0"], ["00" * 40], b"", 0),  # the payload is that of the outer
        (["1440", "1400"], ["00" * 40], b"", 1400),  # captured up to the end of the inner header
        (["1440", "1400"], ["00" * 40 + "6162", "6162"], b"ab", 1398),
    ],
)
def test_of_nested_segments_the_innermost_counts(
    lengths: list[str], payloads: list[str], payload: bytes, missing: int
) -> None:
    from zmtpsniff.capture.tshark_fields import LineReader

    reader = LineReader()
    packets = reader.feed(line("eth:ip:tcp:vpn:ip:tcp", tcp_len=lengths, tcp_payload=payloads))
    key = bytes([10, 0, 0, 1, 10, 0, 0, 2]) + struct.pack("!HH", 5555, 40001)
    [segment] = HeaderDecoder().segments(packets, 1)
    assert segment == (1_700_000_000_000_000_001, 1, key, 20, 40, 0x10, payload, missing)
    assert reader.faults("x") == []


@needs_tshark
@pytest.mark.parametrize("seed", sampled(range(3)))
def test_damaged_packets_raise_nothing(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    source = rdpcap(str(REQ_REP))
    out = []
    for _ in range(60):  # many to a run, since starting tshark takes long
        for packet in source:
            octets = bytearray(bytes(packet))
            for _ in range(random.randrange(4)):
                octets[random.randrange(len(octets))] = random.randrange(256)
            out.append(Raw(bytes(octets[: random.randrange(len(octets) + 1)] if random.random() < 0.1 else octets)))
    path = tmp_path / "damaged.pcap"
    wrpcap(str(path), out, linktype=1)
    packets = packets_of(path)
    assert len(packets) == len(out)
    HeaderDecoder().segments(packets, 1)


# ---------------------------------------------------------------- what cannot be read


@needs_tshark
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hello\n", "not a capture file that tshark knows"),
        (b"# A page\n\n" + b"of text, much longer than any magic number\n" * 20, "isn't a capture file"),
        *(
            pytest.param(content, "not a capture file that tshark knows", marks=pytest.mark.slow)
            for content in (b'{"type": "json"}', b"\x7fELF" + bytes(100))
        ),
    ],
)
def test_what_is_no_capture_is_told_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "none"
    path.write_bytes(content)
    assert_refused(run("read", "--engine", "tshark", path), said, "none")


@needs_tshark
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "tshark", "/nowhere/at/all.pcap"], "No such file"),
        (["--engine", "tshark", "/"], "directory"),
        (["--engine", "tshark", "--tshark-option", "no.such:1", str(REQ_REP)], "unknown preference"),
        (["--engine", "tshark", "--tshark-option", "udp.port==1,nosuch", str(REQ_REP)], "Unknown protocol"),
        (["--engine", "tshark", "--tshark-option", "neither", str(REQ_REP)], "must be NAME:VALUE"),
        (["--tshark-option", "tcp.check_checksum:TRUE", str(REQ_REP)], "only with --engine tshark"),
    ],
)
def test_wrong_use_is_told_in_one_line(options: list[str], said: str) -> None:
    assert_refused(run("read", *options), said)


def test_without_tshark(tmp_path: Path) -> None:
    done = run("read", "--engine", "tshark", REQ_REP, env={**os.environ, "PATH": str(tmp_path)})
    assert_refused(done, "not installed")


@needs_tshark
def test_a_file_cut_short_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "short.pcap"
    path.write_bytes(REQ_REP.read_bytes()[:-10])
    tsharks, mine = through_tshark(path), read_json(path)
    assert [record for record in tsharks if record["type"] != "problem"] == [
        record for record in mine if record["type"] != "problem"
    ]
    [problem] = [record for record in tsharks if record.get("code", "").startswith("capture-")]
    assert problem["code"] == "capture-truncated"
    assert str(path) in problem["detail"]


@needs_tshark
def test_a_killed_tshark_is_told() -> None:
    from zmtpsniff.capture.tshark_packets import TsharkRun

    source = source_of(REQ_REP)
    reading, writing = os.pipe()
    tshark = TsharkRun("a pipe", ["-r", "-"], reading, source)
    os.write(writing, REQ_REP.read_bytes())  # and no end
    batches = tshark.batches()
    assert next(batches)
    children = subprocess.run(["pgrep", "-P", str(os.getpid()), "tshark"], capture_output=True, text=True, check=True)
    os.kill(int(children.stdout), signal.SIGKILL)
    for _ in batches:
        pass
    os.close(reading)
    os.close(writing)
    assert source.faults == [Fault("capture-corrupt", "a pipe: tshark was ended by signal 9")]


def test_without_pyshark_one_line_says_what_is_missing() -> None:
    code = "import sys; sys.modules['pyshark'] = None; from zmtpsniff.cli.main import main; main()"
    for arguments in (
        ["read", "--engine", "tshark", str(FIXTURES / "m31_req_rep.pcap")],
        ["live", "-i", "lo", "--engine", "tshark"],
    ):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("zmtpsniff: --engine tshark: needs the Python package pyshark")
        assert len(done.stderr.splitlines()) == 1
