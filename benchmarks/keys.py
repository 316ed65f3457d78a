"""Measure what watching for keys of CURVE costs at rest, and how many keys it finds; write a part of LIVE.md.

    sudo python benchmarks/keys.py [--seconds 60] [--programs 0,100,2000] [--handshakes 500] [--quick]

benchmarks/README.md says what is measured and needed. docs/curve.md gets
the first table, of what it costs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import network
import zmq

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "LIVE.md"
SOURCE = HERE.parent / "tests" / "support" / "curve_once.c"
STATIC = HERE / "work" / "keys" / "static"
BEGIN = "<!-- keys: to the end of the page -->"
PRICES = HERE.parent / "docs" / "curve.md"
PRICES_BEGIN, PRICES_END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
SETTLED_S = 20.0  # after a start, and after programs have come
PATIENCE_S = 5.0  # that a program keeps its connection open for whoever looks for its key
COPIES = 50
STARTS = 50  # programs a second
QUICK_PART = 10

SLEEPERS = """
import os, signal, ssl, sys, zmq
for _ in range(int(sys.argv[1])):
    if not os.fork():
        signal.pause()
print(flush=True)
signal.pause()
"""
PAIR = """
import sys, zmq
context, (public, secret) = zmq.Context(), zmq.curve_keypair()
context.rcvtimeo, context.linger = 20_000, 0
server, client = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
server.curve_server, server.curve_secretkey = True, secret
client.curve_serverkey = public
client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
client.connect(f"tcp://127.0.0.1:{server.bind_to_random_port('tcp://127.0.0.1')}")
client.send(b"hello")
assert server.recv() == b"hello"
print("done", flush=True)
sys.stdin.read()
"""

Kind = tuple[str, Callable[[Path], "tuple[list[str], dict[str, str]]"]]
"""The title of a program, and what makes a copy in a folder: its command, and its environment."""


class Watched:
    """A command of zmtpsniff that runs, with all its processes, from its beginning to the end of the ``with`` block."""

    def __init__(
        self, command: list[str], said: Path, settled: float, output: IO[bytes] | int = subprocess.DEVNULL
    ) -> None:
        """Start it; it has settled after so many seconds."""
        self._settled = settled
        self._command = command
        self._said = said
        with said.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=output, stderr=errors)

    def __enter__(self) -> Watched:
        """Wait until it has settled."""
        time.sleep(self._settled)
        if self._process.poll() is not None:
            raise SystemExit(f"{Path(sys.argv[0]).name}: {shlex.join(self._command)}: {self._said.read_text()}")
        return self

    def __exit__(self, *_: object) -> None:
        """End it, however the measurement ended."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cost(self, meanwhile: Callable[[], object]) -> tuple[float, float]:
        """The share of a core that it takes, and its wake-ups a second, until ``meanwhile`` returns."""
        before, began = self._spent(), time.monotonic()
        meanwhile()
        after, took = self._spent(), time.monotonic() - began
        return (after[0] - before[0]) / took, (after[1] - before[1]) / took

    def memory_mib(self) -> float:
        """The memory that all its processes have, the kernel's ring of packets with it."""
        pids = {task.parts[2] for task in self._tasks()}
        rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
        return sum(int(rollup.partition("\nPss:")[2].split()[0]) for rollup in rollups) / 1024

    def _spent(self) -> tuple[float, int]:
        """Processor seconds and voluntary switches of all its threads."""
        seconds, switches = 0.0, 0
        for task in self._tasks():
            with contextlib.suppress(OSError):
                seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
                (line,) = (line for line in (task / "status").read_text().splitlines() if line.startswith("voluntary"))
                switches += int(line.split()[1])
        return seconds, switches

    def _tasks(self) -> Iterator[Path]:
        pids = [self._process.pid]
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
                yield task


@contextlib.contextmanager
def sleepers(count: int) -> Iterator[None]:
    """So many Python programs that have imported zmq and ssl, and sleep."""
    if not count:
        yield
        return
    command = [sys.executable, "-c", SLEEPERS, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """Programs that take all the processors they get."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def starting(watched: Watched, seconds: float) -> tuple[float, float]:
    """The cost of a command while 50 programs a second start."""
    starts = (
        "import os, time\nwhile True:\n    os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)\n    time.sleep(%f)"
    )
    with subprocess.Popen([sys.executable, "-c", starts % (1 / STARTS)]) as starter:
        try:
            return watched.cost(lambda: time.sleep(seconds))
        finally:
            starter.kill()


def of_pyzmq(folder: Path) -> tuple[list[str], dict[str, str]]:
    """A Python program with a copy of pyzmq."""
    packages = Path(zmq.__file__).parent.parent
    for name in ("zmq", "pyzmq.libs"):
        shutil.copytree(packages / name, folder / name)
    return [sys.executable, "-c", PAIR], {"PYTHONPATH": str(folder)}


def of_c(folder: Path) -> tuple[list[str], dict[str, str]]:
    """A program in C with copies of libzmq and of libsodium."""
    for file in (Path(zmq.__file__).parent.parent / "pyzmq.libs").iterdir():
        shutil.copy(file, folder)
    (libzmq,) = folder.glob("libzmq-*")
    program = folder.parent / "dynamic"
    if not program.exists():
        subprocess.run(["cc", "-o", program, SOURCE, libzmq, "-Wl,--allow-shlib-undefined"], check=True)
    return [str(program)], {"LD_LIBRARY_PATH": str(folder)}


def of_static_c(folder: Path) -> tuple[list[str], dict[str, str]]:
    """A program in C with libzmq and libsodium of Debian linked into it, each time another file."""
    return [shutil.copy(str(STATIC), str(folder))], {}


def link_statically() -> None:
    """Link that program, unless it is there; needs the network. Raises OSError, CalledProcessError."""
    if STATIC.exists():
        return
    packages = STATIC.parent
    packages.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "-qq", "download", "libzmq3-dev", "libsodium-dev"], cwd=packages, check=True)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, packages], check=True)
    archives = [next(packages.glob(f"usr/lib/*/{name}.a")) for name in ("libzmq", "libsodium")]
    others = ["-l:libgssapi_krb5.so.2", "-l:libnorm.so.1", "-l:libpgm-5.3.so.0", "-l:libbsd.so.0", "-lpthread"]
    subprocess.run(["g++", "-o", STATIC, "-x", "c", SOURCE, "-x", "none", *archives, *others], check=True)


KINDS: tuple[Kind, ...] = (
    ("pyzmq", of_pyzmq),
    ("C, libsodium linked dynamically", of_c),
    ("C, libsodium linked statically", of_static_c),
)


def handshakes(zmtpsniff: list[str], kind: Kind, count: int, loops: int, settled: float) -> tuple[int, int]:
    """How many programs had their key found, and how many of the others were told, of so many one after the other."""
    with tempfile.TemporaryDirectory() as name, busy(loops):
        folder = Path(name)
        keys, said = folder / "keys", folder / "said"
        keys.touch()
        copies = []
        for number in range(min(count, COPIES)):
            (folder / str(number)).mkdir()
            copies.append(kind[1](folder / str(number)))
        found = 0
        with Watched([*zmtpsniff, "keys", "-o", str(keys)], said, settled):
            for number in range(count):
                command, environment = copies[number * len(copies) // count]
                found += _is_found(command, environment, keys)
        return found, said.read_text().count(" ended before ")


def _is_found(command: list[str], environment: dict[str, str], keys: Path) -> bool:
    """Whether the key of a program's connection comes while the program has it in its memory."""
    before = keys.stat().st_size
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        if process.stdout.readline() != b"done\n":
            raise OSError(f"{command[0]} does not connect")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with keys.open("rb") as file:
                file.seek(before)
                lines = file.read().splitlines()
            if any(_has(process.pid, bytes.fromhex(line.split()[-1].decode())) for line in lines):
                return True
            time.sleep(0.01)
    return False


def _has(pid: int, key: bytes) -> bool:
    """Whether a process has a key in its memory."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            bounds, rights = line.split()[:2]
            if rights.startswith("rw"):
                begin, end = (int(bound, 16) for bound in bounds.split("-"))
                with contextlib.suppress(OSError, ValueError, OverflowError):
                    memory.seek(begin)
                    if key in memory.read(end - begin):
                        return True
    return False


def report(zmtpsniff: list[str], counts: list[int], seconds: float, count: int, settled: float) -> str:
    """Measure all, each ``settled`` seconds after its start, and say it in tables."""
    lines = [
        f"Measured on {datetime.date.today()}, Python {platform.python_version()}, Linux {platform.release()}, "
        f"{os.cpu_count()} cores. Processor time as a share of one core, and wake-ups a second, of all processes of "
        f"the command together, {seconds:g} s each while nothing happens.",
        "",
        f"| Beside Python programs that sleep | {' | '.join(f'{number:,}' for number in counts)} |",
        f"| :-- |{' --: |' * len(counts)}",
    ]
    with tempfile.TemporaryDirectory() as name:
        said, keys = Path(name) / "said", str(Path(name) / "keys")
        live = [*zmtpsniff, "live", "-i", "lo", "-T", "json"]
        for title, command in (
            ("keys", [*zmtpsniff, "keys", "-o", keys]),
            ("live --curve-keys auto", [*live, "--curve-keys", "auto"]),
            ("live", live),
        ):
            cells = []
            for number in counts:
                with sleepers(number), Watched(command, said, settled) as watched:
                    share, wakes = watched.cost(lambda: time.sleep(seconds))
                cells.append(f"{share:.2%}, {wakes:.1f}")
                print(title, number, cells[-1], file=sys.stderr, flush=True)
            lines.append(f"| `{title}` | {' | '.join(cells)} |")
        with Watched([*zmtpsniff, "keys", "-o", keys], said, settled) as watched:
            share, wakes = starting(watched, seconds)
    lines += [
        "",
        f"`keys` beside {STARTS} starts of `/bin/true` a second: {share:.2%}, {wakes:.1f} wake-ups a second.",
        "",
        f"Keys found of {count} programs, one after the other, with {min(count, COPIES)} copies of the library that "
        "nobody has seen before. Each connects at once, and keeps its connection until its key is found, for at most "
        f"{PATIENCE_S:g} s.",
        "",
        "| Program | Found | Beside two busy loops a core |",
        "| :-- | --: | --: |",
    ]
    for kind in KINDS:
        cells = []
        for loops in (0, 2 * (os.cpu_count() or 1)):
            try:
                found, told = handshakes(zmtpsniff, kind, count, loops, settled)
                cells.append(f"{found} of {count}{f', {told} told' if found < count else ''}")
            except (OSError, subprocess.CalledProcessError) as reason:
                cells.append(f"not measured: {reason}")
            print(kind[0], loops, cells[-1], file=sys.stderr, flush=True)
        lines.append(f"| {kind[0]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print, and write the part of LIVE.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = shlex.quote(str(Path(sys.executable).with_name("zmtpsniff")))
    parser.add_argument("--zmtpsniff", default=beside, metavar="COMMAND", help="default: the one of this Python")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="of each measurement (default: 60)")
    parser.add_argument("--programs", default="0,100,2000", metavar="N,...", help="that sleep (default: 0,100,2000)")
    parser.add_argument("--handshakes", type=int, default=500, metavar="N", help="default: 500")
    parser.add_argument("--quick", action="store_true", help="a tenth of it; LIVE.md stays as it is")
    options = parser.parse_args()
    # If it fails, the table says what is missing.
    with contextlib.suppress(OSError, subprocess.CalledProcessError, StopIteration):
        link_statically()
    try:
        network.enter()
    except network.NoNetworkError as reason:
        print(f"keys.py: {reason}", file=sys.stderr)
        return 1
    part = QUICK_PART if options.quick else 1
    text = report(
        shlex.split(options.zmtpsniff),
        [int(number) for number in options.programs.split(",")],
        options.seconds / part,
        options.handshakes // part,
        SETTLED_S / part,
    )
    print(text)
    if not options.quick:
        write(text)
    return 0


def part(page: str) -> str:
    """The tables in LIVE.md."""
    return page[page.index(BEGIN) :] if BEGIN in page else ""


def write(text: str) -> None:
    """Put the tables into LIVE.md, and the first one, what it costs, into the page on CURVE."""
    page = RESULTS.read_text().removesuffix(part(RESULTS.read_text())).rstrip()
    RESULTS.write_text(f"{page}\n\n{BEGIN}\n\n**Keys of CURVE**, written by `benchmarks/keys.py`. {text}\n")
    table = text.split("\n\n")[1]
    before, _, rest = PRICES.read_text().partition(PRICES_BEGIN)
    after = rest.partition(PRICES_END)[2]
    PRICES.write_text(f"{before}{PRICES_BEGIN}\n\n{table}\n\n{PRICES_END}{after}")


if __name__ == "__main__":
    sys.exit(main())
