"""Ctrl-C while the program starts."""

import os
import signal
import subprocess
import sys
from pathlib import Path

# Stands in for click, the first of the modules that take time to be imported, and is interrupted meanwhile.
INTERRUPTED = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def test_an_interrupt_while_modules_are_imported_makes_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(INTERRUPTED)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-m", "zmtpsniff", "--version"], capture_output=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_who_ignores_interrupts_goes_on_doing_so(tmp_path: Path) -> None:
    """As in the background of a script."""
    at_end = "lambda: print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    (tmp_path / "sitecustomize.py").write_text(f"{INTERRUPTED}; import atexit; atexit.register({at_end})")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    script = 'trap "" INT; exec "$0" -m zmtpsniff --version'
    done = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == b"True"
