"""A capture with one large connection, and what dissects it, in a process whose memory is measured.

    python one_connection.py STAGE CAPTURE FOLDER

prints the number of messages and the peak of the process's memory in octets.
"""

import struct
import sys
from pathlib import Path

from tests.world.network import tcp_packet
from tests.world.octets import greeting, ready
from zmtpsniff.capture.file_list import FileInfo
from zmtpsniff.net.segment import ACK, SYN
from zmtpsniff.spark.options import Options, ShardSpec
from zmtpsniff.spark.task import Job, ShardTask, dissect

_SEGMENT = 65_000  # octets, as loopback has them
_CLIENT, _SERVER = (bytes((10, 0, 0, 1)), 40_000), (bytes((10, 0, 0, 2)), 5555)


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
            hosts, ports = (source[0], target[0]), (source[1], target[1])
            numbers = next_octet[source], next_octet[target]
            file.write(tcp_packet(hosts, ports, numbers, flags, payload, zeros))
            file.seek(zeros, 1)
            next_octet[source] += size + (flags & SYN > 0)

        packet(_CLIENT, SYN)
        packet(_SERVER, SYN | ACK)
        packet(_CLIENT, ACK, greeting() + ready(b"PUSH"))
        packet(_SERVER, ACK, greeting() + ready(b"PULL"))
        for _ in range(messages):
            header, left = struct.pack(">BQ", 2, octets), octets
            while left or header:
                zeros = min(left, _SEGMENT - len(header))
                packet(_CLIENT, ACK, header, zeros)
                left -= zeros
                header = b""
        packet(_SERVER, ACK)
        file.truncate()


def _peak() -> int:
    """Of this process; what getrusage() says is no less than what its parent had."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main(stage: str, capture: str, folder: str) -> None:
    """Dissect a capture as a task of a run does, or of one that follows."""
    files = [FileInfo(capture, Path(capture).stat().st_size, 1)]
    job = Job(folder, [], Options(tells_open=stage == "run"))
    found = dissect(job, [ShardTask("s", ShardSpec(), files)])
    messages = sum(file.rows for file in found.files if file.table == "messages")
    print(messages, _peak())


if __name__ == "__main__":
    main(*sys.argv[1:])
