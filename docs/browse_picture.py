"""Makes ``docs/browse.svg``, the picture of ``zmtpsniff browse``, from what it really shows of a capture.

python -m docs.browse_picture
"""

import asyncio
import os
import re
from pathlib import Path
from unittest.mock import patch

from tests.support.browse_terminal import browsing, make_reader
from zmtpsniff.browse.browse_options import BrowseOptions

DOCS = Path(__file__).parent
CAPTURE = DOCS.parent / "fixtures" / "m31_req_rep.pcap"


async def _screen() -> str:
    look = BrowseOptions("fixtures/m31_req_rep.pcap", utc=True, theme="dark")
    async with browsing(make_reader(CAPTURE), (80, 34), look) as shown:
        await shown.press(*["j"] * 4)
        await shown.until(lambda: shown.app.view.list_pane.cursor == 4)
        await shown.press("tab", *["j"] * 10)
        await shown.until(lambda: shown.app.view.tree_pane.cursor == 10)
        return shown.app.export_screenshot(title="zmtpsniff browse fixtures/m31_req_rep.pcap", simplify=True)


def draw(target: Path) -> None:
    """Look at the first request, at its second frame."""
    with patch.dict(os.environ):
        os.environ.pop("NO_COLOR", None)
        svg = asyncio.run(_screen())
    # The fonts that rich names are on a server; those of the reader's machine will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "monospace")
    svg = re.sub(r"terminal-\d+", "browse", svg)
    target.write_text(svg.rstrip() + "\n")


if __name__ == "__main__":
    draw(DOCS / "browse.svg")
