"""Python's collector of cycles, tuned for a dissection and for the end of the program."""

import gc
import sys


def spare_collector() -> None:
    """Look for cycles less often: events and packets are many, live shortly and are in no cycles."""
    gc.set_threshold(100_000, 20, 100)


def dismiss_collector() -> None:
    """Look for no cycles at the end of the program: that would take a fifth of the time of a small capture.

    Everything that must happen before the end must have happened, such as writing buffers. DuckDB looks at the end for
    objects of its own that are left, and complains at length.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()
