"""Rows of tables as the records that `read` writes, so that the two can be compared."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from io import BytesIO
from itertools import accumulate, cycle, pairwise
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import msgspec
from deltalake import DeltaTable

from dissectors.events import Cut, Hidden
from tests.support import records
from tests.support.paths import CAPTURES, FIXTURES
from tests.world.tap import load, save_pcapng
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.capture.block import Packet
from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.locations import delta_options
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.net.witness import Witnesses
from zmtpsniff.render.json_form import octets_object
from zmtpsniff.render.jsonl import JsonlRenderer
from zmtpsniff.spark.connection_ids import local_id
from zmtpsniff.spark.store import Store
from zmtpsniff.spark.tables import OCTETS, TABLES, WHOLE

_OCTETS = {table: [column.name for column in columns if column.sql == OCTETS] for table, columns in TABLES.items()}
_PLACE = ("date", "series", "conn_id", "time", "offset")
_OURS = (*_PLACE, "src_port", "dst_port", "size", "provisional", "kind", "server", "from_client", "body_hash")
# Told of a run as a whole.
_OF_A_RUN = (
    "no-flows",
    "capture-disorder",
    "clocks-differ",
    "addresses-translated",
    "perhaps-zmtp",
    "capture-interrupted",
)
# Counted in a sentence, a file each.
_OF_FILES = {"packets-cut", "malformed-headers", "fragments-dropped", "link-type-unknown", "packets-not-read"}
_SUFFIXES = (".pcap", ".pcapng", ".pcap.gz", ".strace")
_AHEAD_NS = (0, -7_000_000, 12_000_000, 3_600_000_000_000, 250_000)  # clocks of hosts
_SIDE = ("address", "version", "socket_type", "identity", "inferred", "lookalike", "beacon", "beacon_file")


def cut(path: Path, places: Sequence[int], folder: Path) -> list[Path]:
    """Write a capture as several files, cut before the packets with these places (from 0)."""
    folder.mkdir(parents=True)
    found = load(path)
    ends = [0, *sorted(places), len(found)]
    files = []
    for number, (begin, end) in enumerate(pairwise(ends)):
        files.append(save_pcapng(folder / f"{number:03}.pcapng", found[begin:end]))
    return files


def captures() -> list[Path]:
    """All captures of the fixtures, and those that are beside the checkout.

    Tables have a connection before NAT and behind it, of which `read` keeps one (docs/spark-ingest.md).
    """
    folders = [FIXTURES, CAPTURES, CAPTURES.parent / "systems"]
    paths = [path for folder in folders for path in sorted(folder.rglob("*"))]
    return [path for path in paths if path.name.endswith(_SUFFIXES) and path.parent.name != "nat"]


def of_hosts(path: Path, folder: Path, most: int | None = None) -> list[Path]:
    """A capture as its hosts have it, each by a clock of its own: a folder each, or a file each of the busiest ones."""
    found = load(path)
    hosts = Counter(packet[2][at : at + 4] for packet in found for at in (26, 30) if packet[2][12:14] == b"\x08\0")
    files = []
    for number, ((host, _), ahead_ns) in enumerate(zip(hosts.most_common(most), cycle(_AHEAD_NS))):
        seen = [(packet[0] + ahead_ns, *packet[1:]) for packet in found if host in (packet[2][26:30], packet[2][30:34])]
        target = folder / f"{number}.pcapng" if most else folder / f"{number}" / "0.pcapng"
        target.parent.mkdir(parents=True, exist_ok=True)
        files.append(save_pcapng(target, seen))
    return files


def cut_anywhere(path: Path, number: int, folder: Path, places: Random) -> list[Path]:
    """A capture cut into so many files at random places, and not at all if it has too few packets."""
    count = len(load(path))
    return cut(path, places.sample(range(1, count), min(number, count) - 1), folder) if count > 1 else [path]


def later(path: Path, by_ns: int, target: Path) -> Path:
    """A capture as if it had been made later."""
    return save_pcapng(target, [(packet[0] + by_ns, *packet[1:]) for packet in load(path)])


def expected(
    files: "Sequence[Path] | Sequence[str]",
    decode_as: tuple[DecodeAs, ...] = (),
    copies: Sequence[Path] | None = None,
    ways: bool = False,
) -> Counter[str]:
    """The records of `read -T json` on files without payloads, and the findings on them, as comparable() has them.

    ``copies`` are the same files here, if those are elsewhere. With ``ways`` it has those of `trace -T json`, too, all
    by the clocks of the files.
    """
    stream = BytesIO()
    renderer = JsonlRenderer(stream)
    for events in open_files(files, Settings(decode_as=decode_as)).batches():
        renderer.write(events)
    settings = Settings(decode_as=decode_as, batches=True)
    diagnosis, follower = Diagnosis(decode_as), Ways()
    hears = Collaborators(witness=Witnesses(diagnosis, follower), acknowledge=follower.acknowledge)
    over: list[Any] = []
    for events in Sniffer(open_captures(list(map(str, files))), settings, hears).events():
        diagnosis.take(events)
        over += map(follower.record, follower.take(events))
    renderer.write(diagnosis.findings())  # type: ignore[arg-type]
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    if ways:
        records += msgspec.to_builtins([*filter(None, [*over, *map(follower.record, follower.finish())])])
    return comparable(records, _packets(files, copies))


def _packets(files: Sequence[Path | str], copies: Sequence[Path] | None) -> list[tuple[str, int]]:
    """The packets of files, merged by time as `read` does it: the file of each, and its number there."""
    found = []
    for at, file in enumerate(copies or files):
        times = accumulate((packet[0] for packet in load(Path(file))), max)
        found += [(time_ns, at, number) for number, time_ns in enumerate(times, 1)]
    return [(str(files[at]), number) for _, at, number in sorted(found)]


def comparable(records: list[dict[str, Any]], packets: Sequence[tuple[str, int]]) -> Counter[str]:
    """Records without what differs, a flow's number replaced by the id of its connection, a packet's by its file's."""
    ids: dict[int, str] = {}
    for record in records:
        if record["type"] == "connection":
            transport = "tcp" if record["transport"] == "ws" else record["transport"]
            ends = record["client"]["address"], record["server"]["address"]
            ids[record["flow"]] = local_id(transport, *ends, record["start_ns"]).name
    out: Counter[str] = Counter()
    for record in records:
        if record["type"] in ("capture", "comment") or record.get("code") in _OF_A_RUN:
            continue
        if (flow := record.pop("flow", None)) is not None:
            if record["type"] == "beacon":
                ends = record["src"], record["dst"]
                first_ns = next(one["time_ns"] for one in records if (one.get("src"), one.get("dst")) == ends)
                ids.setdefault(flow, local_id("beacon", *ends, first_ns).name)
            record["conn_id"] = ids[flow]
        if (packet := record.pop("packet", None)) is not None:
            record["file"], record["packet"] = packets[packet - 1]
        if (request := record.pop("request", None)) is not None:
            record["request_file"], record["request"] = packets[request - 1]
        if via := record.get("forwards"):
            file, number = packets[via["packet"] - 1]
            via |= {"conn_id": ids[via.pop("flow")], "file": file, "packet": number, "part": via.get("part", 1)}
        for one in record.get("evidence", ()):
            one["file"], one["packet"] = packets[one["packet"] - 1]
            del one["flow"]
        for leg in _legs(record):
            leg["file"], leg["packet"] = packets[leg["packet"] - 1]
            leg["conn_id"] = ids[leg.pop("flow")]
        if peers := record.pop("peers", None):
            record["peers"] = [_said(peer) for peer in peers]
        record.pop("payload", None)
        for side in ("client", "server"):
            if record["type"] == "connection" and (beacon := record[side].get("beacon")):
                record[side]["beacon_file"], record[side]["beacon"] = packets[beacon - 1]
        if record.get("code") in _OF_FILES:
            record.pop("detail")
            out[json.dumps(record, sort_keys=True)] = 1
            continue
        out[json.dumps(record, sort_keys=True)] += 1
    return out


def read_tables(folder: Path | str) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables."""
    return {
        table: DeltaTable(f"{folder}/{table}", storage_options=delta_options()).to_pyarrow_table().to_pylist()
        for table in TABLES
    }


def assert_equals_read(output: Path | str, files: Sequence[Path], there: Sequence[str] | None = None) -> None:
    """The tables of one series say what `read` says of its files, which are elsewhere if these are copies."""
    (found,) = by_series(read_tables(output)).values()
    assert found == (expected(files) if there is None else expected(there, copies=files))


def database_of(folder: Path, prefix: str = "") -> duckdb.DuckDBPyConnection:
    """DuckDB with the tables of a folder, whose names begin with ``prefix`` there."""
    store, database = Store(str(folder)), duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        database.register(f"{prefix}{table}", store.dataset(table))
    return database


def assert_places(tables: dict[str, list[dict[str, Any]]]) -> None:
    """Each row is of the packet that it names: its number, where its record begins, and its time."""

    @cache
    def known(file: str) -> tuple[list[int] | None, list[Packet]]:
        path = Path(file.removeprefix("file://"))
        return records.offsets(records.content(path)), load(path)

    wrong = []
    count = 0
    for table, rows in tables.items():
        for row in rows:
            if table in ("connections", *WHOLE) or row["packet"] is None:
                assert row.get("offset") is None
                continue
            count += 1
            offsets, found = known(row["file"])
            if row["offset"] != (offsets and offsets[row["packet"] - 1]):
                wrong.append((table, row["file"], row["packet"], row["offset"]))
            elif found[row["packet"] - 1][0] != row["time_ns"]:
                wrong.append((table, row["file"], row["packet"], row["time_ns"]))
    assert not wrong, f"{len(wrong)} of {count}: {wrong[:5]}"
    assert count


def by_series(tables: dict[str, list[dict[str, Any]]]) -> dict[str, Counter[str]]:
    """The rows of each series as records, as comparable() has them."""
    out: dict[str, Counter[str]] = {}
    ids: dict[tuple[str, str, frozenset[str]], list[tuple[int, str]]] = {}  # each with when its connection began
    by_name: dict[tuple[str, str], str] = {}

    def id_at(series: str, name: str, ends: frozenset[str], time_ns: int) -> str:
        known = sorted(ids.get((series, name, ends), [(0, name)]))
        return [found for start_ns, found in known if start_ns <= max(time_ns, known[0][0])][-1]

    for row in tables["connections"]:
        transport = "tcp" if row["transport"] == "ws" else row["transport"]
        ends = row["client"], row["server"]
        found_id = row["start_ns"], local_id(transport, *ends, row["start_ns"]).name
        ids.setdefault((row["series"], row["conn_id"], frozenset(ends)), []).append(found_id)
        by_name[row["series"], row["conn_id"]] = found_id[1]
    for table in TABLES:
        if table == "captures":
            for row in tables[table]:
                out.setdefault(row["series"], Counter())
            continue
        for row in tables.get(table, ()):
            if table in WHOLE:
                found = out.setdefault(row["series"], Counter())
                for one in row.get("evidence", ()):
                    del one["conn_id"]
                for leg in _legs(row):
                    between = frozenset((leg["src"], leg["dst"]))
                    leg["conn_id"] = id_at(row["series"], leg["conn_id"], between, leg["time_ns"])
                found[json.dumps(_record(table, row), sort_keys=True)] += 1
                continue
            if row.get("code") == "networks-overlap":  # told with a file of the run that finds it
                row = {**row, "file": None}
            names = ("client", "server") if table == "connections" else ("src", "dst")
            time_ns = row.get("start_ns") or row.get("time_ns") or 0
            id_here = id_at(row["series"], row["conn_id"], frozenset(row[name] for name in names), time_ns)
            if via := row.get("forwards"):
                row = {**row, "forwards": {**via, "conn_id": by_name[row["series"], via["conn_id"]]}}
            record = json.dumps(_record(table, {**row, "conn_id": id_here}), sort_keys=True)
            found = out.setdefault(row["series"], Counter())
            found[record] += 1
            if row.get("code") in _OF_FILES:
                found[record] = 1
    return out


# Of records.
_LEFT_OUT = {
    "certainty": "certain",
    "encrypted": False,
    "incomplete": False,
    "inferred": False,
    "part": 1,
    "request_part": 1,
}


def _said(peer: dict[str, Any]) -> dict[str, Any]:
    """The fields of a peer in a finding that say something."""
    return {name: value for name, value in peer.items() if value and name != "type"}


def _legs(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The legs that a way names."""
    yield from record.get("legs", ())
    if again := record.get("again"):
        yield again


def without_acknowledgments(records: Counter[str]) -> Counter[str]:
    """Records without the times at which messages were acknowledged, for ports that are used again too soon.

    The connection of an acknowledgment is the one that has its addresses at the end of the block, or file.
    """
    out: Counter[str] = Counter()
    for text, count in records.items():
        record = json.loads(text)
        if record["type"] == "way":
            record.pop("duration_ns", None)
            for leg in _legs(record):
                leg.pop("seen_ns", None)
        out[json.dumps(record, sort_keys=True)] += count
    return out


def _leg(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """A leg of a way as its record has it."""
    left_out = {"part": 1, "reply": False, "certain": True}
    return row and {name: value for name, value in row.items() if value is not None and value != left_out.get(name)}


def _record(table: str, row: dict[str, Any]) -> dict[str, Any]:
    special = row.get("kind") in ("greeting", "beacon")
    record: dict[str, Any] = {"type": row["name"] if special else table.removesuffix("s")}
    if row.get("conn_id") is not None:
        record["conn_id"] = row["conn_id"]
    if table == "connections":
        return record | _connection(row)
    if table == "ways":
        record["kind"] = row["kind"]
        row = {name: value for name, value in row.items() if name not in ("src", "dst", "file", "packet", "part")}
        row |= {"legs": [_leg(one) for one in row["legs"]], "again": _leg(row["again"])}
    if table == "findings":
        peers = [_said(peer) for peer in row["peers"]]
        row = {**row, "first": None, "last": None, "peers": peers or None}
    if special:
        row = {**row, "name": None}
    for name, value in row.items():
        if name in _OURS or (table == "messages" and name == "topic") or value is None or value == _LEFT_OUT.get(name):
            continue
        if name in _OCTETS[table]:
            value = _octets(value)
        elif name == "frames":
            value = [_octets(frame) for frame in value]
        elif name == "properties":
            value = {item["name"]: _octets(item["value"]) for item in value}
        record[name] = value
    if record.get("code") in _OF_FILES:
        del record["detail"]
        if "packet" not in record:  # of a whole file
            record.pop("file", None)
    return record


def _connection(row: dict[str, Any]) -> dict[str, Any]:
    names = ("transport", "start_ns", "end_ns", "end", "closed_by", "version", "mechanism", "handshake")
    record: dict[str, Any] = {name: row[name] for name in names if row[name] is not None}
    for side in ("client", "server"):
        values = {name: row[side if name == "address" else f"{side}_{name}"] for name in _SIDE}
        values["identity"] = _octets(values["identity"])
        record[side] = {name: value for name, value in values.items() if value is not None and value is not False}
    record["messages"] = {side: row[f"{side}_messages"] for side in ("client", "server")}
    record["octets"] = {side: row[f"{side}_octets"] for side in ("client", "server")}
    if row["subscriptions"]:
        record["subscriptions"] = [_octets(topic) for topic in row["subscriptions"]]
    return record


def _octets(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    if value["data"] is None:
        return octets_object(Hidden(value["length"]))
    return octets_object(Cut(value["data"], value["length"]) if len(value["data"]) < value["length"] else value["data"])
