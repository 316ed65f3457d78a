"""Reading a capture behind the screen."""

import threading
import time
from collections.abc import Callable
from functools import partial

from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.browse.index import RecordIndex
from zmtpsniff.browse.packet_store import PacketLog, TappedSource
from zmtpsniff.capture.source import Source
from zmtpsniff.dissection import Dissection
from zmtpsniff.errors import Error

Begin = Callable[[Callable[[Source], Source]], Dissection]
"""Begins a dissection whose packets pass through a function."""


class CaptureReader:
    """Reads a dissection to its end in a thread of its own, and adds its records to an index."""

    def __init__(self, begin: Begin, diagnosis: Diagnosis) -> None:
        """Read the dissection that ``begin`` returns, whose witness is ``diagnosis``.

        Raises what ``begin`` raises, and OSError if there is no room for temporary files.
        """
        self.index = RecordIndex()
        self.packets = PacketLog()
        self.error: str | None = None  # why it ended early, in one line
        self.fault: Exception | None = None  # of ours, if that is why: to be raised where somebody sees it
        self.is_over = False
        self.findings: list[Finding] = []  # once it is over
        self._diagnosis = diagnosis
        self._capture = begin(partial(TappedSource, tap=self.packets.take))
        self._is_stopped = False
        self._progress: float | None = None
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no further; what was read stays."""
        self._is_stopped = True
        self._capture.stop()

    def close(self) -> None:
        """Stop, wait for the thread, and give back files and the room on the disk."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._capture.close()
        self.packets.close()
        self.index.close()

    @property
    def progress(self) -> float | None:
        """Which part of the files has been read, 0 to 1; None where nobody knows."""
        return None if self.is_over else self._progress

    @property
    def dropped(self) -> int:
        """How many packets are known to be lost before they reached us."""
        return self._capture.dropped

    def _read(self) -> None:
        try:
            for events in self._capture.batches():
                if events:
                    self.index.take(events)
                    self._diagnosis.take(events)
                position = self._capture.position
                self._progress = position[0] / position[1] if position is not None and position[1] else None
                if self._is_stopped and position is not None:
                    break
                time.sleep(0)  # for who draws: only one thread of Python runs at a time
            self.findings = self._diagnosis.findings()
        except Error as error:
            self.error = str(error)
        except OSError as error:
            self.error = f"temporary file: {error.strerror or error}; what follows is not read"
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            self.fault = error
        finally:
            self.is_over = True
