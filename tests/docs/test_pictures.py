"""The pictures of README and docs are what the program shows, and the scripts that make them work."""

import html
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from docs import browse_picture, picture, report_picture
from tests.support.browser import CHROMIUM, MISSING
from tests.support.paths import PROJECT

DOCS = PROJECT / "docs"


def words(svg: str) -> list[str]:
    """The lines of text in a picture."""
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


@pytest.mark.parametrize(
    ("draw", "name", "maker"),
    [(picture.draw, "tree.svg", "docs/picture.py"), (browse_picture.draw, "browse.svg", "-m docs.browse_picture")],
)
def test_drawings(draw: Callable[[Path], None], name: str, maker: str, tmp_path: Path) -> None:
    draw(tmp_path / name)
    made = words((tmp_path / name).read_text())
    assert made == words((DOCS / name).read_text()), f"python {maker} makes it"
    assert len(made) > 20


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_report(tmp_path: Path) -> None:
    """Fonts differ between machines, so that only its size is compared."""
    report_picture.draw(tmp_path / "report.png")
    made, kept = (path.read_bytes() for path in (tmp_path / "report.png", DOCS / "report.png"))
    for octets in (made, kept):
        assert octets.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">II", octets[16:24]) == (report_picture.WIDTH, report_picture.HEIGHT)
        assert len(octets) < 250_000
    assert len(made) > len(kept) / 2  # something is drawn


@pytest.mark.parametrize("name", ["tree.svg", "browse.svg", "report.png"])
def test_the_readme_shows_it(name: str) -> None:
    assert f"](docs/{name})" in (PROJECT / "README.md").read_text()
