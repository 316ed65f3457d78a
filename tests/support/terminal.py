"""A terminal for programs to write on."""

import os
import re
import threading


class Terminal:
    """The octets that a program writes on a terminal."""

    def __init__(self, descriptor: int) -> None:
        self.written = b""
        self._descriptor = descriptor
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                octets = os.read(self._descriptor, 65536)
            except OSError:  # nobody has it open any more
                return
            self.written += octets

    def all(self) -> bytes:
        self._reader.join(60)
        return self.written

    def screen(self) -> list[str]:
        """The lines as they stand after all that was erased."""
        lines = [""]
        for part in re.split(r"(\r\n|\r|\x1b\[K)", self.all().decode()):
            if part == "\r\n":
                lines.append("")
            elif part == "\x1b[K":
                lines[-1] = ""
            elif part != "\r":
                lines[-1] += part
        return lines
