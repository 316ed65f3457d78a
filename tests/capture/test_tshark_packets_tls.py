"""ZMTP inside TLS, decrypted by tshark: real tunnels, rewritten captures of them, and what is not decrypted."""

import json
import os
import shutil
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import zmq
from click.testing import CliRunner
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw
from scapy.utils import wrpcap

from tests.support.conversation import octets
from tests.support.examples import crossed, sampled
from tests.support.live_program import live, needs_privilege, wait_for
from tests.support.paths import FIXTURES
from tests.support.runner import assert_refused, read_json, run
from tests.world.tap import load
from zmtpsniff.cli.main import cli

sys.path.append(str(FIXTURES))
from tls_tunnel import PEM, tls_tunnel

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
needs_tcpdump = pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
READ = ["read", "-T", "json", "--max-bytes", "0", "--engine", "tshark"]
TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
RECORDED = ["rec_tls_1_2", "rec_tls_1_3"]
QUESTIONS = [["", "question", str(number)] for number in range(5)]
ANSWERS = [["", "answer to", "question", str(number)] for number in range(5)]
MESSAGES = [message for pair in zip(QUESTIONS, ANSWERS, strict=True) for message in pair]
PATIENCE_MS = 120_000
Record = dict[str, Any]
Packets = list[ScapyPacket]


def read(*arguments: str | Path) -> list[Record]:
    return read_json("--engine", "tshark", *arguments)


def texts(records: list[Record]) -> list[list[str]]:
    return [[frame["text"] for frame in r["frames"]] for r in records if r["type"] == "message"]


def codes(records: list[Record]) -> list[str]:
    return [record["code"] for record in records if record["type"] == "problem"]


def fingerprint(frames: list[bytes]) -> str:
    return sha256(b"".join(len(frame).to_bytes(8, "big") + frame for frame in frames)).hexdigest()


def seen(records: list[Record]) -> list[str]:
    return [fingerprint(list(map(octets, r["frames"]))) for r in records if r["type"] == "message"]


# ---------------------------------------------------------------- real tunnels


def converse(near: int, pull: zmq.Socket[bytes], push: zmq.Socket[bytes]) -> list[str]:
    """Send through a tunnel what makes records and segments of all sizes; the fingerprints of what arrived."""
    push.connect(f"tcp://127.0.0.1:{near}")
    sent = [[b"message", b"%d" % number] for number in range(100)]
    sent += [[b"b" * 300_000, b"", os.urandom(70_000)], [b"s" * 16_384], [b""]]
    sent += [[b"late %d" % number] for number in range(20)]
    for message in sent:
        push.send_multipart(message)
        if message[0].startswith(b"late"):
            time.sleep(0.005)  # so that it has a record of its own
    received = [pull.recv_multipart() for _ in sent]
    assert received == sent
    return list(map(fingerprint, received))


@pytest.mark.parametrize(
    ("version", "ciphers", "keys"),
    [
        (TLS13, "", "log"),
        (TLS12, "AES256-GCM-SHA384:@SECLEVEL=0", "private key"),
        *(
            pytest.param(TLS12, ciphers, "log", marks=pytest.mark.slow)
            for ciphers in (
                "ECDHE-RSA-AES128-GCM-SHA256",
                "ECDHE-RSA-CHACHA20-POLY1305",
                "ECDHE-RSA-AES128-SHA:@SECLEVEL=0",  # in blocks
            )
        ),
    ],
)
@needs_privilege
@needs_tcpdump
def test_every_message_through_a_tunnel_is_seen(
    tmp_path: Path, version: ssl.TLSVersion, ciphers: str, keys: str
) -> None:
    log = tmp_path / "keys.log"
    path = tmp_path / "tls.pcap"
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        pull.rcvtimeo = push.sndtimeo = PATIENCE_MS
        with tls_tunnel(pull.bind_to_random_port("tcp://127.0.0.1"), log, version, ciphers) as tunnel:
            options = ["-i", "lo", "-U", "--immediate-mode", "-B", "65536", "-w", str(path)]
            command = ["tcpdump", *options, "-Z", "root", f"tcp port {tunnel.wire}"]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tcpdump:
                assert tcpdump.stderr
                assert "listening on" in tcpdump.stderr.readline()
                sent = converse(tunnel.near, pull, push)
                push.close()
                wait_for(lambda: has_end(path, tunnel.wire))
                tcpdump.terminate()
    records = read("--tls-keys", log if keys == "log" else PEM, path)
    assert seen(records) == sent
    assert codes(records) == []
    [connection] = [record for record in records if record["type"] == "connection"]
    assert connection["handshake"] == "complete"
    assert connection["server"]["address"] == f"127.0.0.1:{tunnel.wire}"


def has_end(path: Path, port: int) -> bool:
    """Whether a capture that is being written has the FIN of both sides of a connection already."""
    ends: set[bool] = set()
    if not path.exists() or path.stat().st_size <= 24:  # no more than the header of the file
        return False
    for _, _, data, *_ in load(path):
        if len(data) > 47 and data[47] & 1:  # the flags of TCP, over IPv4 without options, over Ethernet
            ends.add(int.from_bytes(data[34:36], "big") == port)
    return len(ends) == 2


@needs_privilege
@pytest.mark.parametrize("version", sampled([TLS13, TLS12]))
def test_live(tmp_path: Path, version: ssl.TLSVersion) -> None:
    log = tmp_path / "keys.log"
    log.touch()
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        pull.rcvtimeo = push.sndtimeo = PATIENCE_MS
        with tls_tunnel(pull.bind_to_random_port("tcp://127.0.0.1"), log, version) as tunnel:
            options = ["--engine", "tshark", "-i", "lo", "-f", f"tcp port {tunnel.wire}", "--max-bytes", "0"]
            with live(*options, "--tls-keys", str(log)) as program:
                sent = converse(tunnel.near, pull, push)
                push.close()
                program.read_until(lambda records: any(record["type"] == "connection" for record in records[-1:]))
                records = program.interrupt()
    assert seen(records) == sent
    assert codes(records) == []


# ---------------------------------------------------------------- the recorded ones, and rewritten


@pytest.mark.parametrize("name", RECORDED)
def test_keys_in_the_capture_need_no_option(name: str) -> None:
    records = read(FIXTURES / f"{name}.pcapng")
    assert texts(records) == MESSAGES
    assert codes(records) == []


def secrets(name: str, tmp_path: Path) -> Path:
    """The key log inside a recorded capture."""
    capture = (FIXTURES / f"{name}.pcapng").read_bytes()
    at = capture.index(b"KSLT")  # in a block of secrets
    (length,) = struct.unpack_from("<I", capture, at + 4)
    path = tmp_path / "keys.log"
    path.write_bytes(capture[at + 8 : at + 8 + length])
    return path


def rewritten(name: str, tmp_path: Path, change: Callable[[Packets], Packets]) -> Path:
    """A recorded capture without its keys, its packets changed."""
    path = tmp_path / "changed.pcap"
    packets = change([Ether(packet[2]) for packet in load(FIXTURES / f"{name}.pcapng")])
    for number, packet in enumerate(packets):
        packet.time = 1_700_000_000 + number / 1000
    wrpcap(str(path), packets)
    return path


def part(packet: ScapyPacket, begin: int, end: int) -> ScapyPacket:
    """A packet with some of the octets of a segment."""
    octets = bytes(packet[TCP].payload)[begin:end]
    new = packet.copy()
    new[TCP].remove_payload()
    new[TCP].seq = (packet[TCP].seq + begin) % 2**32
    new = new / Raw(octets)
    for field in ("len", "chksum"):
        delattr(new[IP], field)
    del new[TCP].chksum
    return Ether(bytes(new))


def octets_in(packet: ScapyPacket) -> int:
    # Without padding.
    return int(packet[IP].len - 4 * packet[IP].ihl - 4 * packet[TCP].dataofs)


def split(packets: Packets) -> Packets:
    """Small segments, so that each record is in several."""
    out = []
    for packet in packets:
        length = octets_in(packet)
        out += [part(packet, at, min(at + 7, length)) for at in range(0, length, 7)] if length > 7 else [packet]
    return out


def swapped(packets: Packets) -> Packets:
    """In small segments, every other pair of one side out of order."""
    out = split(packets)
    for at in range(0, len(out) - 1, 4):
        one, other = out[at], out[at + 1]
        if one[TCP].sport == other[TCP].sport and octets_in(one) and octets_in(other):
            out[at], out[at + 1] = other, one
    return out


def on_port_443(packets: Packets) -> Packets:
    """As if the server had another port, for which tshark has a protocol of its own."""
    server = packets[0][TCP].dport
    for packet in packets:
        for field in ("sport", "dport"):
            if getattr(packet[TCP], field) == server:
                setattr(packet[TCP], field, 443)
        del packet[TCP].chksum
    return packets


@pytest.mark.parametrize(
    ("name", "change"),
    crossed(RECORDED, [swapped, on_port_443]),
)
def test_order_and_sizes_of_segments_change_nothing(
    tmp_path: Path, name: str, change: Callable[[Packets], Packets]
) -> None:
    records = read("--tls-keys", secrets(name, tmp_path), rewritten(name, tmp_path, change))
    assert texts(records) == MESSAGES
    assert codes(records) == []


def without(field: str, lost: int) -> Callable[[Packets], Packets]:
    """Loses a segment with data of TLS, counted from the end; ``field`` has the port of the server."""

    def without_one(packets: Packets) -> Packets:
        server = packets[0][TCP].dport
        of_side = [one for one in packets if octets_in(one) and getattr(one[TCP], field) == server]
        gone = [one for one in of_side if bytes(one[TCP].payload)[0] == 23][-lost]
        return [packet for packet in packets if packet is not gone]

    return without_one


@pytest.mark.parametrize(
    ("name", "lost"), crossed(RECORDED, [1, 4, *(pytest.param(lost, marks=pytest.mark.slow) for lost in (2, 7))])
)
def test_a_lost_segment_is_a_hole(tmp_path: Path, name: str, lost: int) -> None:
    records = read("--tls-keys", secrets(name, tmp_path), rewritten(name, tmp_path, without("dport", lost)))
    from_client = [text for text in texts(records) if text[1] == "question"]
    assert from_client == QUESTIONS[: len(from_client)]
    assert len(from_client) < len(QUESTIONS) or lost == 1  # the last one is the end of TLS
    assert [text for text in texts(records) if text[1] != "question"] == ANSWERS
    gaps = [record for record in records if record.get("code") == "tls-gap"]
    assert len(gaps) == 1
    assert gaps[0]["severity"] == "error"
    assert "not in the capture" in gaps[0]["detail"]


@pytest.mark.parametrize(("name", "lost"), crossed(RECORDED, [2, 4]))
def test_a_lost_reply_accuses_nobody(tmp_path: Path, name: str, lost: int) -> None:
    """Neither of not answering nor of breaking the protocol: the key or the record is missing, not the reply."""

    keys, path = secrets(name, tmp_path), rewritten(name, tmp_path, without("sport", lost))
    assert [one["code"] for one in read("--tls-keys", keys, path) if one["type"] == "problem"] == ["tls-gap"]
    done = CliRunner().invoke(cli, ["diagnose", "-T", "json", "--engine", "tshark", "--tls-keys", str(keys), str(path)])
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.output.splitlines()]
    told = [(one["severity"], one["code"]) for one in found if one["type"] == "finding"]
    assert told == [("note", "capture-lossy")]


@pytest.mark.parametrize("name", RECORDED)
def test_without_keys_it_is_told_that_there_is_tls(tmp_path: Path, name: str) -> None:
    path = rewritten(name, tmp_path, lambda packets: packets)
    records = read(path)
    assert codes(records) == ["tls-no-keys"]
    assert "127.0.0.1:556" in records[0]["detail"]
    assert records[-1]["zmtp_flows"] == 0


@pytest.mark.parametrize(("name", "wrong"), crossed(RECORDED, ["keys of another", "private key", "empty"]))
def test_wrong_keys_are_told(tmp_path: Path, name: str, wrong: str) -> None:
    path = rewritten(name, tmp_path, lambda packets: packets)
    keys = secrets(RECORDED[RECORDED.index(name) - 1], tmp_path) if wrong == "keys of another" else PEM
    if wrong == "empty":
        keys = tmp_path / "empty.log"
        keys.touch()
    records = read("--tls-keys", keys, path)
    assert [(record["code"], record["severity"]) for record in records[:-1]] == [("tls-not-decrypted", "warning")]
    assert "1 TLS connection was not decrypted" in records[0]["detail"]


def test_zmtp_in_clear_is_read_as_ever() -> None:
    plain = FIXTURES / "m31_req_rep.pcap"
    assert read("--tls-keys", PEM, plain) == read(plain)


def test_a_client_of_tls_at_a_server_without() -> None:
    done = run(*READ, "--tls-keys", PEM, FIXTURES / "bad_http_on_zmq_port.pcap")
    without = run(*READ, FIXTURES / "bad_http_on_zmq_port.pcap")
    assert done.stdout == without.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "tshark", "--tls-keys", "/nowhere/keys.log"], "/nowhere/keys.log: No such file"),
        (["--engine", "tshark", "--tls-keys", str(FIXTURES / "m31_req_rep.pcap")], "neither a key log nor"),
        (["--engine", "native", "--tls-keys", str(PEM)], "--tls-keys: only with --engine tshark"),
        (["--engine", "tshark", "--tls-keys", __file__, "--tls-keys", __file__], "several key logs"),
    ],
)
def test_wrong_use_is_told_in_one_line(options: list[str], said: str) -> None:
    done = run(*READ, *options, FIXTURES / "rec_tls_1_3.pcapng")
    assert_refused(done, said)
