"""The tshark engine on interfaces: a tunnel of the kernel, interfaces that only tshark knows, what is left behind."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.conversation import FEW, check, closed, converse
from tests.support.examples import sampled
from tests.support.live_program import PROGRAM, LiveProgram, live, needs_privilege, running, wait_for
from tests.support.namespaces import Side, joined_namespaces, needs_namespaces
from tests.support.runner import assert_refused, run

needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None or shutil.which("dumpcap") is None, reason="tshark is not installed"
)
pytestmark = [needs_tshark, needs_privilege]

# Of itself randpkt takes a kind of packet by chance, and among those of some kinds (usb-linux, tr) are packets that
# dumpcap drops, and ends with.
_OF_ONE_KIND = ("--tshark-option", "extcap.randpkt.type:tcp")


@pytest.fixture(params=sampled(["9472", "4789"]))
def tunnel(request: pytest.FixtureRequest) -> Iterator[tuple[Side, Side, str]]:
    """Two namespaces with a VXLAN between them, over the network between them; its port, VXLAN's own and another."""
    with joined_namespaces() as sides:
        ends = []
        for side, other in (sides, sides[::-1]):
            end = side._replace(ipv4=side.ipv4.replace("10.77", "10.78"))
            port = ["dstport", request.param]
            wrapped = ["type", "vxlan", "id", "7", "remote", other.ipv4, *port, "dev", side.interface]
            added = subprocess.run(
                ["ip", "-n", side.namespace, "link", "add", "vx0", *wrapped],
                capture_output=True,
                text=True,
                check=False,
            )
            if added.returncode:
                pytest.skip(f"no VXLAN can be made here: {added.stderr.strip()}")
            side.ip("address", "add", f"{end.ipv4}/24", "dev", "vx0")
            side.ip("link", "set", "vx0", "up")
            ends.append(end)
        yield ends[0], ends[1], request.param


@needs_namespaces
def test_inside_a_vxlan(tunnel: tuple[Side, Side, str]) -> None:
    here, there, port = tunnel
    # On the interface that the tunnel goes over, where other engines see UDP.
    options = ["--engine", "tshark", "-i", here.interface, "--max-bytes", "0", "-f", f"udp port {port}"]
    options += ["--tshark-option", f"udp.port=={port},vxlan"]
    with live(*options, prefix=here.command()) as program:
        logs = converse(here, there, here.ipv4, FEW)
        program.read_until(closed(len(FEW) + 1, here.ipv4))
        records = program.interrupt()
    check(records, logs, here.ipv4, FEW)
    assert not [record for record in records if record.get("severity") == "error"]


def test_neither_processes_nor_files_are_left(tmp_path: Path) -> None:
    with live("--engine", "tshark", "-i", "lo", "-f", "tcp", prefix=["env", f"TMPDIR={tmp_path}"]) as program:
        wait_for(lambda: len(program.children()) >= 3)  # dumpcap, its guard, tshark
        children = program.children()
        program.interrupt()
        assert running(children) == []
    assert list(tmp_path.iterdir()) == []


def test_none_outlives_us() -> None:
    with live("--engine", "tshark", "-i", "lo", "-f", "tcp") as program:
        wait_for(lambda: len(program.children()) >= 3)
        children = program.children()
        program.process.kill()
        wait_for(lambda: running(children) == [])


def test_a_killed_tshark_ends_the_capture_with_its_reason() -> None:
    with live("--engine", "tshark", "-i", "lo", "-f", "tcp") as program:
        wait_for(lambda: "tshark" in names(program.children()).values())  # one that only was forked has another name
        [tshark] = [pid for pid, name in names(program.children()).items() if name == "tshark"]
        os.kill(tshark, signal.SIGKILL)
        records = program.read_all()
        assert program.process.wait(120) == 2, program.said()
    assert "ended by signal 9" in program.said()
    assert [record.get("code") for record in records if record["type"] == "problem"] == ["capture-ended"]
    assert records[-1]["type"] == "capture"
    assert "Traceback" not in program.said()


def _packets_of_randpkt(*options: str) -> int:
    """The number of packets of a capture of tshark's interface randpkt."""
    known = subprocess.run(["tshark", "-D"], capture_output=True, text=True, check=False).stdout
    if not re.search(r"^\d+\. randpkt", known, re.MULTILINE):
        pytest.skip("tshark has no randpkt interface here")
    command = [*PROGRAM, "-T", "json", "--engine", "tshark", "-i", "randpkt", *options, *_OF_ONE_KIND]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["type"] == "capture"
    packets: int = last["packets"]
    return packets


def test_an_interface_that_only_tshark_knows() -> None:
    # It makes 1,000 packets unless told otherwise, and of a program that ends tshark may lose the last ones.
    more = ["--tshark-option", "extcap.randpkt.count:100000"]
    assert _packets_of_randpkt("-c", "1500", "-a", "duration:100", *more) == 1500


@pytest.mark.slow
def test_an_interface_that_ends_by_itself() -> None:
    assert 0 < _packets_of_randpkt() <= 1000  # nothing else ends it


class Listener(NamedTuple):
    """A capture of what comes by UDP to a port, for which tshark starts udpdump and dumpcap; and all its processes."""

    program: LiveProgram
    children: list[int]
    port: int


@contextmanager
def listen(*options: str) -> Iterator[Listener]:
    """A capture on a port that nobody else has: by default udpdump takes 5555, which only one can."""
    known = subprocess.run(["tshark", "-D"], capture_output=True, text=True, check=False).stdout
    if not re.search(r"^\d+\. udpdump", known, re.MULTILINE):
        pytest.skip("tshark has no udpdump interface here")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("", 0))
        port: int = free.getsockname()[1]
    command = ("--engine", "tshark", "-i", "udpdump", "--tshark-option", f"extcap.udpdump.port:{port}", *options)
    with live(*command) as program:
        wait_for(lambda: {"udpdump", "dumpcap"} <= set(names(program.children()).values()))
        children = program.children()
        try:
            yield Listener(program, children, port)
        finally:  # nothing of a failure goes on
            for pid in running(children):
                os.kill(pid, signal.SIGKILL)


def names(pids: list[int]) -> dict[int, str]:
    """The names of processes by their numbers."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,comm="], capture_output=True, text=True, check=True)
    found = dict(line.split(maxsplit=1) for line in listed.stdout.splitlines())
    return {pid: found[str(pid)] for pid in pids if str(pid) in found}


@pytest.mark.slow
def test_an_extcap_program_ends_with_the_capture() -> None:
    with (
        listen("-c", "1") as (program, children, port),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):

        def send_until_it_ends() -> bool:
            """Send again: what comes before udpdump has its socket is lost."""
            sender.sendto(b"hello", ("127.0.0.1", port))
            return program.process.poll() is not None

        wait_for(send_until_it_ends)
        assert program.process.returncode == 0, program.said()
        assert program.read_all()[-1]["packets"] == 1
        assert running(children) == []


@pytest.mark.slow
def test_an_extcap_program_ends_with_an_interrupt() -> None:
    with listen() as (program, children, _):
        assert program.interrupt()[-1]["type"] == "capture"
        assert running(children) == []


@pytest.mark.slow
def test_no_extcap_program_outlives_us() -> None:
    with listen() as (program, children, _):
        program.process.kill()
        wait_for(lambda: running(children) == [])


@pytest.mark.slow
def test_an_extcap_program_whose_tshark_is_killed_ends_with_the_capture() -> None:
    """It runs on, since dumpcap does; only the group that both belong to can end it."""
    with listen() as (program, children, _):
        (udpdump,) = [pid for pid, name in names(children).items() if name == "udpdump"]
        parent = subprocess.run(["ps", "-o", "ppid=", "-p", str(udpdump)], capture_output=True, text=True, check=True)
        os.kill(int(parent.stdout), signal.SIGKILL)
        wait_for(lambda: running([int(parent.stdout)]) == [])
        program.interrupt()
        assert running(children) == []


@pytest.mark.parametrize("there", [[], ["tshark"]])
def test_what_is_missing_is_told_in_one_line(tmp_path: Path, there: list[str]) -> None:
    for name in there:
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    done = run("live", "--engine", "tshark", "-i", "lo", env={**os.environ, "PATH": str(tmp_path)})
    assert_refused(done, f"{'dumpcap' if there else 'tshark'}: not installed")
