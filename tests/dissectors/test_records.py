"""A field of a record is described once: what is made from the events knows a new one by itself."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import msgspec
import pytest

from dissectors.events import EVENT_TYPES, Body, Envelope, Payload, Peer, Place, Share, Sides
from dissectors.records import internal, joint_meaning, meaning, record_fields, relation, summary
from tests.support.paths import PROJECT

# For each type of event one line, put behind the line that begins with what comes first.
NEW_FIELDS = {
    "    token: ": '    wait_ms: Annotated[int | None, meaning("PAUSE: how long to wait.", "ms")] = None',
    "    encoding: ": '    colour: Annotated[Octets, meaning("The colour of the topic.")] = b"red"',
    '    identity: Annotated[Octets | None, meaning("Its': (
        '    dialect: Annotated[str | None, meaning("Its dialect.")] = None'
    ),
}
# A program with these fields prints them, in a process of its own: events cannot be made anew in this one.
ASK = """
import io, json, sys
from dissectors.events import Command, Connection, Peer, Sides, Subscription
from zmtpsniff.filters import compile_filter
from zmtpsniff.filters.filter_fields import list_fields
from zmtpsniff.render.jsonl import JsonlRenderer
from zmtpsniff.render.json_schema import json_schema

sys.path.insert(0, sys.argv[1])
import reference

place = (1_700_000_000_000_000_000, 1, 1, "10.0.0.1:40000", "10.0.0.2:5555")
events = [
    Command(*place, "PAUSE", wait_ms=17),
    Command(*place, "PAUSE"),
    Subscription(*place, "subscribe", b"a", "message", colour=b"blue"),
    Connection(1, "tcp", Peer(place[3], dialect="low"), Peer(place[4]), Sides(0, 0), Sides(0, 0), 1, 2, "fin"),
]
stream = io.BytesIO()
JsonlRenderer(stream).write(events)
said = {
    "records": [json.loads(line) for line in stream.getvalue().splitlines()],
    "schema": json_schema()["$defs"],
    "fields": {info.name: info._asdict() for info in list_fields()},
    "passed": [len(list(filter(compile_filter(text), events))) for text in sys.argv[2:]],
    "records page": reference.records_page(),
    "fields page": reference.fields_page(),
}
from importlib.util import find_spec
from zmtpsniff.spark.tables import TABLES

said["columns"] = {table: {column.name: column._asdict() for column in columns} for table, columns in TABLES.items()}
said["rows"] = None
if find_spec("pyarrow"):
    from zmtpsniff.spark.packet_names import PacketNames
    from zmtpsniff.spark.connection_ids import ConnectionId
    from zmtpsniff.spark.row_columns import RowOrigin
    from zmtpsniff.spark.rows import Rows

    rows = Rows(0, bodies=True)
    ids = {1: ConnectionId("01", False)}
    origin = RowOrigin("series", {0: "file"}, PacketNames(9, [(1, 0, 1)], lambda _: range(9)), ids)
    rows.take(events, origin)
    made = rows.made(origin)
    said["rows"] = {table: json.loads(json.dumps(batch.to_pylist(), default=repr)) for table, batch, _ in made}
print(json.dumps(said))
"""


pytestmark = pytest.mark.xdist_group("records")  # one worker asks


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outputs that are made from the events, once these have more fields."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(PROJECT / "dissectors", folder / "dissectors", ignore=shutil.ignore_patterns("__pycache__"))
    events = folder / "dissectors" / "events.py"
    lines = []
    for line in events.read_text().splitlines():
        lines.append(line)
        lines += [new for begin, new in NEW_FIELDS.items() if line.startswith(begin)]
    assert len(lines) == len(events.read_text().splitlines()) + len(NEW_FIELDS)
    events.write_text("\n".join(lines) + "\n")
    filters = ["wait_ms == 17", 'colour == "blue"', 'client.dialect == "low"', "server.dialect"]
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(PROJECT / "docs"), *filters],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, PROJECT)))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_new_field_is_in_records(said: dict[str, Any]) -> None:
    command, other, subscription, connection = said["records"]
    assert command["wait_ms"] == 17
    assert "wait_ms" not in other
    assert subscription["colour"] == {"length": 4, "text": "blue"}
    assert connection["client"]["dialect"] == "low"


def test_a_new_field_is_in_the_schema(said: dict[str, Any]) -> None:
    command, subscription, peer = (said["schema"][name] for name in ("Command", "Subscription", "Peer"))
    assert command["properties"]["wait_ms"] == {
        "type": "integer",
        "description": "PAUSE: how long to wait.",
        "unit": "ms",
    }
    assert subscription["properties"]["colour"] == {
        "$ref": "#/$defs/Octets",
        "description": "The colour of the topic.",
    }
    assert peer["properties"]["dialect"] == {"type": "string", "description": "Its dialect."}


def test_a_new_field_is_listed_and_asked_for(said: dict[str, Any]) -> None:
    listed = said["fields"]
    assert listed["wait_ms"] == {
        "name": "wait_ms",
        "kind": "number",
        "records": ["command"],
        "meaning": "PAUSE: how long to wait.",
        "unit": "ms",
        "also": "",
    }
    assert (listed["colour"]["kind"], listed["client.dialect"]["meaning"]) == ("octets", "Its dialect.")
    assert said["passed"] == [1, 1, 1, 0]


def test_a_new_field_is_in_the_reference(said: dict[str, Any]) -> None:
    assert "| `wait_ms` | number, ms | PAUSE: how long to wait. |" in said["records page"]
    assert "| `wait_ms` | number, ms | command | PAUSE: how long to wait. |" in said["fields page"]
    assert "| `server.dialect` | text | connection | Its dialect. |" in said["fields page"]


def test_a_new_field_is_a_column(said: dict[str, Any]) -> None:
    columns = said["columns"]
    assert columns["commands"]["wait_ms"] == {
        "name": "wait_ms",
        "sql": "BIGINT",
        "nullable": True,
        "meaning": "PAUSE: how long to wait.",
        "unit": "ms",
    }
    assert (columns["subscriptions"]["colour"]["nullable"], columns["connections"]["client_dialect"]["sql"]) == (
        False,
        "STRING",
    )


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_a_new_field_is_in_rows(said: dict[str, Any]) -> None:
    rows = said["rows"]
    assert [row["wait_ms"] for row in rows["commands"]] == [17, None]
    assert rows["subscriptions"][0]["colour"]["length"] == 4
    (row,) = rows["connections"]
    assert (row["client_dialect"], row["server_dialect"]) == ("low", None)


PARTS = (Body, Envelope, Payload, Peer, Place, Share, Sides)


UNITS = {"ns", "ms"}


@pytest.mark.parametrize("struct", [*EVENT_TYPES, *PARTS])
def test_every_field_says_what_it_means(struct: type[msgspec.Struct]) -> None:
    assert summary(struct)
    assert "\n" not in summary(struct)
    for field in record_fields(struct):
        assert field.text.endswith("."), field.name
        ends_in = field.name.rpartition("_")[2]
        unit = ends_in if ends_in in UNITS else ""
        assert field.unit == unit, f"{field.name} has to end in its unit, one of {sorted(UNITS)}: add yours there"


def test_fields_of_a_record() -> None:
    class Some(msgspec.Struct):
        must: Annotated[int, meaning("It must.", "ns")]
        way: Annotated[Literal["in", "out"] | None, relation("Its way.")] = None
        many: Annotated[list[int], meaning("Many.")] = []
        hidden: Annotated[int, internal()] = 3
        plain: bool = False

    must, way, many, plain = record_fields(Some)
    assert (must.type, must.required, must.default, must.unit, must.kind) == (int, True, None, "ns", "wire")
    assert (way.kind, way.text, way.meaning) == ("relation", "Its way.", 'Its way: "in", "out".')
    assert (many.type, many.default) == (list[int], [])
    assert (plain.default, plain.meaning) == (False, "")


def test_a_meaning_of_several_records_names_those_that_differ() -> None:
    assert joint_meaning([("a", "One."), ("b", "One.")]) == "One."
    assert joint_meaning([("a", "One."), ("b", "Two."), ("c", "One.")]) == "a, c: One. b: Two."
