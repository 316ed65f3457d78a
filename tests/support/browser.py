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
_NARROWEST = 500  # a window that Chromium makes


class OpenedPage(NamedTuple):
    """A page after its scripts have run."""

    html: str
    console: list[str]  # what it says on the console, errors and violations of its policy among it


def open_page(page: Path, profile: Path, width: int = 1280, height: int = 20_000) -> OpenedPage:
    """Open a file; ``profile`` is a folder to make, for the browser's own files."""
    assert CHROMIUM is not None
    profile.mkdir()
    if width < _NARROWEST:
        page = _framed(page, profile / "frame.html", width, height)
    command = [
        CHROMIUM, "--headless=new", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
        f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--virtual-time-budget={_VIRTUAL_MS}",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files", "--dump-dom",
        page.resolve().as_uri(),
    ]  # fmt: skip
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")  # which root cannot have
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return OpenedPage(done.stdout, re.findall(r"CONSOLE.*", done.stderr))


def _framed(page: Path, frame: Path, width: int, height: int) -> Path:
    """A page that has the other one in a frame of that width, and in the end what has become of it as its own."""
    frame.write_text(
        f'<iframe id="frame" src="{page.resolve().as_uri()}" width="{width}" height="{height}"></iframe>\n'
        "<script>setTimeout(() => { document.documentElement.innerHTML = "
        f'document.getElementById("frame").contentDocument.documentElement.innerHTML; }}, {_VIRTUAL_MS - 1000});'
        "</script>\n"
    )
    return frame
