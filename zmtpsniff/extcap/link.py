"""A program in Wireshark's folder for extcap programs that is zmtpsniff."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from zmtpsniff.errors import Error, naming

_ASK_SECONDS = 30.0
_WORDS = "-P -m zmtpsniff extcap"  # -P: runs this zmtpsniff, whatever is in the folder that Wireshark runs in


def personal_folder() -> Path:
    """The folder in which Wireshark looks for this user's extcap programs. Raises Error if Wireshark has none.

    tshark knows it. Without tshark, it is the folder of Wireshark 4.2 and later.
    """
    if os.environ.get("WIRESHARK_EXTCAP_DIR"):
        return Path(os.environ["WIRESHARK_EXTCAP_DIR"])
    if shutil.which("tshark"):
        try:
            asked = subprocess.run(
                ["tshark", "-G", "folders"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise Error("tshark does not say its folders; name one with --folder") from None
        folders = dict(line.partition(":")[::2] for line in asked.stdout.splitlines())
        if personal := folders.get("Personal Extcap path"):
            return Path(personal.strip())
        if common := folders.get("Extcap path"):
            raise Error(
                f"this Wireshark has no folder for extcap programs of a user: give --folder {common.strip()} as root"
            )
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", ""), "Wireshark", "extcap")
    return Path.home() / ".local/lib/wireshark/extcap"


def link(folder: Path) -> Path:
    """Write a program that calls zmtpsniff, and return its name. Raises Error if that cannot be done.

    A file that an earlier call wrote is written anew; any other file stays.
    """
    if sys.platform == "win32":
        path = folder / "zmtpsniff.bat"
        text = f'@"{sys.executable}" {_WORDS} %*\n'
    else:
        path = folder / "zmtpsniff"
        text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {_WORDS} "$@"\n'
    with naming(str(path)):
        folder.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and _WORDS.encode() not in path.read_bytes()):
            raise Error(f"{path}: there is something else of this name")
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    return path
