"""Python's collector of cycles, made to suit a dissection and a program that ends."""

import gc
import sys


def spare_collector() -> None:
    """Have Python look for cycles less often: events and packets are many, short-lived and in no cycles."""
    gc.set_threshold(100_000, 20, 100)


def dismiss_collector() -> None:
    """Have Python look for no cycles while it ends: that takes a fifth of the time of a small capture.

    What must happen before the end, such as writing what is buffered, must have happened. DuckDB looks at the end for
    objects of its own that are left, and says so at length.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()
