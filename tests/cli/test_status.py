"""The status line, on a terminal of its own."""

import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.capture.test_live import free_port, request_and_reply
from tests.support.live_program import PROGRAM, needs_privilege, wait_for
from tests.support.terminal import Terminal

pytestmark = needs_privilege


@contextmanager
def on_a_terminal(*options: str, stdout_too: bool) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    master, slave = pty.openpty()
    command = [*PROGRAM, "-i", "lo", "-f", "tcp", "-T", "summary", "--color", "never", *options]
    stdout = slave if stdout_too else subprocess.DEVNULL
    with subprocess.Popen(command, stdout=stdout, stderr=slave, stdin=subprocess.DEVNULL) as program:
        os.close(slave)
        try:
            yield program, Terminal(master)
        finally:
            program.terminate()
            program.wait(30)
            os.close(master)


@pytest.mark.parametrize("stdout_too", [False, True])
def test_it_tells_what_has_passed_and_leaves_nothing_behind(stdout_too: bool) -> None:
    port = free_port()
    with on_a_terminal("-f", f"tcp port {port}", stdout_too=stdout_too) as (program, terminal):
        wait_for(lambda: b"0 packets" in terminal.written)
        request_and_reply(30, port)
        wait_for(lambda: bool(re.search(rb"[1-9]\d+ packets .* [6-9]\d messages, .*/s .* 0 dropped", terminal.written)))
        program.terminate()
        assert program.wait(30) == 0
        screen = terminal.screen()
    left = [line for line in screen if "messages, " in line and "dropped" in line and not line.startswith("capture")]
    assert left == []
    if stdout_too:
        assert sum("message REQ" in line for line in screen) >= 30
        assert all(re.match(r"\d\d:\d\d:\d\d|capture|comment|    |problem|$", line) for line in screen), screen


def test_it_can_be_switched_off() -> None:
    with on_a_terminal("--no-status", "-a", "duration:0.5", stdout_too=True) as (program, terminal):
        assert program.wait(30) == 0
        assert b"\x1b[K" not in terminal.all()
