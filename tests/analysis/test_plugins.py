"""Plug-ins: the examples of the documentation are run, and what is wrong with one is told in a line."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from tests.support.paths import PROJECT
from tests.support.runner import run
from tests.support.saved_files import save
from tests.world.conversation import CLIENT, SERVER, Conversation, Piece, greetings
from tests.world.network import packets, segments
from tests.world.octets import message
from zmtpsniff.analysis.plugins import installed, load_dissectors, load_file
from zmtpsniff.errors import PluginError
from zmtpsniff.testing import dissect_capture, dissect_message, new_connection

PAGE = (PROJECT / "docs" / "plugins.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ORDERS = BLOCKS[0]
# As the compiler of Kaitai Struct makes it of the description in the page.
SENSOR = """\
import kaitaistruct
from kaitaistruct import KaitaiStruct, KaitaiStream, BytesIO


class Sensor(KaitaiStruct):
    def __init__(self, _io, _parent=None, _root=None):
        super(Sensor, self).__init__(_io)
        self._parent = _parent
        self._root = _root or self
        self._read()

    def _read(self):
        self.magic = self._io.read_bytes(4)
        if not self.magic == b"SENS":
            raise kaitaistruct.ValidationNotEqualError(b"SENS", self.magic, self._io, u"/seq/0")
        self.number = self._io.read_u2be()
        self.name = (self._io.read_bytes_full()).decode(u"UTF-8")
"""


def capture_of(path: Path, *exchange: tuple[int, list[bytes]], sockets: tuple[bytes, bytes] = (b"REQ", b"REP")) -> Path:
    pieces = greetings(3, *sockets)
    pieces += [Piece(side, message(3, *frames)) for side, frames in exchange]
    save(path, [packets(segments(Conversation("given", tuple(pieces))))])
    return path


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "orders.py").write_text(ORDERS)
    capture_of(
        tmp_path / "shop.pcap", (CLIENT, [b"", b"ORDER", b"17", b"tea"]), (SERVER, [b"", b"DONE", b"17", b"tea"])
    )
    return tmp_path


def program(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the program in a process that finds the packages of PYTHONPATH."""
    command = [sys.executable, "-m", "zmtpsniff", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_example_is_short_and_runs(shop: Path) -> None:
    assert len(ORDERS.splitlines()) <= 30
    done = run("read", "-T", "summary", "--plugin", "orders.py", "shop.pcap", cwd=shop)
    assert done.returncode == 0, done.stderr
    assert "orders: ORDER 17: tea" in done.stdout
    assert "orders: DONE 17: tea" in done.stdout
    result = dissect_capture(str(shop / "orders.py"), shop / "shop.pcap")
    first, second = result.payloads
    assert first.fields == {"command": "ORDER", "number": 17, "what": "tea"}
    assert second.fields["request"] == result.messages[0].packet


def test_tests_of_the_example_run(shop: Path) -> None:
    (block,) = [block for block in BLOCKS if "def test_" in block]
    (shop / "test_orders.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"]
    done = subprocess.run(command, cwd=shop, capture_output=True, text=True, check=False, timeout=120)
    assert "2 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("more", [[], ["-d", "tcp.port==5557,orders"]], ids=["asked", "told by its port"])
def test_the_command_of_the_page_runs(shop: Path, more: list[str]) -> None:
    (line,) = re.findall(r"^\$ zmtpsniff (read .*orders\.py.*)$", PAGE, re.MULTILINE)
    assert not more or f"`{shlex.join(more)}`" in PAGE
    done = run(*shlex.split(line), *more, cwd=shop)
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders: ORDER 17: tea" in done.stdout


def test_kaitai_struct(tmp_path: Path) -> None:
    (tmp_path / "sensor.py").write_text(SENSOR)
    (tmp_path / "sensors.py").write_text(BLOCKS[-1])
    capture_of(tmp_path / "a.pcap", (CLIENT, [b"SENS\0\7roof"]), (CLIENT, [b"other"]), sockets=(b"PUSH", b"PULL"))
    result = dissect_capture(str(tmp_path / "sensors.py"), tmp_path / "a.pcap")
    assert [payload.fields for payload in result.payloads] == [{"magic": b"SENS", "number": 7, "name": "roof"}]
    assert len(result.unknown) == 1


@pytest.fixture
def compiled(tmp_path: Path) -> None:
    """The description of the page, compiled as the page says."""
    if shutil.which("node") is None:
        pytest.skip("the compiler of Kaitai Struct runs on Node.js, which is not installed")
    found = subprocess.run(
        ["node", "-e", "require('kaitai-struct-compiler'); require('js-yaml')"],
        cwd=tmp_path, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    if found.returncode:
        pytest.skip("kaitai-struct-compiler and js-yaml are not installed where NODE_PATH says")
    (description,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (command,) = re.findall(r"^node -e .*?sensor\.ksy$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "sensor.ksy").write_text(description)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=60)


def test_kaitai_struct_compiled(tmp_path: Path, compiled: None) -> None:
    (tmp_path / "sensors.py").write_text(BLOCKS[-1])
    capture_of(tmp_path / "a.pcap", (CLIENT, [b"SENS\0\7roof"]), (CLIENT, [b"other"]), sockets=(b"PUSH", b"PULL"))
    done = run("read", "-T", "json", "--plugin", "sensors.py", "a.pcap", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [
        record.get("payload") for record in map(json.loads, done.stdout.splitlines()) if record["type"] == "message"
    ]
    magic = {"length": 4, "text": "SENS"}
    told = {"protocol": "sensor", "summary": "sensor 7", "magic": magic, "number": 7, "name": "roof"}
    assert found == [told, None]


def test_entry_points_of_installed_packages(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package is installed as pip does it: a module, and a folder that says what it offers."""
    info = shop / "shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[zmtpsniff.dissectors]\norders = orders:Orders\n")
    monkeypatch.setenv("PYTHONPATH", str(shop))
    done = program(shop, "read", "-T", "summary", "shop.pcap")
    assert done.returncode == 0, done.stderr
    assert "orders: DONE 17: tea" in done.stdout
    (info / "entry_points.txt").write_text("[zmtpsniff.dissectors]\norders = orders:Missing\n")
    done = program(shop, "read", "-T", "summary", "shop.pcap")
    assert done.returncode == 2
    assert "orders:Missing" in done.stderr
    (shop / "faulty.py").write_text("\n\n1 / 0\n")
    (info / "entry_points.txt").write_text("[zmtpsniff.dissectors]\norders = faulty:Orders\n")
    done = program(shop, "read", "-T", "summary", "shop.pcap")
    assert done.returncode == 2
    assert "faulty.py, line 3: ZeroDivisionError" in done.stderr


def test_entry_points_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path for modules may have archives of packages beside folders."""
    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as archive:
        archive.writestr("shop-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
        archive.writestr("shop-1.0.dist-info/entry_points.txt", "[zmtpsniff.dissectors]\norders = orders:Orders\n")
    monkeypatch.syspath_prepend(str(tmp_path / "shop.zip"))
    assert [entry.name for entry in installed()] == ["orders"]


def test_entry_points_that_another_finder_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shelf:
        """A finder of modules that has packages of its own."""

        def find_spec(self, *_: object) -> None:
            return None

        def find_distributions(self, context: object) -> Iterator[Distribution]:
            yield Shop()

    class Shop(Distribution):
        def read_text(self, filename: str) -> str | None:
            texts = {"METADATA": "Name: shop\n", "entry_points.txt": "[zmtpsniff.dissectors]\norders = orders:Orders\n"}
            return texts.get(filename)

        def locate_file(self, path: object) -> Path:
            raise NotImplementedError

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Shelf()])
    assert [entry.name for entry in installed()] == ["orders"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("missing.py", None, "missing.py: no such file"),
        ("a.ksy", "meta:", "compile it to Python first"),
        ("a.py", "x = 1", "a.py: no class in it has name, match and dissect"),
        ("a.py", "x = 1\nx = (", "a.py: line 2: SyntaxError"),
        ("a.py", "\nimport nothing_of_that_name", "a.py: line 2: ModuleNotFoundError: No module named"),
        ("a.py", "import json\n\njson.loads('{')", "a.py: line 3: JSONDecodeError"),
        (
            "a.py",
            "from pathlib import Path\nPath(__file__).with_name('b.py').write_text('x = (')\nimport b",
            "b.py, line 1: S",
        ),
        ("a.py", "class A:\n name = 'a'\n match = dissect = print\n def __init__(self): 1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_plug_in(name: str, text: str | None, words: str, shop: Path) -> None:
    if text is not None:
        (shop / name).write_text(text)
    with pytest.raises(PluginError, match=re.escape(words)):
        load_file(str(shop / name))
    done = run("read", "--plugin", name, "shop.pcap", cwd=shop)
    assert done.returncode == 2
    assert done.stderr.startswith("zmtpsniff: plug-in ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-d", "tcp.port==5555,nobody"], "'nobody' is none of zmtp,"),
        (["--no-payload", "--plugin", "orders.py"], "--plugin: not with --no-payload"),
        (["--no-payload", "-d", "tcp.port==5555,mlm"], "-d mlm: not with --no-payload"),
    ],
)
def test_wrong_usage(options: list[str], words: str, shop: Path) -> None:
    done = run("read", *options, "shop.pcap", cwd=shop)
    assert done.returncode == 2
    assert words in done.stderr


def test_plug_ins_come_before_what_is_built_in(shop: Path) -> None:
    names = [dissector.name for dissector in load_dissectors([str(shop / "orders.py")])]
    assert names[0] == "orders"
    assert "zap" in names[1:]


def test_failing_plug_in_fails_its_test(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "class Bad:\n name = 'bad'\n match = lambda *_: True\n def dissect(self, message, connection): 1 / 0\n"
    )
    capture_of(tmp_path / "a.pcap", (CLIENT, [b"", b"x"]))
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        dissect_capture(str(tmp_path / "bad.py"), tmp_path / "a.pcap")


def test_messages_of_one_connection_share_their_state(shop: Path) -> None:
    (orders,) = load_file(str(shop / "orders.py"))
    connection = new_connection()
    assert dissect_message(orders, [b"ORDER", b"1", b"x"], connection=connection)
    done = dissect_message(orders, [b"DONE", b"1", b"x"], from_client=False, connection=connection)
    assert done is not None
    assert done.fields["request"] == 1


def test_built_in_dissectors_use_the_public_interface_only() -> None:
    paths = list((PROJECT / "dissectors" / "payloads").glob("*.py"))
    assert len(paths) > 10
    for path in paths:
        if path.name in ("__init__.py", "registry.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("dissectors", "zmtpsniff")):
                assert node.module in ("dissectors.payloads", "dissectors.payloads.zproto"), path
