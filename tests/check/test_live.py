"""Live traffic of real pyzmq programs held against a policy while it passes."""

import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import zmq

from tests.support.examples import crossed
from tests.support.live_program import LiveProgram, capturing, engine_names, needs_privilege, wait_for
from tests.support.ports import free_port
from tests.support.runner import run
from zmtpsniff.check.formats import FORMATS

PROGRAM = [sys.executable, "-m", "zmtpsniff", "check", "--live", "-v", "-i", "lo", "-T", "json"]
PATIENCE = 120  # seconds

POLICY = """\
include = ["protocol", "complete", "modern"]

[[rule]]
name = "orders flow"
expect = 'type == "message" && frames[1].text == "order"'
min = 20

[[rule]]
name = "orders are confirmed"
latency = { pattern = "request-reply", p99_ms = 30000, where = 'frames[1].text == "confirmed"' }
min = 20

[[rule]]
name = "nobody else"
forbid = 'type == "connection" && !(server.socket_type == "REP")'
"""


def _checking(policy: Path, *options: str) -> AbstractContextManager[LiveProgram]:
    """check with a policy, once it captures."""
    return capturing([*PROGRAM, "--policy", str(policy), *options])


def _orders(count: int, answered: bool = True) -> Callable[[int], None]:
    def talk(port: int) -> None:
        with zmq.Context() as context, context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
            for socket in (rep, req):
                socket.linger = 0
                socket.rcvtimeo = PATIENCE * 1000
            rep.bind(f"tcp://127.0.0.1:{port}")
            req.connect(f"tcp://127.0.0.1:{port}")
            for number in range(count):
                req.send(b"order")
                rep.recv()
                if answered or number < count - 1:
                    rep.send(b"confirmed")
                    req.recv()

    return talk


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, dict[str, bool]]:
    assert process.stdout
    out = process.stdout.read()
    return process.wait(PATIENCE), {rule["name"]: rule["passed"] for rule in json.loads(out)["rules"]}


@needs_privilege
@pytest.mark.parametrize(
    ("engine", "count", "answered", "broken"),
    crossed(
        engine_names(("dumpcap", "scapy")),
        [
            pytest.param(25, True, set()),
            pytest.param(25, False, {"every request answered"}),
            pytest.param(5, True, {"orders flow", "orders are confirmed"}),
        ],
    ),
)
def test_live_traffic(engine: str, count: int, answered: bool, broken: set[str], tmp_path: Path) -> None:
    port = free_port()
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with _checking(policy, "--engine", engine, "-f", f"tcp port {port}", "-w", str(tmp_path / "it.pcapng")) as program:
        _orders(count, answered)(port)
        wait_for(lambda: _closed(tmp_path / "it.pcapng"), PATIENCE)
        program.process.send_signal(signal.SIGINT)
        status, rules = _ended(program.process)
    assert {name for name, passed in rules.items() if not passed} == broken
    assert status == (1 if broken else 0)


def _closed(file: Path) -> bool:
    """Whether what was saved so far holds the end of the connection."""
    records = map(json.loads, run("read", "-T", "json", file).stdout.splitlines())
    return any(each["type"] == "connection" and each["end"] != "open" for each in records)


@needs_privilege
def test_it_ends_after_the_time_asked_for(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('include = ["protocol"]')
    port = free_port()
    command = [*PROGRAM, "--policy", str(policy), "-f", f"tcp port {port}", "-a", "duration:0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    rules = {rule["name"]: rule["passed"] for rule in json.loads(done.stdout)["rules"]}
    assert (done.returncode, rules) == (0, {"no errors": False})  # not checked: there was no traffic


@needs_privilege
def test_reports_belong_to_the_invoking_user() -> None:
    nobody = pwd.getpwnam("nobody")
    sudo = ["env", f"SUDO_UID={nobody.pw_uid}", f"SUDO_GID={nobody.pw_gid}", "SUDO_USER=nobody"]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        targets = [argument for name in FORMATS for argument in ("-T", f"{name}={folder}/{name}")]
        options = ["-a", "duration:0.5", "--include", "protocol", "-o", f"{folder}/json on standard output", *targets]
        done = subprocess.run(
            [*sudo, *PROGRAM, *options], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert "as nobody" in done.stderr
        assert done.returncode in (0, 1), done.stderr  # whatever others send over loopback
        files = list(Path(folder).iterdir())
        assert len(files) == len(FORMATS) + 1
        assert {(file.stat().st_uid, file.stat().st_gid) for file in files} == {(nobody.pw_uid, nobody.pw_gid)}


@needs_privilege
def test_what_cannot_be_captured_ends_it_with_2() -> None:
    command = [*PROGRAM, "-i", "no-such-if0", "--include", "protocol"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no-such-if0" in done.stderr


@needs_privilege
def test_changes_since_a_capture(tmp_path: Path) -> None:
    """The same service twice: saved at first, then captured, with a client that gets no reply any more."""
    port, saved = free_port(), tmp_path / "before.pcapng"
    policy = tmp_path / "policy.toml"
    policy.write_text('include = ["protocol"]')
    with _checking(policy, "-f", f"tcp port {port}", "-w", str(saved)) as program:
        _orders(25)(port)
        wait_for(lambda: _closed(saved), PATIENCE)
        program.process.send_signal(signal.SIGINT)
        program.process.wait(PATIENCE)
    command = [sys.executable, "-m", "zmtpsniff", "diff", "--live", "--fail", "-v", "-i", "lo", "-T", "json"]
    options = ["-f", f"tcp port {port}", "-w", str(tmp_path / "after.pcapng"), str(saved)]
    with capturing([*command, *options]) as program:
        _orders(25, answered=False)(port)
        wait_for(lambda: _closed(tmp_path / "after.pcapng"), PATIENCE)
        program.process.send_signal(signal.SIGINT)
        assert program.process.stdout
        differences = [json.loads(line) for line in program.process.stdout.read().splitlines()][:-1]
        status = program.process.wait(PATIENCE)
    problems = [one["subject"] for one in differences if one["aspect"] == "problems"]
    assert (status, problems) == (1, ["request-unanswered"])
