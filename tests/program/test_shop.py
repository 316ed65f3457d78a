"""A shop of 13 connections, broken in nine realistic ways, each of which the first three lines of a diagnosis tell."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.analysis.findings.diagnoses import alarms, diagnose
from tests.support import shop, ticker
from tests.support.live_program import wait_for
from tests.support.namespaces import needs_namespaces, separate_namespaces
from tests.support.paths import PROJECT, program

pytestmark = [
    pytest.mark.slow,
    needs_namespaces,
    pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed"),
]
# Sent when all is said: what is captured before it is in the file before it.
_LAST = "the last datagram"
_TRIES = 5  # to record programs that the machine lets run all the time
_SEND = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'{}', ('127.0.0.1', 9))"


def record(fault: str, path: Path, seconds: float = shop.SECONDS) -> None:
    """Capture the shop, broken or changed in that way."""
    record_program(path, shop, fault, str(seconds))


def record_program(path: Path, module: ModuleType, *arguments: str) -> None:
    """Capture what a program says to itself over loopback, in a network of its own; it is a module of the tests.

    If the machine let it stand still, it is recorded again: what came late tells of the machine. The calmest counts.
    """
    waits = []
    for number in range(_TRIES):
        waits.append(_record_once(_try(path, number), [*program(ticker), module.__name__, *arguments]))
        if waits[-1] == 0:
            break
        print(f"{module.__name__} {' '.join(arguments)}: the machine let it stand still for {waits[-1]} ms")
    _try(path, waits.index(min(waits))).rename(path)


def _try(path: Path, number: int) -> Path:
    return path.with_name(f"{number}-{path.name}")


def _record_once(path: Path, command: list[str]) -> int:
    """Capture a program; returns for how many milliseconds it stood still, at most at a time."""
    with separate_namespaces() as (side, _):
        side.ip("link", "set", "lo", "up")
        tcpdump = side.command("tcpdump", "-i", "lo", "-U", "-B", "65536", "-w", str(path))
        with subprocess.Popen(tcpdump, stderr=subprocess.PIPE, text=True) as capture:
            assert capture.stderr is not None
            try:
                assert any("listening" in line for line in capture.stderr)
                done = subprocess.run(side.command(*command), stderr=subprocess.PIPE, check=True, timeout=120)
                subprocess.run(side.command(sys.executable, "-c", _SEND.format(_LAST)), check=True, timeout=120)
                wait_for(lambda: _LAST.encode() in path.read_bytes())
            finally:
                capture.terminate()
    return ticker.longest_ms(done.stderr)


def _first_lines(path: Path) -> str:
    command = [sys.executable, "-m", "zmtpsniff", "diagnose", "--timeout", "1", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT)
    return "\n".join(done.stdout.splitlines()[:3])


@pytest.mark.parametrize("fault", shop.FAULTS)
def test_the_first_lines_tell(fault: str, tmp_path: Path) -> None:
    record(fault, tmp_path / "shop.pcap")
    lines = _first_lines(tmp_path / "shop.pcap")
    assert shop.FAULTS[fault].code in lines
    assert shop.FAULTS[fault].words in lines


def test_a_healthy_shop_makes_no_alarm(tmp_path: Path) -> None:
    record("none", tmp_path / "shop.pcap")
    assert alarms(diagnose(tmp_path / "shop.pcap")) == []
