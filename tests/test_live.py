"""Live capture of real pyzmq programs over loopback, with each engine that is installed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

PROGRAM = [sys.executable, "-m", "zmtpsniff", "live"]
ENGINES = ["dumpcap", "tcpdump"]

needs_privilege = pytest.mark.skipif(os.geteuid() != 0, reason="capturing on lo needs root here")
each_engine = pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
        for name in ENGINES
    ],
)


@contextmanager
def live(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program, once it captures."""
    command = [*PROGRAM, "-i", "lo", "-v", "-T", "json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stderr
        try:
            assert b"capturing on lo" in program.stderr.readline()
            yield program
        finally:
            program.terminate()


def request_and_reply(count: int) -> tuple[int, list[bytes]]:
    """Send requests over loopback, each answered; returns the port and what was sent, in order."""
    sent = []
    with zmq.Context() as context, context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
        port = rep.bind_to_random_port("tcp://127.0.0.1")
        req.connect(f"tcp://127.0.0.1:{port}")
        for number in range(count):
            req.send(b"request %d" % number)
            rep.recv()
            rep.send(b"reply %d" % number)
            req.recv()
            sent += [b"request %d" % number, b"reply %d" % number]
    return port, sent


def messages(records: list[dict[str, object]], port: int) -> list[bytes]:
    ours = [r for r in records if r["type"] == "message" and f":{port}" in f"{r['src']} {r['dst']}"]
    return [record["frames"][1]["text"].encode() for record in ours]  # type: ignore[index]


@needs_privilege
@each_engine
def test_every_message_once_in_order_and_totals_after_an_interrupt(engine: str) -> None:
    with live("--engine", engine, "-f", "tcp") as program:
        port, sent = request_and_reply(200)
        assert program.stdout
        records = []
        while messages(records[-1:], port) != sent[-1:]:
            records.append(json.loads(program.stdout.readline()))
        program.send_signal(signal.SIGINT)
        records += [json.loads(line) for line in program.stdout.read().splitlines()]
        assert program.wait(10) == 0
    assert messages(records, port) == sent
    assert records[-1]["type"] == "capture"
    assert records[-1]["dropped"] == 0


@needs_privilege
@each_engine
def test_messages_appear_while_the_capture_goes_on(engine: str) -> None:
    with live("--engine", engine, "-f", "tcp") as program:
        port, sent = request_and_reply(3)
        seen: list[bytes] = []
        assert program.stdout
        while len(seen) < len(sent):
            seen += messages([json.loads(program.stdout.readline())], port)
        assert seen == sent
        assert program.poll() is None


@needs_privilege
@each_engine
def test_nothing_is_left_running(engine: str) -> None:
    with live("--engine", engine, "-a", "duration:0.5") as program:
        children = subprocess.run(["pgrep", "-P", str(program.pid)], capture_output=True, text=True, check=False)
        assert children.stdout.split()
        assert program.wait(10) == 0
    left = subprocess.run(
        ["ps", "-o", "pid=", "-p", ",".join(children.stdout.split())], capture_output=True, check=False
    )
    assert left.stdout.strip() == b""


@needs_privilege
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-i", "lo", "-f", "tcp porrt 5"], "syntax error"),
        (["-i", "no-such-interface0"], "no-such-interface0"),
        (["-i", "lo", "-a", "files:3"], "must be duration:N"),
    ],
)
def test_what_cannot_be_captured_is_told_in_one_line(options: list[str], said: str) -> None:
    if not any(map(shutil.which, ENGINES)):
        pytest.skip("neither dumpcap nor tcpdump is installed")
    done = subprocess.run([*PROGRAM, *options], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="giving up a privilege needs root and setpriv"
)
def test_without_privilege_the_ways_out_are_told() -> None:
    if not any(map(shutil.which, ENGINES)):
        pytest.skip("neither dumpcap nor tcpdump is installed")
    without = ["setpriv", "--bounding-set=-net_raw,-net_admin", "--inh-caps=-all"]
    done = subprocess.run([*without, *PROGRAM, "-i", "lo"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "sudo" in done.stderr
    assert "wireshark" in done.stderr
