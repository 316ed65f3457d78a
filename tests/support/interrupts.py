"""Programs that get Ctrl-C while they wait for more of their standard input."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.live_program import wait_for


def interrupt_at_end(command: Sequence[str], octets: bytes) -> "subprocess.CompletedProcess[bytes]":
    """Run a command, give it ``octets``, interrupt it once it has read them and waits for more."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin
        assert program.stdout
        assert program.stderr
        program.stdin.write(octets)
        program.stdin.flush()
        wait_for(lambda: _waits(program.pid))
        program.send_signal(signal.SIGINT)
        output, errors = program.stdout.read(), program.stderr.read()
        return subprocess.CompletedProcess(command, program.wait(60), output, errors)


def _waits(process: int) -> bool:
    """Whether a process waits in a read of its standard input, which has nothing more."""
    try:
        number, descriptor = Path(f"/proc/{process}/syscall").read_text().split()[:2]
    except (OSError, ValueError):
        return False
    return number in ("0", "63") and descriptor == "0x0"  # read, on x86_64 and on arm64
