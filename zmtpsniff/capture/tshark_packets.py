"""Packets that tshark dissects, through pyshark, for headers below TCP that only Wireshark knows.

tshark finds the innermost TCP segment of each packet, whatever it is wrapped in; reassembly and dissection stay ours.
This module imports pyshark, so it is imported only once the engine is wanted; that raises
EngineMissingError if pyshark is not installed.
"""

import asyncio
import contextlib
import re
import shutil
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from io import FileIO
from subprocess import DEVNULL

import msgspec

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.engines.engine import EngineMissingError
from zmtpsniff.capture.file_octets import CORRUPT, CUT_SHORT
from zmtpsniff.capture.merge import merged
from zmtpsniff.capture.plaintexts import Plaintexts
from zmtpsniff.capture.source import CaptureError, Fault, SourceState, refuse_twice
from zmtpsniff.capture.tshark_fields import FIELDS, TLS_FIELDS, LineReader, NoCaptureError
from zmtpsniff.errors import naming

try:
    import pyshark.capture.capture  # type: ignore[import-untyped]
    from packaging.version import Version  # which pyshark needs
    from pyshark.tshark.tshark import TSharkNotFoundException  # type: ignore[import-untyped]
except ModuleNotFoundError as error:  # packages of distributions may do without it
    raise EngineMissingError(f"--engine tshark: needs the Python package {error.name} (pip install pyshark)") from None

_STOP_SECONDS = 5.0
_CHUNK = 256 << 10  # octets read at a time, at most
# lines of standard error to keep: the first say what is wrong, and a week of warnings must not fill memory
_KEPT_WORDS = 64

# Our flows put segments in order; in tshark that would take most of its time, which grows with the square of a long
# connection, and memory without end.
_NOT_ITS_WORK = (
    "tcp.desegment_tcp_streams:FALSE",
    "tcp.analyze_sequence_numbers:FALSE",
    "tcp.calculate_timestamps:FALSE",
)
# These preferences decide which segments there are, so they overrule the user's own.
_NEEDED = ("ip.defragment:TRUE", "ipv6.defragment:TRUE", "ip.tso_support:TRUE", "ipv6.tso_support:TRUE")
# Options for TLS: a record may be of several segments, in any order. tshark shows what it decrypts as data, unless it
# takes it for something that it knows, by port or looks; zmtpsniff wants the octets (WebSocket begins as HTTP).
_FOR_TLS = (
    *("-o", "tcp.desegment_tcp_streams:TRUE", "-o", "tcp.analyze_sequence_numbers:TRUE"),
    *("-o", "tcp.reassemble_out_of_order:TRUE", "-o", "tcp.try_heuristic_first:TRUE"),
    *("-o", "tls.desegment_ssl_records:TRUE", "-o", "tls.desegment_ssl_application_data:FALSE"),
    *("-d", "tls.port==1-65535,data"),
    *(word for name in ("http", "http2", "fix", "mq", "rdpmt", "credssp") for word in ("--disable-protocol", name)),
)
_OPTION = re.compile(r"(?P<rule>[\w.]+==[^,]+,.+)|(?P<preference>[\w.-]+:.*)", re.DOTALL)


def parse_option(text: str) -> list[str]:
    """Turn ``NAME:VALUE``, a preference, or ``LAYER==SELECTOR,PROTOCOL``, a decode-as rule, into arguments of tshark.

    Raises ValueError if it is neither.
    """
    match = _OPTION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: must be NAME:VALUE or LAYER==SELECTOR,PROTOCOL, as for tshark's -o and -d")
    return ["-d" if match["rule"] else "-o", text]


class _Process(pyshark.capture.capture.Capture):  # type: ignore[misc]  # pyshark has no types
    """A tshark that pyshark finds and starts.

    pyshark's own packets take several times as long as tshark itself (benchmarks/tshark_engine.py), so it is asked
    for the few fields that are needed, and its lines are read here. pyshark chooses the form ``ek`` and tshark allows
    no second one; ``fields`` would be a little faster, but there several values of a field run together.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        # An event loop of our own: that of pyshark would belong to the main thread.
        super().__init__(eventloop=asyncio.new_event_loop(), use_ek=True, custom_parameters=list(arguments))
        self.words: list[str] = []
        self.process: asyncio.subprocess.Process | None = None

    def _get_tshark_version(self) -> Version:
        """Answer without asking tshark, which takes 0.2 s: all that are left know ``ek`` (2.2)."""
        return Version("2.2.0")

    def _get_tshark_path(self) -> str:
        try:
            path: str = super()._get_tshark_path()
        except PermissionError:  # pyshark's config.ini, which it seeks here and beside its code, may be out of reach
            path = shutil.which("tshark") or ""
        if not path:
            raise TSharkNotFoundException
        return path

    async def _handle_process_stderr_forever(self, stderr: asyncio.StreamReader) -> None:
        """Keep the messages of tshark. pyshark keeps only the last line, which may be a caret."""
        while line := await stderr.readline():
            if len(self.words) < _KEPT_WORDS:
                self.words.append(line.decode(errors="replace").rstrip())

    async def start(self, stdin: int) -> None:
        """Start tshark with the file descriptor ``stdin`` as its standard input."""
        self.process = await self._get_tshark_process(stdin=stdin)

    async def read(self) -> bytes:
        """The octets that it has written, b"" at its end."""
        assert self.process is not None
        assert self.process.stdout is not None
        return await self.process.stdout.read(_CHUNK)

    async def stop(self) -> int:
        """End it if it runs, with force if it does not obey; returns its exit status. No process is left."""
        assert self.process is not None
        for end in (self.process.terminate, self.process.kill):
            if self.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    end()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.process.wait(), _STOP_SECONDS)
        return await self.finish()

    async def finish(self) -> int:
        """Wait for its end; returns its exit status."""
        assert self.process is not None
        status = await self.process.wait()
        await asyncio.gather(*self._stderr_handling_tasks)
        return status

    def __del__(self) -> None:
        """Do nothing; pyshark would use the loop, which is closed."""


class TsharkRun(msgspec.Struct, eq=False):
    """One run of tshark over one capture."""

    _title: str  # the name of the capture in faults
    _arguments: Sequence[str]  # say what to read
    _stdin: int
    _source: SourceState  # gets faults
    _must_end_well: bool = False  # an error of tshark's is raised even after packets
    _decrypted: Plaintexts | None = None  # gets what is decrypted of TLS; None, which takes less time: nothing is
    _process: _Process | None = None
    _stopped: bool = False

    def batches(self, started: Callable[[], None] = lambda: None) -> Generator[Block, None, None]:
        """Yield packets as tshark writes them; ``started`` is called once it has its standard input.

        Raises CaptureError if tshark ends with an error before its first packet, EngineMissingError if it is not there.
        """
        process = _Process([*_arguments(self._decrypted is not None), *self._arguments])
        run = process.eventloop.run_until_complete
        reader = LineReader(self._decrypted)
        try:
            try:
                with _deaf_to_interrupts():
                    run(process.start(self._stdin))
            except (TSharkNotFoundException, FileNotFoundError) as error:
                raise EngineMissingError("tshark: not installed (apt install tshark)") from error
            except OSError as error:
                raise CaptureError(f"tshark: it cannot be started ({error.strerror or error})") from error
            self._process = process
            started()
            if self._stopped:  # before there was anything to stop
                self.stop()
            while chunk := run(process.read()):
                if packets := reader.feed(chunk):
                    yield Block.of(packets)
            status = run(process.finish())
            self._judge(status, process.words, reader.packets)
        except NoCaptureError:
            raise CaptureError(f"{self._title}: not a capture file that tshark knows") from None
        except msgspec.DecodeError as error:
            raise CaptureError(f"{self._title}: the output of tshark cannot be understood ({error})") from error
        finally:
            self._process = None
            self._source.faults += reader.faults(self._title)
            _close(process)

    def stop(self) -> None:
        """End tshark; may be called from any thread. batches() then ends with what it had written."""
        self._stopped = True
        process = self._process
        if process is not None and process.process is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                process.eventloop.call_soon_threadsafe(_terminate, process.process)

    def _judge(self, status: int, words: list[str], packets: int) -> None:
        """Report an exit status other than 0 as a fault, or as an error if there was no packet."""
        if status == 0 or self._stopped:
            return
        what = _said(words) or (f"tshark was ended by signal {-status}" if status < 0 else f"tshark failed ({status})")
        cut = "cut short" in what
        if self._must_end_well or not (packets or cut):
            raise CaptureError(f"{self._title}: {what}")
        self._source.faults.append(Fault(CUT_SHORT if cut else CORRUPT, f"{self._title}: {what}"))


class TsharkFiles(SourceState):
    """Capture files of every format that tshark knows, as one source of packets; made by open_with_tshark()."""

    def __init__(self, names: Sequence[str], options: Sequence[str], decrypted: Plaintexts | None = None) -> None:
        """``options`` are arguments of tshark; what it decrypts of TLS goes to ``decrypted``."""
        super().__init__()
        self._runs = [
            TsharkRun(_title(name), [*options, "-r", name], 0 if name == "-" else DEVNULL, self, False, decrypted)
            for name in names
        ]

    def batches(self) -> Iterator[Block]:
        """Yield the packets: of one file in its order, of several merged by time."""
        with contextlib.ExitStack() as stack:
            files = [run.batches() for run in self._runs]
            for file in files:
                stack.callback(file.close)
            yield from files[0] if len(files) == 1 else merged(files, self.interruptions)

    def close(self) -> None:
        """Do nothing: tshark runs no longer than batches() does."""


def open_with_tshark(
    names: Sequence[str], options: Sequence[str] = (), decrypted: Plaintexts | None = None
) -> TsharkFiles:
    """Name capture files, ``-`` for standard input, that tshark shall read; ``options`` are its arguments.

    Octets that it decrypts from TLS go to ``decrypted``; None: it decrypts nothing.

    Raises CaptureError for a file that cannot be opened. batches() tells what tshark says against a file.
    """
    refuse_twice(names)
    for name in names:
        try:
            with naming(_title(name), CaptureError), FileIO(0, closefd=False) if name == "-" else FileIO(name) as file:
                if file.isatty():
                    raise CaptureError(f"{_title(name)}: a terminal, not a capture file")
        except ValueError as error:  # a name that no file can have
            raise CaptureError(f"{_title(name)!r}: {error}") from error
    return TsharkFiles(names, options, decrypted)


def _title(name: str) -> str:
    return "standard input" if name == "-" else name


def _arguments(for_tls: bool) -> list[str]:
    out = [argument for preference in (*_NOT_ITS_WORK, *_NEEDED) for argument in ("-o", preference)]
    out += ["--disable-protocol", "zmtp", *(_FOR_TLS if for_tls else ())]
    fields = (*FIELDS, *TLS_FIELDS) if for_tls else FIELDS
    return out + [argument for field in fields for argument in ("-e", field)]


def _said(words: list[str]) -> str:
    """The line in which tshark says what is wrong."""
    said = next((line for line in words if line.startswith("tshark: ")), "")
    return re.sub(r'^tshark: (The file ".*?" )?', "", said).rstrip(".")


def _terminate(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


def _close(process: _Process) -> None:
    """End the process and its loop, whatever state they are in."""
    loop = process.eventloop
    if process.process is not None:
        loop.run_until_complete(process.stop())
    for task in asyncio.all_tasks(loop):  # a read that an interrupt broke off
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """A program started here does not get Ctrl-C: we get it, and end the program once we have read all its output."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
