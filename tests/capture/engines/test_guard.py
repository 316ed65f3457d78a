"""Programs that capture for us end with us, whenever that is."""

import signal
import subprocess
import sys

from tests.support.live_program import running, wait_for
from zmtpsniff.capture.engines.guard import uninterrupted

# In a process of its own: in this one other code may have the signal, or take what it raises.
INTERRUPTED = """
import signal, subprocess
from zmtpsniff.capture.engines.guard import GuardedProcess

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
popen = subprocess.Popen

def start(*arguments, **options):
    process = popen(*arguments, **options)
    print(process.pid, flush=True)
    subprocess.Popen = popen
    signal.raise_signal(signal.SIGINT)
    return process

subprocess.Popen = start
try:
    GuardedProcess(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_between_the_program_and_its_guard() -> None:
    """It comes when the guard is there, who ends the program."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True, timeout=60)
    pid, said = done.stdout.split()
    assert said == "interrupted"
    wait_for(lambda: running([int(pid)]) == [])


def test_signals_are_as_before_afterwards() -> None:
    came: list[int] = []
    numbers = [signal.SIGTERM, signal.SIGHUP]
    before = [signal.signal(number, lambda number, _: came.append(number)) for number in numbers]
    try:
        with uninterrupted():
            for number in numbers:
                signal.raise_signal(number)
            assert came == []
        assert came == numbers
        signal.raise_signal(signal.SIGHUP)
        assert came == [*numbers, signal.SIGHUP]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
