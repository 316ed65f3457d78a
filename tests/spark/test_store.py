"""The folder of the tables: runs that add, are killed, or write at the same time; what others read meanwhile."""

import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow.fs import FileSelector

from tests.spark.local_job import take
from tests.spark.s3_server import new_bucket
from tests.spark.spark_tables import assert_equals_read, by_series, cut, expected, later, read_tables
from tests.support.examples import sampled
from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.world.tap import load, save_pcapng
from zmtpsniff.capture.locations import LocationError, file_system
from zmtpsniff.spark import job, maintenance, store, tables, writer
from zmtpsniff.spark.maintenance import optimize
from zmtpsniff.spark.open_states import STATES
from zmtpsniff.spark.report.snapshot import open_snapshot
from zmtpsniff.spark.row_columns import SCHEMAS
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.store import ConflictError, Store

NAMES = ("m31_pub_sub.pcap", "m31_heartbeat.pcap", "rec_proxy.pcap", "sec_curve_ps_435_435.pcap", "epgm_pub_sub.pcap")


def series(folder: Path, count: int, names: tuple[str, ...] = NAMES) -> dict[str, list[Path]]:
    """Captures cut into so many files: a folder each."""
    places = random.Random(7)
    found = {}
    for name in names:
        total = len(load(FIXTURES / name))
        found[str(folder / name)] = cut(FIXTURES / name, places.sample(range(1, total), count - 1), folder / name)
    return found


def assert_equal(output: Path | str, wanted: dict[str, list[Path]]) -> None:
    found_tables = read_tables(output)
    found = by_series(found_tables)
    assert found.keys() == wanted.keys()
    for name, files in wanted.items():
        assert found[name] == expected(files), name
    for rows in found_tables.values():
        for row in rows:
            time_ns = row.get("start_ns") or row.get("time_ns") or row.get("first_ns")
            assert time_ns is None or row["date"] == datetime.fromtimestamp(time_ns // 10**9, UTC).date()


def content(folder: Path) -> Counter[str]:
    return Counter(str(sorted(row.items(), key=str)) for rows in read_tables(folder).values() for row in rows)


def test_rows_of_what_is_open_are_provisional(tmp_path: Path) -> None:
    wanted = series(tmp_path / "in", 2)
    files = wanted[str(tmp_path / "in" / "m31_pub_sub.pcap")]
    take(files[:1], tmp_path / "out")
    first = read_tables(tmp_path / "out")["connections"]
    assert [(row["end"], row["provisional"]) for row in first] == [("open", True)] * len(first) != []
    take(files, tmp_path / "out")
    last = read_tables(tmp_path / "out")["connections"]
    assert {row["conn_id"] for row in first} <= {row["conn_id"] for row in last}
    assert [row["provisional"] for row in last if row["end"] != "open"] == [False] * len(last)


def test_packets_out_of_order_where_files_change_are_no_reason_to_begin_again(tmp_path: Path) -> None:
    """As several queues of a network card write them; the files before are not read, since they are gone."""
    given = load(FIXTURES / "m31_push_pull.pcap")
    whole = comparable_messages(expected([FIXTURES / "m31_push_pull.pcap"]))
    assert len(whole) > 10
    for place in range(2, len(given) - 1, 19):
        folder = tmp_path / str(place)
        folder.mkdir()
        halves = [*given[: place - 1], given[place]], [given[place - 1], *given[place + 1 :]]
        assert halves[1][0][0] < halves[0][-1][0], "the second file begins before the first ends"
        for number, half in enumerate(halves):
            file = save_pcapng(folder / f"{number}.pcapng", half)
            take([file], tmp_path / "out")
            file.unlink()
    for found in by_series(read_tables(tmp_path / "out")).values():
        assert comparable_messages(found) == whole


def comparable_messages(records: Counter[str]) -> Counter[str]:
    """The messages of each sender, without the time: which packet completes a message depends on their order."""
    import json

    messages = [json.loads(record) for record in records.elements() if '"type": "message"' in record]
    return Counter(json.dumps([message["src"], message["frames"]]) for message in messages)


def test_a_file_that_has_grown_replaces_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "in" / "growing.pcap"
    path.parent.mkdir()
    whole = (FIXTURES / "m31_pub_sub.pcap").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    take([path], tmp_path / "out")
    path.write_bytes(whole)
    assert take([path], tmp_path / "out").files == 1
    assert_equal(tmp_path / "out", {str(path.parent): [path]})
    assert len(read_tables(tmp_path / "out")["captures"]) == 1


# ---------------------------------------------------------------------- killed, and at the same time


class KilledError(Exception):
    pass


def dies_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Have nothing happen any more after so many changes of tables."""
    change = DeltaTable.create_write_transaction
    left = iter(range(steps))

    def die(*arguments: Any, **options: Any) -> None:
        if next(left, None) is None:
            raise KilledError
        change(*arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", die)


@pytest.mark.parametrize("steps", sampled(range(7)))
def test_killed_at_any_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """The next run does the rest, or everything; no row is there twice."""
    wanted = series(tmp_path / "in", 2, ("m31_pub_sub.pcap", "rec_plain_wrong_password.pcap", "epgm_pub_sub.pcap"))
    take([files[0] for files in wanted.values()], tmp_path / "out")
    dies_after(monkeypatch, steps)
    with pytest.raises(KilledError):
        take([tmp_path / "in"], tmp_path / "out")
    monkeypatch.undo()
    assert take([tmp_path / "in"], tmp_path / "out").files == (0 if steps else 3)
    assert_equal(tmp_path / "out", wanted)


def test_tasks_that_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an executor is killed, or Spark tries a slow task elsewhere, too: what one of them wrote is there."""
    wanted = series(tmp_path / "in", 2, NAMES[:2])
    run = job.run

    def twice(*arguments: Any) -> Any:
        run(*arguments)
        return run(*arguments)

    monkeypatch.setattr(job, "run", twice)
    for place in range(2):
        take([files[place] for files in wanted.values()], tmp_path / "out")
    assert_equal(tmp_path / "out", wanted)


def test_a_step_is_done_once_whoever_does_it(tmp_path: Path) -> None:
    wanted = series(tmp_path / "in", 2, NAMES[:2])
    take([files[0] for files in wanted.values()], tmp_path / "out")
    take([tmp_path / "in"], tmp_path / "out")
    found = Store(str(tmp_path / "out"))
    before = content(tmp_path / "out")
    versions = [found.opened(table).version() for table in tables.TABLES]
    found.open()
    assert [found.opened(table).version() for table in tables.TABLES] == versions
    assert content(tmp_path / "out") == before


def at_once(*runs: Callable[[], Any]) -> list[Any]:
    """The results or errors of runs in threads."""
    found: list[Any] = [None] * len(runs)

    def work(at: int) -> None:
        try:
            found[at] = runs[at]()
        except Exception as error:
            found[at] = error

    threads = [Thread(target=work, args=(at,)) for at in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def write_at_once(folder: Path, output: str) -> None:
    wanted = series(folder / "in", 3, NAMES[:3])

    def run(files: list[Path]) -> int:
        return sum(take([file], output).files for file in files)

    names = sorted(wanted)
    done = at_once(*(partial(run, wanted[name]) for name in names))
    assert done == [3] * len(names)
    assert_equal(output, wanted)


@pytest.mark.slow
def test_runs_on_different_series_at_once(tmp_path: Path) -> None:
    """All succeed, and nothing is lost."""
    write_at_once(tmp_path, str(tmp_path / "out"))


def test_runs_on_the_same_series_at_once(tmp_path: Path) -> None:
    """Both succeed; what one has added is known to the other."""
    wanted = series(tmp_path / "in", 4, NAMES[:2])
    done = at_once(*([lambda: take([tmp_path / "in"], tmp_path / "out")] * 2))
    assert sorted(one.files for one in done) == [0, 8]
    assert_equal(tmp_path / "out", wanted)


def test_another_run_makes_the_tables_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow finds no folder of a table, looks whether there really is none, and there is one."""

    class HastyFileSystem:
        """A file system whose folders come while they are listed."""

        def __init__(self, system: Any) -> None:
            self._system = system

        def get_file_info(self, wanted: Any) -> Any:
            if isinstance(wanted, FileSelector):
                raise FileNotFoundError(wanted.base_dir)
            return self._system.get_file_info(wanted)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._system, name)

    def hurried(location: str) -> tuple[Any, str]:
        system, root = file_system(location)
        return HastyFileSystem(system), root

    monkeypatch.setattr(store, "file_system", hurried)
    Store(str(tmp_path / "out")).open()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*tables.TABLES, STATES}


def test_another_run_was_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files of the same series, before this one commits: it dissects its own from there on."""
    wanted = series(tmp_path / "in", 3, NAMES[:1])
    (files,) = wanted.values()
    commit = Store.commit
    others = iter([files[0], files[1]])

    def late(*arguments: Any) -> None:
        other = next(others, None)
        if other is not None:
            monkeypatch.setattr(Store, "commit", commit)
            take([other], tmp_path / "out")
            monkeypatch.setattr(Store, "commit", late)
        commit(*arguments)

    monkeypatch.setattr(Store, "commit", late)
    assert take(files[2:], tmp_path / "out").files == 1
    assert_equal(tmp_path / "out", wanted)


def test_too_many_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> None:
        raise ConflictError

    monkeypatch.setattr(Store, "commit", never)
    with pytest.raises(SparkError, match="other runs add files of the same series all the time: run this again"):
        take([FIXTURES / NAMES[0]], tmp_path / "out")


def readers(folder: str) -> dict[str, Callable[[], int]]:
    """How many messages several programs find."""
    import duckdb
    import polars

    def duck() -> int:
        with duckdb.connect() as own:  # the one that all share has views of the tables of other tests
            own.register("messages", DeltaTable(folder).to_pyarrow_dataset())
            return int(own.execute("SELECT count(*) FROM messages").fetchall()[0][0])

    return {
        "deltalake": lambda: DeltaTable(folder).to_pyarrow_table(columns=["series"]).num_rows,
        "pandas": lambda: len(DeltaTable(folder).to_pandas(columns=["series"])),
        "polars": lambda: int(polars.scan_delta(folder).select(polars.len()).collect().item()),
        "duckdb": duck,
    }


def test_readers_see_whole_runs_only(tmp_path: Path) -> None:
    """While a series is dissected anew, again and again."""
    path = tmp_path / "in" / "one.pcap"
    path.parent.mkdir()
    whole = (FIXTURES / "app_malamute.pcap").read_bytes()
    path.write_bytes(whole)
    take([path], tmp_path / "out", max_bytes=10)
    folder = str(tmp_path / "out" / "messages")
    found = readers(folder)
    counts = {name: {read()} for name, read in found.items()}
    assert all(one == {counts["deltalake"].copy().pop()} for one in counts.values())
    done = Event()

    def poll() -> None:
        while not done.is_set():
            for name, read in found.items():
                counts[name].add(read())

    def again() -> None:
        for times in range(1, 4):
            path.write_bytes(whole)
            stamp = time.time_ns() + times * 10**9
            import os

            os.utime(path, ns=(stamp, stamp))
            assert take([path], tmp_path / "out", max_bytes=10).files == 1
        done.set()

    assert at_once(poll, again) == [None, None]
    assert all(len(one) == 1 for one in counts.values()), counts
    assert DeltaTable(folder).version() >= 4


# ---------------------------------------------------------------------- later versions


@pytest.mark.parametrize(
    ("table", "column", "capture"),
    [("messages", "socket_type", "m31_pub_sub.pcap"), ("findings", "problem", "bad_http_on_zmq_port.pcap")],
)
def test_a_later_version_has_more_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, column: str, capture: str
) -> None:
    files = [later(FIXTURES / capture, by_ns, tmp_path / f"{by_ns}.pcapng") for by_ns in (0, 10**12)]
    columns = tables.TABLES[table]
    monkeypatch.setitem(tables.TABLES, table, tuple(one for one in columns if one.name != column))
    monkeypatch.setitem(SCHEMAS, table, tables.arrow_schema(table))
    output = tmp_path / "out"
    take(files[:1], output, series="file")
    assert column not in DeltaTable(str(output / table)).to_pyarrow_table().column_names
    monkeypatch.undo()
    with open_snapshot(str(output)) as snapshot:  # who only reads changes nothing
        assert {row[column] for row in snapshot.rows(f"SELECT {column} FROM {table}")} == {None}
    take(files, output, series="file")
    for _ in range(2):
        found = read_tables(output)[table]
        assert {(row["series"] == str(files[0]), row[column] is None) for row in found} >= {
            (True, True),
            (False, False),
        }
        assert not [row for row in found if row["series"] == str(files[0]) and row[column] is not None]
        optimize(str(output))


def test_a_column_that_has_another_type_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(one._replace(sql="BIGINT") if one.name == "peers" else one for one in tables.TABLES["findings"])
    monkeypatch.setitem(tables.TABLES, "findings", others)
    Store(str(tmp_path)).open()
    monkeypatch.undo()
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    said = (
        "/findings: another version of zmtpsniff wrote this table, where peers has another type; choose another folder"
    )
    with pytest.raises(SparkError, match=f"{said}$"):
        take([FIXTURES / "m31_pub_sub.pcap"], tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


# ---------------------------------------------------------------------- tables and files of others


def octets_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def table_of_others(folder: Path, description: str | None = None) -> None:
    write_deltalake(str(folder / "messages"), pa.table({"text": ["not ours"]}), description=description)


def files_of_others(folder: Path) -> None:
    target = folder / "messages" / "date=2026-11-01"
    target.mkdir(parents=True)
    pq.write_table(pa.table({"text": ["not ours"]}), target / "part-0.parquet")


def table_of_another_format(folder: Path) -> None:
    table_of_others(folder, f"{store.MARK}999")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (table_of_others, "is a table that zmtpsniff did not write; choose another folder"),
        (files_of_others, "has files that zmtpsniff did not write; choose another folder"),
        (table_of_another_format, "another version of zmtpsniff wrote this table; choose another folder"),
    ],
)
@pytest.mark.parametrize("name", ["messages", STATES])
def test_what_is_of_others_stays_as_it_is(tmp_path: Path, name: str, make: Callable[[Path], None], said: str) -> None:
    folder = tmp_path / "out"
    make(folder)
    (folder / "messages").rename(folder / name)
    before = octets_of(tmp_path)
    with pytest.raises(SparkError, match=f"^{re.escape(f'{folder}/{name}: {said}')}$"):
        take([FIXTURES / NAMES[0]], folder)
    with pytest.raises(SparkError):
        optimize(str(folder))
    assert octets_of(tmp_path) == before


def test_what_is_of_others_is_told_in_one_line(tmp_path: Path) -> None:
    table_of_others(tmp_path)
    done = run("spark", "ingest", FIXTURES / NAMES[0], "--output", tmp_path)
    said = f"zmtpsniff: {tmp_path}/messages: is a table that zmtpsniff did not write; choose another folder\n"
    assert (done.returncode, done.stderr) == (2, said)
    done = run("spark", "optimize", tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_table_that_others_put_in_place_of_ours_stays_as_it_is(tmp_path: Path) -> None:
    """Each part that changes a table looks at it once more."""
    folder = tmp_path / "out"
    take([FIXTURES / NAMES[0]], folder)
    found = Store(str(folder))
    found.open()
    shutil.rmtree(folder / "messages")
    table_of_others(folder)
    before = octets_of(folder)
    for change in (lambda: take([FIXTURES / NAMES[1]], folder), lambda: optimize(str(folder)), found.open):
        with pytest.raises(SparkError, match="is a table that zmtpsniff did not write"):
            change()
        assert octets_of(folder) == before


# ---------------------------------------------------------------------- kept small and quick to ask


def test_optimize(tmp_path: Path) -> None:
    wanted = series(tmp_path / "in", 5, NAMES[:2])
    for place in range(4):
        take([files[place] for files in wanted.values()], tmp_path / "out")
    before = content(tmp_path / "out")
    paths = Store(str(tmp_path / "out")).paths("messages")
    assert len(paths) > 2
    done = optimize(str(tmp_path / "out"), vacuum_hours=0)
    assert done.compacted > done.made > 0
    assert done.vacuumed >= done.compacted
    assert content(tmp_path / "out") == before
    assert len(Store(str(tmp_path / "out")).paths("messages")) < len(paths)
    assert not any((tmp_path / "out" / "messages" / path).exists() for path in paths)
    take([files[4] for files in wanted.values()], tmp_path / "out")  # which replaces provisional rows among others
    assert_equal(tmp_path / "out", wanted)
    assert optimize(str(tmp_path / "out"), keep_days=1, today=date(2100, 1, 1)).deleted > 0
    assert not any(read_tables(tmp_path / "out")["messages"])
    assert take([tmp_path / "in"], tmp_path / "out")[:2] == (0, 10)  # what was deleted does not come again
    with pytest.raises(SparkError, match="there are no tables"):
        optimize(str(tmp_path / "nothing"))


def test_a_question_on_one_host_or_hour_reads_little(tmp_path: Path) -> None:
    """By the statistics of the files: least and greatest series and time."""
    wanted = series(tmp_path / "in", 3, NAMES[:3])
    for name in wanted:
        take([name], tmp_path / "out")
    found = Store(str(tmp_path / "out"))
    actions = pa.table(found.opened("messages").get_add_actions()).to_pylist()
    assert len(actions) == 3
    for name, files in wanted.items():
        mine = [one for one in actions if one["min"]["series"] <= name <= one["max"]["series"]]
        assert len(mine) == 1
        times = [packet[0] for file in files for packet in load(file)]
        assert min(times) <= mine[0]["min"]["time_ns"] <= mine[0]["max"]["time_ns"] <= max(times)
    hour = max(one["min"]["time_ns"] for one in actions)
    assert sum(one["max"]["time_ns"] >= hour for one in actions) < 3
    rows = found.opened("messages").to_pyarrow_dataset().to_table(filter=pc.field("series") == min(wanted))
    times_ns = rows.column("time_ns").to_pylist()
    assert all(early_ns - late_ns <= writer.DISORDER_NS for early_ns, late_ns in pairwise(times_ns))


def test_rows_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory need not have room for more than one of them, however many rows a file gets."""
    monkeypatch.setattr(writer, "_GROUP_ROWS", 10)
    files = writer.TableWriter(str(tmp_path))
    for number in range(6):
        files.take("rows", pa.record_batch({"size": [number] * 4}))
    (file,) = files.close()
    content = pq.ParquetFile(tmp_path / "rows" / file.path).metadata
    assert [content.row_group(at).num_rows for at in range(content.num_row_groups)] == [12, 12]


# ---------------------------------------------------------------------- files that are broken, and options


def test_a_broken_file_costs_that_file(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    good = folder / "good.pcap"
    good.write_bytes((FIXTURES / "m31_pub_sub.pcap").read_bytes())
    (folder / "noise.pcap").write_bytes(b"\x00\x01\x02 no capture at all")
    (folder / "empty.pcap").write_bytes(b"")
    (folder / "gone.pcap").symlink_to(folder / "nothing")
    (folder / "short.pcap").write_bytes((FIXTURES / "m31_req_rep.pcap").read_bytes()[:-7])
    done = take([folder], tmp_path / "out")
    kinds = {"noise": "foreign", "empty": "foreign", "gone": "missing", "short": "damaged"}
    assert {(Path(path).stem, kind) for path, kind, _ in done.unreadable} == set(kinds.items())
    found = read_tables(tmp_path / "out")
    errors = {Path(row["file"]).stem: (row["condition"], bool(row["error"])) for row in found["captures"]}
    assert errors == {"good": ("whole", False), **{name: (kind, True) for name, kind in kinds.items()}}
    told = {(Path(row["file"]).stem, row["code"]) for row in found["problems"] if row["conn_id"] is None}
    assert told == {
        *((name, "capture-unreadable") for name in ("noise", "empty", "gone")),
        ("short", "capture-truncated"),
    }
    assert {row["file"] for row in found["messages"]} == {str(good), str(folder / "short.pcap")}
    assert take([folder], tmp_path / "out").unreadable == ()


def test_ports_and_bodies(tmp_path: Path) -> None:
    path = FIXTURES / "m31_pub_sub.pcap"
    take([path], tmp_path / "all")
    every = read_tables(tmp_path / "all")
    port = every["connections"][0]["server_port"]
    take([path], tmp_path / "one", ports=((port, port),), max_bytes=2)
    chosen = read_tables(tmp_path / "one")
    assert {row["server_port"] for row in chosen["connections"]} == {port}
    sizes = [row["size"] for row in every["messages"] if port in (row["src_port"], row["dst_port"])]
    assert [row["size"] for row in chosen["messages"]] == sizes
    for row in chosen["messages"]:
        assert all(len(frame["data"]) == min(frame["length"], 2) for frame in row["frames"])
    take([path], tmp_path / "none", ports=((1, 1),))
    assert not read_tables(tmp_path / "none")["connections"]
    take([path], tmp_path / "lengths", bodies=False)
    bare = read_tables(tmp_path / "lengths")["messages"]
    assert {frame["data"] for row in bare for frame in row["frames"]} == {None}
    assert [[frame["length"] for frame in row["frames"]] for row in bare] == [
        [frame["length"] for frame in row["frames"]] for row in every["messages"]
    ]


def test_an_input_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="no such file"):
        take([tmp_path / "nothing-*.pcap"], tmp_path / "out")


# ---------------------------------------------------------------------- object stores


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with new_bucket(monkeypatch) as made:
        yield made.url


@pytest.mark.slow
def test_on_s3(bucket: str, tmp_path: Path) -> None:
    """Input and output, runs at once, one that was killed; s3a:// is the same."""
    from pyarrow.fs import LocalFileSystem, copy_files

    write_at_once(tmp_path, f"{bucket}/out")
    system, path = file_system(f"{bucket}/in")
    files = cut(FIXTURES / "m31_pub_sub.pcap", [60], tmp_path / "host")
    copy_files(
        str(tmp_path / "host"), f"{path}/host", source_filesystem=LocalFileSystem(), destination_filesystem=system
    )
    assert take([f"s3a://here/in/host/{files[0].name}"], f"{bucket}/more").files == 1
    with pytest.MonkeyPatch.context() as patch:
        dies_after(patch, 1)
        with pytest.raises(KilledError):
            take(["s3://here/in"], "s3a://here/more")
    assert take(["s3://here/in/*/*.pcapng"], f"{bucket}/more")[:2] == (0, 2)
    assert_equals_read(f"{bucket}/more", files, [f"{bucket}/in/host/{file.name}" for file in files])
    assert maintenance.optimize(f"{bucket}/more").compacted >= 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "it is empty"),  # and not the root
        ("ftp://here/x", "abfs, abfss, gs, hdfs, s3, s3a, s3n and files of this machine are known"),
        ("hdfs://here/x", "install Hadoop's client with its libhdfs.so, and set HADOOP_HOME"),
    ],
)
def test_what_nothing_opens(url: str, said: str) -> None:
    with pytest.raises(LocationError) as raised:
        Store(url)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
