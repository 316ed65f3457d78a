"""Python's collector of cycles, made to suit a dissection."""

import gc


def spare_collector() -> None:
    """Have Python look for cycles less often: events and packets are many, short-lived and in no cycles."""
    gc.set_threshold(100_000, 20, 100)
