"""The program on a real terminal: tmux draws what a user sees."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.support import curve_pair
from tests.support.live_program import needs_privilege, running, wait_for
from tests.support.namespaces import needs_namespaces, separate_namespaces
from tests.support.paths import FIXTURES, program
from tests.support.runner import run

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
PROGRAM = f"{sys.executable} -m zmtpsniff browse"
_PATIENCE = 60.0  # seconds; a machine that does much else may be slow


class Tmux:
    """A server of tmux with one terminal."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")

    def start(self, command: str, width: int = 80, height: int = 24) -> None:
        command = f"unset COLUMNS LINES; {command}; sleep 600"  # or the size of the terminal of the tests counts
        self._run("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), command)

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def screen(self, *options: str) -> str:
        return self._run("capture-pane", "-p", *options)

    def until(self, text: str, *options: str) -> str:
        """The screen, once it has a text."""
        deadline = time.monotonic() + _PATIENCE
        while text not in (screen := self.screen(*options)):
            assert time.monotonic() < deadline, screen
            time.sleep(0.1)
        return screen

    def processes(self) -> set[int]:
        """The programs that run on the terminal, beside the shell that started them."""
        shell = self._run("list-panes", "-F", "#{pane_pid}").strip()
        found = subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=False)
        return set(map(int, found.stdout.split()))

    def end(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False)

    def _run(self, *words: str) -> str:
        return subprocess.run(["tmux", "-S", self._socket, *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    terminal = Tmux(tmp_path)
    yield terminal
    terminal.end()


@needs_tmux
@pytest.mark.parametrize("width", [80, 200])
def test_a_capture_is_looked_around_in(tmux: Tmux, width: int) -> None:
    tmux.start(f"{PROGRAM} {FIXTURES / 'm31_req_rep.pcap'}", width)
    tmux.until("1/30")
    tmux.press("G")
    tmux.until("30/30")
    tmux.press("2")
    assert "REQ" in tmux.until("socket")
    tmux.press("Escape")
    tmux.until("30/30")
    tmux.press("/")
    tmux.until("search for")
    tmux.press("reply 2", "Enter")
    tmux.press("N")
    tmux.until("reply 2")
    tmux.press("q")
    wait_for(lambda: "search" not in tmux.screen())


@needs_tmux
def test_without_colours_there_are_none(tmux: Tmux) -> None:
    tmux.start(f"NO_COLOR=1 {PROGRAM} {FIXTURES / 'm31_req_rep.pcap'}")
    tmux.until("1/30")
    screen = tmux.until("\x1b[7m", "-e")  # the cursor
    assert not any(f"\x1b[{code}m" in screen for code in range(30, 38))
    tmux.press("W")
    # The selected entry and the cursor are reversed.
    assert re.search(r"\x1b\[[0-9;]*7m(\x1b\[[0-9;]*m)*record\.json", tmux.until("record.json", "-e"))


@needs_tmux
@needs_privilege
def test_messages_come_while_somebody_looks(tmux: Tmux) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        port = push.bind_to_random_port("tcp://127.0.0.1")
        tmux.start(f"{PROGRAM} -i lo -f 'tcp port {port}'")
        tmux.until("following")
        pull.connect(f"tcp://127.0.0.1:{port}")
        for number in range(50):
            push.send(b"message %d" % number)
            pull.recv()
        tmux.until('"message 49"')
        tmux.press("p")
        tmux.until("paused")
        for number in range(50, 100):
            push.send(b"message %d" % number)
            pull.recv()
        tmux.until("50 more")
        assert "message 99" not in tmux.screen()
        tmux.press("p")
        tmux.until('"message 99"')
        tmux.press("s")
        tmux.until("over")


@needs_tmux
@needs_namespaces
def test_keys_of_the_programs_open_what_they_say(tmux: Tmux) -> None:
    with separate_namespaces() as (side, _):
        side.ip("link", "set", "lo", "up")
        tmux.start(" ".join(side.command(PROGRAM, "-i", "lo", "--curve-keys", "auto")), 120)
        tmux.until("following")
        command = side.command(*program(curve_pair), "5960", "0")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pair:
            assert pair.stdin is not None
            assert pair.stdout is not None
            try:
                assert pair.stdout.readline() == b"ready\n"
                pair.stdin.write(b"what it costs\n")
                pair.stdin.flush()
                tmux.until("reply to what it costs")
            finally:
                pair.kill()
        tmux.press("q")


def test_keys_of_programs_are_for_interfaces() -> None:
    done = run("browse", "--curve-keys", "auto", FIXTURES / "m31_req_rep.pcap")
    assert done.returncode == 2
    assert "--curve-keys auto: only with -i" in done.stderr


@needs_tmux
@needs_privilege
def test_it_ends_with_its_terminal(tmux: Tmux) -> None:
    tmux.start(f"{PROGRAM} -i lo -f 'tcp port 9'")
    tmux.until("filter")
    (pid,) = tmux.processes()
    tmux.end()
    wait_for(lambda: running([pid]) == [])


# Makes the file that it is given once the main thread waits for long for another one. Little may wait to be drawn, so
# that its end, too, has to wait; and it has a second for that.
ON_A_TERMINAL_OF_ITS_OWN = """
import fcntl, pathlib, sys, termios, threading, time
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import textual.drivers._writer_thread, zmtpsniff.browse.app
textual.drivers._writer_thread.MAX_QUEUED_WRITES = 1
zmtpsniff.browse.app._EXIT_SECONDS = 1.0
from zmtpsniff.cli.main import main
def watch(path, main=threading.main_thread().ident):
    waited = 0
    while waited < 10:
        waited = waited + 1 if sys._current_frames()[main].f_code.co_filename == threading.__file__ else 0
        time.sleep(0.05)
    path.touch()
threading.Thread(target=watch, args=[pathlib.Path(sys.argv.pop(1))], daemon=True).start()
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how to get a terminal of one's own differs")
def test_it_ends_with_a_terminal_that_nobody_reads(tmp_path: Path) -> None:
    """Textual's loop waits for the thread that writes, and that one ends with the terminal."""
    import fcntl
    import pty
    import struct
    import termios

    waits = tmp_path / "waits"
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    command = [sys.executable, "-c", ON_A_TERMINAL_OF_ITS_OWN, str(waits), "browse", str(FIXTURES / "m31_req_rep.pcap")]
    process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, start_new_session=True)
    try:
        os.close(there)
        drawn = b""
        while b"1/30" not in drawn:
            drawn += os.read(here, 65536)
        deadline = time.monotonic() + _PATIENCE
        while not waits.exists():
            assert time.monotonic() < deadline
            os.write(here, b"jk")  # something is drawn anew
            time.sleep(0.02)
        os.close(here)
        process.wait(_PATIENCE)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@needs_tmux
@needs_privilege
def test_a_busy_interface_is_followed_without_loss(tmux: Tmux) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        push.set_hwm(0)
        pull.set_hwm(0)
        port = push.bind_to_random_port("tcp://127.0.0.1")
        tmux.start(f"{PROGRAM} -i lo -f 'tcp port {port}'", 120)
        tmux.until("following")
        pull.connect(f"tcp://127.0.0.1:{port}")
        for number in range(50_000):
            push.send(b"message %d" % number)
            if number % 1000 == 0:
                tmux.press("k" if number % 2000 else "G")  # somebody looks meanwhile
        for _ in range(50_000):
            pull.recv()
        tmux.press("G")
        assert "dropped" not in tmux.until('"message 49999"')
        tmux.press("f")
        tmux.press('type == "message"', "Enter")
        tmux.until("/50,000 of 50,0")
