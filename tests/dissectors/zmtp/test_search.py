"""A search for frames by itself: windows, pauses between them, holes."""

from random import Random

import pytest

from dissectors.events import UNBOUNDED
from dissectors.zmtp import search as module
from dissectors.zmtp.buffer import Buffer
from dissectors.zmtp.resync import Discovery
from dissectors.zmtp.search import Search
from tests.world.octets import frame


def never(octets: bytes, found: Discovery) -> bool:
    raise AssertionError("nobody has to judge a connection that is known")


def fed(search: Search, buffer: Buffer, octets: bytes, size: int = 1448) -> int | None:
    """Give octets to a search, segment by segment; returns where in all of them frames were found."""

    def read(data: bytes, position: int) -> int:
        is_over = search.discovery is not None or search.hopeless
        return position if is_over else search.read(data, position)

    for begin in range(0, len(octets), size):
        search.begin_with(begin, 1, begin, UNBOUNDED)
        if buffer.held:
            search.segment(buffer.held, begin, 1, begin, UNBOUNDED)
        whole = buffer.add(octets[begin : begin + size])
        if whole is not None:
            buffer.run(read, whole)
        if search.discovery is not None:
            return search.searched + search.discovery.offset
    return None


def test_frames_are_held_against_who_knows_more() -> None:
    """Where nothing is known of a connection."""
    asked: list[int] = []

    def judge(octets: bytes, found: Discovery) -> bool:
        asked.append(found.offset)
        return len(asked) > 2

    buffer = Buffer()
    search = Search(buffer, judge)
    assert fed(search, buffer, b"".join(frame(b"abcdefghij" * 9) for _ in range(200)), 500) == 0
    assert asked == [0, 0, 0]


def test_what_can_be_anything_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_WINDOW_LIMIT", 4096), ("_SEARCH_LIMIT", 8192), ("_GIVE_UP_LIMIT", 20_000)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "_MOST_BETWEEN", 4096)
    buffer = Buffer()
    search = Search(buffer, never)
    assert fed(search, buffer, b"\xee" * 200_000) is None
    assert search.hopeless
    buffer = Buffer()
    search = Search(buffer, never, 2, known=True)
    assert fed(search, buffer, b"\xee" * 200_000) is None
    assert not search.hopeless  # the connection is ZMTP, so frames will come


def test_missing_octets_make_no_pause() -> None:
    """The longer is searched in vain, the more lies between two windows; what is missing was not searched."""
    random = Random(1)
    frames = b"".join(frame(random.randbytes(random.randrange(20, 200))) for _ in range(30))
    buffer = Buffer()
    search = Search(buffer, never, 2, known=True)
    assert fed(search, buffer, random.randbytes(200)) is None
    search.skip(1 << 30)
    assert fed(search, buffer, frames) is not None


def test_it_knows_how_long_its_sender_has_been_silent() -> None:
    search = Search(Buffer(), never)
    search.begin_with(0, 1, 0, 7)
    for place, seen in enumerate((7, 7), 1):
        search.segment(place, place, place, place, seen)
    assert search.silence == 2
    for place, seen in enumerate((8, 8), 3):
        search.segment(place, place, place, place, seen)
    assert search.silence < 0
    assert search.starts == [0, 1, 2, 3, 4]


def test_it_knows_which_segment_brought_what_is_held() -> None:
    """Also of those whose first octets are done with."""
    buffer = Buffer()
    search = Search(buffer, never, 2, known=True)
    octets = b"\xee" * 200_000
    assert fed(search, buffer, octets, 1000) is None
    assert 0 < search.searched < 200_000
    held = buffer.content
    pieces = search.pieces(held, 10)
    assert b"".join(piece[0] for piece in pieces) == held[10:]
    for data, time_ns, _, begin, _ in pieces:
        assert time_ns == begin
        assert len(data) <= 1000
    assert pieces[0][3] <= search.searched + 10
    assert [piece[3] for piece in pieces[1:]] == list(range(pieces[0][3] + 1000, 200_000, 1000))


def test_tiny_segments_do_not_cost_memory_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours become one, known as late as the second and as early as the first."""
    monkeypatch.setattr(module, "_MOST_SEGMENTS", 1000)
    buffer = Buffer()
    search = Search(buffer, never, 2, known=True)
    assert fed(search, buffer, b"\xee" * 20_000, 1) is None
    assert len(search.segments) <= 1000
    pieces = search.pieces(buffer.content, 0)
    assert b"".join(piece[0] for piece in pieces) == buffer.content
    end = search.searched
    for data, time_ns, _, begin, _ in pieces:
        assert begin == end
        end += len(data)
        assert time_ns == end - 1
