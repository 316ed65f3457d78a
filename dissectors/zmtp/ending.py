"""The end of a side: problems of what it leaves unfinished.

A side may end where it should not: the connection was closed, or the capture ends. A long length of which nearly
nothing came was no length.
"""

from dissectors.events import End
from dissectors.zmtp.buffer import LongBody
from dissectors.zmtp.commands import Fault
from dissectors.zmtp.framing import FrameReader
from dissectors.zmtp.half import Half

# A frame may lack more octets than this, and less than one part in so many of it came. Then its length is taken for
# nonsense.
_PLAUSIBLE_REST = 1 << 30
_NEARLY_NOTHING = 100


def report(half: Half, end: End) -> None:
    """Report the unfinished parts of a side, to which no more octets will come because of ``end``."""
    opening, session, journal, buffer = half.opening, half.session, half.journal, half.buffer
    opening.ended = True
    half.search_now()
    if not opening.proven:
        return
    if half.is_absent:
        journal.problem("one-direction", f"no packet of the {half.side} is in the capture")
    if half.lost is not None and (lost := half.lost.searched + buffer.held):
        journal.problem("frames-lost", f"no frames were found in the last {lost} octets of the {half.side}")
    if not opening.greeted:
        if buffer.octets and half.lost is None and not half.stopped:
            half.report_part_of_greeting()
            over = "the connection ended" if end in ("fin", "rst") else "nothing more is in the capture"
            journal.problem("greeting-truncated", f"{over} after {buffer.octets} octets of a greeting")
        return
    reader = half.reader
    if buffer.held and isinstance(reader, FrameReader):
        reader.open()
    inside = half.box_reader.inside
    frames = len(session.parts) or (0 if inside is None else len(inside.parts))
    waiting = buffer.held if half.lost is None else 0
    fault = truncation(None if reader is None else reader.body, waiting, frames, end)
    if fault is not None:
        journal.problem(*fault)
    session.flush(None if reader is None else reader.rest)


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
