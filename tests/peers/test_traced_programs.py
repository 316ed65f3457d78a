"""live -- COMMAND and live --pid: programs over ipc:// and tcp://, as they speak, through strace."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import ipc_pair
from tests.support.examples import sampled
from tests.support.live_program import PROGRAM, Record, live, running, wait_for
from tests.support.paths import program
from tests.support.runner import run

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
PAIR = program(ipc_pair)


def texts(records: list[Record]) -> list[str]:
    return [record["frames"][-1]["text"] for record in records if record["type"] == "message"]


def expected(rounds: int) -> list[str]:
    return [text for number in range(rounds) for text in (f"request {number}", f"reply {number}")]


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_command(transport: str, tmp_path: Path) -> None:
    """A program that forks; each message once although both ends are traced, and its exit status is told."""
    endpoint = f"ipc://{tmp_path}/socket" if transport == "ipc" else "tcp://127.0.0.1:*"
    command = [*PROGRAM, "-T", "json", "--", *PAIR, endpoint, "20", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    records = list(map(json.loads, done.stdout.splitlines()))
    assert texts(records) == expected(20)
    (connection,) = (record for record in records if record["type"] == "connection")
    assert (connection["transport"], connection["handshake"]) == (transport, "complete")
    assert records[-1]["dropped"] == 0
    assert f"{PAIR[0]} ended with status 7" in done.stderr
    assert "said by the command" in done.stderr


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_processes_that_run_already(transport: str, tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/socket" if transport == "ipc" else "tcp://127.0.0.1:*"
    with subprocess.Popen([*PAIR, endpoint, "0", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pair:
        assert pair.stdin
        assert pair.stdout
        assert pair.stdout.readline() == b"ready\n"
        pids = [str(pair.pid), pair.stdout.readline().decode().strip()]
        with live("--pid", pids[0], "--pid", pids[1]) as sniffer:
            # strace has attached once a call shows.
            for number in range(100):
                pair.stdin.write(b"x\n")
                pair.stdin.flush()
                pair.stdout.readline()
                if number > 90:
                    break
            records = sniffer.read_until(lambda records: len(texts(records)) > 20)
            children = sniffer.children()
            if transport == "ipc":
                sniffer.process.terminate()
                records = sniffer.read_all()
            else:  # it ends with the programs
                pair.stdin.close()
                records = sniffer.read_all()
            assert sniffer.process.wait(120) == 0, sniffer.said()
        assert running(children) == []
        (connection,) = (record for record in records if record["type"] == "connection")
        named = [connection[side]["process"]["pid"] for side in ("client", "server") if "process" in connection[side]]
        assert set(named) <= set(map(int, pids))
        assert named or transport == "tcp"  # whose are looked up beside the capture, if there is time
        assert pair.poll() is None or transport == "tcp"
        pair.stdin.close()


def test_interrupt_ends_the_command_too(tmp_path: Path) -> None:
    with live("--", sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)") as sniffer:
        children = sniffer.children()
        sniffer.interrupt()
        assert "was ended by SIGTERM" in sniffer.said()
    assert running(children) == []


@pytest.mark.parametrize("pause", sampled([0.003, 0, 0.01, 0.015, 0.006]))
def test_interrupt_while_the_command_starts(pause: float) -> None:
    """Before it has, strace tries what the kernel can do on processes of its own, which are not to be told."""
    command = [*PROGRAM, "-v", "-T", "json", "--", "sleep", "600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sniffer:
        assert sniffer.stderr
        sniffer.stderr.readline()
        time.sleep(pause)
        sniffer.send_signal(signal.SIGINT)
        records, said = sniffer.communicate(timeout=120)
    assert sniffer.returncode == 0
    assert "sleep was ended by SIGTERM" in said
    assert json.loads(records)["type"] == "capture"


STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b'here\\n')
time.sleep(600)
"""


def test_a_second_interrupt_kills_a_command_that_does_not_want_to_end() -> None:
    """Nor does its child want to, of which the shell does not tell."""
    python = f'{sys.executable} -c "{STUBBORN}"'
    with live("--", "sh", "-c", f"{python} & {python}") as sniffer:
        wait_for(lambda: sniffer.said().splitlines().count("here") == 2)
        children = sniffer.children()
        for _ in range(2):
            sniffer.process.send_signal(signal.SIGINT)
            time.sleep(1.1)
        assert sniffer.process.wait(60) == 0
    assert running(children) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--", "no-such-command-here"], "zmtpsniff: no-such-command-here: no such command\n"),
        (["--pid", "4194303"], "zmtpsniff: --pid 4194303: there is no such process\n"),
        (["--pid", "1", "--", "true"], "zmtpsniff: --pid: not with a command (see zmtpsniff live --help)\n"),
        (["-i", "lo", "--", "true"], "zmtpsniff: -i: not with -- COMMAND, where strace captures"),
    ],
)
def test_one_line_says_what_is_wrong(options: list[str], said: str) -> None:
    done = run("live", *options)
    assert done.returncode == 2
    assert done.stderr.startswith(said)


def test_one_line_says_what_to_install(tmp_path: Path) -> None:
    done = run("live", "--", sys.executable, env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr == "zmtpsniff: strace: not installed (apt install strace); --pid and -- COMMAND need it\n"
