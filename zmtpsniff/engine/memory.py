"""The memory of the program, tuned for a dissection: Python's collector of cycles, and freed memory."""

import gc
import sys

_KEPT = 16 << 20  # octets; many times what becomes of one block of packets


def spare_collector() -> None:
    """Look for cycles less often: events and packets are many, live shortly and are in no cycles."""
    gc.set_threshold(100_000, 20, 100)


def keep_freed_memory() -> None:
    """Keep freed memory: the next block of packets needs as much, and to get it again, page by page, takes long.

    Raises NativeError if the user insists on the native core, and there is none.
    """
    from zmtpsniff.native import core

    if core is not None:
        core.keep_freed(_KEPT)


def dismiss_collector() -> None:
    """Look for no cycles at the end of the program: that would take a fifth of the time of a small capture.

    Everything that must happen before the end must have happened, such as writing buffers. DuckDB looks at the end for
    objects of its own that are left, and complains at length.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()
