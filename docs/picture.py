"""Makes ``docs/tree.svg``, the README's picture, from what the program really prints."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
CAPTURE = DOCS.parent / "fixtures" / "m31_req_rep.pcap"
COLUMNS = 80  # of most terminals


def draw(target: Path) -> None:
    """Run the first command of the README, and draw what it shows on a terminal."""
    command = [sys.executable, "-m", "zmtpsniff", "read", "--utc", "--color", "always", "-c", "16", str(CAPTURE)]
    terminal, program_side = os.openpty()
    with subprocess.Popen(command, stdout=program_side, env={**os.environ, "COLUMNS": str(COLUMNS)}):
        os.close(program_side)
        output = b""
        with suppress(OSError):  # the program has ended
            while octets := os.read(terminal, 1 << 16):
                output += octets
    os.close(terminal)
    console = Console(record=True, width=COLUMNS, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.from_ansi(output.decode().replace("\r", "").rstrip()), soft_wrap=True)
    svg = console.export_svg(title="zmtpsniff read -c 16 fixtures/m31_req_rep.pcap", unique_id="tree")
    # The fonts that rich names are on a server; those of the reader's machine will do.
    lines = svg.splitlines()
    first = next(number for number, line in enumerate(lines) if "@font-face" in line)
    last = max(number for number, line in enumerate(lines) if "font-weight: 700" in line and number < first + 20)
    del lines[first : last + 2]
    target.write_text("\n".join(lines).replace("Fira Code", "monospace") + "\n")


if __name__ == "__main__":
    draw(DOCS / "tree.svg")
