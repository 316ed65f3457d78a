"""A capture with one large connection, and the stages of a job that dissect it, in a process whose memory is measured.

    python one_connection.py STAGE CAPTURE FOLDER

prints the number of messages and the peak of the process's memory in octets.
"""

import struct
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from local_job import Memory

from zmtpsniff.spark.exact import FILE_SCHEMA, dissected, segments
from zmtpsniff.spark.listing import Listed
from zmtpsniff.spark.mapping import scanned
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.taking import Position, Task
from zmtpsniff.spark.writing import write_rows

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


def _files(path: Path) -> Iterator[pa.RecordBatch]:
    row = {"path": str(path), "size": path.stat().st_size, "modified_ns": 1, "series": "s"}
    row |= {"series_no": 0, "file_no": 1, "task": 0}
    yield pa.RecordBatch.from_pylist([row], schema=FILE_SCHEMA)


def _is_note(batch: pa.RecordBatch) -> bool:
    return not batch.column("group")[0].as_py()


def _peak() -> int:
    """Of this process; what getrusage() says is no less than what its parent had."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _followed(capture: Path, folder: str) -> list[str]:
    """The files that a task of a stream writes."""
    task = Task(Options(tells_open=False), Position(folder, folder, "epoch", 1))
    lines = [*task.take("s", [Listed(str(capture), capture.stat().st_size, 1)], Memory())]
    task.close()
    return [line.path for line in lines]


def main(stage: str, capture: str, folder: str) -> None:
    """Dissect a capture as a task does."""
    if stage == "follow":
        _tell(_followed(Path(capture), folder), folder)
        return
    options, files = Options(), _files(Path(capture))
    if stage == "exact":
        # Sorted, notes on files come first, and the segments are in order as they are.
        notes = [batch for batch in segments(_files(Path(capture)), options, 1) if _is_note(batch)]
        rest = (batch for batch in segments(files, options, 1) if not _is_note(batch))
        written = [*write_rows(dissected(chain(notes, rest), options, 1), folder)]
    else:
        written = [*scanned(files, options, 1, folder)]
    _tell([row["path"] for batch in written for row in batch.to_pylist()], folder)


def _tell(paths: list[str], folder: str) -> None:
    paths = [path for path in paths if path.startswith("messages/")]
    messages = sum(pq.ParquetFile(f"{folder}/{path}").metadata.num_rows for path in paths)
    print(messages, _peak())


if __name__ == "__main__":
    main(*sys.argv[1:])
