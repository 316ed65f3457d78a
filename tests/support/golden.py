"""Files of what is expected, which ``--renew-golden`` writes anew."""

from pathlib import Path

import pytest


def hold(request: pytest.FixtureRequest, path: Path, text: str) -> None:
    """Compare a text with that in a file; with the option, write it there first."""
    if request.config.getoption("--renew-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
