"""Five hosts that capture each other, whose clocks differ, also through NAT: each connection counts once."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.hosts import BEGIN_NS, Host, talk
from tests.spark.local_job import take
from tests.spark.spark_tables import expected, of_hosts, read_tables
from tests.support.examples import sampled
from tests.support.paths import CAPTURES, FIXTURES, PROJECT
from tests.support.shown_commands import blocks
from tests.world.tap import load
from zmtpsniff.report.results import ReportClock, ReportDelay
from zmtpsniff.spark.connection_ids import shared_id
from zmtpsniff.spark.report import report
from zmtpsniff.spark.report.vantage import views
from zmtpsniff.spark.tables import TABLES

pytestmark = pytest.mark.xdist_group("spark")  # one worker makes the tables, that with the session
SECOND_NS = 1_000_000_000
QUICK_NS = 400_000
MESSAGES = {"m31_req_rep.pcap": 24, "m31_pub_sub.pcap": 14, "m31_push_pull.pcap": 14, "rec_late_reply.pcap": 6}
AHEAD_NS = (0, 40_000_000, -3 * SECOND_NS, 250_000, 3600 * SECOND_NS)
DRIFT_PPM = (0.0, 30.0, -12.0, 50.0, 4.0)


class Network:
    """The hosts, and what is true of what they said."""

    def __init__(self) -> None:
        random = Random(16)
        self.hosts = [
            Host(f"host{at}", bytes((10, 7, 0, 1 + at)), ahead_ns, drift_ppm)
            for at, (ahead_ns, drift_ppm) in enumerate(zip(AHEAD_NS, DRIFT_PPM, strict=True))
        ]
        self.connections = self.messages = 0
        self.taken: dict[int, tuple[int, int]] = {}  # there and back, by the port of the service
        self._random = random
        zero, one, two, three, four = self.hosts
        for at in range(30):
            start_ns = BEGIN_NS + at * 10 * SECOND_NS + random.randrange(SECOND_NS)
            for client, server in ((zero, one), (one, zero), (two, zero), (three, four)):
                self._talk("m31_req_rep.pcap", client, server, start_ns, port=5000)
        for client, server in ((one, two), (two, three), (four, one)):
            for name in ("m31_pub_sub.pcap", "m31_push_pull.pcap"):
                self._talk(name, client, server, BEGIN_NS + random.randrange(100 * SECOND_NS), port=5001)
        later_ns = BEGIN_NS + 150 * SECOND_NS
        self._talk("m31_req_rep.pcap", zero, one, later_ns, 20_000_000, QUICK_NS, port=5002)
        self._talk("m31_req_rep.pcap", one, zero, later_ns, QUICK_NS, 35_000_000, port=5003)
        self._talk("m31_req_rep.pcap", zero, one, later_ns, port=5004, service_ns=70_000_000)
        nat: dict[str, Any] = {"client_at_server": (bytes((192, 0, 2, 1)), 61_000)}
        self._talk("m31_req_rep.pcap", two, zero, later_ns, 9_000_000, port=5005, **nat)
        both = {**nat, "server_at_client": (bytes((10, 96, 0, 1)), 80)}
        self._talk("m31_push_pull.pcap", four, three, later_ns, port=5006, **both)

    def _talk(
        self, name: str, client: Host, server: Host, start_ns: int, there_ns: int = QUICK_NS, back_ns: int = QUICK_NS,
        port: int = 0, **how: Any,
    ) -> None:  # fmt: skip
        talk(name, client, server, start_ns, there_ns, back_ns, self._random, port=port, **how)
        self.connections += 1
        self.messages += MESSAGES[name]
        self.taken[port] = there_ns, back_ns


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Network, Path]:
    """The hosts, and the folder of the tables."""
    folder = tmp_path_factory.mktemp("network")
    made = Network()
    return made, take_hosts(folder, *made.hosts, shards=2)


@pytest.fixture(scope="module")
def database(network: tuple[Network, Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Its tables and views, which tests read."""
    yield from opened(network[1])


def opened(folder: Path, since_ns: int = 0, change: str = "") -> Iterator[duckdb.DuckDBPyConnection]:
    """The tables and the views; ``change`` is done to the tables first."""
    with duckdb.connect() as found:
        for table in TABLES:
            found.register("rows", DeltaTable(f"{folder}/{table}").to_pyarrow_dataset())
            found.execute(f"CREATE TABLE all_{table} AS SELECT * FROM rows")
        found.execute(change)
        for name, query in views(since_ns).items():
            found.execute(f"CREATE VIEW {name} AS {query}")
        yield found


def talked(fixture: str) -> tuple[Host, Host]:
    """A client and a server whose clock is ahead, once the client has said to it what it says in a fixture."""
    client, server = Host("client", bytes((10, 0, 0, 1))), Host("server", bytes((10, 0, 0, 2)), SECOND_NS)
    talk(fixture, client, server, BEGIN_NS, QUICK_NS, QUICK_NS, Random(1))
    return client, server


def take_hosts(folder: Path, *hosts: Host, **how: Any) -> Path:
    """Write the captures of the hosts, and make tables; returns the folder of the tables."""
    for host in hosts:
        host.write(folder / "in")
    take([folder / "in"], folder / "out", **how)
    return folder / "out"


def one(database: duckdb.DuckDBPyConnection, query: str) -> Any:
    return database.execute(query).fetchall()[0][0]


def test_each_is_counted_once(network: tuple[Network, Path], database: duckdb.DuckDBPyConnection) -> None:
    made, _ = network
    assert one(database, "SELECT count(*) FROM all_connections") == 2 * made.connections
    assert one(database, "SELECT count(*) FROM all_messages") == 2 * made.messages
    assert one(database, "SELECT count(*) FROM connections") == made.connections
    assert one(database, "SELECT count(DISTINCT conn_id) FROM connections") == made.connections
    assert one(database, "SELECT count(*) FROM messages") == made.messages
    assert one(database, "SELECT count(*) FROM messages JOIN connections USING (series, conn_id)") == made.messages
    assert one(database, "SELECT count(*) FROM commands") == 4 * made.connections
    assert one(database, "SELECT bool_and(shared_id) FROM all_connections")


def test_from_the_one_that_saw_most(tmp_path: Path) -> None:
    """One host's capture lost the end of a connection, and tells its problems; the other's is whole."""
    lossy, whole = Host("lossy", bytes((10, 0, 0, 1))), Host("whole", bytes((10, 0, 0, 2)), SECOND_NS)
    for port in (1, 2):
        talk("m31_push_pull.pcap", lossy, whole, BEGIN_NS, QUICK_NS, QUICK_NS, Random(port), port=port)
    payloads = [at for at, packet in enumerate(lossy.captured) if packet[2][36:38] == b"\0\1" and len(packet[2]) > 66]
    for at in reversed(payloads[6:8]):
        del lossy.captured[at]
    for database in opened(take_hosts(tmp_path, lossy, whole)):
        assert one(database, "SELECT count(*) FROM all_problems") > 0
        assert one(database, "SELECT count(*) FROM problems") == 0
        assert one(database, "SELECT count(*) FROM connections") == 2
        assert one(database, "SELECT count(*) FROM messages") == 28


def test_problems_are_counted_once(tmp_path: Path) -> None:
    """And those of files stay."""
    client, server = talked("bad_reserved_flags.pcap")
    for host in (client, server):
        path = host.write(tmp_path / "in")
        path.write_bytes(path.read_bytes()[:-7])
    take([tmp_path / "in"], tmp_path / "out")
    for database in opened(tmp_path / "out"):
        count = one(database, "SELECT count(*) FROM problems WHERE conn_id IS NOT NULL")
        assert one(database, "SELECT count(*) FROM all_problems WHERE conn_id IS NOT NULL") == 2 * count > 0
        assert one(database, "SELECT count(*) FROM problems WHERE conn_id IS NULL") == 2


def test_open_connections_are_counted_once_too(tmp_path: Path) -> None:
    """Those of a run that follows, which have no row yet."""
    client, server = talked("m31_req_rep.pcap")
    for host in (client, server):
        del host.captured[-6:]
    for database in opened(take_hosts(tmp_path, client, server, tells_open=False)):
        assert one(database, "SELECT count(*) FROM all_connections") == 0
        count = one(database, "SELECT count(*) FROM messages")
        assert one(database, "SELECT count(*) FROM all_messages") == 2 * count > 0


def test_a_router_that_translates_has_one_connection(tmp_path: Path) -> None:
    """In one series it has the connection once, as `read` has, with the addresses that the client used."""
    inside, outside = Host("client", bytes((10, 0, 0, 1))), Host("server", bytes((10, 0, 0, 2)))
    seen_as = (bytes((192, 0, 2, 1)), 61_000)
    talk("m31_req_rep.pcap", inside, outside, BEGIN_NS, QUICK_NS, QUICK_NS, Random(1), client_at_server=seen_as)
    router = Host("router", b"", captured=[*inside.captured, *outside.captured])
    for database in opened(take_hosts(tmp_path, router)):
        assert one(database, "SELECT count(*) FROM all_connections") == 1
        assert one(database, "SELECT count(*) FROM connections") == 1
        assert one(database, "SELECT client FROM connections").startswith("10.0.0.1:")
        assert one(database, "SELECT count(*) FROM messages JOIN connections USING (series, conn_id)") == 24
        assert one(database, "SELECT count(*) FROM exchanges") == 0  # by one clock, but not from both ends


def test_without_the_handshake_it_is_another_one(tmp_path: Path) -> None:
    """Which shared_id says; and its id is that of its addresses and time."""
    client, server = talked("m31_req_rep.pcap")
    del server.captured[:3]
    tables = take_hosts(tmp_path, client, server)
    rows = {row["series"].rpartition("/")[2]: row for row in read_tables(tables)["connections"]}
    assert rows["client"]["shared_id"] is True
    assert rows["server"]["shared_id"] is False
    assert rows["client"]["conn_id"] != rows["server"]["conn_id"]
    for database in opened(tables):
        assert one(database, "SELECT count(*) FROM connections") == 2


def test_the_id_is_the_numbers(tmp_path: Path) -> None:
    """As Wireshark shows them, of SYN and SYN-ACK."""
    capture = FIXTURES / "m31_req_rep.pcap"
    take([capture], tmp_path)
    syn, answer = (packet[2] for packet in load(capture)[:2])
    numbers = [int.from_bytes(octets[38:42], "big") for octets in (syn, answer)]
    (row,) = read_tables(tmp_path)["connections"]
    assert row["conn_id"] == syn[38:42].hex() + answer[38:42].hex() == shared_id(*numbers).name
    assert sum(expected([capture]).values()) == sum(len(rows) for rows in read_tables(tmp_path).values()) - 1


# ---------------------------------------------------------------------- both ends


def test_clocks(network: tuple[Network, Path], database: duckdb.DuckDBPyConnection) -> None:
    hosts = {host.name: host for host in network[0].hosts}
    found = database.execute("SELECT one, other, at_ns, difference_ns, drift_ppm, uncertainty_ns, windows FROM clocks")
    rows = {(row[0].rpartition("/")[2], row[1].rpartition("/")[2]): row[2:] for row in found.fetchall()}
    assert set(rows) == {
        ("host0", "host1"), ("host0", "host2"), ("host1", "host2"), ("host1", "host4"), ("host2", "host3"),
        ("host3", "host4"),
    }  # fmt: skip
    for (one, other), (at_ns, difference_ns, drift_ppm, uncertainty_ns, windows) in rows.items():
        time_ns = at_ns - hosts[one].ahead_ns  # but for the drift, which changes little
        wanted = hosts[other].clock(time_ns) - hosts[one].clock(time_ns)
        assert abs(difference_ns - wanted) < 500_000, (one, other)
        assert uncertainty_ns < 1_000_000
        if windows > 20:
            assert abs(difference_ns - wanted) < 50_000, (one, other)
            assert drift_ppm == pytest.approx(hosts[other].drift_ppm - hosts[one].drift_ppm, abs=0.5)


def test_time_on_the_network_and_in_the_service(
    network: tuple[Network, Path], database: duckdb.DuckDBPyConnection
) -> None:
    made, _ = network
    found = database.execute(
        "SELECT server, asked_in, answered_in, request_left_ns, request_came_ns, reply_left_ns, reply_came_ns, "
        "there_ns, service_ns, back_ns FROM exchanges"
    ).fetchall()
    assert len(found) == 12 * (4 * 30 + 4)
    service = dict.fromkeys(made.taken, 0)
    for server, asked_in, answered_in, left, came, answered, returned, there_ns, service_ns, back_ns in found:
        port = int(server.rpartition(":")[2])
        assert abs(there_ns - made.taken[port][0]) < 60_000, server
        assert abs(back_ns - made.taken[port][1]) < 60_000, server
        assert answered - came == service_ns
        assert abs(there_ns + service_ns + back_ns - (returned - left)) < 10_000
        assert asked_in != answered_in
        service[port] = max(service[port], service_ns)
    assert service[5004] >= 70_000_000 > 10 * max(service[port] for port in (5000, 5002, 5003, 5005))


@pytest.fixture(scope="module")
def dealer_and_router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables of both ends."""
    folder = tmp_path_factory.mktemp("dealer")
    client, server = talked("sec_plain_ok_435_435.pcap")
    return take_hosts(folder, client, server)


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ("", [1, 2, 3, 4]),
        # The second request leaves before the first reply comes: nobody knows which reply is whose.
        ("UPDATE all_messages SET time_ns = time_ns - 2000000 WHERE src = '{client}' AND rank = 2", [3, 4]),
        # The server speaks unasked from then on.
        ("DELETE FROM all_messages WHERE src = '{client}' AND rank = 2", [1]),
        # It is the server that asks.
        ("DELETE FROM all_messages WHERE src = '{client}' AND rank = 1", [1, 2, 3]),
    ],
)
def test_dealer_and_router(dealer_and_router: Path, change: str, known: list[int]) -> None:
    address = read_tables(dealer_and_router)["connections"][0]["client"]
    ranked = (
        "CREATE TABLE ranked AS SELECT *, row_number() OVER (PARTITION BY series, src ORDER BY time_ns) AS rank "
        "FROM all_messages; DROP TABLE all_messages; ALTER TABLE ranked RENAME TO all_messages; "
    )
    for database in opened(dealer_and_router, change=ranked + change.format(client=address)):
        found = database.execute(
            "SELECT number, there_ns, service_ns, back_ns FROM exchanges ORDER BY number"
        ).fetchall()
        assert [row[0] for row in found] == known
        assert all(min(row[1:]) > 0 for row in found)


def test_what_began_earlier_is_left_out(network: tuple[Network, Path]) -> None:
    _, folder = network
    since_ns = BEGIN_NS + 4000 * SECOND_NS  # by the clock of the last host alone, which others do not share
    for database in opened(folder, since_ns):
        assert one(database, "SELECT count(*) FROM exchanges") == 0


def test_little_memory_is_enough(network: tuple[Network, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The report puts aside on disk what does not fit, and takes more memory where that cannot be."""
    _, folder = network

    def told() -> list[object]:
        rows = report(str(folder)).records()  # sums of floats depend on their order
        return [
            replace(row, drift_ppm=round(row.drift_ppm, 3)) if isinstance(row, ReportClock) else row for row in rows
        ]

    wanted = told()
    monkeypatch.setattr("zmtpsniff.spark.report.snapshot._MEMORY", "8MB")
    assert told() == wanted
    assert {row.count for row in wanted if isinstance(row, ReportDelay)} >= {12 * 2 * 30}


# ---------------------------------------------------------------------- whoever asks


@pytest.mark.slow
def test_spark_says_the_same(
    spark_session: SparkSession, network: tuple[Network, Path], database: duckdb.DuckDBPyConnection
) -> None:
    from zmtpsniff.spark import open_tables

    made, folder = network
    tables = open_tables(spark_session, str(folder))
    assert tables["connections"].count() == made.connections
    assert tables["messages"].count() == made.messages
    assert spark_session.sql("SELECT * FROM all_messages").count() == 2 * made.messages
    for query in (
        "SELECT one, other, at_ns, difference_ns, round(drift_ppm, 3), uncertainty_ns FROM clocks ORDER BY one, other",
        "SELECT * FROM exchanges ORDER BY conn_id, number",
    ):
        assert [tuple(row) for row in spark_session.sql(query).collect()] == database.execute(query).fetchall()


@pytest.mark.slow
def test_a_session_keeps_its_settings(
    spark_session: SparkSession, network: tuple[Network, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where views cannot be made."""
    from zmtpsniff.spark import open_tables

    before = spark_session.conf.getAll
    open_tables(spark_session, str(network[1]))
    assert spark_session.conf.getAll == before
    monkeypatch.setattr("zmtpsniff.spark.report.views.WORTH_KEEPING", ("a view that is not there",))
    with pytest.raises(AnalysisException):
        open_tables(spark_session, str(network[1]))
    assert spark_session.conf.getAll == before


def test_polars_counts_the_same(network: tuple[Network, Path]) -> None:
    made, folder = network
    context = polars.SQLContext({f"all_{table}": polars.scan_delta(f"{folder}/{table}") for table in TABLES})
    for name, query in views().items():
        if name == "points":
            break
        context.register(name, context.execute(query))
    assert context.execute("SELECT count(*) AS count FROM messages").collect()["count"][0] == made.messages
    assert context.execute("SELECT count(*) AS count FROM connections").collect()["count"][0] == made.connections


PAGE = PROJECT / "docs" / "spark-report.md"
# In systems of b a REQ worker says that it is ready, which its host alone takes for a request.
SYSTEMS = [FIXTURES / "brokers/two_brokers.pcap.gz", *sorted((CAPTURES.parent / "systems").glob("[!b]-*.pcap.gz"))]


@pytest.mark.parametrize("path", sampled(SYSTEMS, len(SYSTEMS)), ids=lambda path: path.name)
def test_ways_over_the_hosts_are_those_of_one_capture(tmp_path: Path, path: Path) -> None:
    of_hosts(path, tmp_path / "in")
    take([tmp_path / "in"], tmp_path / "out", ways=True)
    take([path], tmp_path / "whole", ways=True)
    whole = read_tables(tmp_path / "whole")["ways"]
    wanted = [[(leg["src"], leg["dst"]) for leg in row["legs"]] for row in whole]
    requests = any(row["kind"] == "request" for row in whole)
    for database in opened(tmp_path / "out"):
        found = database.execute("SELECT way, began_in, src, dst FROM way_legs ORDER BY way, began_in, time_ns")
        rows = groupby(found.fetchall(), key=itemgetter(0, 1))
        assert Counter(tuple(leg[2:] for leg in legs) for _, legs in rows) == Counter(map(tuple, wanted))
        (asked,) = (
            block.text for block in blocks(PAGE) if str(block.mark("run by")) == "tests/spark/test_report_vantage.py"
        )
        assert [leg[1:3] for leg in database.execute(asked).fetchall()] in (wanted if requests else [[]])
