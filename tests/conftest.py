"""What all tests share: where captures are, and the option that renews golden output."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A machine that does much else may be slow: no test is about how long something takes.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

PROJECT = Path(__file__).parent.parent
FIXTURES = PROJECT / "fixtures"
# Recorded captures with known contents; a checkout has them beside it where they are available.
CAPTURES = Path(os.environ.get("ZMTPSNIFF_CAPTURES", PROJECT.parent / "shared" / "captures"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write the expected output anew instead of comparing")
