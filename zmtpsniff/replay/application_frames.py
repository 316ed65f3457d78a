"""The frames that a socket puts around an application's frames (28/REQREP). When it sends, it puts them there again."""

from collections.abc import Sequence

from dissectors.events import Message
from dissectors.payloads import body_start

_CORRELATION_OCTETS = 4  # of the number in front of the delimiter, with ZMQ_REQ_CORRELATE


def whole_frames(message: Message) -> list[bytes] | None:
    """The frames of a message; None if the capture lacks some octets."""
    frames = [frame for frame in message.frames if isinstance(frame, bytes)]
    return None if message.incomplete or len(frames) != len(message.frames) or not frames else frames


def has_correlation(frames: Sequence[bytes]) -> bool:
    """Whether a REQ socket has numbered its request (ZMQ_REQ_CORRELATE)."""
    return len(frames) > 1 and len(frames[0]) == _CORRELATION_OCTETS and frames[1] == b""


def to_application(socket_type: str, frames: list[bytes]) -> list[bytes]:
    """The frames that an application sent or got, from those of a message on the wire.

    REQ and REP add and remove the envelope themselves. The identity that a ROUTER has in front is not on the wire.
    """
    if socket_type in ("REQ", "REP"):
        return frames[body_start(list(frames)) :] or [b""]
    return frames
