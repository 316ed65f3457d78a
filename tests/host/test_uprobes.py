"""Why there are no probes, in one line, and what is left of a run that was killed."""

import contextlib
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.curve_program import PACKAGED, libsodium, needs_wheel
from tests.support.uprobes import EVENTS, names, need_uprobes, placed
from zmtpsniff.host import uprobes
from zmtpsniff.host.elf import find_functions
from zmtpsniff.host.processes import started
from zmtpsniff.host.uprobes import BEFORENM, NoUprobesError, Uprobes, find_tracefs, reason, remove_left

FORBIDDEN = PermissionError(1, "Operation not permitted")
ALL = (1 << 41) - 1
CONTAINER = 0xA80425FB  # what Docker leaves to root


@pytest.mark.parametrize(
    ("lockdown", "capabilities", "said"),
    [
        ("none integrity [confidentiality]", ALL, "the kernel is locked down"),
        ("none [integrity] confidentiality", CONTAINER, "root of a container"),
        ("", CONTAINER, "root of a container"),
        ("[none] integrity confidentiality", ALL, "the kernel places no probes"),
    ],
)
def test_one_line_says_which_it_is(
    lockdown: str, capabilities: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"/sys/kernel/security/lockdown": lockdown, "/proc/self/status": f"CapEff:\t{capabilities:016x}\n"}
    monkeypatch.setattr(uprobes, "read_text", lambda name: files[name])
    line = reason(FORBIDDEN)
    assert line.startswith(said)
    assert "Operation not permitted" in line
    assert "\n" not in line


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoUprobesError, match="only root may take keys"):
        find_tracefs()


@pytest.mark.parametrize(("has_folder", "said"), [(False, "CONFIG_FTRACE"), (True, "CONFIG_UPROBE_EVENTS")])
def test_kernel_without_it(has_folder: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tracing"
    if has_folder:
        folder.mkdir()
        (folder / "trace").touch()
    monkeypatch.setattr(uprobes, "_TRACEFS", str(folder))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NoUprobesError, match=said):
        find_tracefs()


def test_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uprobes, "_REGISTERS", {})
    with pytest.raises(NoUprobesError, match="only on x86_64 and aarch64"):
        find_tracefs()


def close_pipe() -> None:
    """Have nobody read the calls any more."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if entry.readlink().name == "trace_pipe":
                null = os.open(os.devnull, os.O_RDONLY)
                os.dup2(null, int(entry.name))  # which is closed once more
                os.close(null)


def test_what_a_killed_run_left_goes_and_what_runs_stays() -> None:
    need_uprobes()
    with closing(Uprobes()) as probes:
        with open(os.__file__, "rb") as file:
            probes.add(file.fileno(), {"crypto_box_beforenm": 64})
        assert len(placed(os.getpid())) == 2
        group = f"zmtpsniff_{os.getpid()}_{started(os.getpid())}"
        assert group not in remove_left(find_tracefs())  # which may find what a program of another test has left
        assert len(placed(os.getpid())) == 2
        close_pipe()  # who has ended has closed it
        # As if this process had ended, and another had its number now.
        assert group in remove_left(find_tracefs(), lambda pid: "0" if pid == os.getpid() else started(pid))
        assert placed(os.getpid()) == []


COME_AND_GO = """
import os, sys
events = os.open(sys.argv[1], os.O_WRONLY)
add = [f"p:{sys.argv[2]}/n{number} {os.__file__}:{number + 8:#x}\\n".encode() for number in range(60)]
remove = [f"-:{sys.argv[2]}/n{number}\\n".encode() for number in range(60)]
for line in add:
    os.write(events, line)
print(flush=True)
while os.path.exists(sys.argv[3]):
    for number in range(60):
        os.write(events, remove[number])
        os.write(events, add[number])
for line in remove:
    os.write(events, line)
"""


@pytest.mark.slow
def test_probes_go_while_others_come_and_go(tmp_path: Path) -> None:
    """The kernel gives the list of all probes in pieces: one that goes between two reads hides another."""
    need_uprobes()
    (tmp_path / "on").touch()
    command = [sys.executable, "-c", COME_AND_GO, str(EVENTS), f"tests_{os.getpid()}", str(tmp_path / "on")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            for _ in range(30):
                with closing(Uprobes()) as probes, open(os.__file__, "rb") as file:
                    for offset in range(72, 80):
                        probes.add(file.fileno(), {BEFORENM: offset})
                groups = names(f"{EVENTS.parent}/events")
                assert [name for name in groups if name.startswith(f"zmtpsniff_{os.getpid()}_")] == []
        finally:
            (tmp_path / "on").unlink()
    assert process.returncode == 0


def test_an_exception_takes_the_probes_away() -> None:
    need_uprobes()
    seen: list[str] = []

    def fail() -> None:
        with closing(Uprobes()):
            seen.extend(placed(os.getpid()))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen != []
    assert placed(os.getpid()) == []


CALLS = """
import ctypes, sys, time
make = ctypes.CDLL(sys.argv[1]).crypto_box_beforenm
print(flush=True)
for number in range(int(sys.argv[2])):
    make(ctypes.create_string_buffer(32), number.to_bytes(32, "little"), b"secret" * 6)
    time.sleep(0.001)
"""


@needs_wheel
def test_probes_that_go_cost_others_no_call(tmp_path: Path) -> None:
    """The kernel empties the buffers of whoever had them."""
    need_uprobes()
    count = 500
    library = libsodium(PACKAGED[0].parent)

    def place(probes: Uprobes, file: Path) -> list[str]:
        with file.open("rb") as opened:
            return probes.add(opened.fileno(), find_functions(opened.fileno(), [BEFORENM], os.uname().machine))

    with closing(Uprobes()) as probes:
        place(probes, library)
        command = [sys.executable, "-c", CALLS, str(library), str(count)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            for number in range(3):
                copy = tmp_path / str(number)
                shutil.copy(library, copy)
                probes.remove(place(probes, copy))
            process.wait()
            seen = {int.from_bytes(call.public_key, "little") for call in probes.read() if call.thread == process.pid}
    assert seen == set(range(count))
