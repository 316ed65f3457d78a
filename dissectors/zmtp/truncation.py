"""The end of a side inside a frame or a message, as a problem.

A side may end where it should not: the connection was closed, or the capture ends. A long length of which nearly
nothing came was no length.
"""

from dissectors.events import End
from dissectors.zmtp.buffer import LongBody
from dissectors.zmtp.commands import Fault

# A frame may lack more octets than this, and less than one part in so many of it came. Then its length is taken for
# nonsense.
_PLAUSIBLE_REST = 1 << 30
_NEARLY_NOTHING = 100


def truncation(body: LongBody | None, held: int, frames: int, end: End) -> Fault | None:
    """The problem of a side that ended inside a frame or a message, because of ``end``; None if it did not.

    ``body`` is the body that was being collected. Else ``held`` octets of a frame wait for more, or ``frames`` frames
    are there of a message that is not over.
    """
    ends = "capture-ends-inside" if end == "open" else None
    if body is not None:
        detail = f"{body.left} of the {body.length} octets of a frame's body are missing"
        if body.left > _PLAUSIBLE_REST and body.length - body.left < body.length // _NEARLY_NOTHING:
            return "implausible-length", detail
        return ends or "truncated-frame", detail
    if held:
        return ends or "truncated-frame", f"the last {held} octets are the beginning of a frame"
    if frames:
        return ends or "truncated-message", f"the last message has {frames} frames and no end"
    return None
