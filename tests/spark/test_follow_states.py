"""What is open between micro-batches: kept in a state store, which may be lost or left behind, and never wrong."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from tests.support.paths import FIXTURES

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

import pyarrow.parquet as pq

from tests.spark import adversary
from tests.spark.local_job import Memory, Session
from tests.spark.spark_tables import by_series, cut, expected, later, packets, read_tables
from zmtpsniff.capture.pcapng_writer import PcapngSection, Provenance
from zmtpsniff.capture.source import Packet
from zmtpsniff.spark import committing, shards, states, whole
from zmtpsniff.spark.committing import Ingested, commit_batch
from zmtpsniff.spark.ingest import add
from zmtpsniff.spark.listing import Listed, list_files, series_of
from zmtpsniff.spark.open_states import OpenStates
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.quiet import tell_quiet
from zmtpsniff.spark.shards import Shards
from zmtpsniff.spark.store import Folder
from zmtpsniff.spark.taking import Note, Position, Taken, Task

SECOND_NS = 1_000_000_000
IDLE_NS = round(Options().idle_seconds * 1e9)
SECTION = PcapngSection(Provenance("zmtpsniff test"))


class Query:
    """A query that follows, without Spark."""

    def __init__(self, output: Path, options: Options | None = None) -> None:
        self.output = output
        self.options = (options or Options())._replace(tells_open=False)
        self.name = "query"
        self.numbers = count()
        self.memories: dict[str, Memory] = {}

    def take(self, *files: Path, number: int | None = None, dies: bool = False) -> Ingested:
        return self.take_listed(
            list_files(list(map(str, files))), next(self.numbers) if number is None else number, dies
        )

    def take_listed(self, listed: list[Listed], number: int, dies: bool = False) -> Ingested:
        def dissect(position: Position) -> Iterator[Taken]:
            task = Task(self.options, position)
            found: dict[str, list[Listed]] = {}
            for file in listed:
                found.setdefault(series_of(file.path, "folder"), []).append(file)
            for name, mine in found.items():
                yield from task.take(name, mine, self.memories.setdefault(name, Memory()))
            task.close()
            if dies:
                raise InterruptedError

        return commit_batch(str(self.output), self.name, number, dissect)


def rows(output: Path, folder: Path) -> Counter[str]:
    return by_series(read_tables(output))[str(folder)]


def pieces_of(name: str, parts: int, folder: Path) -> list[Path]:
    size = len(packets(FIXTURES / name))
    return cut(FIXTURES / name, [size * part // parts for part in range(1, parts)], folder)


def many_connections(folder: Path, count: int, more: int) -> tuple[Path, Path]:
    """A file in which many connections begin, and one that has a message of some of them."""
    found = packets(FIXTURES / "m31_push_pull.pcap")
    folder.mkdir()

    def of(client: int, at: int, after_ns: int) -> Packet:
        time_ns, link, octets, size, comment = found[at]
        changed = bytearray(octets)
        address = slice(26, 30) if octets[34:36] != b"\x4e\xe9" else slice(30, 34)  # of the end whose port is not 20201
        changed[address] = bytes((10, 0)) + client.to_bytes(2, "big")
        return time_ns + after_ns, link, bytes(changed), size, comment

    begun = [of(client, at, client * SECOND_NS // 100) for client in range(count) for at in range(14)]
    goes_on = [of(client, 14, 100 * SECOND_NS) for client in range(more)]
    for name, some in (("0.pcapng", begun), ("1.pcapng", goes_on)):
        (folder / name).write_bytes(SECTION.header([]) + SECTION.packets(some))
    return folder / "0.pcapng", folder / "1.pcapng"


MANY_CONNECTIONS = {
    "app_jupyter.pcap",
    "app_majordomo_mdp01.pcap",
    "app_majordomo_mdp02.pcap",
    "app_malamute.pcap",
    "app_zre.pcap",
    "rec_proxy.pcap",
    "rec_proxy_ok.pcap",
}


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group in memory at a time, and a shard."""
    monkeypatch.setattr(whole, "_MOST_GROUPS", 1)
    monkeypatch.setattr(shards, "_MOST_OCTETS", 1)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "capture",
    [
        pytest.param(path.name, marks=[pytest.mark.slow] if path.name in MANY_CONNECTIONS else [])
        for path in sorted(FIXTURES.glob("*.pcap*"))
    ],
)
def test_file_by_file(tmp_path: Path, capture: str) -> None:
    """Each in a micro-batch of its own, with as little in memory as there can be."""
    files = pieces_of(capture, 5, tmp_path / "in")
    query = Query(tmp_path / "out")
    for file in files:
        assert query.take(file).files == 1
    assert_all_told(query, files)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("seed", range(24))
def test_what_is_made_to_mislead_file_by_file(tmp_path: Path, seed: int) -> None:
    given = adversary.capture(seed)
    if len(given) < 2:
        return
    (tmp_path / "whole.pcapng").write_bytes(SECTION.header([]) + SECTION.packets(given))
    files = cut(tmp_path / "whole.pcapng", adversary.places(seed, len(given)), tmp_path / "in")
    query = Query(tmp_path / "out")
    for file in files:
        query.take(file)
    assert_all_told(query, files)


def assert_all_told(query: Query, files: Sequence[Path], **options: Any) -> None:
    """The tables say what `read` says; of what is open once no file comes any more."""
    found = read_tables(query.output)
    assert len(found["captures"]) == len({*files})
    tell_quiet(str(query.output), query.options, max(file.stat().st_mtime_ns for file in files) + IDLE_NS + 1)
    assert rows(query.output, files[0].parent) == expected(files, **options)


def test_several_files_of_several_series(tmp_path: Path) -> None:
    one, two = (pieces_of("app_malamute.pcap", 6, tmp_path / name) for name in ("one", "two"))
    query = Query(tmp_path / "out")
    query.take(one[0], one[1], two[0])
    query.take(two[1])
    query.take(*two[2:], *one[2:])
    assert rows(query.output, tmp_path / "one") == expected(one)
    assert rows(query.output, tmp_path / "two") == expected(two)
    # One file for each table and day of a task, not one for each series.
    assert len(list(query.output.glob("messages/*/*.parquet"))) <= 3


def test_late_and_again(tmp_path: Path) -> None:
    files = pieces_of("app_malamute.pcap", 5, tmp_path / "in")
    query = Query(tmp_path / "out")
    query.take(files[0], files[1], files[3])
    assert query.take(files[1], files[3]) == Ingested(0, 2, 0)
    assert query.take(files[2], files[0]).files == 1
    query.take(files[4])
    assert_all_told(query, files)


def test_late_file_whose_predecessors_are_gone(tmp_path: Path) -> None:
    """Its rows come, and those that were there stay, as do the states."""
    files = pieces_of("app_malamute.pcap", 5, tmp_path / "in")
    # What waits for the octets of the late file is told once others show that they will not come.
    apart_ns = packets(files[4])[-1][0] - packets(FIXTURES / "m31_ipv6.pcap")[0][0]
    files.append(later(FIXTURES / "m31_ipv6.pcap", apart_ns + 2 * IDLE_NS, tmp_path / "in" / "999.pcapng"))
    on_time = [files[at] for at in (0, 2, 3, 4, 5)]
    wanted = expected(on_time)
    query = Query(tmp_path / "out")
    query.take(files[0])
    query.take(files[2])
    files[0].unlink()
    assert query.take(files[1], files[3]).files == 2
    query.take(files[4])
    query.take(files[5])
    found = rows(query.output, tmp_path / "in")
    assert found == wanted + expected([files[1]])
    assert len(read_tables(query.output)["captures"]) == len(files)


def test_states_of_datagrams_cannot_be_kept(tmp_path: Path) -> None:
    """All of their series is dissected anew with each file, as long as all of it is there."""
    files = pieces_of("epgm_pub_sub.pcap", 4, tmp_path / "in")
    query = Query(tmp_path / "out")
    for at, file in enumerate(files, 1):
        query.take(file)
        assert rows(query.output, tmp_path / "in") == expected(files[:at])
        assert all(row["provisional"] for row in read_tables(query.output)["connections"])


def test_one_is_over_because_others_go_on(tmp_path: Path) -> None:
    """Of a connection that nothing comes of any more there is a row as soon as the packets of others say so."""
    begun = cut(FIXTURES / "m31_push_pull.pcap", [25], tmp_path / "in")[0]
    other = tmp_path / "in" / "999.pcapng"
    apart_ns = packets(begun)[-1][0] - packets(FIXTURES / "m31_ipv6.pcap")[0][0]
    later(FIXTURES / "m31_ipv6.pcap", apart_ns + 2 * IDLE_NS, other)
    query = Query(tmp_path / "out")
    query.take(begun)
    assert not read_tables(query.output)["connections"]
    query.take(other)
    assert rows(query.output, tmp_path / "in") == expected([begun, other])
    assert {row["end"] for row in read_tables(query.output)["connections"]} == {"timeout", "fin"}
    (memory,) = query.memories.values()
    assert len(memory.shards.entries) == 1  # late segments of the other one are of it


def test_states_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not used: their series is dissected anew."""
    files = pieces_of("m31_push_pull.pcap", 4, tmp_path / "in")
    query = Query(tmp_path / "out")
    query.take(files[0], files[1])
    for module in (whole, committing):
        monkeypatch.setattr(module, "__version__", "later")
    monkeypatch.setattr(states, "decode", None)
    query.take(files[2])
    add(Session(), list_files([str(files[3])]), str(query.output))  # type: ignore[arg-type]
    assert rows(query.output, tmp_path / "in") == expected(files)


@pytest.mark.parametrize("seed", range(12))
def test_store_and_tables_part(tmp_path: Path, seed: int) -> None:
    """Whatever is lost or repeated, and whoever else adds files, the tables are right."""
    random = Random(seed)
    capture = random.choice(["app_malamute.pcap", "m31_push_pull.pcap", "epgm_pub_sub.pcap"])
    files = pieces_of(capture, 8, tmp_path / "in")
    wanted = expected(files)
    query = Query(tmp_path / "out")
    gone = False
    for number, file in enumerate(files):
        before = deepcopy(query.memories)
        happens = random.choice(["well", "well", "repeated", "died", "lost", "another", "replaced"])
        if happens == "died":  # before it was committed
            with pytest.raises(InterruptedError):
                query.take(file, number=number, dies=True)
            query.memories = before
        elif happens == "lost":  # the checkpoint, so that all files come again
            query.memories = {}
            query.name = f"query {number}"
        elif happens == "another":
            add(Session(), list_files([str(file)]), str(query.output))  # type: ignore[arg-type]
        if happens == "lost" and not gone:
            query.take(*files[: number + 1], number=number)
        else:
            query.take(file, number=number)
        if happens == "repeated":  # committed, but Spark does not know
            query.memories = before
            if capture != "epgm_pub_sub.pcap" and random.random() < 0.5:
                gone = True
                file.unlink()
                file.with_name("_gone").touch()
                query.take_listed([Listed(str(file), 1, 1)], number)
            else:
                query.take(file, number=number)
    tell_quiet(str(query.output), query.options, time.time_ns() + IDLE_NS)
    assert rows(query.output, tmp_path / "in") == wanted
    assert len(read_tables(query.output)["captures"]) == len(files)


def test_log_of_states_stays_short(tmp_path: Path) -> None:
    """And says what the store says."""
    capture = FIXTURES / "app_malamute.pcap"
    files = cut(capture, range(1, len(packets(capture)), 3), tmp_path / "in")
    query = Query(tmp_path / "out")
    most = 0
    for file in files:
        query.take(file)
        log = OpenStates(Folder(str(query.output)))
        most = max(most, len(log.files))
        (memory,) = query.memories.values()
        kept = Shards(memory.shards, msgspec.msgpack.decode(memory.note or b"", type=Note).over_ns)
        assert log.of(str(tmp_path / "in")) == {
            name: octets for number in memory.shards.entries for name, (_, octets) in kept.shard(number).items()
        }
    assert len(files) > 30
    assert most < 20
    assert_all_told(query, files)


def test_only_what_changes_is_read_and_written(tmp_path: Path) -> None:
    """Of the connections that are open."""
    many = 200
    begun, more = many_connections(tmp_path / "in", many, 3)
    query = Query(tmp_path / "out")
    query.take(begun)
    (memory,) = query.memories.values()
    entries = memory.shards
    assert many / 2 < len(entries.entries) <= many
    entries.read = entries.written = 0
    query.take(more)
    assert 0 < entries.read <= 3
    assert 0 < entries.written <= 3
    log = OpenStates(Folder(str(query.output)))
    assert pq.read_metadata(query.output / log.files[-1]).num_rows == 3
    assert len(log.of(str(tmp_path / "in"))) == many


def test_what_never_ends_is_left_alone(tmp_path: Path) -> None:
    """Spark lists it as it lists files."""
    (file,) = cut(FIXTURES / "m31_push_pull.pcap", [], tmp_path / "in")
    pipe = tmp_path / "in" / "pipe.pcap"
    os.mkfifo(pipe)
    query = Query(tmp_path / "out")
    listed = [*list_files([str(file)]), Listed(str(pipe), 0, 0)]
    assert query.take_listed(listed, 0)[:2] == (1, 0)
    assert query.take_listed(listed, 1)[:2] == (0, 1)
    assert rows(tmp_path / "out", tmp_path / "in") == expected([file])
