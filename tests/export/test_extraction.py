"""Bodies as files: each octet is there once, under a harmless name, and the index says where it comes from."""

import gzip
import json
import stat
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import zmtpsniff
from dissectors.events import Message
from tests.support.paths import FIXTURES
from zmtpsniff.cli.main import cli
from zmtpsniff.export.extraction import INDEX, Extractor, ending
from zmtpsniff.words.zstd import zstd

REQUESTS = FIXTURES / "m31_req_rep.pcap"
ZAP = FIXTURES / "zap_over_tcp.pcap"


def extract(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["extract", *map(str, arguments)])


def index(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / INDEX).read_text().splitlines()]


def said(*frames: bytes, number: int = 1) -> Message:
    return Message(1_700_000_000_000_000_000, number, 1, "10.0.0.1:40000", "10.0.0.2:5555", list(frames), "PUB")


def taken(folder: Path, *messages: Message, **options: bool) -> list[dict[str, Any]]:
    extractor = Extractor(str(folder), **options)
    extractor.take(messages)
    extractor.close()
    return index(folder)


@pytest.mark.parametrize("name", ["m31_req_rep.pcap", "app_jupyter.pcap", "m31_pub_sub.pcap"])
def test_every_frame_is_there(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "bodies"
    done = extract(FIXTURES / name, "--to", folder)
    assert done.exit_code == 0, done.output
    with zmtpsniff.open(FIXTURES / name) as capture:
        messages = list(capture.messages())
    entries = index(folder)
    frames = [(m.packet, place, frame) for m in messages for place, frame in enumerate(m.frames)]
    assert [(entry["packet"], entry["frame"]) for entry in entries] == [frame[:2] for frame in frames]
    for entry, (_, _, frame) in zip(entries, frames, strict=True):
        assert (b"" if entry["file"] is None else (folder / entry["file"]).read_bytes()) == frame
    files = {entry["file"] for entry in entries if entry["file"]}
    assert {path.name for path in folder.iterdir()} == files | {INDEX}
    assert done.output.startswith(f"{len(messages)} messages, {len(files)} files")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_whole_messages(tmp_path: Path) -> None:
    entries = taken(tmp_path / "to", said(b"id", b"", b"ask", b"more"), said(b"topic", b"body"), whole=True)
    assert [(tmp_path / "to" / entry["file"]).read_bytes() for entry in entries] == [b"askmore", b"topicbody"]
    assert all("frame" not in entry for entry in entries)


def test_a_filter(tmp_path: Path) -> None:
    assert extract(REQUESTS, "--to", tmp_path / "to", "-Y", 'socket_type == "REP"').exit_code == 0
    with zmtpsniff.open(REQUESTS, where='socket_type == "REP"') as capture:
        assert {entry["packet"] for entry in index(tmp_path / "to")} == {m.packet for m in capture.messages()}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = extract(REQUESTS, "--to", tmp_path)
    assert "not empty" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert "Not a directory" in str(extract(REQUESTS, "--to", tmp_path / "mine.txt" / "x").exception)


@given(st.lists(st.binary(max_size=80), min_size=1, max_size=4))
def test_names_are_harmless(tmp_path_factory: pytest.TempPathFactory, frames: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("names") / "to"
    entries = taken(folder, said(*frames))
    assert [entry["frame"] for entry in entries] == list(range(len(frames)))
    for entry in entries:
        if entry["file"] is not None:
            assert all(letter.isascii() and (letter.isalnum() or letter in "-_.") for letter in entry["file"])
            assert len(entry["file"]) < 100
            assert (folder / entry["file"]).read_bytes() == frames[entry["frame"]]


@pytest.mark.parametrize(
    "topic", [b"../../etc/passwd", b"/etc/passwd", b"..", b"con\0", b"-rf", b"a\nb", "\u202e.png".encode()]
)
def test_hostile_topics_stay_in_the_folder(topic: bytes, tmp_path: Path) -> None:
    taken(tmp_path / "in" / "to", said(topic, b"body"), said(topic, b"body"))
    assert {path.name for path in tmp_path.rglob("*")} == {"in", "to"} | {
        p.name for p in (tmp_path / "in" / "to").iterdir()
    }
    assert len(list((tmp_path / "in" / "to").iterdir())) == 5


def test_passwords_are_left_out(tmp_path: Path) -> None:
    assert extract(ZAP, "--to", tmp_path / "hidden").exit_code == 0
    hidden = [entry for entry in index(tmp_path / "hidden") if entry.get("hidden")]
    assert hidden
    assert all(entry["file"] is None and entry["length"] for entry in hidden)
    assert extract(ZAP, "--to", tmp_path / "shown", "--show-secrets").exit_code == 0
    shown = {(entry["packet"], entry["frame"]): entry for entry in index(tmp_path / "shown")}
    secrets = [(tmp_path / "shown" / shown[entry["packet"], entry["frame"]]["file"]).read_bytes() for entry in hidden]
    for path in (tmp_path / "hidden").iterdir():
        assert not any(secret == path.read_bytes() for secret in secrets)


@pytest.mark.parametrize(
    ("compress", "name"),
    [(gzip.compress, "gzip"), (zlib.compress, "zlib"), (zstd.compress, "zstd")],
)
def test_decompression(compress: Any, name: str, tmp_path: Path) -> None:
    packed = compress(b'{"price": 1.09}' * 9)
    (entry,) = taken(tmp_path / "to", said(packed), unpacks=True)
    assert (tmp_path / "to" / entry["file"]).read_bytes() == b'{"price": 1.09}' * 9
    assert (entry["unpacked"], entry["length"], entry["octets"]) == (name, len(packed), 15 * 9)
    (entry,) = taken(tmp_path / "packed", said(packed))
    assert (tmp_path / "packed" / entry["file"]).read_bytes() == packed
    assert "unpacked" not in entry


def test_a_bomb_stays_packed(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(65 << 20))
    (entry,) = taken(tmp_path / "to", said(bomb), unpacks=True)
    assert (tmp_path / "to" / entry["file"]).stat().st_size == len(bomb)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1}', "json"), (b"\x82\xa1a\x01\xa1b\x02", "msgpack"), (b"hello\n", "txt"), (b"\0\1\2\3", "bin"),
        (b"\x89PNG\r\n\x1a\n....", "png"), (b"RIFF....WAVEfmt ", "wav"), (b"RIFF....????", "txt"), (b"\xff\xfe", "bin"),
    ],
)  # fmt: skip
def test_endings(data: bytes, expected: str) -> None:
    assert ending(data) == expected
