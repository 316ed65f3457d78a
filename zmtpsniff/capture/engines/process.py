"""dumpcap and tcpdump: they capture in a process of their own, which has the privilege, and stream to us."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from io import FileIO

from zmtpsniff.capture.engines import EngineMissingError, LiveOptions, PrivilegeError
from zmtpsniff.capture.files import open_stream
from zmtpsniff.capture.source import CaptureError, Fault, Packet

_DENIED = re.compile("permission|not permitted|don't have", re.IGNORECASE)
_STOP_SECONDS = 5.0
_LONGEST = 131_072  # octets of a packet on a loopback interface, with room to spare
_TIMES_BUFFER = 8
_HOW_TO_BE_ALLOWED = (
    "no permission to capture: run it with sudo, or allow dumpcap to you "
    "(apt install tshark; dpkg-reconfigure wireshark-common; adduser YOU wireshark; log in again)"
)


class ProcessEngine:
    """Runs a capture program that writes a capture file to its standard output."""

    name = ""  # of the program

    def __init__(self, options: LiveOptions) -> None:
        """Nothing runs before start()."""
        self.dropped = 0
        self.faults: list[Fault] = []
        self.comments: list[str] = []
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        # A pipe that nobody reads could block the program.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._batches: Iterator[list[Packet]] = iter(())

    def _command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """Start the program; it has begun to capture once it has written the beginning of a file."""
        if shutil.which(self.name) is None:
            raise EngineMissingError(f"{self.name}: not installed (apt install tshark, or tcpdump)")
        # A session of its own, so that Ctrl-C ends us first and we end it: then no packet is lost in between.
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
            bufsize=0,
        )
        pipe = self._process.stdout
        assert isinstance(pipe, FileIO)
        try:
            self._batches = open_stream(", ".join(self._options.interfaces), pipe, self)
        except CaptureError:
            self.stop()
            raise self._refusal() from None

    def _refusal(self) -> CaptureError:
        """Why the program ended before it captured anything, in its own words."""
        words = self._words()
        if _DENIED.search(words):
            return PrivilegeError(_HOW_TO_BE_ALLOWED)
        return CaptureError(f"{self.name}: {words or 'it ended at once'}")

    def _words(self) -> str:
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        lines = [line.strip().removeprefix(f"{self.name}: ") for line in said.splitlines()]
        chatter = re.compile(r"Capturing on|File:|Packets (captured|received)|See the User's Guide|listening on|$")
        return " ".join(line for line in lines if not chatter.match(line))

    def batches(self) -> Iterator[list[Packet]]:
        """Yield packets as the program writes them."""
        yield from self._batches
        self.stop()
        self._read_drops()

    def _read_drops(self) -> None:
        """Read the number of packets dropped where the program says it only at its end."""

    def stop(self) -> None:
        """End the program, with force if it does not obey; none of it is left."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class DumpcapEngine(ProcessEngine):
    """Wireshark's capture process; before version 4.2 it keeps packets for up to a quarter of a second."""

    name = "dumpcap"

    def _takes_interval(self) -> bool:
        said = subprocess.run([self.name, "--help"], capture_output=True, text=True, check=False)
        return "--update-interval" in said.stdout + said.stderr

    def _command(self) -> list[str]:
        options = self._options
        # The interval is how long packets may wait in the kernel; by default that is over 100 ms.
        command = ["dumpcap", "-q", "-w", "-"]
        if self._takes_interval():
            command += ["--update-interval", "20"]
        command += ["-s", str(options.snaplen), "-B", str(options.buffer_mib)]
        if not options.promiscuous:
            command.append("-p")
        if options.capture_filter:
            command += ["-f", options.capture_filter]
        for interface in options.interfaces:
            command += ["-i", interface]
        return command


class TcpdumpEngine(ProcessEngine):
    """tcpdump, where dumpcap is not installed; it captures on one interface.

    Without its immediate mode it keeps packets for a second; with it each packet takes as much of the buffer as the
    longest might, so the buffer must be large and packets are not taken longer than they come.
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

    def _read_drops(self) -> None:
        self._said.seek(0)
        match = re.search(rb"(\d+) packets? dropped by kernel", self._said.read())
        self.dropped = int(match[1]) if match else 0
