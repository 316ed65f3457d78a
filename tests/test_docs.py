"""Documentation that is made from the code says what the code says."""

import re

import pytest
from conftest import PROJECT

from dissectors.problems import PROBLEMS

PROBLEMS_PAGE = PROJECT / "docs" / "problems.md"


def _problems_page() -> str:
    lines = [
        "# Problem codes",
        "",
        "Each `problem` record has one of these codes, which do not change their meaning. `error` is against the",
        "protocol or means that octets are lost; `warning` is allowed, but something is wrong; `note` is normal, but",
        "worth knowing.",
        "",
        "| code | severity | what was seen | what it means, what to do |",
        "| :-- | :-- | :-- | :-- |",
    ]
    lines += [f"| `{code}` | {kind.severity} | {kind.meaning} | {kind.advice} |" for code, kind in PROBLEMS.items()]
    return "\n".join(lines) + "\n"


def test_problems_page(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--renew-golden"):
        PROBLEMS_PAGE.write_text(_problems_page())
    assert PROBLEMS_PAGE.read_text() == _problems_page()


def test_links_lead_somewhere() -> None:
    for page in [*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md"), *PROJECT.glob("*/README.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page}: {target}"
