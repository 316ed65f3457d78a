"""Makes ``docs/tree.svg``, the README's picture, from what the program really prints."""

import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
CAPTURE = DOCS.parent / "fixtures" / "m31_req_rep.pcap"
LINES = 22


def draw(target: Path) -> None:
    """Run ``zmtpsniff read`` and draw the beginning of its output."""
    command = [sys.executable, "-m", "zmtpsniff", "read", "--utc", "--color", "always", str(CAPTURE)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    console = Console(record=True, width=122, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.from_ansi("\n".join(output.splitlines()[:LINES])), soft_wrap=True)
    svg = console.export_svg(title="zmtpsniff read fixtures/m31_req_rep.pcap", unique_id="tree")
    # The fonts that rich names are on a server; those of the reader's machine will do.
    lines = svg.splitlines()
    first = next(number for number, line in enumerate(lines) if "@font-face" in line)
    last = max(number for number, line in enumerate(lines) if "font-weight: 700" in line and number < first + 20)
    del lines[first : last + 2]
    target.write_text("\n".join(lines).replace("Fira Code", "monospace") + "\n")


if __name__ == "__main__":
    draw(DOCS / "tree.svg")
