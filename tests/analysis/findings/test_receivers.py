"""A subscriber whose host goes away, or is not heard any more, between two namespaces: its window stays open."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.analysis.findings.diagnoses import alarms, diagnose
from tests.support.namespaces import Side, joined_namespaces, needs_namespaces

pytestmark = [pytest.mark.slow, needs_namespaces]

_PUBLISHER = """
import time, zmq
with zmq.Context() as context, context.socket(zmq.PUB) as socket:
    socket.bind("tcp://{address}:5599")
    number = 0
    while True:
        socket.send(b"tick %d" % number)
        number += 1
        time.sleep(0.1)
"""
_SUBSCRIBER = """
import zmq
with zmq.Context() as context, context.socket(zmq.SUB) as socket:
    socket.subscribe(b"")
    socket.connect("tcp://{address}:5599")
    while True:
        print(socket.recv().decode(), flush=True)
"""
_GONE_SECONDS = 8.0  # for which copies come, each after twice the time of the one before


def _program(text: str, address: str) -> tuple[str, ...]:
    return sys.executable, "-c", text.format(address=address)


@contextmanager
def _started(tcpdump: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """A capture once it listens."""
    with subprocess.Popen(tcpdump, stderr=subprocess.PIPE, text=True) as capture:
        assert capture.stderr is not None
        assert any("listening" in line for line in capture.stderr)
        yield capture


def _record(path: Path, at: int, change: Callable[[Side, Side], None]) -> tuple[Side, Side]:
    """Capture a publisher in one namespace and a subscriber in another, at one of them; something changes soon."""
    with joined_namespaces() as sides:
        here, there = sides
        tcpdump = sides[at].command("tcpdump", "-i", sides[at].interface, "-U", "-B", "65536", "-w", str(path))
        with (
            _started(tcpdump) as capture,
            subprocess.Popen(here.command(*_program(_PUBLISHER, here.ipv4))) as publisher,
            subprocess.Popen(
                there.command(*_program(_SUBSCRIBER, here.ipv4)), stdout=subprocess.PIPE, text=True
            ) as subscriber,
        ):
            try:
                assert subscriber.stdout is not None
                assert subscriber.stdout.readline().startswith("tick")
                time.sleep(1)
                change(here, there)
                time.sleep(_GONE_SECONDS)
                capture.terminate()
                capture.wait(120)
            finally:
                for one in (capture, publisher, subscriber):
                    one.kill()
    return sides


@pytest.mark.parametrize("goes_away", [True, False])
def test_a_host_that_goes_away(goes_away: bool, tmp_path: Path) -> None:
    path = tmp_path / "gone.pcap"

    def change(here: Side, there: Side) -> None:
        if goes_away:
            there.ip("address", "delete", f"{there.ipv4}/24", "dev", there.interface)

    here, there = _record(path, 0, change)
    told = alarms(diagnose(path))
    assert [code for code, _ in told] == (["subscriber-slow"] if goes_away else [])
    if goes_away:
        assert f"the SUB at {there.ipv4}:" in told[0][1]
        assert f"acknowledges nothing any more: {here.ipv4}:5599 waited " in told[0][1]


@pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft")
def test_a_firewall_that_drops_one_direction(tmp_path: Path) -> None:
    """The subscriber is healthy and acknowledges all: nobody dropped messages, and nobody is slow."""
    path = tmp_path / "dropped.pcap"

    def change(here: Side, there: Side) -> None:
        rules = "add table ip t; add chain ip t c { type filter hook input priority 0; }; "
        rules += f"add rule ip t c ip saddr {there.ipv4} drop"
        subprocess.run(here.command("nft", rules), check=True)

    here, there = _record(path, 1, change)
    told = alarms(diagnose(path))
    assert [code for code, _ in told] == ["network-one-way"]
    assert told[0][1].startswith(f"what {there.ipv4} sends does not reach {here.ipv4}:5599: ")
