"""A capture with one large connection, and what dissects it, in a process whose memory is measured.

    python one_connection.py STAGE CAPTURE FOLDER

prints the number of messages and the peak of the process's memory in octets.
"""

import struct
import sys
from pathlib import Path

from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.spark.groups import ShardSpec
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.task import Job, ShardTask, dissect

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL".ljust(55, b"\0")
_SEGMENT = 65_000  # octets, as loopback has them
_SYN, _ACK = 2, 16
_CLIENT, _SERVER = (bytes((10, 0, 0, 1)), 40_000), (bytes((10, 0, 0, 2)), 5555)


def _ready(socket_type: bytes) -> bytes:
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(socket_type)) + socket_type
    return bytes((4, len(body))) + body


def make(path: Path, messages: int, octets: int) -> None:
    """Write a capture in which a PUSH sends so many messages of so many octets, all of them zero: holes in the file."""
    time_ns = 1_790_000_000_000_000_000
    next_octet = {_CLIENT: 100, _SERVER: 200}
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1))

        def packet(source: tuple[bytes, int], flags: int, payload: bytes = b"", zeros: int = 0) -> None:
            nonlocal time_ns
            time_ns += 1000
            target = _SERVER if source is _CLIENT else _CLIENT
            size = len(payload) + zeros
            file.write(struct.pack("<IIII", *divmod(time_ns, 1_000_000_000), 54 + size, 54 + size))
            file.write(bytes(12) + b"\x08\x00" + struct.pack(">BBHIBBH", 0x45, 0, 40 + size, 0, 64, 6, 0))
            file.write(source[0] + target[0])
            ports = struct.pack(">HH", source[1], target[1])
            numbers = struct.pack(">II", next_octet[source] & 0xFFFF_FFFF, next_octet[target] & 0xFFFF_FFFF)
            file.write(ports + numbers + struct.pack(">BBHHH", 5 << 4, flags, 65_535, 0, 0) + payload)
            file.seek(zeros, 1)
            next_octet[source] += size + (flags & _SYN > 0)

        packet(_CLIENT, _SYN)
        packet(_SERVER, _SYN | _ACK)
        packet(_CLIENT, _ACK, GREETING + _ready(b"PUSH"))
        packet(_SERVER, _ACK, GREETING + _ready(b"PULL"))
        for _ in range(messages):
            header, left = struct.pack(">BQ", 2, octets), octets
            while left or header:
                zeros = min(left, _SEGMENT - len(header))
                packet(_CLIENT, _ACK, header, zeros)
                left -= zeros
                header = b""
        packet(_SERVER, _ACK)
        file.truncate()


def _peak() -> int:
    """Of this process; what getrusage() says is no less than what its parent had."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main(stage: str, capture: str, folder: str) -> None:
    """Dissect a capture as a task of a run does, or of one that follows."""
    files = [FileInfo(capture, Path(capture).stat().st_size, 1)]
    job = Job(folder, [], "", Options(tells_open=stage == "run"))
    found = dissect(job, [ShardTask("s", ShardSpec(), files)])
    messages = sum(file.rows for file in found.files if file.table == "messages")
    print(messages, _peak())


if __name__ == "__main__":
    main(*sys.argv[1:])
