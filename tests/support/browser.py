"""Chromium without a window: what a page looks like to it, and what its scripts complain about."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "there is no chromium here: apt-get install chromium"
_DRAWN_MS = 2500  # after which a page that has been loaded is drawn
_VIRTUAL_MS = 30_000


class OpenedPage(NamedTuple):
    """A page after its scripts have run."""

    html: str
    console: list[str]  # what it says on the console, errors and violations of its policy among it


def open_page(page: Path, profile: Path, width: int = 1280, height: int = 20_000, then: str = "") -> OpenedPage:
    """Open a file as a page so wide; ``profile`` is a folder to make, for the browser's own files.

    The page is in a frame of another one, since no window is as narrow as a telephone. When it has been drawn, the
    script ``then`` has its window as ``page``.
    """
    assert CHROMIUM is not None
    profile.mkdir()
    frame = profile / "frame.html"
    # All times are the page's own, which stand still while something loads: however long that takes, the page has been
    # drawn before it is used, and has done what it was asked to before it is read.
    frame.write_text(
        "<script>\nfunction use() {\n  const frame = document.getElementById('frame');\n"
        f"  setTimeout(() => {{ const page = frame.contentWindow; {then} }}, {_DRAWN_MS});\n"
        "  setTimeout(() => { const root = frame.contentDocument.documentElement; document.documentElement.innerHTML = "
        "root.innerHTML; "
        "for (const { name, value } of root.attributes) document.documentElement.setAttribute(name, value); "
        f"}}, {2 * _DRAWN_MS});\n}}\n</script>\n"
        f'<iframe id="frame" src="{page.resolve().as_uri()}" onload="use()" width="{width}" height="{height}"></iframe>'
    )
    command = [
        CHROMIUM, "--headless=new", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
        f"--user-data-dir={profile}", f"--window-size={max(width + 50, 500)},{height}",
        f"--virtual-time-budget={_VIRTUAL_MS}", "--host-resolver-rules=MAP * ~NOTFOUND",
        "--allow-file-access-from-files", "--dump-dom", frame.resolve().as_uri(),
    ]  # fmt: skip
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")  # which root cannot have
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return OpenedPage(done.stdout, re.findall(r"CONSOLE.*", done.stderr))
