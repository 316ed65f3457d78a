"""A program of the tests that tells when it stood still: ``python -m tests.support.ticker MODULE ARGUMENT...``.

The program is a module of the tests. A thread beside it wakes up again and again. Where that is late, the machine let
the program wait, or all programs, and replies of that moment came late although no program is slow. A line on standard
error tells each such time.
"""

import os
import re
import runpy
import sys
import threading
import time

_TICK_NS = 10_000_000
_LATE_NS = 100_000_000  # so late, a reply is slow


class StandstillError(Exception):
    """The machine let a program stand still for so long that it seemed silent to others, as it was."""


def longest_ms(errors: bytes) -> int:
    """The longest time for which a program stood still, as its standard error tells; 0 if it did not."""
    return max(map(int, re.findall(rb"^stood still for (\d+) ms$", errors, re.MULTILINE)), default=0)


def _tick() -> None:
    last_ns = time.monotonic_ns()
    while True:
        time.sleep(_TICK_NS / 1e9)
        now_ns = time.monotonic_ns()
        if (late_ns := now_ns - last_ns - _TICK_NS) > _LATE_NS:
            os.write(2, b"stood still for %d ms\n" % (late_ns // 1_000_000))  # the program may end at any time
        last_ns = now_ns


if __name__ == "__main__":
    del sys.argv[0]
    threading.Thread(target=_tick, daemon=True).start()
    runpy.run_module(sys.argv[0], None, "__main__", True)
