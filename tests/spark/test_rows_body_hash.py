"""The hash of a body that a row has only the beginning of, beside what hashlib says of the octets on the wire."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import Any

import polars
import pytest

from dissectors.events import Message
from dissectors.zmtp.limits import Limits
from tests.spark.local_job import take, task_rows
from tests.spark.spark_tables import cut, database_of
from tests.support.curve_octets import Curve
from tests.support.examples import sampled
from tests.support.paths import CAPTURES, FIXTURES, PROJECT
from tests.support.shown_commands import blocks
from tests.world.conversation import Conversation, Piece, greetings
from tests.world.network import SentSegment, packets, resegment, segments
from tests.world.octets import message
from tests.world.tap import load, save_pcapng
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.spark import inputs

LONG = bytes(range(256)) * 800  # more than a dissector keeps
MESSAGES = [[LONG], [b"topic", LONG[1:]], [LONG, b"end"], [LONG[:-1], LONG], [LONG[:1000]], [b"short"], [LONG[:65_536]]]


def rows(files: Sequence[Path], shards: int = 1, **options: Any) -> list[dict[str, Any]]:
    """The rows of messages of some files, as one series."""
    batches = task_rows(files, shards, **options)
    found = [row for table, batch, _ in batches if table == "messages" for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["time_ns"], row["file"], row["packet"], row["src"], row["part"]))


def hashes(files: Sequence[Path], **how: Any) -> list[bytes | None]:
    return [row["body_hash"] for row in rows(files, **how)]


def hash_of(body: bytes) -> bytes:
    return sha256(body).digest()[:16]


@pytest.mark.parametrize(
    "path", sampled([*sorted(FIXTURES.glob("*.pcap*")), *sorted(CAPTURES.glob("*.pcap*"))]), ids=lambda path: path.name
)
def test_it_is_what_hashlib_says_of_recorded_bodies(path: Path) -> None:
    """Also of those in boxes that a key in the capture opens."""
    most = 9
    found = {(row["packet"], row["src"], row["part"]): row["body_hash"] for row in rows([path], max_bytes=most)}
    whole = [event for event in open_files([path], Settings(limits=Limits(0))) if isinstance(event, Message)]
    assert found.keys() == {(event.packet, event.src, event.part) for event in whole}
    for event in whole:
        body = event.frames[-1]
        wanted = hash_of(body) if isinstance(body, bytes) and len(body) > most and not event.incomplete else None
        assert found[event.packet, event.src, event.part] == wanted


def talk(version: int) -> list[SentSegment]:
    """One program sends long messages to another one."""
    pieces = greetings(version, b"PUSH", b"PULL")
    pieces += [Piece(0, message(version, *frames)) for frames in MESSAGES]
    sizes = cycle((1448, 60_000, 1, 5000))
    return resegment(segments(Conversation("long", tuple(pieces))), lambda: next(sizes))


def saved(path: Path, sent: Sequence[SentSegment]) -> Path:
    return save_pcapng(path, packets(sent))


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("most", [256, 70_000])
def test_a_body_that_nothing_keeps_has_it(
    tmp_path: Path, version: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "long.pcapng", talk(version))
    wanted = [hash_of(frames[-1]) if len(frames[-1]) > most else None for frames in MESSAGES]
    assert hashes([path], max_bytes=most) == wanted
    assert hashes([path], max_bytes=most, shards=3) == wanted
    assert hashes(cut(path, [5, 20, 40], tmp_path / "cut"), max_bytes=most) == wanted
    monkeypatch.setattr(inputs, "_CHUNK", 1000)
    assert hashes([path], max_bytes=most) == wanted


@pytest.mark.parametrize("options", [{"max_bytes": 0}, {"bodies": False}])
def test_there_is_none_where_rows_have_all_or_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    assert hashes([saved(tmp_path / "long.pcapng", talk(3))], **options) == [None] * len(MESSAGES)


def test_a_hole_in_a_body_leaves_it_out(tmp_path: Path) -> None:
    sent = talk(3)
    begin = sum(len(piece.data) for piece in greetings(3, b"PUSH", b"PULL") if piece.side == 0)
    lost = next(one for one in sent if one.side == 0 and one.offset > begin + 1000 and len(one.payload) > 100)
    found = hashes([saved(tmp_path / "hole.pcapng", [one for one in sent if one is not lost])])
    assert found == [None, *(hash_of(frames[-1]) if len(frames[-1]) > 256 else None for frames in MESSAGES[1:])]


def test_a_long_body_in_a_box_has_none(tmp_path: Path) -> None:
    curve = Curve()
    sent = [*curve.handshake(), *curve.multipart(0, LONG), *curve.multipart(0, LONG[:1000])]
    path = saved(tmp_path / "curve.pcapng", segments(Conversation("curve", tuple(Piece(*one) for one in sent))))
    assert hashes([path], curve_keys=tuple(curve.ways()["k"])) == [None, hash_of(LONG[:1000])]


def test_the_same_body_is_found_at_two_hosts(tmp_path: Path) -> None:
    """The capture of two brokers, as each of their hosts would have it."""
    bodies: dict[bytes, list[tuple[Path, int]]] = defaultdict(list)
    most = 20
    for host in (b"\x0a\x09\0\x0c", b"\x0a\x09\0\x0e"):
        path = tmp_path / host.hex() / "capture.pcapng"
        path.parent.mkdir()
        seen = [packet for packet in load(FIXTURES / "systems" / "far_worker.pcap.gz") if host in packet[2][:40]]
        save_pcapng(path, seen)
        for event in open_files([path], Settings()):
            if isinstance(event, Message) and len(event.octets(-1)) > most:
                bodies[event.octets(-1)].append((path, event.time_ns))
    times = [sorted(ns for _, ns in some) for some in bodies.values() if len({path for path, _ in some}) > 1]
    wanted = sorted((len(some), some[-1] - some[0]) for some in times)
    assert len(wanted) > 50
    take([tmp_path], tmp_path / "tables", max_bytes=most)
    (question,) = (
        block.text
        for block in blocks(PROJECT / "docs" / "spark-report.md")
        if "test_rows_body_hash" in str(block.mark("run by"))
    )
    found = database_of(tmp_path / "tables").execute(question).fetchall()
    assert sorted((messages, under_way_ns) for _, messages, under_way_ns in found) == wanted
    context = polars.SQLContext(messages=polars.scan_delta(str(tmp_path / "tables" / "messages")))
    assert sorted(context.execute(question).collect().rows()) == sorted(
        (time.replace(tzinfo=UTC), *rest) for time, *rest in found
    )
