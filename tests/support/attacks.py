"""Captures and policies made to use up memory or time, each with what it may cost: ``python -m tests.support.attacks``.

Prints a table of what each costs. Each is read by the program itself, in a process of its own whose peak memory and
processor time the kernel tells. ``--full`` is the size that is promised to hold; without it they are a tenth of that.
"""

import argparse
import gzip
import json
import lzma
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import FIXTURES
from tests.world.network import START_NS, tcp_packet
from tests.world.octets import frame, greeting, ready
from tests.world.tap import save
from zmtpsniff.capture.block import Packet
from zmtpsniff.net.segment import ACK, PSH, SYN
from zmtpsniff.words.zstd import zstd

GREETING = greeting()
MIB = 1 << 20

# A small process starts the program, because the peak memory of one includes that of the process it was forked from.
_LAUNCHER = """
import json, os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (900, 900))
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_maxrss >> 10, usage.ru_utime + usage.ru_stime]))
"""


class Cost(NamedTuple):
    """The cost of a run of the program."""

    status: int  # its exit status
    mib: int  # peak memory
    seconds: float  # of processor time
    output: bytes  # the last of its standard output
    errors: str


class Attack(NamedTuple):
    """Something hostile, and what it may cost."""

    name: str
    write: Callable[[Path, int], None]  # makes the file; the number is the share of the full size, in percent
    arguments: tuple[str, ...]  # FILE stands for the file
    mib: int  # peak memory that it may take, at full size
    seconds: float  # processor time that it may take, at full size
    status: int = 0


def segment(
    client: bool, seq: int, payload: bytes = b"", flags: int = ACK | PSH, port: int = 40_000, host: int = 1
) -> bytes:
    """A packet of Ethernet, IPv4 and TCP; the server is always the same."""
    ends = (struct.pack("!I", 0x0A000000 | host), b"\x0a\xff\xff\xfe"), (port, 5555)
    if not client:
        ends = ends[0][::-1], ends[1][::-1]
    return tcp_packet(*ends, (seq, 1), flags, payload)


def captured(octets: Iterable[bytes]) -> Iterator[Packet]:
    """Packets a microsecond from one to the next."""
    for number, packet in enumerate(octets):
        yield START_NS + number * 1000, 1, packet, len(packet), None


def capture(make: Callable[[int], Iterator[bytes]]) -> Callable[[Path, int], None]:
    """A function that writes a pcap file of the packets that ``make`` makes."""

    def write(path: Path, percent: int) -> None:
        save(path, captured(make(percent)))

    return write


def opening(port: int = 40_000, host: int = 1) -> Iterator[bytes]:
    """A connection whose handshake is done; both sides' next sequence number is 1 + their greeting and READY."""
    yield segment(True, 0, b"", SYN, port, host)
    yield segment(False, 0, b"", SYN | ACK, port, host)
    yield segment(True, 1, GREETING + ready(b"PUSH"), port=port, host=host)
    yield segment(False, 1, GREETING + ready(b"PULL"), port=port, host=host)


NEXT = 1 + 64 + 28


def stream(octets: bytes, size: int = 60_000) -> Iterator[bytes]:
    """A connection whose client sends these octets after the handshake."""
    yield from opening()
    for at in range(0, len(octets), size):
        yield segment(True, NEXT + at, octets[at : at + size])


# ---------------------------------------------------------------------- connections


def syns(percent: int) -> Iterator[bytes]:
    for number in range(10_000 * percent):
        yield segment(True, number, b"", SYN, 1024 + number % 60_000, 1 + number // 60_000)


def half_open(percent: int) -> Iterator[bytes]:
    for number in range(1000 * percent):
        port, host = 1024 + number % 60_000, 1 + number // 60_000
        yield segment(True, 0, b"", SYN, port, host)
        yield segment(True, 1, GREETING[:40], port=port, host=host)


def beyond_a_hole(percent: int) -> Iterator[bytes]:
    yield from opening()
    for number in range(3000 * percent):
        yield segment(True, NEXT + 1 + 2 * number, b"x")
    for number in range(2000 * percent):
        yield segment(True, NEXT + 1_000_000 + 1401 * number, bytes(1400))


def long_claims(percent: int) -> Iterator[bytes]:
    for number in range(30 * percent):
        port = 1024 + number
        yield from opening(port)
        claim = struct.pack("!BQ", number & 1 | 2 | number & 4, 2**63 - 1)
        yield segment(True, NEXT, claim + bytes(1000), port=port)
        for at in range(20):
            yield segment(True, NEXT + 1009 + at * 1400, bytes(1400), port=port)


def empty_frames(percent: int) -> Iterator[bytes]:
    return stream(b"\1\0" * (10_000 * percent) + b"\0\0")


def properties(percent: int) -> Iterator[bytes]:
    named = b"".join(b"\x07p%06d\0\0\0\1x" % number for number in range(1000 * percent))
    yield segment(True, 0, b"", SYN)
    yield segment(False, 0, b"", SYN | ACK)
    yield segment(False, 1, GREETING)
    octets = GREETING + ready(b"PUSH", named)
    for at in range(0, len(octets), 60_000):
        yield segment(True, 1 + at, octets[at : at + 60_000])


def tiny_messages_in_fragments(percent: int) -> Iterator[bytes]:
    """IP fragments of which none has its other half."""
    for number in range(5000 * percent):
        whole = segment(True, 1, bytes(500), port=1024)
        ip = bytearray(whole)
        ip[18:22] = struct.pack("!HH", number & 0xFFFF, 0x2000)
        ip[26:30] = struct.pack("!I", number >> 16 | 0x0B000000)
        ip[16:18] = struct.pack("!H", 20 + 512)
        yield bytes(ip)


# ---------------------------------------------------------------------- files


def bomb(compress: Callable[[bytes], bytes]) -> Callable[[Path, int], None]:
    """A compressed file that holds a packet header and then zeros, as packets as long as they may be."""

    def write(path: Path, percent: int) -> None:
        record = struct.pack("<IIII", 1_700_000_000, 0, 262_144, 262_144) + bytes(262_144)
        head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)
        path.write_bytes(compress(head + record * ((1 << 30) * percent // 100 // len(record))))

    return write


def _fast_xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=1)


def small_packets_bomb(path: Path, percent: int) -> None:
    """Zeros are packets of no octets, 16 of them each."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)
    path.write_bytes(gzip.compress(head + bytes(MIB * percent)))


def nested_body(percent: int) -> Iterator[bytes]:
    """gzip in gzip in gzip, a gigabyte in all; then a zstd frame of as much, and JSON as deep as it is long."""
    zeros = bytes(10 * MIB * percent)
    once = gzip.compress(zeros)
    bodies = [gzip.compress(gzip.compress(once)), once, zstd.compress(zeros), b"[" * 500_000]
    bodies += [b"\x9f" * 500_000, b"\xd9\xd9\xf7" + b"\x81" * 100_000, b"\xdd\xff\xff\xff\xff" + bytes(1000)]
    return stream(b"".join(map(frame, bodies * 20)))


_INFLATED_LIMIT = 1 << 26  # octets of a message that are looked at


def inflating(takeover: bool) -> Callable[[int], Iterator[bytes]]:
    """Messages of WebSocket that inflate to as much as is looked at, then such that inflate to twice that.

    With ``takeover`` each may refer back to those before, so that one that is given up costs all behind it.
    """

    def make(percent: int) -> Iterator[bytes]:
        count = max(8 * percent // 100, 1)
        yield from _agreed(takeover, b"", _deflated(_INFLATED_LIMIT) * count + _deflated(2 * _INFLATED_LIMIT) * count)

    return make


def compressing(percent: int) -> Iterator[bytes]:
    """Connections that stay, each side of which has said enough for its window of 32 KiB to be full."""
    octets = _deflated(1 << 16)
    masked = octets[:1] + bytes([octets[1] | 0x80]) + octets[2:10] + bytes(4) + octets[10:]
    for number in range(30 * percent):
        yield from _agreed(True, masked, octets, 1024 + number)


def _agreed(takeover: bool, of_client: bytes, of_server: bytes, port: int = 40_000) -> Iterator[bytes]:
    """A WebSocket connection that agrees on compression, what both sides send after READY."""
    extension = b"permessage-deflate"
    extension += b"" if takeover else b"; server_no_context_takeover; client_no_context_takeover"
    agreed = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: ZWS2.0/NULL\r\n"
    agreed += b"Sec-WebSocket-Extensions: " + extension + b"\r\n\r\n"
    ready = b"\2\5READY\x0bSocket-Type\0\0\0\6DEALER"
    of_client = b"\x82" + bytes([0x80 | len(ready)]) + bytes(4) + ready + of_client
    of_server = b"\x82" + bytes([len(ready)]) + ready + of_server
    yield segment(True, 0, b"", SYN, port)
    yield segment(False, 0, b"", SYN | ACK, port)
    for client, octets in (
        (True, b"GET / HTTP/1.1\r\n" + agreed + of_client),
        (False, b"HTTP/1.1 101 Switching Protocols\r\n" + agreed + of_server),
    ):
        for at in range(0, len(octets), 60_000):
            yield segment(client, 1 + at, octets[at : at + 60_000], port=port)


def _deflated(length: int) -> bytes:
    """A WebSocket message that inflates to so many zeros, the first of which is the flags octet of ZWS."""
    compressor = zlib.compressobj(wbits=-15)
    octets = b"".join(compressor.compress(bytes(1 << 16)) for _ in range(length >> 16))
    octets = (octets + compressor.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")
    return struct.pack("!BBQ", 0xC2, 127, len(octets)) + octets


def many_as(percent: int) -> Iterator[bytes]:
    return stream(frame(b"a" * 60_000) * (2 * percent))


def _block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + length + body + length


_SECTION = _block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))


def option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def large_options(path: Path, percent: int) -> None:
    """Comments as many and as long as fit into blocks of 16 MiB, options that claim more than there is."""
    interface = _block(1, struct.pack("<HHI", 1, 0, 0) + option(1, b"c" * 60_000) * 200)
    with path.open("wb") as file:
        file.write(_SECTION + interface)
        for _ in range(max(percent // 10, 1)):
            packet = struct.pack("<IIIII", 0, 0, 0, 4, 4) + b"abcd"
            file.write(_block(6, packet + option(1, b"") * 1_000_000))
            file.write(_block(6, packet + option(1, b"d" * 65_000) * 240))
            file.write(_block(6, packet + struct.pack("<HH", 1, 0xFFFF) + b"short"))
            file.write(_block(5, struct.pack("<III", 0, 0, 0) + option(1, b"s" * 1000) * 10_000))


def many_interfaces(path: Path, percent: int) -> None:
    interface = _block(1, struct.pack("<HHI", 1, 0, 0))
    with path.open("wb") as file:
        for _ in range(10):
            file.write(_SECTION + interface * (1000 * percent))


# ---------------------------------------------------------------------- policies


def many_rules(path: Path, percent: int) -> None:
    with path.open("w") as file:
        for number in range(10_000 * percent):
            file.write(f'[[rule]]\nname = "{number}"\nexpect = "frames"\n')


def as_many_rules_as_allowed(path: Path, percent: int) -> None:
    with path.open("w") as file:
        for number in range(100 * percent):
            file.write(f"[[rule]]\nname = \"{number}\"\nexpect = 'flow == {number}'\n")


def long_key(path: Path, percent: int) -> None:
    path.write_text("[[rule]]\n" + ".".join("a" * (1000 * percent)) + " = 1\n")


def deep_list(path: Path, percent: int) -> None:
    path.write_text("rule = " + "[" * (1000 * percent))


_JSON = ("read", "-T", "json", "FILE")
_WHOLE = ("read", "-T", "json", "--max-bytes", "0", "FILE")
_CHECK = ("check", "CAPTURE", "--policy", "FILE")
_REGEX = 'frames[0] matches "(a|a)*(a|aa)+(a?){100}a{100}[^a]$"'

ATTACKS = {
    attack.name: attack
    for attack in (
        Attack("1,000,000 SYNs from different ports", capture(syns), _JSON, 400, 150),
        Attack("100,000 half-open greetings", capture(half_open), _JSON, 800, 150),
        Attack("a flow that sends only segments beyond a hole", capture(beyond_a_hole), _JSON, 250, 100),
        Attack("3,000 connections whose frames claim 2^63-1 octets", capture(long_claims), _JSON, 250, 60),
        Attack("a message of a million empty frames", capture(empty_frames), _JSON, 500, 60),
        Attack("metadata with 100,000 properties", capture(properties), _WHOLE, 300, 30),
        Attack("500,000 IP fragments without their rest", capture(tiny_messages_in_fragments), _JSON, 150, 60),
        Attack("a capture of 1 GiB, in 1 MiB of gzip", bomb(gzip.compress), _JSON, 150, 60),
        Attack("a capture of 1 GiB, in 150 KiB of xz", bomb(_fast_xz), _JSON, 200, 120),
        Attack("a capture of 1 GiB, in 50 KiB of zstd", bomb(zstd.compress), _JSON, 150, 60),
        Attack("6,500,000 packets of no octets, in 100 KiB of gzip", small_packets_bomb, _JSON, 150, 90),
        Attack("bodies of 1 GiB, in gzip thrice and zstd", capture(nested_body),
               (*_WHOLE, "--decode-bodies"), 700, 120),
        Attack("messages of 1.5 GiB, in 1.5 MiB of compressed WebSocket", capture(inflating(False)), _WHOLE, 600, 90),
        Attack("the same, each message referring back to those before", capture(inflating(True)), _JSON, 150, 60),
        Attack("3,000 WebSocket connections that compress", capture(compressing), _JSON, 450, 60),
        Attack("a regular expression that explodes", capture(many_as),
               ("read", "-T", "json", "-Y", _REGEX, "FILE"), 150, 60),
        Attack("a pcapng file of options, 350 MiB", large_options, _JSON, 600, 120),
        Attack("1,000,000 interfaces in a pcapng file", many_interfaces, _JSON, 250, 60),
        Attack("a policy of a million rules", many_rules, _CHECK, 150, 20, 2),
        Attack("a policy of as many rules as may be", as_many_rules_as_allowed, _CHECK, 400, 60, 1),
        Attack("a policy with a key of 100,000 parts", long_key, _CHECK, 150, 20, 2),
        Attack("a policy with 100,000 brackets within each other", deep_list, _CHECK, 150, 20, 2),
    )
}  # fmt: skip
"""Every attack by its name; the bounds are some times of what a slow machine needs."""

CAPTURE = FIXTURES / "m31_req_rep.pcap"


def run(attack: Attack, percent: int, folder: Path) -> Cost:
    """The cost of an attack of this share of its full size."""
    path = folder / "input"
    attack.write(path, percent)
    try:
        return measured([{"FILE": str(path), "CAPTURE": str(CAPTURE)}.get(word, word) for word in attack.arguments])
    finally:
        path.unlink()


def measured(arguments: list[str]) -> Cost:
    """The cost of a run with these arguments."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        command = f'import os; os.dup2({output.fileno()}, 1); os.dup2({errors.fileno()}, 2); ' \
                  f'os.execv({sys.executable!r}, [{sys.executable!r}, "-m", "zmtpsniff", *{arguments!r}])'  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, sys.executable, "-c", command],
            capture_output=True,
            text=True,
            check=True,
            timeout=1800,
            pass_fds=(output.fileno(), errors.fileno()),
        )
        status, mib, seconds = json.loads(done.stdout)
        size = output.seek(0, 2)
        output.seek(max(size - 2000, 0))
        errors.seek(0)
        return Cost(status, mib, seconds, output.read(), errors.read(10_000).decode(errors="replace"))


def main() -> None:
    """Print what every attack costs, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", metavar="TEXT", default="", help="those with this in their names")
    options = parser.parse_args()
    print("| Attack | Peak memory | at most | Processor time | at most | Result |")
    print("| :-- | --: | --: | --: | --: | :-- |")
    for attack in ATTACKS.values():
        if options.only not in attack.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            cost = run(attack, 100 if options.full else 10, Path(folder))
        good = cost.status == attack.status and cost.mib <= attack.mib and cost.seconds <= attack.seconds
        print(
            f"| {attack.name} | {cost.mib} MiB | {attack.mib} MiB | {cost.seconds:.1f} s | {attack.seconds:g} s "
            f"| {'held' if good else f'**not held** (exit status {cost.status})'} |",
            flush=True,
        )
        if not good:
            print(cost.errors[-1000:], file=sys.stderr)


if __name__ == "__main__":
    main()
