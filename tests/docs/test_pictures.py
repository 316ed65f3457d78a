"""The pictures of README and docs are what the program shows, and the scripts that make them work."""

import html
import re
import struct
from pathlib import Path

import pytest

from docs import browse_picture, picture, report_picture
from tests.support.browser import CHROMIUM, MISSING
from tests.support.paths import PROJECT

DOCS = PROJECT / "docs"


def words(svg: str) -> list[str]:
    """The lines of text in a picture."""
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def test_the_tree(tmp_path: Path) -> None:
    picture.draw(tmp_path / "tree.svg")
    made = words((tmp_path / "tree.svg").read_text())
    assert made == words((DOCS / "tree.svg").read_text()), "python docs/picture.py makes it"
    assert len(made) > 20


def test_browse(tmp_path: Path) -> None:
    browse_picture.draw(tmp_path / "browse.svg")
    made = words((tmp_path / "browse.svg").read_text())
    assert made == words((DOCS / "browse.svg").read_text()), "python -m docs.browse_picture makes it"
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
