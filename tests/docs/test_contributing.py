"""CONTRIBUTING.md says where something new goes, as an example shows that is there, and which tests hold pairs."""

import re
from typing import NamedTuple

import pytest

from tests.support.paths import PROJECT

_MADE = "docs/reference/"  # from the code


class Row(NamedTuple):
    """A kind of thing, and how to add one more."""

    what: str
    places: list[str]
    examples: list[str]  # what to look for in code, and last in pages
    tests: list[str]


def _cells(page: str, name: str) -> list[list[str]]:
    """The cells of a table that stands between two marks."""
    _, _, rest = (PROJECT / page).read_text().partition(f"<!-- {name}: begin -->")
    table, end, _ = rest.partition(f"<!-- {name}: end -->")
    assert end
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]


ROWS = [
    Row(what, *(re.findall(r"`([^`]+)`", cell) for cell in rest)) for what, *rest in _cells("CONTRIBUTING.md", "places")
]
PAIRS = [test for *_, tests in _cells("tests/README.md", "pairs") for test in re.findall(r"`([^`]+)`", tests)]


def _touches(path: str, row: Row) -> bool:
    """Whether the row's example is in a file, or is the file."""
    example = row.examples[-1] if path.endswith(".md") else row.examples[0]
    name = path.removesuffix(".py").replace("/", ".")
    found = re.compile(rf"(?<![\w-]){re.escape(example)}(?![\w-])")
    return bool(found.search(name) or found.search((PROJECT / path).read_text()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_the_example_touches_the_places(row: Row) -> None:
    assert row.places
    assert row.examples
    for place in row.places:
        assert _touches(place, row), f"{row.examples} is not in {place}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_the_example_touches_nothing_else_beside_them(row: Row) -> None:
    """Nothing in the same folders has been forgotten."""
    beside = {path for place in row.places for path in (PROJECT / place).parent.glob("*.py")}
    beside.discard(PROJECT / "docs" / "notebook.py")  # which uses whatever it likes
    touched = {str(path.relative_to(PROJECT)) for path in beside if _touches(str(path.relative_to(PROJECT)), row)}
    assert touched <= set(row.places)
    assert not any(place.startswith(_MADE) for place in row.places)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_the_tests_exist(row: Row) -> None:
    assert row.tests
    for test in row.tests:
        file, _, name = test.partition("::")
        assert f"def {name or 'test_'}" in (PROJECT / file).read_text(), test


@pytest.mark.parametrize("test", PAIRS)
def test_hypothesis_holds_that_a_pair_agrees(test: str) -> None:
    file, _, name = test.partition("::")
    before, found, _ = (PROJECT / file).read_text().partition(f"def {name}(")
    assert found, test
    assert "@given(" in before.rpartition("\n\n\n")[2], test


def test_every_folder_is_on_the_map() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text()
    folders = [path for part in ("dissectors", "zmtpsniff") for path in (PROJECT / part).iterdir() if path.is_dir()]
    assert [path.name for path in folders if path.name != "__pycache__" and f"{path.name}/`" not in text] == []
