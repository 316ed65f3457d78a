"""A subscriber whose host goes away, between two namespaces: nothing closes its window, and nobody acknowledges."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.analysis.findings.diagnoses import alarms, diagnose
from tests.support.namespaces import joined_namespaces, needs_namespaces

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


@pytest.mark.parametrize("goes_away", [True, False])
def test_a_host_that_goes_away(goes_away: bool, tmp_path: Path) -> None:
    path = tmp_path / "gone.pcap"
    with joined_namespaces() as (here, there):
        tcpdump = here.command("tcpdump", "-i", here.interface, "-U", "-B", "65536", "-w", str(path))
        with (
            subprocess.Popen(tcpdump, stderr=subprocess.PIPE, text=True) as capture,
            subprocess.Popen(here.command(*_program(_PUBLISHER, here.ipv4))) as publisher,
            subprocess.Popen(
                there.command(*_program(_SUBSCRIBER, here.ipv4)), stdout=subprocess.PIPE, text=True
            ) as subscriber,
        ):
            try:
                assert subscriber.stdout is not None
                assert subscriber.stdout.readline().startswith("tick")
                time.sleep(1)
                if goes_away:
                    there.ip("address", "delete", f"{there.ipv4}/24", "dev", there.interface)
                time.sleep(_GONE_SECONDS)
                capture.terminate()
                capture.wait(30)
            finally:
                for one in (capture, publisher, subscriber):
                    one.kill()
    told = alarms(diagnose(path))
    assert [code for code, _ in told] == (["subscriber-slow"] if goes_away else [])
    if goes_away:
        assert f"the SUB at {there.ipv4}:" in told[0][1]
        assert f"acknowledges nothing any more: {here.ipv4}:5599 waited " in told[0][1]
