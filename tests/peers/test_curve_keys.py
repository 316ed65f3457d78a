"""Into CURVE connections of unmodified pyzmq programs, with keys that are taken from them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dissectors.zmtp.curve_keys import Key, format_key
from tests.support import curve_pair, no_perf_events
from tests.support.conversation import UNDER_CURVE, check, closed, converse, octets, wrong
from tests.support.curve_program import compiled, connect, copied, started
from tests.support.examples import sampled
from tests.support.live_program import LiveProgram, Record, live, wait_for
from tests.support.namespaces import Side, joined_namespaces, needs_namespaces
from tests.support.paths import PROJECT, program
from tests.support.runner import read_json
from tests.support.shown_commands import blocks
from tests.support.uprobes import need_uprobes, placed
from zmtpsniff.host.memory_keys import MemorySearch

pytestmark = needs_namespaces
PORT = 5960
ZMTPSNIFF = [sys.executable, "-m", "zmtpsniff"]
RECONNECTS = 1000


@pytest.fixture(scope="module", autouse=True)
def uprobes() -> None:
    need_uprobes()


class Pair:
    """curve_pair.py while it runs."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.pid = process.pid

    def await_line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().decode().strip()

    def ask(self, text: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()
        assert self.await_line() == f"reply to {text}"


@contextmanager
def pair(side: Side, *words: str, prefix: Sequence[str] = ()) -> Iterator[Pair]:
    """A server and its client, once they have talked; ``prefix`` is a command that runs them."""
    command = side.command(*prefix, *program(curve_pair), str(PORT), *(words or ["0"]))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            running = Pair(process)
            assert running.await_line() in ("ready", "done")
            yield running
        finally:
            process.kill()


@contextmanager
def keys(side: Side, *options: str, prefix: Sequence[str] = ()) -> Iterator["subprocess.Popen[bytes]"]:
    """zmtpsniff keys, once it waits; ``prefix`` is a command that runs it."""
    command = side.command(*prefix, *ZMTPSNIFF, "keys", *options)
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr
            assert process.stderr.readline() == b"zmtpsniff: waiting for CURVE connections\n"
            yield process
        finally:
            process.terminate()
            process.wait(120)


def run(side: Side, *words: str) -> str:
    done = subprocess.run(side.command(*ZMTPSNIFF, *words), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def texts(records: Sequence[Record]) -> list[str]:
    """The frames of messages, without delimiters."""
    return [octets(record["frames"][-1]).decode() for record in records if record["type"] == "message"]


def talk(*requests: str) -> list[str]:
    return [text for request in requests for text in (request, f"reply to {request}")]


def test_every_message_of_every_pattern(side: Side) -> None:
    with live("-i", "lo", "--max-bytes", "0", "--curve-keys", "auto", prefix=side.command()) as program:
        logs = converse(side, side, "127.0.0.1", UNDER_CURVE)
        program.read_until(closed(len(UNDER_CURVE) + 1, "127.0.0.1"))
        records = program.interrupt()
    check(records, logs, "127.0.0.1", UNDER_CURVE, is_decrypted=True)
    assert wrong(records) == []
    assert placed(program.pid) == []


# Runs a program that sees a copy of pyzmq, with its libraries, where nobody else sees anything: as in a container.
ALONE = """
mount -t tmpfs none "$1" && cp -r "$2/zmq" "$2/pyzmq.libs" "$1" || exit
export PYTHONPATH="$1:$PYTHONPATH"
shift 2
exec "$@"
"""


@pytest.mark.slow
def test_program_in_a_container(side: Side, tmp_path: Path) -> None:
    import zmq

    packages = Path(zmq.__file__).parent.parent
    prefix = ("unshare", "--mount", "sh", "-c", ALONE, "sh", str(tmp_path), str(packages))
    with live("-i", "lo", "--max-bytes", "0", "--curve-keys", "auto", prefix=side.command()) as sniffer:
        with pair(side, prefix=prefix) as running:
            running.ask("inside")
            assert str(tmp_path) in Path(f"/proc/{running.pid}/maps").read_text()
            assert list(tmp_path.iterdir()) == []
            sniffer.read_until(lambda records: "reply to inside" in texts(records))
        records = sniffer.interrupt()
    assert texts(records)[-2:] == talk("inside")


@pytest.mark.slow
def test_keys_then_read_then_one_file(side: Side, tmp_path: Path) -> None:
    capture, file = tmp_path / "capture.pcapng", tmp_path / "keys.txt"
    with keys(side, "-o", str(file)), live("-i", "lo", "-w", str(capture), prefix=side.command()) as program:
        with pair(side) as peers:
            peers.ask("one")
        program.read_until(closed(1, "127.0.0.1"))
        program.interrupt()
        # Of which the first may be that of another program on this machine.
        wait_for(lambda: file.exists() and b"\n" in file.read_bytes())
        wait_for(lambda: texts(read_json("--curve-keys", str(file), str(capture))) == talk("hello", "one"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert texts(read_json(str(capture))) == []
    run(side, "keys", "--into", str(capture), "--curve-keys", str(file))
    assert capture.stat().st_mode & 0o777 == 0o600
    assert texts(read_json(str(capture))) == talk("hello", "one")


@pytest.mark.slow
def test_a_kernel_that_does_not_tell_what_programs_load(side: Side, tmp_path: Path) -> None:
    """Then all programs are looked at now and then, and what a program did until then is in its memory."""
    file, alone = tmp_path / "keys.txt", copied(tmp_path / "copy")
    with keys(side, "-o", str(file), prefix=program(no_perf_events)) as process:
        assert process.stderr
        said = process.stderr.readline()
        assert said.startswith(b"zmtpsniff: the kernel does not tell what programs load (Operation not permitted), ")
        with started(compiled(tmp_path), alone) as peers:
            (key,) = set(MemorySearch([]).connections(peers.pid))
            wait_for(lambda: file.exists() and format_key(key) in file.read_text().splitlines())


@pytest.mark.slow
def test_several_at_once_see_all_keys(side: Side, tmp_path: Path) -> None:
    """Each has probes of its own, which go when it ends, and with kill -9."""
    files = [tmp_path / name for name in ("first", "second", "third")]
    alone, peer = copied(tmp_path / "copy"), compiled(tmp_path)

    def written(key: Key) -> list[bool]:
        return [file.exists() and format_key(key) in file.read_text().splitlines() for file in files]

    with ExitStack() as stack:
        first, *others = [stack.enter_context(keys(side, "-o", str(file))) for file in files]
        helpers = [child_of(process.pid) for process in (first, *others)]
        peers = stack.enter_context(started(peer, alone))
        known: set[Key] = set()
        for left in (3, 2, 1):
            (key,) = set(MemorySearch([]).connections(peers.pid)) - known
            wait_for(lambda: sum(written(key)) >= left)  # noqa: B023
            assert sum(written(key)) == left
            known.add(key)
            if left > 1:
                ended, helper = (first, helpers[0]) if left == 3 else (others[0], helpers[1])
                ended.send_signal(signal.SIGKILL if left == 3 else signal.SIGTERM)
                ended.wait(120)
                wait_for(lambda: placed(helper) == [])  # noqa: B023
                assert placed(helpers[2]) != []
                connect(peers)


def test_live_saves_the_keys_of_its_connections_alone(side: Side, tmp_path: Path) -> None:
    capture = tmp_path / "capture.pcapng"
    options = ["-i", "lo", "-f", f"tcp port {PORT}", "--curve-keys", "auto", "-w", str(capture)]
    with joined_namespaces() as (other, _), live(*options, prefix=side.command()) as program:
        with pair(side) as peers, pair(other) as others:
            peers.ask("one")
            others.ask("another")
        program.read_until(closed(1, "127.0.0.1"))
        program.interrupt()
    assert texts(read_json(str(capture))) == talk("hello", "one")
    assert capture.read_bytes().count(b"CURVE_SHARED_KEY") == 1
    assert b"CURVE_SECRET_KEY" not in capture.read_bytes()


def test_connection_that_is_open_already(side: Side) -> None:
    with pair(side) as peers, live("-i", "lo", "--curve-keys", "auto", prefix=side.command()) as program:
        peers.ask("one")
        peers.ask("two")
        program.read_until(lambda records: texts(records) == talk("one", "two"))
        records = program.interrupt()
    (connection,) = (record for record in records if record["type"] == "connection")
    assert connection["handshake"] == "not-seen"
    assert connection["client"]["process"] == connection["server"]["process"]
    assert connection["client"]["process"]["pid"] == peers.pid


@pytest.mark.parametrize(
    ("where", "handshake"),
    [
        pytest.param(where, handshake, marks=marks, id=f"{where}-{'handshake' if handshake else 'late'}")
        for where, quick in (("sockets", False), ("pid", True), ("core", None))
        for handshake in (True, False)
        for marks in ([] if handshake is quick else [pytest.mark.slow],)
    ],
)
def test_memory_of_programs(side: Side, tmp_path: Path, handshake: bool, where: str) -> None:
    capture, file = tmp_path / "capture.pcapng", tmp_path / "keys.txt"
    saving = live("-i", "lo", "-w", str(capture), prefix=side.command())
    with pair(side) if not handshake else saving as first, saving if not handshake else pair(side) as second:
        peers, sniffer = (second, first) if handshake else (first, second)
        assert isinstance(peers, Pair)
        assert isinstance(sniffer, LiveProgram)
        peers.ask("one")
        sniffer.read_until(lambda records: sum(record.get("name") == "MESSAGE" for record in records) >= 4)
        sniffer.interrupt()
        options = {"sockets": [], "pid": ["--pid", str(peers.pid)], "core": ["--core", str(tmp_path / "core")]}[where]
        if where == "core":
            dump(peers.pid, tmp_path / "core")
        said = run(side, "keys", "-o", str(file), "--capture", str(capture), *options)
    assert "1 key found, of 1 connection" in said
    assert texts(read_json("--curve-keys", str(file), str(capture)))[-2:] == talk("one")


def dump(pid: int, file: Path) -> None:
    """Write a core dump of what a search looks at, as gdb's gcore does."""
    done = subprocess.run(["gcore", "-o", str(file), str(pid)], capture_output=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip("gcore (gdb) is not installed or may not attach")
    file.with_name(f"{file.name}.{pid}").rename(file)


def test_program_that_logs_its_keys_itself(side: Side, tmp_path: Path) -> None:
    """The example of docs/curve.md, in front of a program that is not made for it."""
    (example,) = (block for block in blocks(PROJECT / "docs" / "curve.md") if block.mark("file") == "log_keys.py")
    code = f"{example.text}\nimport runpy; runpy.run_module('{curve_pair.__name__}', run_name='__main__')"
    command = side.command(sys.executable, "-c", code, str(PORT), "1")
    capture = tmp_path / "capture.pcapng"
    with live("-i", "lo", "-w", str(capture), prefix=side.command()) as program:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=120,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )
        assert done.returncode == 0, done.stderr.decode()
        program.read_until(closed(1, "127.0.0.1"))
        program.interrupt()
    file = tmp_path / "keys.txt"
    assert file.stat().st_mode & 0o777 == 0o600
    assert texts(read_json("--curve-keys", str(file), str(capture))) == talk("request 0")


@pytest.mark.slow
def test_wrong_server_key(side: Side) -> None:
    with live("-i", "lo", "--curve-keys", "auto", prefix=side.command()) as program:
        with pair(side, "0", "wrong-key"):
            program.read_until(lambda records: any(record.get("code") == "server-key-wrong" for record in records))
        program.interrupt()


def test_extcap(side: Side, tmp_path: Path) -> None:
    """Wireshark gets what the keys of this machine open."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ["extcap", "--capture", "--interface", "lo", "--auto-keys", "--fifo", str(fifo)]
    with subprocess.Popen(side.command(*ZMTPSNIFF, *words), stderr=subprocess.PIPE) as process:
        try:
            with open(fifo, "rb", buffering=0) as stream:
                got = stream.read(65536)  # the header: it captures by now
                with pair(side) as peers:
                    peers.ask("one")
                    while b"reply to one" not in got:
                        more = stream.read(65536)
                        assert more, got
                        got += more
        finally:
            process.terminate()
            _, said = process.communicate(timeout=120)
    ours = [line for line in said.splitlines() if not re.search(rb"process \d+ ended before", line)]  # another test's
    assert (process.returncode, ours) == (0, [])
    assert [got.count(text.encode()) for text in ("reply to hello", "reply to one", "HELLO")] == [1, 1, 0]


def test_program_that_dies(side: Side) -> None:
    with live("-i", "lo", "--curve-keys", "auto", prefix=side.command()) as program:
        for text in ("one", "two"):
            with pair(side) as peers:
                peers.ask(text)
                peers.process.kill()
        program.read_until(closed(2, "127.0.0.1"))
        records = program.interrupt()
    assert texts(records) == talk("hello", "one", "hello", "two")


@pytest.mark.parametrize("rounds", [30, pytest.param(RECONNECTS, marks=pytest.mark.slow)])
def test_reconnects(side: Side, rounds: int) -> None:
    with live("-i", "lo", "--curve-keys", "auto", "-f", f"tcp port {PORT}", prefix=side.command()) as program:
        with pair(side, str(rounds)):
            program.read_until(closed(rounds, "127.0.0.1"))
        records = program.interrupt()
    assert texts(records) == talk(*(f"request {number}" for number in range(rounds))), program.said()


@pytest.mark.parametrize("number", sampled([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
def test_probes_go_with_whoever_ends_it(side: Side, number: signal.Signals) -> None:
    """Also with kill -9: the helper that placed them sees that it is alone."""
    with keys(side, "-o", os.devnull) as process:
        helper = child_of(process.pid)
        assert placed(helper) != []
        process.send_signal(number)
        process.wait(120)
        wait_for(lambda: placed(helper) == [])


def test_probes_that_a_killed_helper_left_are_removed_at_the_next_start(side: Side) -> None:
    with keys(side, "-o", os.devnull) as process:
        helper = child_of(process.pid)
        assert placed(helper) != []  # not asked once it is killed: then whatever starts may remove them
        os.kill(helper, signal.SIGKILL)
        assert process.wait(120) == 2
    with keys(side, "-o", os.devnull):
        assert placed(helper) == []


def child_of(pid: int) -> int:
    from tests.support.live_program import descendants

    (child,) = descendants(pid)
    return child
