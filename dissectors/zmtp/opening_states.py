"""The states of a side that begins, until frames follow, and what leads from each to the next.

These are the usual way, and the ways of earlier versions. `TRANSITIONS` and `FROM_ANY` have all of them:

    start ─▶ signature ─▶ after signature ─▶ revision ─▶ after revision ─▶ greeting ─▶ after greeting ─▶ frames
    after revision ─▶ socket type ─▶ identity 2.0 ─▶ frames
    after signature ─▶ identity after signature ─▶ frames
    start ─▶ identity 1.0 ─▶ frames
    start ─▶ head ─▶ after head ─▶ frames

In `frames` the greeting is over, or its place in the stream is lost. A side in any state may become `over`: then
nothing more of it is read.
"""

from typing import Literal

State = Literal[
    "start",
    "perhaps start",
    "behind signature",
    "absent",
    "signature",
    "after signature",
    "revision",
    "after revision",
    "greeting",
    "rest of greeting",
    "after greeting",
    "socket type",
    "identity 2.0",
    "identity 1.0",
    "identity after signature",
    "head",
    "after head",
    "frames",
    "over",
]

Cause = Literal[
    "mark",  # it begins with FF
    "length",  # it begins with a length of ZMTP 1.0
    "words",  # it begins like HTTP
    "signature",  # its signature is read
    "versioned",  # the other side has a signature
    "unversioned",  # the other side has none
    "revision",  # its revision is read
    "old",  # the revision of either side is 2 or less
    "new",  # those of both sides are 3 or more
    "frames of 1.0",  # either side speaks 1.0
    "frames of 2.0",
    "greeting",  # its greeting of 64 octets is over
    "identity",  # its identity is read
    "upgrade",  # its HTTP head upgrades to ZWS
    "octets",  # of a side that seemed absent, from the first on
    "octets from anywhere",  # its first ones may be in mid-stream; or a hole came before them
    "hole over signature",  # octets are missing, up to the end of its signature
    "hole over beginning",  # octets are missing, and the rest of a greeting may follow
    "hole in greeting",
    "absence",  # the capture has no packet of it so far
    "end of greeting",  # frames follow, or are searched
    "end",  # nothing more is read
]
"""The reason for a step from a state to the next."""

TRANSITIONS: dict[State, dict[Cause, State]] = {
    "absent": {"octets": "start", "octets from anywhere": "perhaps start"},
    "start": {
        "mark": "signature",
        "length": "identity 1.0",
        "words": "head",
        "octets from anywhere": "perhaps start",
    },
    "perhaps start": {"mark": "signature", "words": "head"},
    "behind signature": {"revision": "socket type", "octets from anywhere": "perhaps start"},
    "signature": {"signature": "after signature", "length": "identity 1.0"},
    "after signature": {"versioned": "revision", "unversioned": "identity after signature", "identity": "frames"},
    "revision": {"revision": "after revision"},
    "after revision": {"new": "greeting", "old": "socket type"},
    "greeting": {"greeting": "after greeting"},
    "rest of greeting": {"greeting": "after greeting"},
    "after greeting": {"end of greeting": "frames"},
    "socket type": {"frames of 2.0": "identity 2.0", "frames of 1.0": "identity 1.0"},
    "identity 2.0": {"identity": "frames"},
    "identity 1.0": {"identity": "frames"},
    "identity after signature": {"identity": "frames"},
    "head": {"upgrade": "after head", "length": "identity 1.0"},
    "after head": {"end of greeting": "frames"},
    "frames": {},
    "over": {},
}
"""The states, and the next one for each cause."""
FROM_ANY: dict[Cause, State] = {
    "hole over signature": "behind signature",
    "hole over beginning": "perhaps start",
    "hole in greeting": "rest of greeting",
    "greeting": "after greeting",
    "absence": "absent",
    "end of greeting": "frames",
    "end": "over",
}
"""The next state for causes that may come in any state: holes, and what the rest of the connection shows."""
NEXT = {state: FROM_ANY | steps for state, steps in TRANSITIONS.items()}
"""The next state for each cause, by the state before it."""
