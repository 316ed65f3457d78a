"""The choice between the native core and plain Python, and what the user learns about that."""

import os
import pty
import subprocess
import sys

import pytest

from tests.support.paths import FIXTURES
from tests.support.terminal import Terminal
from zmtpsniff.native import VARIABLE

CAPTURE = str(FIXTURES / "m31_req_rep.pcap")
WITHOUT = "sys.modules['zmtpsniff.native.core'] = None; "
STALE = "import zlib; zlib.crc32 = lambda octets: 1; "  # as if core.c had changed since it was compiled
ELSEWHERE = "platform.machine = lambda: 'riscv64'; "
RUN = "from zmtpsniff.__main__ import main; main()"
SLOW = b"reads in the slow way, since the native core"


def said(before: str, *arguments: str, switch: str = "", is_terminal: bool = True) -> bytes:
    """The standard error of a run."""
    command = [sys.executable, "-c", f"import platform, sys; {before}{RUN}", *arguments]
    environment = {**os.environ, VARIABLE: switch}
    if not is_terminal:
        return subprocess.run(command, env=environment, capture_output=True, check=True).stderr
    master, slave = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=slave) as program:
        os.close(slave)
        terminal = Terminal(master)
        assert program.wait(120) == 0
    written = terminal.all()
    os.close(master)
    return written


@pytest.mark.parametrize("command", [("read", "-T", "json"), ("stats",), ("diff", CAPTURE)])
def test_a_missing_core_is_told_once_on_a_terminal(command: tuple[str, ...]) -> None:
    written = said(WITHOUT, *command, CAPTURE)
    assert written.count(SLOW) == 1
    assert f"{VARIABLE}=0".encode() in written


def test_a_core_of_another_source_is_passed_over() -> None:
    written = said(STALE, "read", "-T", "json", CAPTURE)
    assert written.count(SLOW) == 1
    assert b"another version of core.c" in written


@pytest.mark.parametrize(
    ("before", "switch", "is_terminal"),
    [("", "", True), ("", "1", True), (WITHOUT, "0", True), (WITHOUT, "", False), (WITHOUT + ELSEWHERE, "", True)],
)
def test_it_is_not_told_elsewhere(before: str, switch: str, is_terminal: bool) -> None:
    """Not with the core, where it is switched off, where nobody reads it, or where no wheel has one."""
    assert SLOW not in said(before, "read", "-T", "json", CAPTURE, switch=switch, is_terminal=is_terminal)


def test_who_insists_gets_an_error() -> None:
    command = [sys.executable, "-c", f"import sys; {WITHOUT}{RUN}", "stats", CAPTURE]
    done = subprocess.run(command, env={**os.environ, VARIABLE: "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"zmtpsniff: {VARIABLE}=1, but the native core")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("switch", "way"), [("0", "python"), ("1", "native"), ("", "native")])
def test_the_version_says_which_way(switch: str, way: str) -> None:
    command = [sys.executable, "-m", "zmtpsniff", "--version"]
    done = subprocess.run(command, env={**os.environ, VARIABLE: switch}, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f" ({way})\n")
