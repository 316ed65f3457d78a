"""The line that tells how much of the captures has been read, on a terminal of its own or beside the records."""

import fcntl
import gzip
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from dissectors.events import Comment
from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.support.terminal import Terminal
from tests.world.conversation import pushes
from tests.world.network import packets, segments
from tests.world.tap import save
from zmtpsniff.capture.files import open_captures
from zmtpsniff.cli.progress_line import ProgressLine

PROGRAM = [sys.executable, "-m", "zmtpsniff"]
REQ_REP = FIXTURES / "m31_req_rep.pcap"
SLOW_SECONDS = 1.3  # for which nobody reads what the program writes: it waits, as it would for a long file


@pytest.fixture(scope="module")
def long_capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose records are more than a pipe or a terminal takes at once."""
    path = tmp_path_factory.mktemp("progress") / "long.pcap"
    save(path, packets(segments(pushes(3, Random(1), 3000, batch=200))))
    path.with_suffix(".pcap.gz").write_bytes(gzip.compress(path.read_bytes()))
    return path


def read_slowly(
    *arguments: object, stdout_too: bool = False, stdin: Path | None = None, encoding: str = "utf-8", columns: int = 80
) -> tuple[str, Terminal]:
    """The standard output of the program, and its standard error on a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    with (
        open(stdin or os.devnull, "rb") as given,
        subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            stdin=given,
            stdout=slave if stdout_too else subprocess.PIPE,
            stderr=slave,
            env=environment,
        ) as program,
    ):
        os.close(slave)
        select.select([master if program.stdout is None else program.stdout], [], [], 120)
        time.sleep(SLOW_SECONDS)
        terminal = Terminal(master)
        output = b"" if program.stdout is None else program.stdout.read()
        assert program.wait(120) == 0
    terminal.all()
    os.close(master)
    return output.decode(), terminal


def drawn(terminal: Terminal) -> list[str]:
    return [text for text in terminal.written.decode().split("\r\x1b[K") if text]


@pytest.mark.parametrize("suffixes", [[".pcap"], [".pcap", ".pcap.gz"]], ids=" ".join)
def test_it_tells_how_much_has_been_read_and_leaves_nothing_behind(long_capture: Path, suffixes: Sequence[str]) -> None:
    captures = [long_capture.with_suffix(suffix) for suffix in suffixes]
    output, terminal = read_slowly("read", "-T", "json", *captures)
    whole = sum(capture.stat().st_size for capture in captures)
    texts = drawn(terminal)
    parts = [
        re.fullmatch(r"(━*)(─*) (\d+) % · ([\d.]+) [kM]B of ([\d.]+) ([kM])B( · about (\d+ s|\d+ min \d+ s) left)", t)
        for t in texts
    ]
    assert parts
    for text, part in zip(texts, parts, strict=True):
        assert part, text
        assert len(part[1] + part[2]) == 30
        assert len(part[1]) == pytest.approx(int(part[3]) * 0.3, abs=1)
        assert float(part[5]) * {"k": 1e3, "M": 1e6}[part[6]] == pytest.approx(whole, rel=0.01)
    shares = [int(part[3]) for part in parts if part]
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 100
    assert terminal.screen() == [""]
    assert output.splitlines()[-1].startswith('{"type":"capture"')


def test_records_on_the_same_terminal_stand_alone(long_capture: Path) -> None:
    arguments = ("read", "-T", "json", long_capture)
    _, terminal = read_slowly(*arguments, stdout_too=True)
    assert " % · " in terminal.written.decode()
    assert terminal.screen() == [*run(*arguments).stdout.splitlines(), ""]


def test_statistics_stand_alone(long_capture: Path) -> None:
    _, terminal = read_slowly("stats", "-T", "json", long_capture, stdout_too=True)
    assert all(line.startswith("{") for line in terminal.screen() if line)


def test_a_narrow_terminal_keeps_it_on_one_line_in_characters_that_it_knows(long_capture: Path) -> None:
    _, terminal = read_slowly("read", "-T", "json", long_capture, encoding="ascii", columns=40)
    assert {len(text) for text in drawn(terminal)} == {39}
    assert re.match(r"#+-* \d+ %, ", drawn(terminal)[0])


def test_what_takes_no_time_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, "utf-8")
    line = ProgressLine(terminal, lambda: (50, 100), shares_terminal=True)
    now += 0.9
    line.draw()
    line.erase()
    assert terminal.tell() == 0
    now += 0.2
    line.see([], [])
    line.draw()
    assert " 50 % " in raw.getvalue().decode()


def test_it_waits_while_records_come_on_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, "utf-8")
    line = ProgressLine(terminal, lambda: (50, 100), shares_terminal=True)
    record = Comment("one")
    for _ in range(100):
        now += 0.1
        line.see([record], [record])
        line.draw()
    assert terminal.tell() == 0
    now += 0.9
    line.see([record], [])  # which does not pass
    line.draw()
    assert terminal.tell() == 0
    now += 0.2
    line.draw()
    assert terminal.tell() > 0


def test_standard_input_has_none_even_if_it_is_a_file(long_capture: Path) -> None:
    output, terminal = read_slowly("read", "-T", "json", "-", stdin=long_capture)
    assert terminal.written == b""
    assert output.count("\n") > 3000


def test_the_position_is_that_in_the_files_as_they_are_stored(long_capture: Path) -> None:
    names = [str(long_capture), str(long_capture.with_suffix(".pcap.gz"))]
    whole = sum(Path(name).stat().st_size for name in names)
    captures = open_captures(names)
    begun = captures.position()
    assert begun is not None
    assert 0 < begun[0] < begun[1] == whole
    last = begun
    for _ in captures.batches():
        last = captures.position() or last
    assert last == (whole, whole)
    assert captures.position() is None  # closed


def test_a_pipe_has_no_position(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["cp", REQ_REP, fifo]):
        captures = open_captures([str(fifo), str(REQ_REP)])
        assert captures.position() is None
        for _ in captures.batches():
            assert captures.position() is None
