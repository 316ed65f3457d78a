"""Contents of frames: found where it is certain, bounded, and nothing found where there is nothing."""

import gzip
import json
import zlib
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import cbor2
import msgspec
import pytest
from cbor2 import CBORSimpleValue, CBORTag
from click.testing import CliRunner

from tests.analysis.test_plugins import capture_of
from tests.support.examples import sampled
from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.world.conversation import CLIENT
from zmtpsniff.analysis.bodies import decode
from zmtpsniff.cli.main import cli
from zmtpsniff.words.zstd import zstd

VALUE = {"name": "Zürich", "numbers": [1, -2, 3.5], "nested": {"none": None, "yes": True}, "octets": b"\0\1"}
TEXT = {name: value for name, value in VALUE.items() if name != "octets"}


@pytest.mark.parametrize(
    ("data", "name", "value"),
    [
        (json.dumps(TEXT).encode(), "json", TEXT),
        (b"  [1, 2]\n", "json", [1, 2]),
        (msgspec.msgpack.encode(VALUE), "msgpack", VALUE),
        (cbor2.dumps(VALUE), "cbor", VALUE),
        (b"\xd9\xd9\xf7\x01", "cbor", 1),
        (
            cbor2.dumps(CBORTag(55799, [CBORTag(1000, "x"), date(2026, 1, 1), CBORSimpleValue(99)])),
            "cbor",
            [{"tag": 1000, "value": "x"}, "2026-01-01", "99"],
        ),
        (gzip.compress(json.dumps(TEXT).encode(), mtime=0), "gzip json", TEXT),
        (zlib.compress(msgspec.msgpack.encode(VALUE)), "zlib msgpack", VALUE),
        (zstd.compress(cbor2.dumps(VALUE)), "zstd cbor", VALUE),
        (zstd.compress("Zürich".encode()), "zstd text", "Zürich"),
        (gzip.compress(b"\xff\xfe\0", mtime=0), "gzip", b"\xff\xfe\0"),
        (gzip.compress(zlib.compress(b"[]"), mtime=0), "gzip zlib json", []),
    ],
)
def test_certain(data: bytes, name: str, value: Any) -> None:
    assert decode(data) == (name, value)
    assert decode(data + b"\0") is None  # there is more than that


@pytest.mark.parametrize(
    "data",
    [
        b"{not JSON}",
        b'["\xff"]',
        b'{"\xff": 1}',
        b"17",
        b'"text"',
        b"\x81\xa1a\x01"[:2],
        b"\x92\x01\x02",
        b"x\x9c and so on",
        b"\x1f\x8b\x08" + bytes(20),
        b"\x28\xb5\x2f\xfd" + bytes(20),
        b"[" * 100_000,
        b"\x81" * 100_000,
        b"\x91" * 100_000,
    ],
)
def test_not_certain(data: bytes) -> None:
    assert decode(data) is None


def test_hardly_any_random_octets_are_something() -> None:
    octets = Random(1).randbytes
    assert sum(decode(octets(1 + number % 40)) is not None for number in range(20_000)) <= 1


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, zstd.compress])
def test_what_is_unpacked_is_bounded(compress: Any) -> None:
    bomb = compress(bytes(50_000_000))
    name, value = decode(bomb) or ("", None)
    assert value == "more than 1,048,576 octets"
    twice = decode(compress(bomb))
    assert twice is not None
    assert twice[1] == "more than 1,048,576 octets"
    assert decode(compress(b"a" * 999), 999) == (f"{name} text", "a" * 999)
    assert decode(compress(b"a" * 999), 998) == (name, "more than 998 octets")


def test_cbor_that_refers_to_itself_is_bounded() -> None:
    cycle = bytes.fromhex("d9d9f7d81c81d81d00")
    shown = decode(cycle)
    assert shown is None or len(str(shown)) < 1000
    # Each list holds the one before twice: 2^60 items, if they were all written.
    many = b"\xd8\x1c\x82\x01\x02"
    for place in range(60):
        many = b"\xd8\x1c\x82" + many + b"\xd8\x1d" + cbor2.dumps(59 - place + 1)
    shown = decode(b"\xd9\xd9\xf7" + many)
    assert shown is None or len(str(shown)) < 1_000_000


def test_program_shows_values(tmp_path: Path) -> None:
    body = gzip.compress(msgspec.msgpack.encode(VALUE), mtime=0)
    capture = capture_of(tmp_path / "a.pcap", (CLIENT, [b"topic", body]), sockets=(b"PUSH", b"PULL"))
    done = run("read", "--decode-bodies", "-T", "json", capture)
    (record,) = [each for each in map(json.loads, done.stdout.splitlines()) if each["type"] == "message"]
    assert record["bodies"] == [
        {"frame": 1, "format": "gzip msgpack", "value": {**TEXT, "octets": {"length": 2, "hex": "0001"}}}
    ]
    tree = run("read", "--decode-bodies", capture).stdout
    assert "frame 2 is gzip msgpack" in tree
    assert '"name": "Zürich"' in tree


@pytest.mark.parametrize("path", sampled(sorted(FIXTURES.glob("*.pcap"))), ids=lambda path: path.name)
def test_recorded_captures_are_read(path: Path) -> None:
    done = CliRunner().invoke(cli, ["read", "--decode-bodies", "-T", "json", str(path)])
    assert done.exit_code == 0
    formats = {
        body["format"] for record in map(json.loads, done.stdout.splitlines()) for body in record.get("bodies", [])
    }
    assert formats <= {"json", "msgpack"}  # nothing else was sent
    if path.stem == "m31_push_pull":
        assert formats == {"json", "msgpack"}
