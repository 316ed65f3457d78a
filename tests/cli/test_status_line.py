"""The status line, on a terminal of its own."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import zmq

import zmtpsniff
from dissectors.events import Comment
from tests.capture.test_live import request_and_reply
from tests.support.live_program import PROGRAM, needs_privilege, wait_for
from tests.support.paths import FIXTURES
from tests.support.ports import free_port
from tests.support.terminal import Terminal
from zmtpsniff.cli.last_line import leads_to_a_program, shares_terminal
from zmtpsniff.cli.status_line import StatusLine


def on_a_terminal(*options: str, stdout_too: bool) -> AbstractContextManager[tuple[subprocess.Popen[bytes], Terminal]]:
    command = [*PROGRAM, "-i", "lo", "-f", "tcp", "-T", "summary", "--color", "never", *options]
    return in_terminal(command, stdout_too)


@contextmanager
def in_terminal(command: list[str], stdout_too: bool = True) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    master, slave = pty.openpty()
    stdout = slave if stdout_too else subprocess.DEVNULL
    with subprocess.Popen(command, stdout=stdout, stderr=slave, stdin=subprocess.DEVNULL) as program:
        os.close(slave)
        try:
            yield program, Terminal(master)
        finally:
            program.terminate()
            program.wait(120)
            os.close(master)


@needs_privilege
@pytest.mark.parametrize("stdout_too", [False, True])
def test_it_tells_what_has_passed_and_leaves_nothing_behind(stdout_too: bool) -> None:
    port = free_port()
    with on_a_terminal("-f", f"tcp port {port}", stdout_too=stdout_too) as (program, terminal):
        wait_for(lambda: b"0 packets" in terminal.written)
        request_and_reply(30, port)
        wait_for(lambda: bool(re.search(rb"[1-9]\d+ packets .* [6-9]\d messages, .*/s .* 0 dropped", terminal.written)))
        program.terminate()
        assert program.wait(120) == 0
        screen = terminal.screen()
    left = [line for line in screen if "messages, " in line and "dropped" in line and not line.startswith("capture")]
    assert left == []
    if stdout_too:
        assert sum("message REQ" in line for line in screen) >= 30
        assert all(re.match(r"\d\d:\d\d:\d\d|capture|comment|    |problem|$", line) for line in screen), screen


@needs_privilege
def test_diagnose_has_it_beside_findings_that_come() -> None:
    port = free_port()
    command = [sys.executable, "-m", "zmtpsniff", "diagnose", "--live", "-i", "lo", "-f", f"tcp port {port}"]
    with in_terminal(command) as (program, terminal):
        wait_for(lambda: b"0 packets" in terminal.written)
        with zmq.Context() as context, context.socket(zmq.REQ) as client:
            client.linger = 0
            client.connect(f"tcp://127.0.0.1:{port}")
            wait_for(lambda: b"new:" in terminal.written)
        program.send_signal(signal.SIGINT)
        program.wait(120)
        screen = terminal.screen()
    new = next(place for place, line in enumerate(screen) if " new:  " in line)
    assert "nobody listens" in " ".join(line.strip() for line in screen[new : new + 2])
    assert sum(" new:  " in line for line in screen) == 1
    assert not any("dropped" in line for line in screen)


@needs_privilege
def test_it_can_be_switched_off() -> None:
    with on_a_terminal("--no-status", "-a", "duration:0.5", stdout_too=True) as (program, terminal):
        assert program.wait(120) == 0
        assert b"\x1b[K" not in terminal.all()


def test_it_waits_while_another_program_may_show_records_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    terminal = io.StringIO()
    line = StatusLine(terminal, zmtpsniff.open(FIXTURES / "m31_req_rep.pcap"), visible=True, yields=True)
    line.draw()
    assert "0 packets" in terminal.getvalue()  # nothing has come
    record = Comment("one")
    line.see([record], [record])
    assert terminal.getvalue().endswith("\r\x1b[K")
    written = len(terminal.getvalue())
    now += 5  # for which the reader took nothing, so that writing had to wait
    line.draw()
    for _ in range(10):
        now += 0.2
        line.see([record], [record])
        line.draw()
    now += 0.9
    line.see([record], [])  # which does not pass
    line.draw()
    assert len(terminal.getvalue()) == written
    now += 0.2
    line.draw()
    assert len(terminal.getvalue()) > written


def test_a_pipe_leads_to_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with open(reader, "rb"), open(writer, "w") as pipe, open(tmp_path / "file", "w") as file:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert leads_to_a_program(None)
        assert leads_to_a_program("-")
        assert not leads_to_a_program("records.jsonl")
        master, slave = pty.openpty()
        with open(master, "rb", buffering=0), open(slave, "w") as terminal:
            assert shares_terminal(terminal, None)
            assert not shares_terminal(terminal, "records.jsonl")
        assert not shares_terminal(file, None)
        monkeypatch.setattr(sys, "stdout", file)
        assert not leads_to_a_program(None)
    for stream in (file, io.StringIO(), None):  # closed, no descriptor, none at all
        monkeypatch.setattr(sys, "stdout", stream)
        assert not leads_to_a_program(None)
