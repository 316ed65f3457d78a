"""Frames of a side that takes turns with the other one, which is known to be ZMTP; the capture lacks the beginning.

Small replies look like frames nearly everywhere: in ``01 00 00 02 o k`` each small number may be flags. So a chain of
them proves little. Turns prove more. A sender that speaks once more after each message of the other side begins a
message there, and small messages end with their segments. If all octets chain so, they are what they seem to be.
"""

from itertools import pairwise

from dissectors.events import UNBOUNDED
from dissectors.zmtp.resync import Discovery, Window

# So many segments, each sent after something new of the other side, are enough. If the user names the port, one is: it
# waits only for the side that spoke first, whose first segment answers nothing that is in the capture.
_FEW_TURNS = 3
_NAMED_TURNS = 1
_MOST_FRAMES = 4096  # that are looked at


def find(octets: bytes, starts: list[int], seen: list[int], framing: int, named: bool) -> Discovery | None:
    """The frames in all that a side has sent, None if turns do not prove them.

    ``starts`` are offsets at which its segments begin, the first at 0; ``seen`` says up to which offset of its stream
    the sender of each segment had seen the other side; ``framing`` is that of the connection, 0 if unknown; ``named``
    says that it is ZMTP because the user says so.
    """
    if len(starts) != len(seen) or seen[-1] == UNBOUNDED:
        return None
    answers = [before < after for before, after in pairwise([0, *seen])]
    if sum(answers) < (_NAMED_TURNS if named else _FEW_TURNS) or not (framing or len(seen) > 1):
        return None
    framings = [one for one in ((framing,) if framing else (2, 1)) if _chains(octets, starts, one)]
    if len(framings) != 1:
        return None
    return Discovery(0, framings[0], 0.0, 0 if all(answers) else 1)


def _chains(octets: bytes, starts: list[int], framing: int) -> bool:
    """Whether all segments are whole messages, and none of these is empty: other protocols have zeros."""
    frames = Window(octets, starts, framing).frames(0, _MOST_FRAMES)
    if not frames or any(frame.begin == frame.following and not frame.more for frame in frames):
        return False
    ends = {frame.following for frame in frames if not frame.more}
    return ends.issuperset(starts[1:]) and frames[-1].following == len(octets) and not frames[-1].more
