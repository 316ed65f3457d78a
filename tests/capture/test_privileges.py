"""Privileges are given up to who called sudo, before anything from the network is looked at."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.capture.test_live import messages, request_and_reply
from tests.support.live_program import engines, live, needs_privilege, running, wait_for
from tests.support.paths import FIXTURES, PROJECT
from tests.support.ports import free_port
from tests.world.tap import load
from zmtpsniff.render import FORMATS

NOBODY = pwd.getpwnam("nobody")
SUDO = ["env", f"SUDO_UID={NOBODY.pw_uid}", f"SUDO_GID={NOBODY.pw_gid}", "SUDO_USER=nobody"]

pytestmark = needs_privilege


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@engines(slow=("tcpdump",))
def test_started_with_sudo_it_goes_on_as_the_invoking_user(engine: str) -> None:
    port = free_port()
    with live("-i", "lo", "-f", f"tcp port {port}", "--engine", engine, prefix=SUDO) as program:
        assert "as nobody" in program.said()
        status = status_of(program.pid)
        assert {*status["Uid"].split(), *status["Gid"].split()} == {str(NOBODY.pw_uid), str(NOBODY.pw_gid)}
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            assert int(status[kind], 16) == 0, kind
        assert status["NoNewPrivs"] == "1"
        children = program.children()
        _, sent = request_and_reply(5, port)
        program.read_until(lambda records: messages(records, port) == sent)
        program.interrupt()
    wait_for(lambda: running(children) == [])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may write to."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def test_files_belong_to_the_invoking_user(open_folder: Path) -> None:
    written = [open_folder / "records.json", open_folder / "packets.pcapng"]
    options = ["-o", str(written[0]), "-w", str(written[1])]
    port = free_port()
    with live("-i", "lo", "-f", f"tcp port {port}", *options, prefix=SUDO) as program:
        request_and_reply(1, port)
        wait_for(lambda: b"request 0" in written[1].read_bytes())
        program.process.send_signal(signal.SIGINT)
        assert program.process.wait(120) == 0, program.said()
    for file in written:
        assert (file.stat().st_uid, file.stat().st_gid) == (NOBODY.pw_uid, NOBODY.pw_gid)
    assert {packet[1] for packet in load(written[1])} == {1}


# Runs the program where only root may read it, as in root's home: nothing is imported once privileges are given up.
OUT_OF_REACH = """
import os, sys
from zmtpsniff.cli.main import main

class OutOfReach:
    @staticmethod
    def find_spec(name, path=None, target=None):
        raise ModuleNotFoundError(f"{name} is imported too late", name=name)

def setresuid(*ids, become=os.setresuid):
    become(*ids)
    sys.meta_path.insert(0, OutOfReach)

os.setresuid = setresuid
main()
"""


BEFORE = "CAPTURE"


@pytest.fixture(name="before")
def _before() -> Iterator[Path]:
    """A capture that every user may read, wherever the clone is."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(shutil.copy(FIXTURES / "m31_req_rep.pcap", folder))


@pytest.mark.parametrize(
    "command",
    [
        *(pytest.param(["live", "-T", name], marks=[pytest.mark.slow] * (name != "tree")) for name in FORMATS),
        pytest.param(["live", "-T", "json", "--decode-bodies", "-Y", "packet > 0"], marks=pytest.mark.slow),
        ["live", "--curve-keys", "auto"],
        pytest.param(
            ["live", "--engine", "tshark"],
            marks=pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
        ),
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in (
                ["check", "--live", "--include", "protocol"],
                ["diagnose", "--live"],
                ["trace", "--live"],
                ["diff", "--live", BEFORE],
            )
        ),
    ],
    ids=" ".join,
)
def test_it_needs_nothing_more_that_only_root_may_read(command: list[str], tmp_path: Path, before: Path) -> None:
    command = [str(before) if word is BEFORE else word for word in command]
    port = free_port()
    options = ["-i", "lo", "-f", f"tcp port {port}", "-c", "10"]
    program = [*SUDO, sys.executable, "-c", OUT_OF_REACH, *command, *options]
    tmp_path.chmod(0o700)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path, env=environment
    ) as process:
        threading.Thread(target=_talk_until, args=(process.poll, port), daemon=True).start()
        said = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 0, said
    assert "too late" not in said


def _talk_until(is_over: Callable[[], object], port: int) -> None:
    while is_over() is None:
        request_and_reply(1, port)
        time.sleep(0.1)  # for the program to start, or this takes its processor


PLUG_IN = """
import os, sys
sys.stderr.write(f"loaded as {os.geteuid()}\\n")

class Tea:
    name = "tea"

    def match(self, message, connection):
        return False

    dissect = match
"""


@pytest.mark.parametrize("command", [["live"], ["check", "--live", "--include", "protocol"]], ids=["live", "check"])
def test_plug_ins_do_not_run_as_root(command: list[str], open_folder: Path) -> None:
    """Neither a file nor an installed package, which is two folders here as pip would make them."""
    (open_folder / "tea.py").write_text(PLUG_IN)
    (open_folder / "offer.py").write_text(PLUG_IN.replace("loaded", "offer loaded"))
    info = open_folder / "offer-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offer\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[zmtpsniff.dissectors]\noffer = offer:Tea\n")
    program = [*SUDO, f"PYTHONPATH={open_folder}", sys.executable, "-m", "zmtpsniff", *command]
    options = ["-i", "lo", "-f", "tcp port 9", "-a", "duration:0.3", "--plugin", str(open_folder / "tea.py")]
    done = subprocess.run([*program, *options], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "loaded as" in line]
    assert said == [f"loaded as {NOBODY.pw_uid}", f"offer loaded as {NOBODY.pw_uid}"]


def test_plug_in_that_only_root_can_read(tmp_path: Path) -> None:
    plug_in = tmp_path / "tea.py"
    plug_in.write_text(PLUG_IN)
    plug_in.chmod(0o600)
    program = [*SUDO, sys.executable, "-m", "zmtpsniff", "live", "-i", "lo", "-a", "duration:0.3"]
    done = subprocess.run(
        [*program, "--plugin", str(plug_in)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"zmtpsniff: plug-in {plug_in}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("environment", [{"SUDO_UID": "0"}, {"SUDO_UID": "what"}, {"SUDO_UID": "3999999999"}, {}])
def test_who_is_root_without_sudo_stays_so(environment: dict[str, str]) -> None:
    code = "import os; from zmtpsniff.capture.privileges import drop_privileges; print(drop_privileges(), os.geteuid())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "0"]


# Runs the program with an observer in front of each parser, which notes the state of all threads when it is first used.
OBSERVED = """
import json, sys
from contextlib import suppress
from pathlib import Path
import zmtpsniff.capture.file_octets, zmtpsniff.capture.pcap, zmtpsniff.capture.pcapng, zmtpsniff.net.packets
import dissectors.zmtp.greeting
from zmtpsniff.cli.main import main

FOLDER = Path(__file__).parent

def observe(owner, name, seen=[]):
    parse = getattr(owner, name)
    def parser(*given, **named):
        if name not in seen:
            seen.append(name)
            states = []
            for path in Path("/proc/self/task").glob("*/status"):
                with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
                    states.append(path.read_text())
            (FOLDER / name).write_text(json.dumps(states))
        return parse(*given, **named)
    setattr(owner, name, parser)

observe(zmtpsniff.capture.file_octets.FileOctets, "extend")
observe(zmtpsniff.capture.pcap, "read_pcap")
observe(zmtpsniff.capture.pcapng, "read_pcapng")
observe(zmtpsniff.net.packets.HeaderDecoder, "segments_of")
observe(dissectors.zmtp.greeting, "parse_after_revision")
main()
"""


@engines(only=("dumpcap", "tcpdump", "scapy"), slow=("tcpdump",))
def test_parsers_run_only_when_no_capability_is_left(engine: str, open_folder: Path) -> None:
    """Of no thread, at the first octet from the network that each parser sees."""
    program = open_folder / "observed.py"
    program.write_text(OBSERVED)
    port = free_port()
    options = ["-i", "lo", "-f", f"tcp port {port}", "--engine", engine, "-T", "json"]
    command = [*SUDO, sys.executable, str(program), "live", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/") as process:
        try:
            wait_for(lambda: _asked(open_folder, "parse_after_revision", port))
        finally:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 0, said
    parsers = {"segments_of", "parse_after_revision"} | ({"extend"} if engine != "scapy" else set())
    assert parsers <= {path.name for path in open_folder.iterdir()}
    for parser in parsers:
        states = json.loads((open_folder / parser).read_text())
        assert states
        for state in states:
            fields = {name: value.strip() for name, _, value in (line.partition(":") for line in state.splitlines())}
            assert set(fields["Uid"].split()) == {str(NOBODY.pw_uid)}, parser
            assert set(fields["Gid"].split()) == {str(NOBODY.pw_gid)}, parser
            for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
                assert int(fields[kind], 16) == 0, (parser, kind)


def _asked(folder: Path, name: str, port: int) -> bool:
    """Send a message now and then until a parser has been used."""
    if not (folder / name).exists():
        request_and_reply(1, port)
    return (folder / name).exists()
