"""The versions of Python that the package is for, and where they are."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.support.paths import PROJECT

PACKAGE: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
_NAME = "Programming Language :: Python :: 3."
PYTHONS = tuple(name.rpartition(" ")[2] for name in PACKAGE["classifiers"] if name.startswith(_NAME))


def find_python(version: str) -> str | None:
    """A Python of this version: the one that runs, one in the path, or one of pyenv's."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    candidates = [shutil.which(f"python{version}")]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += [str(path / "bin" / "python") for path in sorted(versions.glob(f"{version}.*"))]
    for candidate in filter(None, candidates):
        asked = subprocess.run([candidate, "-c", "import venv, ssl"], capture_output=True, check=False)
        if asked.returncode == 0:
            return candidate
    return None
