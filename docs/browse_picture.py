"""Makes ``docs/browse.svg``, the picture of ``zmtpsniff browse``, from what it really shows of a capture."""

import asyncio
import re
from pathlib import Path

from tests.support.browsing import browsing, make_reader
from zmtpsniff.browse.options import BrowseOptions

DOCS = Path(__file__).parent
CAPTURE = DOCS.parent / "fixtures" / "m31_req_rep.pcap"


async def _draw() -> str:
    look = BrowseOptions("fixtures/m31_req_rep.pcap", utc=True, theme="dark")
    async with browsing(make_reader(CAPTURE), (110, 34), look) as shown:
        await shown.press(*["j"] * 4, "tab", *["j"] * 10)
        return shown.app.export_screenshot(title="zmtpsniff browse fixtures/m31_req_rep.pcap", simplify=True)


def main() -> None:
    """Look at the first request, at its second frame."""
    svg = asyncio.run(_draw())
    # The fonts that rich names are on a server; those of the reader's machine will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "monospace")
    svg = re.sub(r"terminal-\d+", "browse", svg)
    (DOCS / "browse.svg").write_text(svg.rstrip() + "\n")


if __name__ == "__main__":
    main()
