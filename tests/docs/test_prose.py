"""Prose names its subject first: no sentence begins with What, Who, None, Nobody or Somebody, as riddles do.

Questions may. The pages quote three pieces of advice that begin so: records hold these texts, so they stay.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import PROJECT

PARTS = ("benchmarks", "dissectors", "docs", "fixtures", "pages", "tests", "zmtpsniff")
QUOTED = 3
_RIDDLE = re.compile(r"(What|Who|None|Nobody|Somebody)\b|.*\b(of it|go(es)? on)\b")
_BEGINNING = re.compile(r"(What|Who|None|Nobody|Somebody)\b")
_FIRST_LINE = re.compile(r'^ *"""(.+?)(?:"""|$)', re.MULTILINE)  # of a docstring
_NOT_PROSE = re.compile(r"^```.*?^```|^( {4}|[#|<]).*?$", re.MULTILINE | re.DOTALL)


def _sentences(path: Path) -> Iterator[str]:
    """The sentences of a page, without its code, headings and tables."""
    for paragraph in re.split(r"\n\s*\n|^\s*[-*] ", _NOT_PROSE.sub("", path.read_text()), flags=re.MULTILINE):
        yield from re.split(r"(?<=[.:?!]) +", " ".join(paragraph.split()))


def riddles(part: str) -> list[str]:
    """The first lines of docstrings, or the sentences of pages, that are riddles."""
    if part == "pages":
        paths = [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")]
        said, riddle = (one for path in paths for one in _sentences(path)), _BEGINNING
    else:
        said, riddle = (
            (one for path in (PROJECT / part).rglob("*.py") for one in _FIRST_LINE.findall(path.read_text())),
            _RIDDLE,
        )
    return [one for one in said if riddle.match(one) and not one.endswith("?") and one != "What to do:"]


@pytest.mark.parametrize("part", PARTS)
def test_there_are_no_riddles(part: str) -> None:
    found = riddles(part)
    assert len(found) == (QUOTED if part == "pages" else 0), found


@pytest.mark.parametrize("said", ["What to go on from.", "Somebody wants no more of it.", "The reader goes on."])
def test_riddles_are_recognised(said: str) -> None:
    assert _RIDDLE.match(said)
    assert not _RIDDLE.match("The state for a snapshot.")
