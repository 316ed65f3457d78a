"""Whatever a capture is cut into, however many shards, in whatever order: the tables say what `read` says.

Without Spark. All of it goes through the function that Spark's tasks call.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from errno import EACCES
from io import FileIO
from itertools import accumulate
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.capture_point.families import FAMILIES, make
from tests.net.test_networks import OVERLAY, of_server, tagged, written
from tests.spark.local_job import asked, local_session, take
from tests.spark.spark_tables import by_series, cut, expected, later, read_tables, without_acknowledgments
from tests.support.examples import sampled
from tests.support.paths import FIXTURES
from tests.world.octets import frame, peers
from tests.world.tap import captured, joined, load, save_pcapng
from zmtpsniff.capture import locations
from zmtpsniff.capture.block import Packet
from zmtpsniff.engine.flow_engine import FlowEngine
from zmtpsniff.spark import inputs, open_states, series, shard, task
from zmtpsniff.spark.ingestion import ingest, tell_quiet
from zmtpsniff.spark.open_states import STATES, ShardStates, State, StateRow
from zmtpsniff.spark.options import Options
from zmtpsniff.spark.session import SparkError
from zmtpsniff.spark.store import Store
from zmtpsniff.words.link_types import USER0

SECOND_NS = 1_000_000_000
IDLE_NS = round(Options().idle_seconds * 1e9)
CAPTURES = ("app_malamute.pcap", "m31_push_pull.pcap", "epgm_pub_sub.pcap", "rec_proxy.pcap", "m31_heartbeat.pcap")


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection in memory at a time."""
    monkeypatch.setattr(shard, "_MOST_FLOWS", 1)


def rows(output: Path, folder: Path) -> Counter[str]:
    return by_series(read_tables(output))[str(folder)]


def follow(files: Sequence[Path], output: Path, **how: Any) -> int:
    """Take files as a run that follows does; how many were new."""
    return take(files, output, tells_open=False, **how).files


WAYS: list[Callable[..., Any]] = [take, follow]


def quiet(output: Path, files: Sequence[Path], ways: bool = False) -> int:
    """Have it told what is open where no file comes any more."""
    now_ns = max(file.stat().st_mtime_ns for file in files) + IDLE_NS + 1
    return tell_quiet(local_session(), asked(output, ways=ways), now_ns)


def assert_all_told(output: Path, files: Sequence[Path], ways: bool = False) -> None:
    """The tables say what `read` says; of what is open once no file comes any more."""
    assert len(read_tables(output)["captures"]) == len({*files})
    quiet(output, files, ways)
    assert rows(output, files[0].parent) == expected(sorted(files), ways=ways)


def pieces_of(name: str, parts: int, folder: Path) -> list[Path]:
    size = len(load(FIXTURES / name))
    return cut(FIXTURES / name, [size * part // parts for part in range(1, parts)], folder)


@settings(max_examples=5)
@given(
    capture=st.sampled_from(CAPTURES),
    parts=st.integers(1, 6),
    data=st.data(),
)
def test_any_cut_any_shards_any_order(capture: str, parts: int, data: st.DataObject) -> None:
    """Batch and follow, in turns; runs that are repeated."""
    with TemporaryDirectory() as folder:
        files = pieces_of(capture, parts, Path(folder) / "in")
        order = data.draw(st.permutations(files))
        output = Path(folder) / "out"
        while order:
            count = data.draw(st.integers(1, len(order)))
            some, order = order[:count], order[count:]
            again = data.draw(st.booleans())
            take_some = data.draw(st.sampled_from(WAYS))
            shards = data.draw(st.integers(1, 4))
            take_some([*some, *(files[:0] if not again else some)], output, shards=shards, ways=True)
        assert_all_told(output, files, ways=True)


@pytest.mark.parametrize("capture", sampled([path.name for path in sorted(FIXTURES.glob("*.pcap*"))], 24))
def test_what_is_put_aside_in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capture: str) -> None:
    """Most connections, behind each few packets: the rows are the same ones."""
    monkeypatch.setattr(shard, "_MOST_FLOWS", 2)
    count = len(load(FIXTURES / capture))
    files = cut(FIXTURES / capture, range(1, count, max(count // 100, 5)), tmp_path / "in")
    take(files, tmp_path / "out", shards=1, ways=True)
    assert rows(tmp_path / "out", tmp_path / "in") == expected(files, ways=True)


def _of_two_vlans(path: Path) -> Path:
    return written(path, lambda number, frame: [tagged(number, frame)])


def _of_one_network(path: Path) -> Path:
    """Each direction has a VLAN of its own."""
    return written(path, lambda number, frame: [tagged(number + 100 * of_server(frame), frame)], (7,))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("parts", [3, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [lambda path: OVERLAY, _of_two_vlans, _of_one_network])
def test_networks_with_the_same_addresses(tmp_path: Path, make: Callable[[Path], Path], parts: int) -> None:
    """They are told apart from run to run, also where a file ends within a handshake."""
    capture = make(tmp_path / "labels.pcap")
    count = len(load(capture))
    files = cut(capture, [count * part // parts for part in range(1, parts)], tmp_path / "in")
    for at, file in enumerate(files):
        follow([file], tmp_path / "out", shards=1 + at % 3, ways=True)
    assert_all_told(tmp_path / "out", files, ways=True)


def test_unix_domain_sockets_are_numbered_from_run_to_run(tmp_path: Path) -> None:
    ends = (4711 << 32 | 9).to_bytes(8, "big"), (1 << 63 | 4711 << 32 | 9).to_bytes(8, "big")
    sent = [*peers(b"DEALER", b"ROUTER"), (0, frame(b"question")), (1, frame(b"answer" * 100))]
    packets = [
        (at * SECOND_NS, USER0, data := ends[1 - side] + ends[side] + octets, len(data), None)
        for at, (side, octets) in enumerate(sent, 1)
    ]
    files = cut(save_pcapng(tmp_path / "unix.pcapng", packets), range(1, len(packets)), tmp_path / "in")
    for file in files:
        follow([file], tmp_path / "out")
    assert_all_told(tmp_path / "out", files)
    assert len(read_tables(tmp_path / "out")["messages"]) == 2


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("case", sampled([f"{name}:{seed}" for seed in range(5) for name in FAMILIES], 13))
def test_captures_that_the_oracle_disturbs(tmp_path: Path, case: str) -> None:
    """They are cut where all packets before are older than all behind, as those of a host are."""
    family, seed = case.split(":")
    found = joined([captured(records) for records in make(family, int(seed)).files])
    random = Random(case)
    latest = list(accumulate((packet[0] for packet in found), max))
    earliest = list(accumulate((packet[0] for packet in reversed(found)), min))[::-1]
    apart = [place for place in range(1, len(found)) if latest[place - 1] <= earliest[place]]
    places = sorted(random.sample(apart, min(len(apart), random.choice([1, 3, 6]))))
    files = cut(save_pcapng(tmp_path / "whole.pcapng", found), places, tmp_path / "in")
    for file in files:
        follow([file], tmp_path / "out", shards=random.choice([1, 2, 3]), ways=True)
    quiet(tmp_path / "out", files, ways=True)
    told, wanted = rows(tmp_path / "out", tmp_path / "in"), expected(sorted(files), ways=True)
    assert without_acknowledgments(told) == without_acknowledgments(wanted)


def test_nobody_has_to_wait_for_ways(tmp_path: Path) -> None:
    take([FIXTURES / "rec_proxy.pcap"], tmp_path)
    assert not read_tables(tmp_path)["ways"]


def test_files_of_several_series(tmp_path: Path) -> None:
    one, two = (pieces_of("app_malamute.pcap", 6, tmp_path / name) for name in ("one", "two"))
    for some in ([one[0], one[1], two[0]], [two[1]], [*two[2:], *one[2:]]):
        follow(some, tmp_path / "out")
    assert rows(tmp_path / "out", tmp_path / "one") == expected(one)
    assert rows(tmp_path / "out", tmp_path / "two") == expected(two)
    # One file for each table and day of a task, not one for each series.
    assert len(Store(str(tmp_path / "out")).paths("messages")) <= 3


def test_late_file_whose_predecessors_are_gone(tmp_path: Path) -> None:
    """Its rows come, and those that were there stay, as do the states."""
    files = pieces_of("app_malamute.pcap", 5, tmp_path / "in")
    # Events that wait for octets of the late file are told once others show that these will not come.
    apart_ns = load(files[4])[-1][0] - load(FIXTURES / "m31_ipv6.pcap")[0][0]
    files.append(later(FIXTURES / "m31_ipv6.pcap", apart_ns + 2 * IDLE_NS, tmp_path / "in" / "999.pcapng"))
    wanted = expected([files[at] for at in (0, 2, 3, 4, 5)])
    output = tmp_path / "out"
    for some in (files[:1], files[2:3]):
        follow(some, output)
    files[0].unlink()
    for some in ([files[1], files[3]], files[4:5], files[5:]):
        follow(some, output)
    assert rows(output, tmp_path / "in") == wanted + expected([files[1]])
    assert len(read_tables(output)["captures"]) == len(files)


@pytest.mark.parametrize("together", [True, False])
def test_captures_that_do_not_meet(tmp_path: Path, together: bool) -> None:
    """As for ``read``, silence between them accuses nobody, in one run or two."""
    packets = load(FIXTURES / "healthy" / "answers_in_any_order_brokered.pcap.gz")
    (tmp_path / "in").mkdir()
    first = save_pcapng(tmp_path / "in" / "0.pcapng", packets[: int(len(packets) * 0.564)])
    hour_ns = load(first)[-1][0] - load(FIXTURES / "m31_ipv6.pcap")[0][0] + 3600 * 10**9
    files = [first, later(FIXTURES / "m31_ipv6.pcap", hour_ns, tmp_path / "in" / "1.pcapng")]
    for some in [files] if together else [files[:1], files[1:]]:
        take(some, tmp_path / "out")
    assert rows(tmp_path / "out", tmp_path / "in") == expected(files)
    severities = {one["severity"] for one in read_tables(tmp_path / "out")["findings"] if one["code"] != "capture-late"}
    assert "error" not in severities


def test_a_file_that_changed_when_others_are_gone(tmp_path: Path) -> None:
    """Its rows stay, as do those of the others."""
    files = pieces_of("m31_push_pull.pcap", 2, tmp_path / "in")
    wanted = expected(files)
    take(files, tmp_path / "out")
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes() + b"more")
    for _ in range(2):  # it is said each time, and there is nothing to do
        outcome = take(files[1:], tmp_path / "out")
        assert outcome == (0, 0, 0, ((str(files[1]), "changed", "others of its series are gone"),))
    assert rows(tmp_path / "out", tmp_path / "in") == wanted


def test_a_file_whose_store_refuses_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not damaged: the next run reads it to its end."""
    files = pieces_of("app_malamute.pcap", 3, tmp_path / "in")

    class Refusing(FileIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError("AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate.")
            return super().read(500)

    with monkeypatch.context() as patch:
        patch.setattr(inputs, "open_location", lambda path: (Refusing if path == str(files[1]) else FileIO)(path))
        ((path, condition, reason),) = take(files, tmp_path / "out").unreadable
        assert (path, condition) == (str(files[1]), "missing")
        assert "Please reduce your request rate" in reason
    assert take(files, tmp_path / "out")[:2] == (1, 2)
    assert rows(tmp_path / "out", tmp_path / "in") == expected(files)


def test_a_file_that_nobody_could_open_is_read_once_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = pieces_of("app_malamute.pcap", 3, tmp_path / "in")
    opens = locations.open_location

    def refuse(location: str) -> Any:
        if location == str(files[1]):
            raise PermissionError(EACCES, "Permission denied")
        return opens(location)

    with monkeypatch.context() as patch:
        patch.setattr(inputs, "open_location", refuse)
        outcome = take(files, tmp_path / "out")
        assert outcome.unreadable == ((str(files[1]), "missing", f"{files[1]}: Permission denied"),)
        patch.setattr(locations, "open_location", refuse)
        assert take(files, tmp_path / "out")[:2] == (0, 3)
    assert take(files, tmp_path / "out")[:2] == (1, 2)
    assert take(files, tmp_path / "out")[:2] == (0, 3)
    assert rows(tmp_path / "out", tmp_path / "in") == expected(files)


def test_states_of_datagrams_cannot_be_kept(tmp_path: Path) -> None:
    """Their whole series is dissected anew with each file, as long as it is complete."""
    files = pieces_of("epgm_pub_sub.pcap", 3, tmp_path / "in")
    for at, file in enumerate(files, 1):
        follow([file], tmp_path / "out")
        assert rows(tmp_path / "out", tmp_path / "in") == expected(files[:at])
        assert all(row["provisional"] for row in read_tables(tmp_path / "out")["connections"])


def test_one_is_over_because_others_go_on(tmp_path: Path) -> None:
    """Of a connection that nothing comes of any more there is a row as soon as the packets of others say so."""
    begun = cut(FIXTURES / "m31_push_pull.pcap", [25], tmp_path / "in")[0]
    other = tmp_path / "in" / "999.pcapng"
    apart_ns = load(begun)[-1][0] - load(FIXTURES / "m31_ipv6.pcap")[0][0]
    later(FIXTURES / "m31_ipv6.pcap", apart_ns + 2 * IDLE_NS, other)
    follow([begun], tmp_path / "out", shards=2)
    assert not read_tables(tmp_path / "out")["connections"]
    follow([other], tmp_path / "out", shards=3)
    assert rows(tmp_path / "out", tmp_path / "in") == expected([begun, other])
    assert {row["end"] for row in read_tables(tmp_path / "out")["connections"]} == {"timeout", "fin"}


def test_what_is_open_where_no_file_comes_any_more(tmp_path: Path) -> None:
    """It is told, provisionally and once, until one comes after all."""
    files = cut(FIXTURES / "m31_push_pull.pcap", [25], tmp_path / "in")

    def connections() -> list[tuple[str, bool]]:
        return [(row["end"], row["provisional"]) for row in read_tables(tmp_path / "out")["connections"]]

    follow(files[:1], tmp_path / "out")
    assert tell_quiet(local_session(), asked(tmp_path / "out")) == 0  # it has just been written
    assert connections() == []
    assert quiet(tmp_path / "out", files[:1]) == 1
    assert connections() == [("open", True)]
    assert rows(tmp_path / "out", tmp_path / "in") == expected([files[0]])
    assert quiet(tmp_path / "out", files[:1]) == 0
    follow(files[1:], tmp_path / "out")
    assert connections() == [("fin", False)]
    assert rows(tmp_path / "out", tmp_path / "in") == expected(files)


def test_states_of_another_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line says so, and their series is dissected anew where that is asked for; others continue."""
    files = pieces_of("m31_push_pull.pcap", 4, tmp_path / "in")
    other = pieces_of("m31_heartbeat.pcap", 2, tmp_path / "other")
    output = tmp_path / "out"
    follow(files[:2], output)
    monkeypatch.setattr("dissectors.snapshots.FORMAT", 999)
    follow(other[:1], output)
    before = read_tables(output)
    with pytest.raises(SparkError) as refused:
        follow([files[2], other[1]], output)
    assert str(refused.value) == (
        f"--output {output}: another version of zmtpsniff left connections open in {tmp_path}/in that this one cannot "
        "go on with: --anew dissects such series anew"
    )
    assert read_tables(output) == before
    with pytest.raises(SparkError, match="--anew dissects"):
        quiet(output, files)
    run = asked(output)._replace(anew=True)
    ingest(local_session(), [str(files[2]), str(other[1])], run)
    take(files[3:], output)
    assert rows(output, tmp_path / "in") == expected(files)
    assert rows(output, tmp_path / "other") == expected(other)


def test_quiet_series_of_another_format_is_dissected_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = pieces_of("m31_push_pull.pcap", 4, tmp_path / "in")
    output = tmp_path / "out"
    follow(files[:3], output)
    monkeypatch.setattr("dissectors.snapshots.FORMAT", 999)
    now_ns = max(file.stat().st_mtime_ns for file in files) + IDLE_NS + 1
    assert tell_quiet(local_session(), asked(output)._replace(anew=True), now_ns) > 1
    assert rows(output, tmp_path / "in") == expected(files[:3])


def test_an_upgrade_goes_on_from_the_same_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the program calls itself."""
    files = pieces_of("m31_push_pull.pcap", 4, tmp_path / "in")
    follow(files[:2], tmp_path / "out")
    for module in [module for name, module in sys.modules.items() if name.startswith("zmtpsniff")]:
        if hasattr(module, "__version__"):
            monkeypatch.setattr(module, "__version__", "999.0")
    with monkeypatch.context() as patch:
        patch.setattr(task, "Shard", _never_anew)
        follow(files[2:], tmp_path / "out")
    assert_all_told(tmp_path / "out", files)


def _never_anew(paths: Sequence[str], *rest: Any) -> Any:
    assert len(paths) == 2
    return shard.Shard(paths, *rest)


def test_octets_that_are_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a damaged file may be."""
    files = pieces_of("m31_push_pull.pcap", 2, tmp_path / "in")
    follow(files[:1], tmp_path / "out")
    decoded = open_states.decoded
    monkeypatch.setattr(open_states, "decoded", lambda octets, kind: decoded(b"damaged", kind))
    with pytest.raises(SparkError, match="--anew dissects"):
        follow(files[1:], tmp_path / "out")


def many_connections(folder: Path, count: int, more: int) -> tuple[Path, Path]:
    """A file in which many connections begin, and one that has a message of some of them."""
    found = load(FIXTURES / "m31_push_pull.pcap")
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
        save_pcapng(folder / name, some)
    return folder / "0.pcapng", folder / "1.pcapng"


def test_only_what_goes_on_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the connections that are open."""
    begun, more = many_connections(tmp_path / "in", 200, 3)
    follow([begun], tmp_path / "out")
    store = Store(str(tmp_path / "out"))
    read: list[Sequence[bytes]] = []
    resume = FlowEngine.resume

    def counted(engine: FlowEngine, states: Sequence[bytes]) -> None:
        read.append(states)
        resume(engine, states)

    monkeypatch.setattr(FlowEngine, "resume", counted)
    take([more], tmp_path / "out")
    assert len(read) == 3
    states = ShardStates(store.location, store.paths(STATES), str(tmp_path / "in"))
    assert sum(rows.num_rows for rows in states.rows()) == 200 + 1  # what all share
    states.close()


def test_a_series_has_its_states_once(tmp_path: Path) -> None:
    capture = FIXTURES / "app_malamute.pcap"
    files = cut(capture, range(1, len(load(capture)), 40), tmp_path / "in")
    for file in files:
        follow([file], tmp_path / "out")
        store = Store(str(tmp_path / "out"))
        rows_of_states = store.dataset(STATES).to_table().select(["series", "name"]).to_pylist()
        assert len({row["name"] for row in rows_of_states}) == len(rows_of_states) > 0
        assert len(store.paths(STATES)) == 1
    assert_all_told(tmp_path / "out", files)


@pytest.mark.parametrize(
    ("sizes", "cores", "counts"),
    [
        ({"one": 1 << 30}, 8, {"one": 8}),
        ({"one": 1 << 20}, 8, {"one": 1}),
        ({"one": 0}, 8, {"one": 1}),
        ({"one": 3 << 30, "two": 1 << 30}, 4, {"one": 3, "two": 1}),
        ({f"{host}": 1 << 30 for host in range(100)}, 8, {f"{host}": 1 for host in range(100)}),
    ],
)
def test_how_many_shards(sizes: dict[str, int], cores: int, counts: dict[str, int]) -> None:
    assert series.shard_counts(sizes, cores) == counts


def test_a_connection_that_came_and_went_has_no_row() -> None:
    states = ShardStates(".", [], "series")
    for name in (b"over", b"open"):
        states.put(StateRow(name, 5, 1, None, msgspec.msgpack.encode(State([b"connection"], {}))))
    assert states.pop(b"over") == State([b"connection"], {})
    assert states.pop(b"over") is None
    names = [name for rows in states.rows() for name in rows.column("name").to_pylist()]
    states.close()
    assert names == [b"open"]
