"""How many examples hypothesis takes of a test."""

import os

EXPLORES = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
"""Whether hypothesis takes other examples each time, as ``.ci/run`` does."""

_SHARE = 4


def examples(count: int) -> int:
    """As many as that when hypothesis explores, a quarter of them otherwise, which are the same ones each time.

    More of the same examples find nothing that they did not find yesterday.
    """
    return count if EXPLORES else max(5, count // _SHARE)
