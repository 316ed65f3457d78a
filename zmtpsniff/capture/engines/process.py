"""dumpcap and tcpdump. Each captures in a process of its own, which has the privilege, and sends us a stream."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from io import FileIO
from typing import Any

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.engines.engine import HOW_TO_BE_ALLOWED, EngineMissingError, LiveOptions, Piece, PrivilegeError
from zmtpsniff.capture.engines.guard import PIPE_OCTETS, GuardedProcess
from zmtpsniff.capture.engines.pipe_cutter import Cutter
from zmtpsniff.capture.files import open_stream
from zmtpsniff.capture.source import CaptureError, Fault, Interruption

_DENIED = re.compile("permission|not permitted|don't have", re.IGNORECASE)
_CHATTER = re.compile(
    r"Capturing on|File:|Packets (captured|received)|See the User's Guide|listening on|$"
    r"|Running as user|\*\* \(tshark:|tshark:$|\d+ packets? (captured|received by filter|dropped by)"
)
_LONGEST = 131_072  # octets of a packet on a loopback interface, with room to spare
_TIMES_BUFFER = 2
_QUEUE_MIB = 64
_ENOUGH_SAID = 65_536  # octets of reports


class ProcessEngine:
    """Runs a capture program that writes a capture file to its standard output."""

    name = ""  # of the program

    def __init__(self, options: LiveOptions) -> None:
        """Nothing runs before start()."""
        self.dropped = 0
        self.failure: str | None = None
        self.faults: list[Fault] = []
        self.interruptions: list[Interruption] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []
        self._options = options
        self._process: GuardedProcess | None = None
        # A pipe that nobody reads could block the program.
        self._said = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._beginning = b""
        self._pipe: FileIO | None = None
        self._cutter: Cutter
        self._stopped = False

    def _command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Start the program; it has begun to capture once it has written the beginning of a file."""
        pipe = self.start_program()
        self._beginning = pipe.read(PIPE_OCTETS) or b""
        try:
            self._cutter = Cutter(self._beginning)
        except ValueError:
            self.close()
            raise self._refusal() from None
        self._pipe = pipe

    def start_program(self) -> FileIO:
        """Start the program and return the pipe that it writes to."""
        if shutil.which(self.name) is None:
            raise EngineMissingError(f"{self.name}: not installed (apt install tshark, or tcpdump)")
        self._process = GuardedProcess(self._command(), stdout=subprocess.PIPE, stderr=self._said)
        pipe = self._process.stdout
        assert isinstance(pipe, FileIO)
        return pipe

    def _refusal(self) -> CaptureError:
        """Why the program ended before it captured anything, in its own words."""
        words = self._words()
        if _DENIED.search(words):
            return PrivilegeError(HOW_TO_BE_ALLOWED)
        return CaptureError(f"{self.name}: {words or 'it ended at once'}")

    def _words(self) -> str:
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        lines = [line.strip().removeprefix(f"{self.name}: ") for line in said.splitlines()]
        return " ".join(line for line in lines if not _CHATTER.match(line))

    def pieces(self) -> Iterator[Piece]:
        """Yield what the program writes, whole records only."""
        assert self._pipe is not None
        try:
            octets = self._beginning
            while octets:
                piece = self._cutter.feed(octets)
                if piece is not None:
                    yield piece
                octets = self._pipe.read(PIPE_OCTETS) or b""
            piece = self._cutter.finish()
            if piece is not None:
                yield piece
        finally:
            self._end()

    def packets(self, payloads: Iterator[Any]) -> Iterator[Block]:
        """Read the capture file that the program writes."""
        return open_stream(", ".join(self._options.interfaces), payloads, self)

    def _end(self) -> None:
        """End the program if it has not ended itself, which is a failure."""
        ended_itself = not self._stopped
        self.close()
        self._read_drops()
        if ended_itself:
            words = self._words()
            self.failure = f"{self.name} ended" + (f": {words}" if words else "")
            self.faults.append(Fault("capture-ended", f"the capture ended early: {self.failure}"))

    def count_drops(self) -> None:
        """The program cannot be asked before its end."""

    def _read_drops(self) -> None:
        """Read the number of dropped packets, if the program does not write it into the capture."""

    def stop(self) -> None:
        """Ask the program to end."""
        self._stopped = True
        if self._process is not None:
            self._process.stop()

    def close(self) -> None:
        """End the program and all its processes, with force if it does not obey."""
        self._stopped = True
        if self._process is not None:
            self._process.close()


class DumpcapEngine(ProcessEngine):
    """Wireshark's capture process. It keeps packets for up to 250 ms, in all versions, so that it wakes up seldom."""

    name = "dumpcap"

    def _command(self) -> list[str]:
        options = self._options
        command = ["dumpcap", "-q", "-w", "-"]
        if len(options.interfaces) > 1:
            # Then it has a queue of its own, which by default holds only 1,000 packets or 1 MB.
            command += ["-C", str(_QUEUE_MIB << 20)]
        command += ["-s", str(options.snaplen), "-B", str(options.buffer_mib)]
        if not options.promiscuous:
            command.append("-p")
        if options.capture_filter:
            command += ["-f", options.capture_filter]
        for interface in options.interfaces:
            command += ["-i", interface]
        return command


class TcpdumpEngine(ProcessEngine):
    """tcpdump, if dumpcap is not installed. It captures on one interface.

    Without its immediate mode it keeps packets for a second. With that mode each packet takes as much of the buffer as
    the longest one might, so the buffer must be large.
    """

    name = "tcpdump"

    def start(self) -> None:
        """Start tcpdump, if there is only one interface."""
        if len(self._options.interfaces) > 1:
            raise EngineMissingError("tcpdump captures on one interface only; install dumpcap (apt install tshark)")
        super().start()

    def _command(self) -> list[str]:
        options = self._options
        command = ["tcpdump", "-U", "--immediate-mode", "-w", "-", "-i", options.interfaces[0]]
        command += ["-s", str(min(options.snaplen, _LONGEST)), "-B", str(options.buffer_mib * _TIMES_BUFFER << 10)]
        if not options.promiscuous:
            command.append("-p")
        return [*command, options.capture_filter] if options.capture_filter else command

    def count_drops(self) -> None:
        """Read what it reported last, and ask it to report anew."""
        if self._process is not None and not self._stopped:
            self._read_drops()
            self._process.ask_for_report()

    def _read_drops(self) -> None:
        self._said.seek(0)
        said = self._said.read()
        numbers = re.findall(rb"(\d+) packets? dropped by kernel", said)
        if numbers:
            self.dropped = int(numbers[-1])
        if len(said) > _ENOUGH_SAID:
            self._said.truncate(0)
