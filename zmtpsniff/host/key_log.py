"""The file that keys are written to: for its owner only, a line at once."""

import os
import stat

from zmtpsniff.capture.source import CaptureError


class KeyLog:
    """Lines of keys, added to a file that only its owner may read."""

    def __init__(self, name: str | None) -> None:
        """Open it for adding; None or "-" is standard output. Raises CaptureError."""
        if name is None or name == "-":
            self._descriptor = os.dup(1)
            return
        try:
            self._descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                os.fchmod(self._descriptor, 0o600)  # before a key is in it, if others could read it so far
        except OSError as error:
            raise CaptureError(f"{name}: {error.strerror or error}") from error

    def write(self, line: str) -> None:
        """Add a line; whoever follows the file sees it whole. Raises OSError."""
        os.write(self._descriptor, f"{line}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
