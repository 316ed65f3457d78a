"""Makes ``docs/report.png``, the picture of the page of ``zmtpsniff report``, from a real capture, with Chromium.

python docs/report_picture.py
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
CAPTURE = DOCS.parent / "fixtures" / "systems" / "broker_sleeps.pcap.gz"
WIDTH, HEIGHT = 1180, 900
_DRAWN_MS = 6000  # of virtual time: scripts have drawn by then
_PATIENCE = 120.0  # seconds


def draw(target: Path) -> None:
    """Report the capture, and write what Chromium shows first of the page."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("there is no chromium here: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        report = [
            sys.executable,
            "-m",
            "zmtpsniff",
            "report",
            "--title",
            "Orders that wait",
            str(CAPTURE),
        ]
        subprocess.run([*report, "-o", str(page)], check=True, capture_output=True)
        command = [
            chromium, "--headless=new", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
            f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={target}",
            f"--virtual-time-budget={_DRAWN_MS}", "--host-resolver-rules=MAP * ~NOTFOUND", page.as_uri(),
        ]  # fmt: skip
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # which root cannot have
        subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE)


if __name__ == "__main__":
    draw(DOCS / "report.png")
