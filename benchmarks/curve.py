"""Measure what opening the boxes of CURVE costs: the same messages in clear, in boxes, and in boxes that are opened.

    python benchmarks/curve.py [--messages N] [--size N] [--repeat N]

The captures are made here: one connection that pushes messages, as libzmq would batch them, from a client all of whose
keys are known. It needs PyNaCl (the extra ``curve``).
"""

from __future__ import annotations

import argparse
import shlex
import struct
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import measure
from nacl import bindings as sodium

SEGMENT = 8192  # octets: how much libzmq writes at once
TARGET = 150_000  # decrypted messages a second

CLIENT_KEY, KEY = sodium.crypto_scalarmult_base(bytes(31) + b"\1"), bytes(range(32))
SIGNATURE = b"\xff\0\0\0\0\0\0\0\x01\x7f"


def _frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > 255:
        return bytes([flags | 2]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def _greeting(mechanism: bytes) -> bytes:
    return SIGNATURE + b"\3\1" + mechanism.ljust(20, b"\0") + bytes(32)


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def _seal(plain: bytes, prefix: bytes, number: int) -> bytes:
    nonce = number.to_bytes(8, "big")
    return nonce + sodium.crypto_box_afternm(plain, prefix + nonce, KEY)


def _clear(bodies: Iterable[bytes]) -> list[tuple[int, bytes]]:
    client, server = _property(b"Socket-Type", b"PUSH"), _property(b"Socket-Type", b"PULL")
    return [
        (0, _greeting(b"NULL")),
        (1, _greeting(b"NULL")),
        (0, _frame(b"\5READY" + client, 4)),
        (1, _frame(b"\5READY" + server, 4)),
        (0, b"".join(map(_frame, bodies))),
    ]


def _sealed(bodies: Iterable[bytes]) -> list[tuple[int, bytes]]:
    client, server = _property(b"Socket-Type", b"PUSH"), _property(b"Socket-Type", b"PULL")
    frames = (
        _frame(b"\7MESSAGE" + _seal(b"\0" + body, b"CurveZMQMESSAGEC", number)) for number, body in enumerate(bodies, 3)
    )
    return [
        (0, _greeting(b"CURVE")),
        (1, _greeting(b"CURVE")),
        (0, _frame(b"\5HELLO\1\0" + bytes(72) + CLIENT_KEY + bytes(88), 4)),
        (1, _frame(b"\7WELCOME" + bytes(160), 4)),
        (0, _frame(b"\x08INITIATE" + bytes(96) + _seal(bytes(128) + client, b"CurveZMQINITIATE", 2), 4)),
        (1, _frame(b"\5READY" + _seal(server, b"CurveZMQREADY---", 1), 4)),
        (0, b"".join(frames)),
    ]


def _write(path: Path, said: list[tuple[int, bytes]]) -> None:
    """A capture of one TCP connection in which the sides say this."""
    ports, sent, number = (40_000, 5555), [1, 1], 0
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 101))

        def packet(side: int, flags: int, payload: bytes = b"") -> None:
            nonlocal number
            seq = sent[side] - (1 if flags & 2 else 0)
            header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0, *[b"\x7f\0\0\1"] * 2)
            ack = sent[1 - side] if flags & 16 else 0
            header += struct.pack(
                ">HHIIBBHHH", ports[side], ports[1 - side], seq, ack, 0x50, flags, 65_535, 0, 0
            )  # fmt: skip
            octets = header + payload
            file.write(struct.pack("<IIII", number // 1_000_000, number % 1_000_000, len(octets), len(octets)))
            file.write(octets)
            sent[side] = sent[side] + len(payload) & 0xFFFFFFFF
            number += 10

        packet(0, 2)
        packet(1, 2 | 16)
        packet(0, 16)
        for side, octets in said:
            for begin in range(0, len(octets), SEGMENT):
                packet(side, 16, octets[begin : begin + SEGMENT])
                if not number % 100:
                    packet(1 - side, 16)
        packet(0, 1 | 16)
        packet(1, 1 | 16)


def main() -> int:
    """Make the captures, measure, print a table; the exit status says whether the target was met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = shlex.quote(str(Path(sys.executable).with_name("zmtpsniff")))
    parser.add_argument("--zmtpsniff", default=beside, metavar="COMMAND", help="default: the one of this Python")
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--size", type=int, default=32, metavar="N", help="octets of a message")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each command, of which the best")
    options = parser.parse_args()
    bodies = [b"measurement %010d " % number + b"." * (options.size - 23) for number in range(options.messages)]
    with tempfile.TemporaryDirectory() as folder:
        clear, sealed, keys = (Path(folder) / name for name in ("clear.pcap", "sealed.pcap", "keys.txt"))
        _write(clear, _clear(bodies))
        _write(sealed, _sealed(bodies))
        keys.write_text(f"CURVE_SHARED_KEY {CLIENT_KEY.hex()} - {KEY.hex()}\n")
        command = shlex.split(options.zmtpsniff)
        rates = {}
        print(f"{options.messages:,} messages of {options.size} octets, messages/s\n")
        for title, capture, more in (
            ("in clear", clear, []),
            ("CURVE, no key", sealed, []),
            ("CURVE, opened", sealed, ["--curve-keys", str(keys)]),
        ):
            for words in (["read", "-T", "json"], ["read", "-T", "summary"], ["stats"]):
                run = min(
                    measure.run([*command, *words, *more, str(capture)]).seconds for _ in range(options.repeat)
                )  # fmt: skip
                rates[title, words[-1]] = options.messages / run
                print(f"{title:15} {' '.join(words):16} {options.messages / run:>12,.0f}", flush=True)
    worst = min(rate for (title, _), rate in rates.items() if title == "CURVE, opened")
    return 0 if worst >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
