"""The folder of the tables: runs that add, that find nothing new, that were killed, and files that are broken."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import FIXTURES

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

import pyarrow.parquet as pq

from tests.spark.local_job import Session
from tests.spark.spark_tables import assert_places, by_series, cut, expected, packets, read_tables
from zmtpsniff.capture.pcapng_writer import PcapngSection, Provenance
from zmtpsniff.spark.ingest import ingest
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.store import Folder, Store

NAMES = ("m31_pub_sub.pcap", "m31_heartbeat.pcap", "rec_proxy.pcap", "sec_curve_ps_435_435.pcap", "epgm_pub_sub.pcap")


def run(inputs: list[Path], output: Path, **options: Any) -> Any:
    return ingest(Session(), [str(path) for path in inputs], str(output), Options(**options))  # type: ignore[arg-type]


def series(folder: Path, count: int) -> dict[str, list[Path]]:
    """Captures cut into so many files: a folder each."""
    places = random.Random(7)
    found = {}
    for name in NAMES:
        total = len(packets(FIXTURES / name))
        found[str(folder / name)] = cut(FIXTURES / name, places.sample(range(1, total), count - 1), folder / name)
    return found


def assert_equal(output: Path, wanted: dict[str, list[Path]]) -> None:
    tables = read_tables(output)
    assert_places(tables)
    found = by_series(tables)
    assert found.keys() == wanted.keys()
    for name, files in wanted.items():
        assert found[name] == expected(files), name


def content(folder: Path) -> Counter[str]:
    return Counter(str(sorted(row.items(), key=str)) for rows in read_tables(folder).values() for row in rows)


def test_runs_add_up(tmp_path: Path) -> None:
    wanted = series(tmp_path / "in", 4)
    for place in range(4):
        done = run([files[place] for files in wanted.values()], tmp_path / "out")
        assert done.files == len(wanted)
    assert_equal(tmp_path / "out", wanted)
    before = content(tmp_path / "out")
    assert run([tmp_path / "in"], tmp_path / "out") == (0, 4 * len(wanted), 0)
    assert content(tmp_path / "out") == before


def test_rows_of_what_is_open_are_provisional(tmp_path: Path) -> None:
    wanted = series(tmp_path / "in", 2)
    files = wanted[str(tmp_path / "in" / "m31_pub_sub.pcap")]
    run(files[:1], tmp_path / "out")
    first = read_tables(tmp_path / "out")["connections"]
    assert [(row["end"], row["provisional"]) for row in first] == [("open", True)] * len(first) != []
    run(files, tmp_path / "out")
    last = read_tables(tmp_path / "out")["connections"]
    assert {row["conn_id"] for row in first} <= {row["conn_id"] for row in last}
    assert [row["provisional"] for row in last if row["end"] != "open"] == [False] * len(last)


def test_a_late_file_has_its_series_dissected_anew(tmp_path: Path) -> None:
    wanted = series(tmp_path / "in", 3)
    for place in (1, 2, 0):
        run([files[place] for files in wanted.values()], tmp_path / "out")
    assert_equal(tmp_path / "out", wanted)


def test_packets_out_of_order_where_files_change_are_no_reason_to_begin_again(tmp_path: Path) -> None:
    """As several queues of a network card write them; the files before are not read, since they are gone."""
    given = packets(FIXTURES / "m31_push_pull.pcap")
    whole = comparable_messages(expected([FIXTURES / "m31_push_pull.pcap"]))
    assert len(whole) > 10
    for place in range(2, len(given) - 1, 5):
        folder, section = tmp_path / str(place), PcapngSection(Provenance("zmtpsniff test"))
        folder.mkdir()
        halves = [*given[: place - 1], given[place]], [given[place - 1], *given[place + 1 :]]
        assert halves[1][0][0] < halves[0][-1][0], "the second file begins before the first ends"
        for number, half in enumerate(halves):
            file = folder / f"{number}.pcapng"
            file.write_bytes(section.header([]) + section.packets(half))  # type: ignore[arg-type]
            run([file], tmp_path / "out")
            file.unlink()
    for found in by_series(read_tables(tmp_path / "out")).values():
        assert comparable_messages(found) == whole


def comparable_messages(records: Counter[str]) -> Counter[str]:
    """What was sent by whom, without the time: which packet completes a message depends on their order."""
    messages = [json.loads(record) for record in records.elements() if '"type": "message"' in record]
    return Counter(json.dumps([message["src"], message["frames"]]) for message in messages)


def test_a_file_that_has_grown_replaces_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "in" / "growing.pcap"
    path.parent.mkdir()
    whole = (FIXTURES / "m31_pub_sub.pcap").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    run([path], tmp_path / "out")
    path.write_bytes(whole)
    assert run([path], tmp_path / "out").files == 1
    assert_equal(tmp_path / "out", {str(path.parent): [path]})
    assert len(read_tables(tmp_path / "out")["captures"]) == 1


@pytest.mark.parametrize("moves", [0, 1, 3])
def test_a_commit_that_was_killed_is_done_by_the_next_run(tmp_path: Path, moves: int, monkeypatch: Any) -> None:
    wanted = series(tmp_path / "in", 2)
    run([files[0] for files in wanted.values()], tmp_path / "out")

    class KilledError(Exception):
        pass

    apply = Store._apply

    def die(store: Store, journal: dict[str, Any]) -> None:
        apply(store, {**journal, "added": journal["added"][:moves], "removed": []})
        raise KilledError

    monkeypatch.setattr(Store, "_apply", die)
    with pytest.raises(KilledError):
        run([tmp_path / "in"], tmp_path / "out")
    monkeypatch.undo()
    journal = next((tmp_path / "out" / "_journal").glob("*.json"))
    assert len(json.loads(journal.read_text())["added"]) > 3
    assert run([tmp_path / "in"], tmp_path / "out").files == 0
    assert_equal(tmp_path / "out", wanted)
    assert not list((tmp_path / "out" / "_journal").iterdir())


def test_a_run_that_was_killed_before_leaves_nothing(tmp_path: Path) -> None:
    wanted = series(tmp_path / "in", 2)
    staging = tmp_path / "out" / "_staging" / "dead" / "messages" / "date=2026-01-01"
    staging.mkdir(parents=True)
    (staging / "half.parquet").write_bytes(b"PAR1")
    run([tmp_path / "in"], tmp_path / "out")
    assert_equal(tmp_path / "out", wanted)
    assert not (tmp_path / "out" / "_staging").exists()


def test_one_run_at_a_time(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "out"))
    with pytest.raises(SparkError, match="another run"):
        run([FIXTURES / "m31_pub_sub.pcap"], tmp_path / "out")
    store.close()
    assert run([FIXTURES / "m31_pub_sub.pcap"], tmp_path / "out").files == 1


def test_a_broken_file_costs_that_file(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    good = folder / "good.pcap"
    good.write_bytes((FIXTURES / "m31_pub_sub.pcap").read_bytes())
    (folder / "noise.pcap").write_bytes(b"\x00\x01\x02 no capture at all")
    (folder / "empty.pcap").write_bytes(b"")
    (folder / "gone.pcap").symlink_to(folder / "nothing")
    (folder / "short.pcap").write_bytes((FIXTURES / "m31_req_rep.pcap").read_bytes()[:-7])
    run([folder], tmp_path / "out")
    tables = read_tables(tmp_path / "out")
    errors = {Path(row["file"]).name: row["error"] for row in tables["captures"]}
    assert errors.pop("good.pcap") is None
    assert errors.keys() == {"noise.pcap", "empty.pcap", "gone.pcap", "short.pcap"}
    assert all(errors.values())
    told = {(Path(row["file"]).name, row["code"]) for row in tables["problems"] if row["conn_id"] is None}
    unreadable = {(name, "capture-unreadable") for name in ("noise.pcap", "empty.pcap", "gone.pcap")}
    assert told == {*unreadable, ("short.pcap", "capture-truncated")}
    assert {row["file"] for row in tables["messages"]} == {str(good), str(folder / "short.pcap")}


def test_ports_and_max_bytes(tmp_path: Path) -> None:
    run([FIXTURES / "m31_pub_sub.pcap"], tmp_path / "all")
    every = read_tables(tmp_path / "all")
    port = every["connections"][0]["server_port"]
    run([FIXTURES / "m31_pub_sub.pcap"], tmp_path / "one", ports=((port, port),), max_bytes=2)
    chosen = read_tables(tmp_path / "one")
    assert {row["server_port"] for row in chosen["connections"]} == {port}
    assert [row["size"] for row in chosen["messages"]] == [
        row["size"] for row in every["messages"] if port in (row["src_port"], row["dst_port"])
    ]
    for row in chosen["messages"]:
        assert all(len(frame["data"]) == min(frame["length"], 2) for frame in row["frames"])
    run([FIXTURES / "m31_pub_sub.pcap"], tmp_path / "none", ports=((1, 1),))
    assert not read_tables(tmp_path / "none")["connections"]


def test_tables_of_an_earlier_version_are_left_alone(tmp_path: Path) -> None:
    first, second = cut(FIXTURES / "m31_pub_sub.pcap", [60], tmp_path / "in")
    run([first], tmp_path / "out")
    for path in (tmp_path / "out" / "messages").glob("*/*.parquet"):
        with path.open("rb") as file:
            rows = pq.ParquetFile(file).read()
        pq.write_table(rows.drop_columns(["offset"]), path)  # type: ignore[no-untyped-call]
    before = content(tmp_path / "out")
    with pytest.raises(SparkError) as raised:
        run([first, second], tmp_path / "out")
    text = str(raised.value)
    assert text.startswith(f"--output {tmp_path}/out: an earlier version made its tables, messages without offset: ")
    assert "\n" not in text
    assert content(tmp_path / "out") == before


def test_an_input_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="no such file"):
        run([tmp_path / "nothing-*.pcap"], tmp_path / "out")


@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_an_output_that_is_empty_is_not_the_root(name: str) -> None:
    with pytest.raises(SparkError, match="--output: it is empty"):
        ingest(Session(), [str(FIXTURES / NAMES[0])], "", format=name)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="it is empty"):
        Folder("")
