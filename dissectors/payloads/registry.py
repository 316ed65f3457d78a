"""The built-in dissectors of payloads."""

from dissectors.payloads import PayloadDissector
from dissectors.payloads.zap import Zap


def built_in() -> list[PayloadDissector]:
    """A new object of each, so that what one run remembers is not told to another."""
    return [Zap()]
