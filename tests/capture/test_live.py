"""Live capture of real pyzmq programs over loopback, with each engine that is installed."""

import os
import shlex
import shutil
import subprocess

import pytest
import zmq

from tests.support.examples import crossed
from tests.support.live_program import PROGRAM, Record, engine_names, engines, live, needs_privilege, running
from tests.support.ports import free_port
from tests.support.runner import assert_refused, run


def request_and_reply(count: int, port: int = 0) -> tuple[int, list[bytes]]:
    """Send requests over loopback, each answered; returns the port and what was sent, in order."""
    sent = []
    port = port or free_port()
    with zmq.Context() as context, context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
        rep.bind(f"tcp://127.0.0.1:{port}")
        req.connect(f"tcp://127.0.0.1:{port}")
        for number in range(count):
            req.send(b"request %d" % number)
            rep.recv()
            rep.send(b"reply %d" % number)
            req.recv()
            sent += [b"request %d" % number, b"reply %d" % number]
    return port, sent


def messages(records: list[Record], port: int) -> list[bytes]:
    ours = [r for r in records if r["type"] == "message" and f":{port}" in f"{r['src']} {r['dst']}"]
    return [record["frames"][1]["text"].encode() for record in ours]


@needs_privilege
@engines()
def test_every_message_once_in_order_and_totals_after_an_interrupt(engine: str) -> None:
    # Of this port alone: whatever else goes over loopback may be more than is captured in time.
    port = free_port()
    with live("--engine", engine, "-i", "lo", "-f", f"tcp port {port}") as program:
        _, sent = request_and_reply(200, port)
        # They appear while the capture goes on.
        program.read_until(lambda records: messages(records[-1:], port) == sent[-1:])
        records = program.interrupt()
    assert messages(records, port) == sent
    assert records[-1]["type"] == "capture"
    assert records[-1]["dropped"] == 0


@needs_privilege
@engines(slow=("tcpdump", "tshark"))
def test_nothing_is_left_running(engine: str) -> None:
    port = free_port()
    with live("--engine", engine, "-i", "lo", "-f", f"tcp port {port}", "-c", "1") as program:
        children = program.children()
        assert children or engine == "scapy"  # which captures in our own process
        request_and_reply(1, port)
        assert program.process.wait(60) == 0
    assert running(children) == []


WRONG = {
    "-i lo -f 'tcp porrt 5'": "syntax error",
    "-i no-such-if0": "no-such-if0",
    "-i \x1b[31mred": "[31mred",
    "-i lo -a files:3": "must be duration:N",
}


@needs_privilege
@pytest.mark.parametrize(("wrong", "engine"), crossed([*WRONG], engine_names()))
def test_what_cannot_be_captured_is_told_in_one_line(wrong: str, engine: str) -> None:
    options, said = shlex.split(wrong), WRONG[wrong]
    done = run("live", "--engine", engine, *options)
    assert_refused(done, said)
    assert done.stderr.rstrip("\n").isprintable()


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="giving up a privilege needs root and setpriv"
)
def test_without_privilege_the_ways_out_are_told() -> None:
    without = ["setpriv", "--bounding-set=-net_raw,-net_admin", "--inh-caps=-all"]
    done = subprocess.run([*without, *PROGRAM, "-i", "lo"], capture_output=True, text=True, check=False)
    assert_refused(done, "sudo", "wireshark")
