"""Where things are, and how a module of the tests is run as a program."""

import os
import sys
from pathlib import Path
from types import ModuleType

PROJECT = Path(__file__).parent.parent.parent
FIXTURES = PROJECT / "fixtures"
# Recorded captures with known contents; a checkout has them beside it where they are available.
CAPTURES = Path(os.environ.get("ZMTPSNIFF_CAPTURES", PROJECT.parent / "shared" / "captures"))


def program(module: ModuleType) -> list[str]:
    """The command that runs a module of the tests, from any folder."""
    find = f"import runpy, sys; sys.path.insert(0, {str(PROJECT)!r})"
    return [sys.executable, "-c", f"{find}; runpy.run_module({module.__name__!r}, None, '__main__', True)"]


def fixtures(pattern: str) -> list[Path]:
    """The captures with such names, of which there are some."""
    found = sorted(FIXTURES.glob(pattern))
    assert found, pattern
    return found
