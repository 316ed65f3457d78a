"""Chromium without a window: what a page looks like to it, and what its scripts complain about."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "there is no chromium here: apt-get install chromium"
_VIRTUAL_MS = 5000


class OpenedPage(NamedTuple):
    """A page after its scripts have run."""

    html: str
    console: list[str]  # what it says on the console, errors and violations of its policy among it


def open_page(page: Path, profile: Path, width: int = 1280, height: int = 20_000) -> OpenedPage:
    """Open a file; ``profile`` is an empty folder for the browser's own files."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless=new", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
        f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--virtual-time-budget={_VIRTUAL_MS}",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", page.resolve().as_uri(),
    ]  # fmt: skip
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")  # which root cannot have
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return OpenedPage(done.stdout, re.findall(r"CONSOLE.*", done.stderr))
