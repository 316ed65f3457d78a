"""Rows are the same, all of each, with and without the native core, and the core does as its specification says."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.zmtp import usual
from tests.spark.local_job import task_rows
from tests.spark.spark_tables import cut
from tests.support.both_cores import BothCores
from tests.support.examples import crossed, examples
from tests.support.paths import FIXTURES
from tests.world.busy_network import world
from tests.world.conversation import Conversation, Piece, greetings
from tests.world.network import packets, segments
from tests.world.octets import message
from tests.world.tap import save_pcapng
from zmtpsniff.analysis.patterns import batch_parts
from zmtpsniff.engine import settled
from zmtpsniff.native import core
from zmtpsniff.spark import inputs, message_rows, shard
from zmtpsniff.spark.open_states import STATES
from zmtpsniff.spark.writer import DISORDER_NS

CAPTURES = sorted(FIXTURES.glob("*.pcap*"))


def with_both(monkeypatch: pytest.MonkeyPatch) -> BothCores:
    """Have each call of the core run its specification, too, for each packet that it may take."""
    both = BothCores()
    for module in (shard, batch_parts):
        monkeypatch.setattr(module, "core", both)
    monkeypatch.setattr(message_rows, "functions", both)
    monkeypatch.setattr(settled, "LONGEST_RUN", 1)
    monkeypatch.setattr(settled, "LEAST", 0)
    monkeypatch.setattr(shard, "_TOGETHER", 1)
    monkeypatch.setattr(usual, "MOST_PIECES", 6)  # greetings and READYs
    return both


@pytest.fixture(name="both")
def _both(monkeypatch: pytest.MonkeyPatch) -> BothCores:
    return with_both(monkeypatch)


def rows(files: Sequence[Path], shards: int = 1, **options: Any) -> Counter[str]:
    """The rows of some files, as one series."""
    return Counter(
        f"{table} {provisional} {row}"
        for table, batch, provisional in task_rows(files, shards, **options)
        if table != STATES
        for row in batch.to_pylist()
    )


@pytest.mark.parametrize(
    "captures", [CAPTURES[::4], pytest.param(CAPTURES, marks=pytest.mark.slow)], ids=["some", "all"]
)
@pytest.mark.parametrize("octets", [256 << 10, 700])
def test_fixtures_have_the_same_rows_in_pieces_of_any_size(
    both: BothCores, octets: int, captures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_CHUNK", octets)
    found = [rows([path], max_bytes=9) for path in captures]
    assert both.packets > 10 * len(captures)
    assert both.messages > 5 * len(captures)
    monkeypatch.setattr(shard, "core", None)
    for path, mine in zip(captures, found, strict=True):
        assert mine == rows([path], max_bytes=9), path


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> list[Path]:
    """Two conversations at the same time, in files that are to be merged, in parts that follow each other."""
    files = []
    for number, port in enumerate((40_001, 40_002)):
        pieces = greetings(3, b"PUSH", b"PULL")
        pieces += [Piece(0, message(3, b"%d" % place, bytes(place % 700))) for place in range(400)]
        sent = segments(Conversation("pushes", tuple(pieces)))
        captured = packets(sent, (1, 2), (port, 5555 + number), 10**18 + 333 * number, 10**5)
        whole = save_pcapng(tmp_path / f"{number}.pcapng", captured)
        files += cut(whole, [len(captured) // 3, len(captured) // 2], tmp_path / str(number))
    return files


@pytest.mark.parametrize(
    ("options", "files_of"),
    crossed(
        [{"shards": 1}, {"shards": 3}, {"ports": ((5556, 5560),)}, {"bodies": False}, {"max_bytes": 0}],
        [slice(0, 3), slice(None)],
    ),
)
def test_files_have_the_same_rows_in_shards_of_any_number(
    files: list[Path], files_of: slice, options: dict[str, Any], both: BothCores, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rows(files[files_of], **options)
    assert both.messages > 100 or files_of.stop is None or "ports" in options  # packets of two in turns are objects
    monkeypatch.setattr(shard, "core", None)
    assert found == rows(files[files_of], **options)
    assert sum("messages" in row.split(" ", 1)[0] for row in found) in (0, 400, 800)


@pytest.mark.parametrize("step_ns", [10**5, 2 * 10**7], ids=["busy", "quiet"])
def test_rows_are_out_of_order_by_less_than_what_is_sorted(
    tmp_path: Path, step_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a short connection stands between messages in columns. Of a block that lasts longer they are in order."""
    monkeypatch.setattr(inputs, "_CHUNK", 8000)
    pushes = [Piece(0, message(3, b"%d" % place)) for place in range(400)]
    asks = [Piece(place % 2, message(3, b"", b"%d" % place)) for place in range(2)]
    given = []
    for number, pieces in enumerate(
        ([*greetings(3, b"PUSH", b"PULL"), *pushes], [*greetings(3, b"REQ", b"REP"), *asks])
    ):
        sent = segments(Conversation("one of two", tuple(pieces)))
        given += packets(sent, (1, 2), (40_000, 5555 + number), 10**18 + number * 300 * step_ns, step_ns)
    path = save_pcapng(tmp_path / "two.pcapng", sorted(given))
    times = [
        time_ns
        for table, batch, _ in task_rows([path])
        if table == "messages"
        for time_ns in batch.column("time_ns").to_pylist()
    ]
    assert len(times) == 402
    back_ns = max(before - after for before, after in pairwise(times))
    assert back_ns < DISORDER_NS
    assert (back_ns > 0) == (step_ns == 10**5 and core is not None)


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 1 << 32), octets=st.sampled_from([500, 5000, 256 << 10]), shards=st.sampled_from([1, 3]))
def test_any_conversation_has_the_same_rows(seed: int, octets: int, shards: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch, TemporaryDirectory() as folder:
        path = save_pcapng(Path(folder, "one.pcapng"), world(random.Random(seed)))
        with_both(monkeypatch)
        monkeypatch.setattr(inputs, "_CHUNK", octets)
        found = rows([path], shards)
        monkeypatch.setattr(shard, "core", None)
        assert found == rows([path], shards)
