"""Headers of frames: what was written is read, wherever octets are cut, and the reader's loop reads no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import AnyEvent
from dissectors.zmtp import resync
from dissectors.zmtp.buffer import Buffer
from dissectors.zmtp.frame_headers import read_v1, read_v2
from dissectors.zmtp.framing import FrameReader
from dissectors.zmtp.journal import Journal
from dissectors.zmtp.limits import Limits
from dissectors.zmtp.security import Security
from dissectors.zmtp.session import Session
from tests.world.events import frames_of
from tests.world.octets import LONG, frame, frame_v1

FRAMINGS = {1: (read_v1, frame_v1), 2: (read_v2, frame)}
bodies = st.sampled_from((0, 1, 252, 253, 254, 255, 256, 70_000)).map(bytes)
headers = st.tuples(st.sampled_from((0, 0, 1, 1, 2, 3, 4, 0x7E, 0xFF)), st.sampled_from((0, 1, 2, 5, 0xFF)))
octets_like_frames = st.lists(st.binary(max_size=6) | headers.map(bytes) | st.just(bytes(7) + b"\1\1" + bytes(255)))


@pytest.mark.parametrize("framing", FRAMINGS)
@given(before=st.binary(max_size=3), flags=st.integers(0, 1), body=bodies, data=st.data())
def test_a_header_is_read_as_it_was_written(
    framing: int, before: bytes, flags: int, body: bytes, data: st.DataObject
) -> None:
    read, encode = FRAMINGS[framing]
    octets = before + encode(body, flags)
    begin = len(octets) - len(body)
    size = begin - len(before)
    wanted = flags | (LONG if framing == 2 and size > 2 else 0), begin, len(body)
    assert read(octets, len(before)) == wanted
    cut = data.draw(st.integers(1, size))
    assert read(octets[: len(before) + cut], len(before)) == (wanted if cut == size else size)


def plain(framing: int, octets: bytes) -> list[list[bytes]]:
    """The whole messages up to the first octets that the reader's loop leaves to others."""
    position, parts, found = 0, [], []
    while position < len(octets):
        header = FRAMINGS[framing][0](octets, position)
        if isinstance(header, int):
            break
        flags, begin, length = header
        if (framing == 2 and flags > 3) or length < 0 or begin + length > len(octets):
            break
        position = begin + length
        parts.append(octets[begin:position])
        if not flags & 1:
            found.append(parts)
            parts = []
    return found


@pytest.mark.parametrize("framing", FRAMINGS)
@given(pieces=octets_like_frames, size=st.integers(1, 400))
def test_the_hot_loop_reads_as_plain_headers_say(framing: int, pieces: list[bytes], size: int) -> None:
    octets, out = b"".join(pieces), list[AnyEvent]()
    security = Security()
    security.skip()
    buffer = Buffer()
    reader = FrameReader(buffer, Session(Journal(out, 1, "a:1", "b:2"), "client", security, Limits(0)), framing)
    for begin in range(0, len(octets), size):
        whole = buffer.add(octets[begin : begin + size])
        if whole is not None:
            buffer.run(reader.read, whole)
    found = frames_of(out)
    wanted = plain(framing, octets)
    assert found[: len(wanted)] == wanted


@pytest.mark.parametrize("framing", FRAMINGS)
@given(pieces=octets_like_frames)
def test_a_window_follows_frames_as_their_headers_say(framing: int, pieces: list[bytes]) -> None:
    octets = b"".join(pieces) or b"\0"
    for place in range(len(octets)):
        for one in resync.Window(octets, [0], framing).frames(place, 4):
            assert resync.read_header(octets, one.place, framing) == one[1:] or len(octets) - one.place < 2
