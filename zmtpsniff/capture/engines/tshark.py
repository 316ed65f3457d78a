"""tshark, through pyshark, reads what dumpcap captures, or what another tshark captures if dumpcap cannot."""

import array
import fcntl
import re
import select
import subprocess
import termios
from collections.abc import Callable, Generator, Iterator
from io import FileIO

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.engines.engine import EngineMissingError, LiveOptions, Piece, piece_of
from zmtpsniff.capture.engines.guard import GuardedProcess
from zmtpsniff.capture.engines.process import DumpcapEngine
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.capture.tshark_packets import TsharkRun  # now: once privileges are given up it may be out of reach

_UNKNOWN = re.compile("no device named|no such device", re.IGNORECASE)
_FORGET = 500_000  # after so many packets tshark starts anew, since it remembers something of each


class TsharkEngine(DumpcapEngine):
    """dumpcap captures, with its privileges. tshark dissects the packets, with the privileges that we have then.

    Another tshark captures on interfaces that only tshark knows (extcap programs, remote ones), without our
    privileges.
    """

    name = "tshark"

    def __init__(self, options: LiveOptions) -> None:
        """Nothing runs before start()."""
        super().__init__(options)
        self._tshark: TsharkRun | None = None
        self._batches: Iterator[Block] = iter(())
        self._last_words = ""

    def start(self) -> None:
        """Start dumpcap; it has begun to capture once there is something in its pipe."""
        try:
            pipe = self.start_program()  # it looks for tshark, by the name of this engine
        except FileNotFoundError:
            raise EngineMissingError("dumpcap: not installed (apt install tshark)") from None
        if _has_begun(pipe):
            self._batches = self._dissected(pipe)
            return
        self.close()
        refusal = self._refusal()
        if not _UNKNOWN.search(str(refusal)) or not self._are_all_known():
            raise refusal
        self._process = None
        self._stopped = False
        self._batches = self._captured()

    def pieces(self) -> Iterator[Piece]:
        """Yield packets as tshark takes them apart."""
        try:
            for batch in self._batches:
                yield piece_of(batch)
        finally:
            self._end()

    def packets(self, payloads: Iterator[Block]) -> Iterator[Block]:
        """Nothing is left to take apart."""
        return payloads

    def _are_all_known(self) -> bool:
        """Does tshark know all the interfaces, though dumpcap does not?"""
        done = subprocess.run(["tshark", "-D"], capture_output=True, text=True, errors="replace", check=False)
        known = set(re.findall(r"^\d+\. (\S+)", done.stdout, re.MULTILINE))
        return all(name in known or "://" in name for name in self._options.interfaces)

    def _dissected(self, pipe: FileIO) -> Generator[Block, None, None]:
        # -r, not -i, which would keep all packets in a temporary file. If tshark alone has the pipe, dumpcap notices
        # when tshark is gone.
        yield from self._run(["-r", "-"], pipe.fileno(), pipe.close)

    def _captured(self) -> Generator[Block, None, None]:
        # A process of its own, whose guard also ends the extcap program and the dumpcap that tshark starts for it. Such
        # a tshark does not end before they do, and they do not end when it is killed.
        if self._stopped:
            return
        command = self._command()
        # Preferences may be those of an extcap program.
        arguments = [*self._options.tshark_options, "-q", "-w", "-", *command[command.index("-s") :]]
        self._process = GuardedProcess(["tshark", *arguments], stdout=subprocess.PIPE, stderr=self._said)
        pipe = self._process.stdout
        assert isinstance(pipe, FileIO)
        if self._stopped:  # before there was anything to stop
            self._process.stop()
        if _has_begun(pipe):
            yield from self._dissected(pipe)

    def _run(
        self, arguments: list[str], stdin: int, started: Callable[[], None] = lambda: None
    ) -> Generator[Block, None, None]:
        arguments = ["-M", str(_FORGET), *self._options.tshark_options, *arguments]
        title = ", ".join(self._options.interfaces)
        self._tshark = TsharkRun(title, arguments, stdin, self, True, self._options.decrypted)
        try:
            yield from self._tshark.batches(started)
        except CaptureError as error:  # what has come so far is good; the error is reported as the end of any engine
            self._last_words = str(error)

    def _words(self) -> str:
        return self._last_words or super()._words()

    def _read_drops(self) -> None:
        """Read what dumpcap reports at its end: tshark does not pass on the statistics that dumpcap writes."""
        self._said.seek(0)
        counts = re.findall(rb"received/dropped on interface .*: \d+/(\d+)", self._said.read())
        self.dropped = sum(map(int, counts))

    def close(self) -> None:
        """End both; nothing is left of them once pieces() has ended."""
        super().close()
        if self._tshark is not None:
            self._tshark.stop()


def _has_begun(pipe: FileIO) -> bool:
    """Wait until something is in the pipe, without taking it out; False if it is closed instead."""
    select.select([pipe], [], [])
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0] > 0
